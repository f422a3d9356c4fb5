"""The records of a snapshot: its manifest, the ref that publishes it, the aliases that point to a ref, and the hold.

All are canonical JSON. A writer refuses fields it does not know; a reader drops them, because the manifest itself names
the oldest reader that understands it. A manifest holds no history (no clock, host, cost or count of reuse), so that the
same input gives the same digest; those are in the ref and in the run's record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from indexmill.errors import CorruptBlob, UnsupportedFormat
from indexmill.store.canonical import canonical_json
from indexmill.store.layout import FORMAT_VERSION, READER_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Alias",
    "Artifact",
    "Candidate",
    "Corpus",
    "Digest",
    "Family",
    "Hold",
    "Manifest",
    "Name",
    "Record",
    "Ref",
    "Removal",
    "Timestamp",
    "Word",
    "describe_table",
]

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hex."""

Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})*$")
]
"""A relative path of plain components."""

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$")]
"""One plain component of a name."""

Timestamp = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")]
"""A time in UTC, ISO 8601."""

_READING = {"unknown fields": "dropped"}


class Record(BaseModel):
    """A record that the store keeps as canonical JSON: frozen, strictly typed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_unknown_fields(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is _READING and isinstance(value, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            return {name: item for name, item in value.items() if name in known}
        return value

    def to_bytes(self) -> bytes:
        """The record as canonical JSON.

        Raises ValueError for NaN, infinities and lone surrogates, which JSON cannot represent.
        """
        return canonical_json(self.model_dump(mode="json", by_alias=True))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Read a record, dropping fields that a newer writer added.

        Raises CorruptBlob, naming the source `where`, if the bytes are not such a record.
        """
        try:
            return cls.model_validate_json(data, context=_READING)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise CorruptBlob(
                f"{where} is not a readable {cls.__name__.lower()} ({len(data)} bytes)"
                f"{f', at {field}' if field else ''}: {first['msg']}; restore the file from a copy of the store: "
                "no build makes it again, and to delete it loses what it records"
            ) from error


class Artifact(Record):
    """A named blob of a snapshot: a Parquet table, a pack of arrays, or a plain file."""

    name: Name
    kind: Literal["table", "arrays", "file"]
    digest: Digest
    bytes: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=0)] | None = None
    schema_: JsonValue = Field(default=None, alias="schema")
    """For a table, the list of `describe_table`. For arrays, name to dtype and shape, as in `Pack.schema`."""

    def has_column(self, name: str) -> bool:
        """True for a table that has a column of that name."""
        fields = self.schema_ if isinstance(self.schema_, list) else []
        return any(isinstance(one, dict) and one.get("name") == name for one in fields)


class Corpus(Record):
    """The corpus of a snapshot: the digest of its set of documents, and its sizes."""

    fingerprint: str
    documents: Annotated[int, Field(ge=0)]
    passages: Annotated[int, Field(ge=0)]
    counts: dict[str, int] = {}


class Family(Record):
    """One index family of a snapshot: the parameters it was built with, and its sizes."""

    parameters: dict[str, JsonValue] = {}
    counts: dict[str, int] = {}
    history_dependent: bool = False
    """True if the family depends on the previous snapshot: the declared exception to "update equals rebuild"."""
    details: dict[str, JsonValue] = {}


class Manifest(Record):
    """The list of a snapshot's artifacts, and all that determined their content."""

    format_version: Annotated[int, Field(ge=1)] = FORMAT_VERSION
    minimum_reader_version: Annotated[int, Field(ge=1)] = 1
    corpus: Corpus
    configuration: dict[str, JsonValue] = {}
    environment: dict[str, JsonValue] = {}
    models: dict[str, JsonValue] = {}
    artifacts: Annotated[tuple[Artifact, ...], Field(strict=False)] = ()
    families: dict[Name, Family] = {}
    lineage: Digest

    @field_validator("artifacts", mode="after")
    @classmethod
    def _order(cls, artifacts: Iterable[Artifact]) -> tuple[Artifact, ...]:
        ordered = tuple(sorted(artifacts, key=lambda artifact: artifact.name))
        twice = {one.name for one, other in pairwise(ordered) if one.name == other.name}
        if twice:
            raise ValueError(f"two artifacts with the same name: {sorted(twice)}")
        return ordered

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "the manifest") -> Self:
        """Read a manifest.

        Raises UnsupportedFormat if it asks for a newer reader, CorruptBlob if it is not a manifest.
        """
        try:
            oldest = json.loads(data)["minimum_reader_version"]
        except (ValueError, TypeError, KeyError, RecursionError):
            oldest = None  # the validation below says what is wrong
        if type(oldest) is int and oldest > READER_VERSION:
            raise UnsupportedFormat(
                f"{where} needs a reader of format {oldest}; this indexmill reads up to {READER_VERSION}: "
                "install a newer indexmill"
            )
        return super().from_bytes(data, where)

    def artifact(self, name: str) -> Artifact | None:
        """The artifact of this name, or None."""
        return next((artifact for artifact in self.artifacts if artifact.name == name), None)

    def under(self, folder: str) -> tuple[Artifact, ...]:
        """The artifacts `folder/...`, ordered by name: the shards of one table."""
        return tuple(artifact for artifact in self.artifacts if artifact.name.startswith(folder + "/"))


class Ref(Record):
    """A numbered version of the index: the digest of its manifest, and the record of its creation."""

    version: Annotated[int, Field(ge=1)]
    manifest: Digest
    parent: Annotated[int, Field(ge=1)] | None
    epoch: Annotated[int, Field(ge=0)]
    run_id: Word
    created: Timestamp
    cost: dict[str, JsonValue] = {}
    note: str = ""

    @model_validator(mode="after")
    def _follows_its_parent(self) -> Self:
        if self.version != (self.parent or 0) + 1:
            raise ValueError(f"version {self.version} cannot follow {self.parent}")
        return self


class Alias(Record):
    """One record of an alias: the version it points to from now on, or None once it is removed."""

    alias: Word
    number: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] | None
    created: Timestamp
    note: str = ""


class Hold(Record):
    """One record of the hold: whether the store refuses builds from now on, and who asked for it."""

    number: Annotated[int, Field(ge=1)]
    held: bool
    version: Annotated[int, Field(ge=1)] | None
    """The version that was restored; None if the record ends the hold."""
    run_id: Word
    by: str
    """The user and the host that asked for it."""
    created: Timestamp
    note: str = ""

    def __str__(self) -> str:
        why = f": {self.note}" if self.note else ""
        return f"on hold since {self.created} by {self.by} (run {self.run_id}), to stay at version {self.version}{why}"


class Candidate(Record):
    """The part of a run's end record that readers use: if a gate refused the run, it names the unpublished manifest."""

    state: str
    manifest: Digest | None = None


class Removal(Record):
    """The record that a version was removed: collected, or withdrawn.

    A version is withdrawn if it held a forgotten document, or if a part of it was removed while it was published.
    """

    version: Annotated[int, Field(ge=1)]
    reason: Literal["gc", "forgotten", "incomplete"]
    run_id: Word
    created: Timestamp

    def __str__(self) -> str:
        if self.reason == "gc":
            return f"version {self.version} was removed by gc at {self.created}"
        if self.reason == "incomplete":
            return f"version {self.version} was withdrawn at {self.created}: it was not whole when it was published"
        return f"version {self.version} was withdrawn at {self.created}: a document of it is to be forgotten"


def describe_table(schema: pa.Schema) -> list[JsonValue]:
    """A table's schema as stored in a manifest: a list of {name, type, nullable}, in column order."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
