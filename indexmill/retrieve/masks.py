"""Passage masks of filters and rights, from the metadata of a snapshot's documents.

A field is read once, from the JSON of the documents that can have it, into one column of values per type.
``indexmill.retrieve.filters`` defines the comparisons, ``indexmill.retrieve.rights`` the access control.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput, CorruptBlob
from indexmill.retrieve import document_rights
from indexmill.retrieve.document_rights import DocumentRights
from indexmill.retrieve.filters import DOCUMENT_FIELDS, Condition, Filter, Value, number_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Allowed
from indexmill.retrieve.rights import Access
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

KEPT_FILTERS = 8
"""The number of masks, of one byte per passage, that are cached per snapshot."""

KEPT_FIELDS = 16
"""The number of fields whose values are cached per snapshot."""

_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_SHOWN = 30

Places = npt.NDArray[np.int64]
Number = int | float


class Column:
    """One field of all documents: its values by type, each with the row of its document."""

    def __init__(self, documents: int, rows: Sequence[int], values: Sequence[Any]) -> None:
        import pyarrow as pa

        self.present: Allowed = np.zeros(documents, dtype=np.bool_)
        self.present[np.array(rows, dtype=np.int64)] = True
        integers: list[tuple[int, int]] = []
        floats: list[tuple[int, float]] = []
        texts: list[tuple[int, str, bool]] = []
        truths: list[tuple[int, bool]] = []
        for row, value in zip(rows, values, strict=True):
            number: Number | None = None
            if isinstance(value, bool):
                truths.append((row, value))
            elif isinstance(value, int | float):
                number = value
            elif isinstance(value, str):
                number = number_of(value)
                texts.append((row, value, number is not None))
            if isinstance(number, int) and -(1 << 63) <= number < 1 << 63:
                integers.append((row, number))
            elif number is not None:
                floats.append((row, _float(number)))
        self._integers = _pairs(integers, np.int64)
        self._floats = _pairs(floats, np.float64)
        self._truths = _pairs(truths, np.bool_)
        self._texts = np.array([row for row, _, _ in texts], dtype=np.int64)
        self._strings = pa.array([text for _, text, _ in texts], pa.string())
        self._numeral = np.array([numeral for _, _, numeral in texts], dtype=np.bool_)

    def holds(self, condition: Condition) -> Allowed:
        """Return a mask of the documents that meet the condition."""
        if condition.operator == "exists":
            mask = self.present
        else:
            mask = np.zeros(len(self.present), dtype=np.bool_)
            compare = self._equal if condition.operator == "=" else self._ordered
            for rows in compare(condition):
                mask[rows] = True
        return mask if condition.holds else ~mask

    def _equal(self, condition: Condition) -> Iterator[Places]:
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers, texts, truths = set[Number](), set[str](), set[bool]()
        for operand in condition.values:
            kind, value = operand
            number = _as_number(operand)
            if kind == "truth":
                truths.add(bool(value))
            elif number is not None:
                numbers.add(number)
            else:
                texts.add(str(value))
                if kind == "word" and value in ("true", "false"):
                    truths.add(value == "true")
        integers = [number for number in numbers if isinstance(number, int) and -(1 << 63) <= number < 1 << 63]
        for (rows, column), sought in (
            (self._integers, np.array(integers, dtype=np.int64)),
            (self._floats, np.array([_float(number) for number in numbers], dtype=np.float64)),
            (self._truths, np.array(list(truths), dtype=np.bool_)),
        ):
            if len(sought):
                yield rows[np.isin(column, sought)]
        if texts:
            yield self._texts[_flags(pc.is_in(self._strings, value_set=pa.array(texts, pa.string())))]

    def _ordered(self, condition: Condition) -> Iterator[Places]:
        import pyarrow as pa
        import pyarrow.compute as pc

        compare = _ORDER[condition.operator]
        (operand,) = condition.values
        number = _as_number(operand)
        if number is not None:
            bound = number
            if isinstance(number, float):  # the integer bound equivalent for integers
                bound = math.ceil(number) if condition.operator in ("<", ">=") else math.floor(number)
            bound = max(-(1 << 63) - 1, min(1 << 63, bound))
            yield self._integers[0][compare(self._integers[1], bound)]
            yield self._floats[0][compare(self._floats[1], _float(number))]
        if isinstance(operand.value, str):
            matches = _flags(
                getattr(pc, _ARROW[condition.operator])(self._strings, pa.scalar(operand.value, pa.string()))
            )
            yield self._texts[matches if number is None else matches & ~self._numeral]


def _as_number(operand: Value) -> Number | None:
    """Convert a value to a number; None for a string, a boolean, or a word that is not numeric."""
    if operand.kind in ("text", "truth"):
        return None
    return number_of(operand.value) if isinstance(operand.value, str) else operand.value


def _pairs(pairs: Sequence[tuple[int, Any]], kind: Any) -> tuple[Places, npt.NDArray[Any]]:
    return np.array([row for row, _ in pairs], dtype=np.int64), np.array([value for _, value in pairs], dtype=kind)


def _flags(answer: Any) -> Allowed:
    flags: Allowed = answer.to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def _float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


class Selection(NamedTuple):
    """The passages of a retrieval, as masks ``(n_passages,)``, read-only; None for all.

    allowed: the passages that take part. readable: the passages that the user may read, a superset of ``allowed``.
    """

    allowed: Allowed | None
    readable: Allowed | None


class Masks:
    """The masks of one snapshot, cached. Thread-safe. access: None if everyone may read all documents."""

    def __init__(self, artifacts: Artifacts, access: Access | None = None) -> None:
        self._passages = passages_of(artifacts)
        self._documents = TableRows(artifacts, "documents", [])
        self._rights = None if access is None else DocumentRights(artifacts, access)
        self._column = lru_cache(maxsize=KEPT_FIELDS)(self._read)
        self.mask = lru_cache(maxsize=KEPT_FILTERS)(self._mask)
        self.readable = lru_cache(maxsize=document_rights.KEPT_READERS)(self._readable)

    def select(self, filter_: Filter | None, principals: frozenset[str] | None) -> Selection:
        """Select the passages of a retrieval. principals: None to read all documents. Raises as ``_mask`` does."""
        readable = None if principals is None else self.readable(principals)
        if readable is None:
            principals = None
        if filter_ is None:
            return Selection(readable, readable)
        allowed = self.mask(filter_, principals)
        return Selection(None if readable is None and allowed.all() else allowed, readable)

    def documents(self, principals: frozenset[str] | None) -> Allowed | None:
        """Return a mask ``(n_documents,)`` of the documents that the principals may read, or None if all."""
        if principals is None or self._rights is None:
            return None
        readable = self._rights.documents(principals)
        return None if readable.all() else readable

    def _readable(self, principals: frozenset[str]) -> Allowed | None:
        """Return a read-only mask of the passages that the principals may read; None if they may read all documents."""
        readable = self.documents(principals)
        return None if readable is None else self._of_passages(readable)

    def _mask(self, filter_: Filter, principals: frozenset[str] | None = None) -> Allowed:
        """Return a mask of the passages whose documents satisfy a filter: ``(n_passages,) bool``, read-only.

        principals: only documents that they may read are searched; None to search all. Raises BadInput for a field that
        no searched document has.
        """
        readable = self.documents(principals)
        matching: Allowed = np.ones(len(self._documents), dtype=np.bool_) if readable is None else readable.copy()
        searched = matching.copy()
        for condition in filter_.conditions:
            column = self._column(condition.field)
            if condition.field not in DOCUMENT_FIELDS and searched.any() and not (column.present & searched).any():
                fields = ", ".join(self._field_names(searched))
                raise BadInput(f"where: no document has a field {condition.field!r}; the fields are {fields}")
            matching &= column.holds(condition)
        return self._of_passages(matching)

    def _of_passages(self, documents: Allowed) -> Allowed:
        mask: Allowed = documents[self._passages.documents]
        mask.setflags(write=False)
        return mask

    def _read(self, field: str) -> Column:
        rows: list[int] = []
        values: list[Any] = []
        of_document = field in DOCUMENT_FIELDS
        for number, (artifact, first) in enumerate(zip(self._documents.tables, self._documents.starts, strict=False)):
            column = self._documents.column(number, field if of_document else "metadata")
            for place, leaves in _texts(column) if of_document else _values_of(column, field, artifact.name):
                rows.extend([first + place] * len(leaves))
                values.extend(leaves)
        return Column(len(self._documents), rows, values)

    def _field_names(self, documents: Allowed) -> list[str]:
        """List fields of these documents for messages, with at most ``_SHOWN`` fields of their metadata."""
        names: set[str] = set()
        for number, first in enumerate(self._documents.starts[:-1]):
            metadata = self._documents.column(number, "metadata")
            (places,) = documents[first : first + len(metadata)].nonzero()
            for text in metadata.take(places).unique().to_pylist():
                names.update(_names(json.loads(text), ""))
        shown = [name if name.isprintable() else repr(name) for name in sorted(names)[:_SHOWN]]
        return [*DOCUMENT_FIELDS, *shown, *(["..."] if len(names) > len(shown) else [])]


def _texts(column: Any) -> Iterator[tuple[int, list[Any]]]:
    return ((place, [text]) for place, text in enumerate(column.to_pylist()) if text)


def _values_of(metadata: Any, field: str, where: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the row of each JSON object that has a field, and the field's values: several if it is a list."""
    import pyarrow.compute as pc

    key = json.dumps(field.rpartition(".")[2], ensure_ascii=False)[1:] + ":"  # every object with the field contains it
    (places,) = _flags(pc.match_substring(metadata, key)).nonzero()
    encoded = metadata.take(places).dictionary_encode()
    try:
        leaves = [_leaves_of(json.loads(text), field) for text in encoded.dictionary.to_pylist()]
    except ValueError as error:
        raise CorruptBlob(f"the table {where!r} has metadata that is not JSON: {error}") from error
    for place, code in zip(places.tolist(), encoded.indices.to_pylist(), strict=True):
        if leaves[code]:
            yield place, leaves[code]


def _leaves_of(record: dict[str, Any], field: str) -> list[Any]:
    for keys in ([field], field.split(".")):
        if values := list(_leaves(record, keys)):
            return values
    return _leaves_of(record, field.removeprefix("metadata.")) if field.startswith("metadata.") else []


def _leaves(value: Any, keys: Sequence[str]) -> Iterator[Any]:
    """Yield the values at the end of a path, through all elements of lists; objects too, though they equal nothing."""
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element, keys)
    elif keys:
        if isinstance(value, dict) and keys[0] in value:
            yield from _leaves(value[keys[0]], keys[1:])
    elif value is not None:
        yield value


def _names(value: Any, prefix: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            below = list(_names(inner, f"{prefix}{key}."))
            yield from below or [f"{prefix}{key}"]
    elif isinstance(value, list):
        for element in value:
            yield from _names(element, prefix)
