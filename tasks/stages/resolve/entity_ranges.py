"""Ranges of entities: each part adds up all shards' sums for the ids that begin with certain bits.

There are 1 to 16 ranges, depending on the number of document shards. Sums are ordered by entity id, so that a part
reads only the rows of its range. Each range is cut into entity shards by a trie; the shards' labels are the same as
those of a single trie over all entities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.table_blobs import writer
from tasks.core.shards import bit_ranges, leaves

SHARDS_PER_RANGE = 128
"""The number of document shards per range."""

_DIGITS = 16
"""The number of first hexadecimal digits of ids, each with its own row group in a table of sums; limits the ranges."""


def entity_ranges(shards: int) -> list[str]:
    """Return the labels of the entity ranges for a number of document shards: "e", or "e0" and "e1", etc."""
    return [f"e{bits}" for bits in bit_ranges(shards, SHARDS_PER_RANGE, _DIGITS.bit_length() - 1)]


def ranged_bytes(rows: pa.Table, ids: pa.ChunkedArray) -> bytes:
    """Return a table as Parquet, with a row group (perhaps empty) for each first hexadecimal digit of an id.

    ids: the entity id of each row, ascending.
    """
    firsts = entity_keys(ids) >> np.uint64(60)
    bounds = np.searchsorted(firsts, np.arange(_DIGITS + 1, dtype=np.uint64)).tolist()
    sink = pa.BufferOutputStream()
    with writer(sink, rows.schema) as parquet:
        for low, high in pairwise(bounds):
            parquet.write_table(rows.slice(low, high - low), row_group_size=max(high - low, 1))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def range_rows(paths: Sequence[Path], label: str, schema: pa.Schema) -> pa.Table:
    """Read the rows of a range from files that `ranged_bytes` wrote, one file after the other."""
    width = _DIGITS >> len(label) - 1
    first = int(label[1:] or "0", 2) * width
    tables = [schema.empty_table()]
    for path in paths:
        with pq.ParquetFile(path, memory_map=True) as file:
            tables.append(file.read_row_groups(range(first, first + width), use_threads=False))
    return pa.concat_tables(tables)


def entity_keys(ids: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the keys of a column of entity ids, equal to `NameIndex.keys`."""
    digits = pl.Series(pl.from_arrow(ids), dtype=pl.String).str.head(16)
    return digits.str.to_integer(base=16, dtype=pl.UInt64).to_numpy()


def cut(tables: Mapping[str, pa.Table], ids: pa.ChunkedArray, label: str, limit: int) -> dict[str, pa.Table]:
    """Cut a range's tables into entity shards of at most `limit` entities, by `<name>/<label of the shard>`.

    tables: each ordered by its first column, an entity id. ids: the ids of the range's entities, ascending.
    """
    keys = entity_keys(ids)
    hashes = np.zeros((len(keys), 32), dtype=np.uint8)
    hashes[:, :8] = keys.astype(">u8").view(np.uint8).reshape(-1, 8)
    weights = np.ones(len(keys), dtype=np.int64)
    owners = {name: entity_keys(table.column(0)) for name, table in tables.items()}
    shards: dict[str, pa.Table] = {}
    for shard, low, high in leaves(hashes, np.arange(len(keys)), weights, limit, label):
        for name, table in tables.items():
            first = int(np.searchsorted(owners[name], keys[low]))
            last = int(np.searchsorted(owners[name], keys[high - 1], side="right"))
            shards[f"{name}/{shard}"] = table.slice(first, last - first)
    return shards
