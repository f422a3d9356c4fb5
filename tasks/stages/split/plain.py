"""The plain texts of documents, as a reader sees them, and the mapping of offsets to the originals.

Stages read texts in this form: `split` stores the plain text of documents in markup (schema PLAIN); other documents are
read unchanged. Offsets are mapped back to the original before they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.tables import PLAIN, TITLE_SENTENCE
from tasks.core.stage import Input, Part, shared_tables
from tasks.core.unchanged import Unchanged, in_order, unchanged
from tasks.text.markup import Places, original_places

TEXTS = (*shared_tables("documents", "passages", "sentences"), Input("plain", PLAIN))
"""The inputs of a stage that reads the texts of a shard."""

TEXT_COLUMNS = (
    ("document_id", "text", "passage_starts", "passage_ends", "headings"),
    ("passage_id", "document_id", "ordinal", "start", "end", "text"),
)
"""The columns of PLAIN and of PASSAGES needed to read passages."""

_FAR = 1 << 32  # exceeds any offset in a document, and so separates documents in one sorted key


class Plain:
    """The plain texts of a shard's documents. plain, passages: tables with the schemas PLAIN and PASSAGES.

    To read passages and headings, `plain` needs only the columns in TEXT_COLUMNS, for the documents of `passages`.
    """

    def __init__(self, plain: pa.Table, passages: pa.Table) -> None:
        self._plain = plain
        self._passages = passages
        if not plain.num_rows:
            return
        self._ids = plain["document_id"].combine_chunks()
        row = pc.fill_null(pc.index_in(passages["document_id"], self._ids), -1)
        self._row = row.to_numpy().astype(np.int64)  # the row of each passage's document, -1 without markup
        first = np.append(0, np.cumsum(pc.list_value_length(plain["passage_starts"]).to_numpy()))
        ordinal = passages["ordinal"].to_numpy().astype(np.int64)
        self._place = np.where(self._row < 0, 0, first[self._row] + ordinal)
        self._begin = passages["start"].to_numpy().astype(np.int64)  # the start of each passage, in the original
        begins, ends = (_flat(plain[name]).astype(np.int64) for name in ("passage_starts", "passage_ends"))
        if not len(begins):
            begins = ends = np.zeros(1, np.int64)
        self._plain_begin = np.where(self._row < 0, self._begin, begins[self._place])
        self._plain_end = np.where(self._row < 0, passages["end"].to_numpy(), ends[self._place])

    @classmethod
    def of(cls, part: Part[Any], passages: pa.Table) -> Plain:
        """Read the plain texts among a part's inputs."""
        return cls(part.table("plain"), passages)

    def documents(self, documents: pa.Table) -> pa.Table:
        """Replace the texts of documents (schema DOCUMENTS) by their plain texts."""
        if not self._plain.num_rows:
            return documents
        at = pc.index_in(documents["document_id"], self._ids)
        return _with(documents, text=pc.coalesce(self._plain["text"].combine_chunks().take(at), documents["text"]))

    @property
    def passages(self) -> pa.Table:
        """The passages with their plain texts and their bounds in the plain texts of their documents."""
        if not self._plain.num_rows:
            return self._passages
        texts = self._passages["text"].to_pylist()
        whole = self._plain["text"].to_pylist()
        for at in np.flatnonzero(self._row >= 0).tolist():
            texts[at] = whole[self._row[at]][self._plain_begin[at] : self._plain_end[at]]
        return _with(self._passages, text=texts, start=self._plain_begin, end=self._plain_end)

    @property
    def headings(self) -> list[str]:
        """The headings embedded with each passage."""
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

    def to_plain(self, spans: pa.Table) -> pa.Table:
        """Map sentences or mentions (SENTENCES, MENTIONS) to their bounds in the plain texts of the passages."""
        return self._moved(spans, self._plain_places) if self._plain.num_rows else spans

    def to_original(self, mentions: pa.Table) -> pa.Table:
        """Map mentions in plain texts to their bounds in the original passages."""
        return self._moved(mentions, self._original_places, back=True) if self._plain.num_rows else mentions

    def _moved(
        self, spans: pa.Table, places: Callable[[Places, Places], tuple[Places, Places]], *, back: bool = False
    ) -> pa.Table:
        """Map spans from the original to the plain text, or the reverse. places: maps starts and ends in all documents.

        back: whether to map from the plain text to the original.
        """
        passage = pc.index_in(spans["passage_id"], self._passages["passage_id"].combine_chunks()).to_numpy()
        mine = self._row[passage] >= 0
        if "sentence" in spans.schema.names:
            mine &= spans["sentence"].to_numpy() != TITLE_SENTENCE
        passage = passage[mine]
        starts, ends = (spans[name].to_numpy().astype(np.int64) for name in ("start", "end"))
        begins = (self._plain_begin, self._begin) if back else (self._begin, self._plain_begin)
        before, after = (self._row[passage] * _FAR + begin[passage] for begin in begins)
        low, high = places(starts[mine] + before, ends[mine] + before)
        starts[mine], ends[mine] = low - after, high - after
        return _with(spans, start=starts, end=ends)

    @cached_property
    def _runs(self) -> tuple[Places, Places, Places]:
        """The starts, origins and ends of the runs of all documents."""
        lengths = pc.list_value_length(self._plain["starts"]).to_numpy()
        shift = np.repeat(np.arange(self._plain.num_rows) * _FAR, lengths)
        starts, origins, ends = (_flat(self._plain[name]).astype(np.int64) for name in ("starts", "origins", "ends"))
        return starts + shift, origins + shift, ends + shift

    def _plain_places(self, low: Places, high: Places) -> tuple[Places, Places]:
        starts, origins, _ = self._runs
        first = np.searchsorted(origins, low, side="right") - 1
        last = np.searchsorted(origins, high, side="left") - 1
        after = np.append(starts[1:], np.iinfo(np.int64).max)
        begins = np.minimum(starts[first] + low - origins[first], after[first])
        return begins, np.minimum(starts[last] + high - origins[last], after[last])

    def _original_places(self, low: Places, high: Places) -> tuple[Places, Places]:
        starts, ends = original_places(low, high, *self._runs)
        return starts, np.where(low == high, starts, ends)  # a subject is an empty span


