"""The artifacts of a manifest, and how it lists them: grouped by folder, kind and schema, column by column.

A corpus of 50,000 documents has more than ten thousand artifacts. Their list is written by each build and parsed
whenever a snapshot is opened. So values that a folder's artifacts share are listed once, and `Artifact` objects are
created on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, overload

from pydantic import (
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from indexmill.store.canonical import canonical_json
from indexmill.store.record import READING, Digest, Name, Record, Word, first_problem

if TYPE_CHECKING:
    import pyarrow as pa

_Label = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})*)?$")
]

_Size = Annotated[int, Field(ge=0)]


class Artifact(Record):
    """A named blob of a snapshot: a Parquet table, a pack of arrays, or a plain file."""

    name: Name
    kind: Literal["table", "arrays", "file"]
    digest: Digest
    bytes: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=0)] | None = None
    schema_: JsonValue = Field(default=None, alias="schema")
    """For a table, the list from `describe_table`. For arrays, the dtype and shape by name, as in `Pack.schema`."""

    def has_column(self, name: str) -> bool:
        """Return True for a table with a column of this name."""
        fields = self.schema_ if isinstance(self.schema_, list) else []
        return any(isinstance(field, dict) and field.get("name") == name for field in fields)


class ArtifactGroup(Record):
    """Artifacts of one folder, kind and schema, column by column: one group of a manifest's listing.

    An artifact is named `<folder>/<label>`, or `<folder>` if its label is empty.
    """

    folder: Word
    kind: Literal["table", "arrays", "file"]
    schema_: JsonValue = Field(default=None, alias="schema")
    """The schema of each artifact; with `lengths`, a null stands for a length that differs between artifacts."""
    labels: Annotated[list[_Label], Field(min_length=1)]
    digests: list[Digest]
    bytes: list[_Size]
    rows: list[_Size | None] | None = None
    lengths: list[list[_Size]] | None = None
    """A column for each null in the schema, in the order of the arrays' names and axes."""

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        columns: list[Sequence[object]] = [self.digests, self.bytes, *(self.lengths or [])]
        if self.rows is not None:
            columns.append(self.rows)
        if any(len(column) != len(self.labels) for column in columns):
            raise ValueError(f"the columns of {self.folder!r} differ in length")
        if self.lengths is not None:
            shapes = _shapes(self.schema_) or []
            if sum(length is None for shape in shapes for length in shape) != len(self.lengths):
                raise ValueError(
                    f"{self.folder!r} has {len(self.lengths)} columns of lengths; expected one for each null in "
                    "the shapes of its schema"
                )
        return self

    def artifacts(self) -> list[Artifact]:
        """Create the artifacts, in the order of the columns."""
        rows = self.rows or [None] * len(self.labels)
        names = [f"{self.folder}/{label}" if label else self.folder for label in self.labels]
        lengths: Iterable[Sequence[int]] = zip(*self.lengths, strict=True) if self.lengths else [()] * len(names)
        return [
            Artifact.model_construct(
                name=name, kind=self.kind, digest=digest, bytes=size, rows=count, schema_=self._schema(free)
            )
            for name, digest, size, count, free in zip(names, self.digests, self.bytes, rows, lengths, strict=True)
        ]

    def _schema(self, lengths: Sequence[int]) -> JsonValue:
        if self.lengths is None or not isinstance(self.schema_, dict):
            return self.schema_
        remaining = iter(lengths)
        filled: dict[str, JsonValue] = {}
        for name, entry in sorted(self.schema_.items()):
            array: Any = entry
            filled[name] = {
                **array,
                "shape": [next(remaining) if length is None else length for length in array["shape"]],
            }
        return filled

    def to_json(self) -> dict[str, JsonValue]:
        """Return the group as a manifest lists it, without fields that are None."""
        fields: dict[str, Any] = {"folder": self.folder, "kind": self.kind, "schema": self.schema_}
        fields |= {"labels": self.labels, "digests": self.digests, "bytes": self.bytes}
        fields |= {"rows": self.rows, "lengths": self.lengths}
        return {name: value for name, value in fields.items() if value is not None}


def _shapes(schema: JsonValue) -> list[list[int | None]] | None:
    """Return the shapes in a schema of arrays, ordered by the arrays' names; None for a schema of another form."""
    if not isinstance(schema, dict):
        return None
    shapes: list[list[int | None]] = []
    for _, entry in sorted(schema.items()):
        shape = entry.get("shape") if isinstance(entry, dict) and entry.keys() == {"dtype", "shape"} else None
        if not isinstance(shape, list) or any(length is not None and type(length) is not int for length in shape):
            return None
        shapes.append(shape)  # type: ignore[arg-type]
    return shapes


def _grouped(artifacts: Iterable[Artifact]) -> list[ArtifactGroup]:
    """Group artifacts by folder, kind and schema, sorted in this order; the order of the input does not matter."""
    alike: dict[tuple[str, str, bytes], list[Artifact]] = {}
    for artifact in sorted(artifacts, key=lambda artifact: artifact.name):
        shapes = _shapes(artifact.schema_) if artifact.kind == "arrays" else None
        schema: Any = artifact.schema_
        if shapes and None not in [length for shape in shapes for length in shape]:
            schema = {name: [entry["dtype"], len(entry["shape"])] for name, entry in schema.items()}
        alike.setdefault((artifact.name.partition("/")[0], artifact.kind, canonical_json(schema)), []).append(artifact)
    return [_group(folder, some) for (folder, _, _), some in sorted(alike.items(), key=lambda group: group[0])]


