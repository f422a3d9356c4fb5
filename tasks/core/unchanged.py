"""Copies the rows of unchanged documents from an earlier snapshot's parts instead of making them again.

If a stage works document by document (`Stage.per_document`), the rows of a document depend only on that document. So
for documents with the same content a part copies the rows of the parent's parts, and only the other documents are
computed: the bytes are the same as if all rows were computed. `Job.earlier` lists the parent's parts from which to
copy: those whose keys match the current settings, code and libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.tables import DOCUMENTS, STAND_INS
from storage.table_blobs import read_table
from tasks.core.stage import Part, concatenated


@dataclass(frozen=True)
class Unchanged:
    """The unchanged documents of one earlier part, and the digests of its inputs and outputs."""

    inputs: Part[Any]
    digests: Mapping[str, str]
    ids: pa.Array[Any]

    def table(self, name: str, *columns: str) -> pa.Table:
        """Read a table that was an input or an output of the earlier part, or some of its columns."""
        stage = self.inputs.stage
        is_output = any(one.name == name for one in stage.outputs)
        schema = (stage.output(name) if is_output else stage.input(name)).schema
        return read_table(self.inputs.store, self.digests[name], schema, columns=columns or None)

    def joined(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of all pieces of an output that the earlier part made, in the order of its rows."""
        pieces = sorted(one for one in self.digests if one.startswith(f"{name}/"))
        return concatenated([self.inputs.pack_at(self.digests[one]) for one in pieces])

    def of_documents(self, name: str) -> pa.Table:
        """Return the rows of a table that belong to the unchanged documents."""
        table = self.table(name)
        return table.filter(pc.is_in(table.column("document_id"), self.ids))

    def of_passages(self, name: str, passage_ids: pa.ChunkedArray) -> pa.Table:
        """Return the rows of a table that belong to some passages."""
        table = self.table(name)
        return table.filter(pc.is_in(table.column("passage_id"), passage_ids.combine_chunks()))

    def vector_rows(self, passage_ids: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the earlier row numbers of unchanged documents' passages, and of the sentences in them."""
        earlier_ids = self.table("passages", "passage_id").column("passage_id").combine_chunks()
        owners = self.table("sentences", "passage_id").column("passage_id")
        rows = pc.index_in(passage_ids, earlier_ids).to_numpy().astype(np.int64)
        bounds = np.searchsorted(pc.index_in(owners, earlier_ids).to_numpy(), np.arange(len(earlier_ids) + 1))
        lengths = np.diff(bounds)[rows]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return rows, np.repeat(bounds[rows], lengths) + within


def unchanged(
    part: Part[Any], documents: pa.Table, *, again: str | None = None
) -> tuple[list[Unchanged], NDArray[np.bool_]]:
    """Return the earlier parts that have unchanged documents, and the mask of unchanged documents in `documents`.

    Each unchanged document is assigned to one of these parts. again: the name of an earlier part's table (schema
    STAND_INS) that lists the documents with fallbacks; these do not count as unchanged.
    """
    ids, hashes = (documents.column(name).combine_chunks() for name in ("document_id", "content_hash"))
    copied = np.zeros(len(ids), dtype=bool)
    unchanged_parts = []
    for digests in part.job.earlier:
        if copied.all():
            break
        before = read_table(part.store, digests["documents"], DOCUMENTS, columns=("document_id", "content_hash"))
        row = pc.index_in(ids, before.column("document_id").combine_chunks())
        same = pc.equal(before.column("content_hash").combine_chunks().take(row), hashes).fill_null(False)
        mine = same.to_numpy(zero_copy_only=False) & ~copied
        if again is not None and again in digests:
            stand_ins = read_table(part.store, digests[again], STAND_INS).column("document_id").combine_chunks()
            mine &= ~pc.is_in(ids, stand_ins).to_numpy(zero_copy_only=False)
        if mine.any():
            unchanged_parts.append(Unchanged(part, digests, ids.filter(pa.array(mine))))
            copied |= mine
    return unchanged_parts, copied


def in_order(tables: Sequence[pa.Table], column: str, ids: pa.ChunkedArray) -> pa.Table:
    """Concatenate tables and sort the rows by the position of `column` in `ids`; rows with equal ids stay in order.

    A single table is returned unchanged: it must already be in this order.
    """
    table = pa.concat_tables(tables)
    if len(tables) == 1:
        return table
    rank = pc.index_in(table.column(column), ids.combine_chunks()).to_numpy()
    return table.take(pa.array(np.argsort(rank, kind="stable")))
