"""The passages of a snapshot by row, and conversion of rows into hits.

A row is a passage's position in the whole corpus, the shards concatenated in label order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.hits import Hit
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.locations import Locations
from indexmill.retrieve.mention_matrices import MENTION_LINKS, passage_documents
from indexmill.retrieve.metadata import metadata_of
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    import pyarrow as pa

_PASSAGES: CacheKey[Passages] = CacheKey("passages")

_COLUMNS = ("passage_id", "document_id", "text", "tokens", "start", "end", "section")
"""The columns of a hit, all read at once: opening the file takes most of the time."""


def passages_of(artifacts: Artifacts) -> Passages:
    """Open the passages of a snapshot, once."""
    return artifacts.once(_PASSAGES, lambda: Passages(artifacts))


class Passages:
    """The passages of the whole corpus by row."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._path = artifacts.path
        self._version = artifacts.version
        self._rows = TableRows(artifacts, "passages", _COLUMNS)
        self._documents = TableRows(artifacts, "documents", ["document_id", "title", "source", "metadata"])
        self._locations = Locations(artifacts)
        self._languages = TableRows(artifacts, "passages", ["language"])
        artifacts.check_same_shards("documents", "passages")
        self._titles: dict[int, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def hits(
        self,
        rows: npt.NDArray[np.int64],
        scores: npt.NDArray[np.floating],
        explanations: Sequence[dict[str, Any] | None] | None = None,
    ) -> list[Hit]:
        """Convert rows to hits, in the same order."""
        reasons: Sequence[dict[str, Any] | None] = [None] * len(rows) if explanations is None else explanations
        documents = self._rows_of_documents(rows)
        *columns, starts, ends, sections = self._rows.take_columns(rows, _COLUMNS)
        spans = list(zip(starts, ends, strict=True))
        places = self._locations.places(documents, spans) if self._locations else [None] * len(rows)
        return [
            Hit(
                kind="passage",
                id=identity,
                score=score,
                text=text,
                title=title,
                document_ids=(document,),
                tokens=tokens,
                version=self._version,
                explanation=reason,
                source=source,
                span=span,
                metadata=metadata_of(metadata, self._path),
                section=tuple(section.split("\n")) if section else (),
                pages=None if place is None else place.pages,
                boxes=() if place is None else place.boxes,
            )
            for identity, document, text, tokens, title, source, metadata, score, reason, span, place, section in zip(
                *columns,
                *self._documents.take_columns(documents, ("title", "source", "metadata")),
                scores.tolist(),
                reasons,
                spans,
                places,
                sections,
                strict=True,
            )
        ]

    @cached_property
    def documents(self) -> npt.NDArray[np.int64]:
        """The row of each passage's document, ``(n_passages,)``, numbered across shards as passages are."""
        if self._artifacts.shards(MENTION_LINKS):
            return passage_documents(self._artifacts)
        columns = [np.empty(0, dtype=np.int64)]
        for number, first in enumerate(self._documents.starts[:-1]):
            ids, of_documents = (rows.column(number, "document_id") for rows in (self._rows, self._documents))
            columns.append(self._index_in(number, ids, of_documents) + first)
        return np.concatenate(columns)

    def document_ids(self) -> list[str]:
        """Return the document id of every passage."""
        return [
            document_id
            for number in range(len(self._rows.tables))
            for document_id in self._rows.shard(number)["document_id"].to_pylist()
        ]

    def documents_of(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the document ids of some passages."""
        return self._rows.take(rows, "document_id")

    def languages(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the languages of some passages; for snapshots whose manifest counts languages."""
        return self._languages.take(rows, "language")

    def ids(self, rows: npt.NDArray[np.int64]) -> list[str]:
        return self._rows.take(rows, "passage_id")

    def rows_of(self, ids: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the rows of some passages by their ids, -1 for an unknown id; reads all shards."""
        import pyarrow as pa
        import pyarrow.compute as pc

        requested, rows = pa.array(ids, pa.string()), np.full(len(ids), -1, dtype=np.int64)
        for number, first in enumerate(self._rows.starts[:-1]):
            places = pc.fill_null(pc.index_in(requested, value_set=self._rows.shard(number)["passage_id"]), -1)
            at = np.asarray(places, dtype=np.int64)
            rows[at >= 0] = at[at >= 0] + first
        return rows

    def tokens(self, row: int) -> int:
        return int(self._rows.value(row, "tokens"))

    def text(self, row: int) -> str:
        return str(self._rows.value(row, "text"))

    def title(self, row: int) -> str:
        """Return the title of one passage's document."""
        return str(self._documents.value(int(self._rows_of_documents(np.array([row]))[0]), "title"))

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        return self._rows.take(rows, "text")

    def _rows_of_documents(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows of the documents of some passages; reads only the shards of those passages."""
        numbers, places = self._rows.places(rows)
        document_rows = np.empty(len(rows), dtype=np.int64)
        for number in np.unique(numbers).tolist():
            of_shard = numbers == number
            document_rows[of_shard] = self._documents.starts[number] + self._document_rows(number)[places[of_shard]]
        return document_rows

    def _document_rows(self, number: int) -> npt.NDArray[np.int64]:
        """Return the row, within a shard, of the document of each passage in the shard."""
        rows = self._titles.get(number)
        if rows is None:
            ids, of_documents = (rows.shard(number)["document_id"] for rows in (self._rows, self._documents))
            rows = self._titles[number] = self._index_in(number, ids, of_documents)
        return rows

    def _index_in(self, number: int, ids: pa.Array, of_documents: pa.Array) -> npt.NDArray[np.int64]:
        """Return the position of each passage's document in a shard. Raises CorruptBlob if it is missing."""
        import pyarrow.compute as pc

        positions = pc.index_in(ids, value_set=of_documents)
        if positions.null_count:
            raise CorruptBlob(f"{self._path}: {self._rows.tables[number].name!r} has passages of unknown documents")
        return np.asarray(positions, dtype=np.int64)
