"""Tables for other tools, in pieces, so that only ids, links, and the texts of one shard are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from indexmill.export.entity_graph import pieces, whole
from indexmill.retrieve.matrices import Integers, Rows, Sparse, both_ways
from indexmill.retrieve.passage_rows import passages_of

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_MOST = 1 << 20  # the maximum list items per piece, unless one row has more


@dataclass(frozen=True)
class TableOf:
    """One table: its name, its schema, and an iterator over its rows in pieces, which can be read once."""

    name: str
    schema: pa.Schema
    pieces: Iterator[pa.Table]


def spans(first: int, lengths: Integers) -> Iterator[tuple[int, int]]:
    """Split the rows from ``first`` into spans of one row, or at most ``_MOST`` items. lengths: the items per row."""
    total = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    at = 0
    while at < len(lengths):
        end = int(np.searchsorted(total, total[at] + _MOST, side="right")) - 1
        end = min(max(end, at + 1), len(lengths))
        yield first + at, first + end
        at = end


def lists(values: pa.Array, links: Sparse, first: int, last: int) -> pa.ListArray:
    """List the linked values of each row from ``first`` to ``last``."""
    return listed(lambda items: values.take(pa.array(items)), links, first, last)


def listed(values: Callable[[Integers], pa.Array], links: Sparse, first: int, last: int) -> pa.ListArray:
    """List the linked values of each row. values: a function that returns the values of given columns of ``links``."""
    bounds = links.indptr[first : last + 1]
    items = links.indices[int(bounds[0]) : int(bounds[-1])]
    return pa.ListArray.from_arrays(pa.array((bounds - bounds[0]).astype(np.int32)), values(items))


class DocumentIds:
    """The ids of a snapshot's documents, for listing the documents that a text was derived from."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    @cached_property
    def _ids(self) -> tuple[pa.Array, Rows]:
        """The sorted ids, and for each passage the position of its document's id in them, ``(n_passages,)``."""
        ids = whole(self._artifacts, "documents", "document_id")["document_id"]
        order = pc.sort_indices(ids)
        places = np.empty(len(ids), np.int64)
        places[order.to_numpy()] = np.arange(len(ids))
        return ids.take(order), places[passages_of(self._artifacts).documents]

    def behind(self, owners: Rows, passages: Integers, count: int) -> pa.ListArray:
        """List each owner's distinct document ids. owners, passages: the two ends of each link, ``(n_links,)``."""
        ids, of_passages = self._ids
        if len(passages) and int(passages.max()) >= len(of_passages):
            raise CorruptBlob(f"{self._artifacts.path}: a text comes from passages that 'passages' lacks")
        return lists(ids, both_ways(owners, of_passages[passages], None, count, len(ids))[0], 0, count)


def with_vectors(
    artifacts: Artifacts, name: str, columns: Sequence[str], pack: str
) -> Iterator[tuple[int, pa.Table, npt.NDArray[np.float32]]]:
    """Yield each shard's row offset, columns and vectors. Raises CorruptBlob if the shards of both do not match."""
    labels = [[shard.name.partition("/")[2] for shard in artifacts.shards(folder)] for folder in (name, pack)]
    if labels[0] != labels[1]:
        raise CorruptBlob(f"{artifacts.path}: {name!r} and {pack!r} are not in the same shards")
    vectors = iter(artifacts.vectors(pack, "vectors"))
    for first, table in pieces(artifacts, name, columns):
        yield first, table, next(vectors)


def vector_table(
    name: str, length: int, kinds: Mapping[str, pa.DataType], rows: Iterator[Mapping[str, Any]]
) -> TableOf:
    """Make a table from pieces of columns. kinds: the column types, except ``vector``, ``(n, length) float32``."""
    schema = pa.schema({**kinds, "vector": pa.list_(pa.float32(), length)})
    return TableOf(name, schema, (_piece(schema, columns) for columns in rows))


def _piece(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    if columns.keys() != set(schema.names):
        raise ValueError(f"the columns are {sorted(columns)}; expected {schema.names}")
    vectors = np.ascontiguousarray(columns["vector"], np.float32)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    return pa.table({name: columns[name] for name in schema.names[:-1]} | {"vector": vector}).cast(schema)