@dataclass(frozen=True)
class Texts:
    """Some documents, passages and sentences, with their plain texts (schemas DOCUMENTS, PASSAGES, SENTENCES)."""

    documents: pa.Table
    passages: pa.Table
    sentences: pa.Table

    def titles(self) -> list[str]:
        """Return the title of each passage's document."""
        row = pc.index_in(self.passages["document_id"], self.documents["document_id"].combine_chunks())
        titles: list[str] = self.documents["title"].combine_chunks().take(row.combine_chunks()).to_pylist()
        return titles


def read_texts(part: Part[Any], documents: pa.Table, passages: pa.Table) -> tuple[Texts, Plain]:
    """Read the texts of some of a part's documents and passages."""
    sentences = part.table("sentences")
    sentences = sentences.filter(pc.is_in(sentences["passage_id"], passages["passage_id"].combine_chunks()))
    plain = Plain.of(part, passages)
    return Texts(plain.documents(documents), plain.passages, plain.to_plain(sentences)), plain


def changed_texts(part: Part[Any], *, again: str | None = None) -> tuple[Texts, Plain, list[Unchanged]]:
    """Read the texts of new or changed documents, and find the parts of unchanged documents. again: see `unchanged`."""
    documents, passages = part.table("documents"), part.table("passages")
    same, is_unchanged = unchanged(part, documents, again=again)
    documents = documents.filter(pa.array(~is_unchanged))
    passages = passages.filter(pc.is_in(passages["document_id"], documents["document_id"].combine_chunks()))
    return *read_texts(part, documents, passages), same


def tables_by_passage(
    part: Part[Any], make: Callable[[Texts, Plain], Mapping[str, pa.Table]], *, again: str | None = None
) -> tuple[dict[str, pa.Table], int]:
    """Return a shard's tables whose rows belong to passages, and the number of new or changed documents.

    make: makes the tables of new or changed documents; other rows are copied. again: see `unchanged`.
    """
    passages = part.table("passages", "passage_id", "document_id")
    texts, plain, same = changed_texts(part, again=again)
    tables = {name: [table] for name, table in make(texts, plain).items()}
    for earlier in same:
        passage_ids = passages.filter(pc.is_in(passages["document_id"], earlier.ids))["passage_id"]
        for name, pieces in tables.items():
            pieces.append(earlier.of_passages(name, passage_ids))
    ordered = {name: in_order(pieces, "passage_id", passages["passage_id"]) for name, pieces in tables.items()}
    return ordered, len(texts.documents)


def _flat(lists: pa.ChunkedArray) -> NDArray[np.int32]:
    values: NDArray[np.int32] = pc.list_flatten(lists).to_numpy()
    return values


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(
            at, field, values if isinstance(values, pa.ChunkedArray) else pa.array(values, field.type)
        )
    return table