def _group(folder: str, artifacts: Sequence[Artifact]) -> ArtifactGroup:
    """Build the group of artifacts whose schemas are equal, or differ only in the lengths of arrays."""
    schema: Any = artifacts[0].schema_
    lengths: list[list[int]] | None = None
    if any(artifact.schema_ != schema for artifact in artifacts):
        shapes = [[length for shape in _shapes(artifact.schema_) or [] for length in shape] for artifact in artifacts]
        columns: list[Any] = [list(column) for column in zip(*shapes, strict=True)]
        varies = iter([len(set(column)) > 1 for column in columns])
        schema = {
            name: {**entry, "shape": [None if next(varies) else length for length in entry["shape"]]}
            for name, entry in sorted(schema.items())
        }
        lengths = [column for column in columns if len(set(column)) > 1]
    rows = [artifact.rows for artifact in artifacts]
    return ArtifactGroup(
        folder=folder,
        kind=artifacts[0].kind,
        schema=schema,
        labels=[artifact.name.partition("/")[2] for artifact in artifacts],
        digests=[artifact.digest for artifact in artifacts],
        bytes=[artifact.bytes for artifact in artifacts],
        rows=None if all(count is None for count in rows) else rows,
        lengths=lengths,
    )


class Listing(Sequence[Artifact]):
    """The artifacts of a manifest by name, created per folder on first use. Raises ValueError for duplicates."""

    def __init__(self, groups: Iterable[ArtifactGroup]) -> None:
        self.groups = tuple(groups)
        self._folders: dict[str, list[ArtifactGroup]] = {}
        for group in self.groups:
            self._folders.setdefault(group.folder, []).append(group)
        for folder, some in self._folders.items():
            labels = [label for group in some for label in group.labels]
            if len(set(labels)) < len(labels):
                twice = sorted(label for label, count in Counter(labels).items() if count > 1)
                raise ValueError(
                    f"two artifacts with the same name: {[f'{folder}/{label}'.rstrip('/') for label in twice]}"
                )
        self._by_folder: dict[str, dict[str, Artifact]] = {}
        self._below: dict[str, tuple[Artifact, ...]] = {}

    @classmethod
    def of(cls, artifacts: Iterable[Artifact]) -> Listing:
        """Build the listing of artifacts, which may be in any order."""
        return artifacts if isinstance(artifacts, cls) else cls(_grouped(artifacts))

    def named(self, name: str) -> Artifact | None:
        """Return the artifact with this name, or None."""
        return self._folder(name.partition("/")[0]).get(name)

    def under(self, folder: str) -> tuple[Artifact, ...]:
        """Return the artifacts `folder/...`, ordered by name."""
        artifacts = self._below.get(folder)
        if artifacts is None:
            below = self._folder(folder.partition("/")[0]).items()
            artifacts = self._below[folder] = tuple(
                artifact for name, artifact in below if name.startswith(f"{folder}/")
            )
        return artifacts

    def _folder(self, folder: str) -> dict[str, Artifact]:
        by_name = self._by_folder.get(folder)
        if by_name is None:
            artifacts = [artifact for group in self._folders.get(folder, ()) for artifact in group.artifacts()]
            by_name = {artifact.name: artifact for artifact in sorted(artifacts, key=lambda artifact: artifact.name)}
            self._by_folder[folder] = by_name
        return by_name

    @cached_property
    def _all(self) -> tuple[Artifact, ...]:
        everything = (artifact for folder in self._folders for artifact in self._folder(folder).values())
        return tuple(sorted(everything, key=lambda artifact: artifact.name))

    def __len__(self) -> int:
        return sum(len(group.labels) for group in self.groups)

    @overload
    def __getitem__(self, index: int) -> Artifact: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Artifact, ...]: ...
    def __getitem__(self, index: int | slice) -> Artifact | tuple[Artifact, ...]:
        return self._all[index]

    def __iter__(self) -> Iterator[Artifact]:
        return iter(self._all)

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Sequence) and self._all == tuple(value)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


_GROUPS = TypeAdapter(list[ArtifactGroup])
_ARTIFACTS = TypeAdapter(list[Artifact])


def _listed(value: Any, info: ValidationInfo) -> Listing:
    """Return the listing of a manifest's `artifacts`, given groups if the manifest is read, else artifacts."""
    if isinstance(value, Listing):
        return value
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list")
    try:
        if info.context is READING:
            return Listing(_GROUPS.validate_python(value, context=info.context))
        return Listing.of(_ARTIFACTS.validate_python(list(value)))
    except ValidationError as error:
        field, problem = first_problem(error)
        raise ValueError(f"{problem}, at {field}") from None


def _as_dicts(artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
    return [artifact.model_dump(mode="json", by_alias=True) for artifact in artifacts]


Artifacts = Annotated[Sequence[Artifact], PlainValidator(_listed), PlainSerializer(_as_dicts)]
"""The field of a manifest: a `Listing`, from any sequence of artifacts."""


def describe_table(schema: pa.Schema) -> list[JsonValue]:
    """Describe a table's schema as a manifest stores it: a list of {name, type, nullable}, in column order."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
