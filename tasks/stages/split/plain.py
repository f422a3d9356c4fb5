"""What a reader sees of some documents: their tables with plain texts, and offsets in these.

Stages that read texts read them so: `split` keeps the plain text of documents in markup (schema PLAIN), all others
stand as they are. What they find is placed in the original again before it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.tables import DOCUMENTS, PASSAGES, PLAIN, SENTENCES, TITLE_SENTENCE
from tasks.core.stage import Input, Part
from tasks.text.markup import original_places

__all__ = ["TEXTS", "Plain"]

TEXTS = (
    Input("documents", DOCUMENTS),
    Input("passages", PASSAGES),
    Input("sentences", SENTENCES),
    Input("plain", PLAIN),
)
"""The inputs of a stage that reads the texts of a shard."""

Places = NDArray[np.int64]
_FAR = 1 << 32  # further than any offset in a document: separates documents in one sorted key


class Plain:
    """The plain texts of a shard's documents.

    plain, passages: tables with the schemas PLAIN and PASSAGES, of the latter at least the columns passage_id,
    document_id, ordinal, start, end and text.
    """

    def __init__(self, plain: pa.Table, passages: pa.Table) -> None:
        self._plain = plain
        self._passages = passages
        if not plain.num_rows:
            return
        self._ids = plain["document_id"].combine_chunks()
        lengths = pc.list_value_length(plain["starts"]).to_numpy()
        shift = np.repeat(np.arange(plain.num_rows) * _FAR, lengths)
        self._starts, self._origins, self._ends = (
            _flat(plain[name]).astype(np.int64) + shift for name in ("starts", "origins", "ends")
        )
        row = pc.fill_null(pc.index_in(passages["document_id"], self._ids), -1)
        self._row = row.to_numpy().astype(np.int64)  # of each passage's document, -1 for one without markup
        first = np.append(0, np.cumsum(pc.list_value_length(plain["passage_starts"]).to_numpy()))
        ordinal = passages["ordinal"].to_numpy().astype(np.int64)
        self._place = np.where(self._row < 0, 0, first[self._row] + ordinal)
        self._begin = passages["start"].to_numpy().astype(np.int64)  # of each passage, in the original
        begins, ends = (_flat(plain[name]).astype(np.int64) for name in ("passage_starts", "passage_ends"))
        if not len(begins):
            begins = ends = np.zeros(1, np.int64)
        self._plain_begin = np.where(self._row < 0, self._begin, begins[self._place])
        self._plain_end = np.where(self._row < 0, passages["end"].to_numpy(), ends[self._place])

    @classmethod
    def of(cls, part: Part[Any], passages: pa.Table) -> Plain:
        """Those of a part's inputs."""
        return cls(part.table("plain"), passages)

    def documents(self, documents: pa.Table) -> pa.Table:
        """Some documents (schema DOCUMENTS) with their plain texts."""
        if not self._plain.num_rows:
            return documents
        at = pc.index_in(documents["document_id"], self._ids)
        return _with(documents, text=pc.coalesce(self._plain["text"].combine_chunks().take(at), documents["text"]))

    @property
    def passages(self) -> pa.Table:
        """The passages with their plain texts and their bounds in those of their documents."""
        if not self._plain.num_rows:
            return self._passages
        texts = self._passages["text"].to_pylist()
        whole = self._plain["text"].to_pylist()
        for at in np.flatnonzero(self._row >= 0).tolist():
            texts[at] = whole[self._row[at]][self._plain_begin[at] : self._plain_end[at]]
        return _with(self._passages, text=texts, start=self._plain_begin, end=self._plain_end)

    @property
    def headings(self) -> list[str]:
        """What is embedded of the headings above each passage."""
        return self._of_passages("headings")

    @property
    def targets(self) -> list[str]:
        """The words in the targets of each passage's links."""
        return self._of_passages("targets")

    def _of_passages(self, name: str) -> list[str]:
        if not self._plain.num_rows:
            return [""] * self._passages.num_rows
        values = pc.list_flatten(self._plain[name]).to_pylist()
        pairs = zip(self._row.tolist(), self._place.tolist(), strict=True)
        return [values[place] if row >= 0 else "" for row, place in pairs]

    def sentences(self, sentences: pa.Table) -> pa.Table:
        """Some sentences (schema SENTENCES) with their bounds in the plain texts of their passages."""
        return self._placed(sentences, np.ones(sentences.num_rows, dtype=bool))

    def mentions(self, mentions: pa.Table) -> pa.Table:
        """Some mentions (schema MENTIONS) with their bounds in the plain texts of their passages."""
        return self._placed(mentions, mentions["sentence"].to_numpy() != TITLE_SENTENCE)

    def _placed(self, table: pa.Table, placed: NDArray[np.bool_]) -> pa.Table:
        if not self._plain.num_rows:
            return table
        passage, mine = self._owners(table, placed)
        starts, ends = (table[name].to_numpy().astype(np.int64) for name in ("start", "end"))
        shift = self._row[passage] * _FAR + self._begin[passage]
        low, high = starts[mine] + shift, ends[mine] + shift
        first = np.searchsorted(self._origins, low, side="right") - 1
        last = np.searchsorted(self._origins, high, side="left") - 1
        after = np.append(self._starts[1:], np.iinfo(np.int64).max)
        back = self._row[passage] * _FAR + self._plain_begin[passage]
        starts[mine] = np.minimum(self._starts[first] + low - self._origins[first], after[first]) - back
        stops = np.minimum(self._starts[last] + high - self._origins[last], after[last])
        ends[mine] = stops - back
        return _with(table, start=starts, end=ends)

    def original(self, mentions: pa.Table) -> pa.Table:
        """Mentions that were found in plain texts, with their bounds in the passages as they are."""
        if not self._plain.num_rows:
            return mentions
        passage, mine = self._owners(mentions, mentions["sentence"].to_numpy() != TITLE_SENTENCE)
        starts, ends = (mentions[name].to_numpy().astype(np.int64) for name in ("start", "end"))
        shift = self._row[passage] * _FAR + self._plain_begin[passage]
        low, high = original_places(starts[mine] + shift, ends[mine] + shift, self._starts, self._origins, self._ends)
        high = np.where(starts[mine] == ends[mine], low, high)  # a subject is an empty span
        back = self._row[passage] * _FAR + self._begin[passage]
        starts[mine], ends[mine] = low - back, high - back
        return _with(mentions, start=starts, end=ends)

    def _owners(self, table: pa.Table, placed: NDArray[np.bool_]) -> tuple[Places, NDArray[np.bool_]]:
        """The passages of the rows that stand in a document with markup, and which rows those are."""
        ids = self._passages["passage_id"].combine_chunks()
        passage = pc.index_in(table["passage_id"], ids).to_numpy().astype(np.int64)
        mine = placed & (self._row[passage] >= 0)
        return passage[mine], mine


def _flat(lists: pa.ChunkedArray) -> NDArray[np.int32]:
    values: NDArray[np.int32] = pc.list_flatten(lists).to_numpy()
    return values


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """The table with other values in some columns of it."""
    given: Mapping[str, Any] = columns
    for name, values in given.items():
        at = table.schema.get_field_index(name)
        if at >= 0:
            table = table.set_column(
                at,
                table.schema.field(at),
                pa.array(values, table.schema.field(at).type) if not isinstance(values, pa.ChunkedArray) else values,
            )
    return table
