"""Traces of documents in other data, such as messages, notes and rejected rows.

A content hash, and an id or a title of five characters or more, counts wherever it appears as a separate word; shorter
ids and titles are ignored. Any 23 consecutive characters of a title, text, source or metadata value count; of 16 to
22 characters, only some do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from indexmill.store.canonical import canonical_json
from storage.tombstones import shown

FORGOTTEN = "[...]"
"""The placeholder for a removed id or message."""

_NAME = 5
_WINDOW, _STRIDE = 16, 8
_FIXED = frozenset(
    {
        "alias",
        "by",
        "command",
        "created",
        "digest",
        "ended",
        "manifest",
        "part",
        "process",
        "run_id",
        "started",
        "state",
    }
)
"""The fields of records that contain neither free text nor messages and must not change."""


class Traces:
    """The traces of documents. contents: their known texts (schema DOCUMENTS). passage_ids: their passages."""

    def __init__(
        self,
        document_ids: Iterable[str],
        contents: Iterable[Mapping[str, str | None]] = (),
        passage_ids: Iterable[str] = (),
    ) -> None:
        self.document_ids = frozenset(document_ids)
        self.passage_ids = frozenset(passage_ids)
        names = set(self.document_ids)
        self._pieces: set[str] = set()
        for content in contents:
            names.update((content["title"] or "", content["content_hash"] or ""))
            for text in (content["title"], content["text"], content["source"], *_values(content["metadata"])):
                self._pieces.update(_pieces(text or ""))
        long = sorted((re.escape(name) for name in names if len(name) >= _NAME), key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(long)})(?![\w-])") if long else None
        self._shown = frozenset(shown(name) for name in self.document_ids)

    def __bool__(self) -> bool:
        return bool(self.document_ids)

    def in_text(self, text: str) -> bool:
        """Return True if a text names one of the documents, or contains a piece of one."""
        return (self._names is not None and self._names.search(text) is not None) or self._holds_piece(text)

    def without(self, text: str) -> str:
        """Replace names of documents in a text; replaces all of it if it contains a piece of a document."""
        if self._holds_piece(text):
            return FORGOTTEN
        return text if self._names is None else self._names.sub(FORGOTTEN, text)

    def in_record(self, data: bytes) -> bool:
        """Return True if the text of a record, or of another small file, contains a trace."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return self.in_text(data.decode("utf-8", "replace"))
        return any(self.in_text(text) for text in _texts(value))

    def cleaned(self, data: bytes) -> bytes:
        """Remove traces from the free-text fields of a record; returns the same bytes if there are none."""
        try:
            value = json.loads(data)
            clean = {name: inner if name in _FIXED else self._clean(inner) for name, inner in value.items()}
        except (ValueError, RecursionError, AttributeError):  # damaged, or not a record
            return canonical_json({}) if self.in_record(data) else data
        return data if clean == value else canonical_json(clean)

    def in_quarantine(self, row: Mapping[str, Any]) -> bool:
        """Return True if a rejected row (schema QUARANTINE) belongs to one of the documents."""
        if row["document_id"] in self._shown or row["file"] in self.document_ids:
            return True
        return self.in_text(row["detail"]) or self.in_text(row["document_id"] or "")

    def in_table(self, table: pa.Table) -> bool:
        """Return True if a table has a row of one of the documents or of their passages."""
        for column, ids in (("document_id", self.document_ids), ("passage_id", self.passage_ids)):
            if column in table.column_names and ids.intersection(table.column(column).to_pylist()):
                return True
        return False

    def _holds_piece(self, text: str) -> bool:
        return bool(self._pieces) and any(
            text[at : at + _WINDOW] in self._pieces for at in range(len(text) - _WINDOW + 1)
        )

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.without(value)
        if isinstance(value, list):
            return [self._clean(inner) for inner in value]
        if isinstance(value, dict):
            return {name: self._clean(inner) for name, inner in value.items()}
        return value


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + _WINDOW] for at in range(0, len(text) - _WINDOW + 1, _STRIDE))


def _values(metadata: str | None) -> Collection[str]:
    return [text for text in _texts(json.loads(metadata or "{}")) if len(text) >= _WINDOW]


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
