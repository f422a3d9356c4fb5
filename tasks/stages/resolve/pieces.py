"""The pieces of descriptions: what the passages say of each entity and of each related pair.

Equal pieces of several passages are one row with a count. The tables are sharded like the entity table, so that the
descriptions of a shard are made again only where its own pieces change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.tables import PIECES, RELATION_PIECES, conform

__all__ = ["RowsByDigit", "entity_pieces", "relation_pieces"]

_TAG, _PASSAGE = "part", "passage_id"


def entity_pieces(extracted: Sequence[Path], shown: pl.DataFrame) -> pa.Table:
    """The pieces of all entities (schema PIECES) of the tables `extracted` of all shards.

    shown: by `entity_id`, the `surface` under which each entity is shown, and the least `passage_id` that writes it so.
    Memory: one shard's table, and all pieces.
    """
    found = _Pieces(["entity_id"], "passages")
    for path in extracted:
        rows = pl.read_parquet(path, columns=[_PASSAGE, "entity_id", "name", "type", "description"])
        found.add(rows.unpivot(["name", "type", "description"], index=["entity_id", _PASSAGE], variable_name=_TAG))
    surfaces = shown.rename({"surface": "text"})

    def with_surfaces(pieces: pl.DataFrame) -> pl.DataFrame:
        names = pieces.filter(pl.col(_TAG) == "name").drop("text", _PASSAGE)
        own = names.join(surfaces, on="entity_id").with_columns(pl.lit("surface").alias(_TAG))
        return pl.concat([pieces, own.select(pieces.columns)])

    return found.table(with_surfaces, PIECES)


def relation_pieces(relations: Sequence[Path], shown: pl.DataFrame) -> pa.Table:
    """The pieces of all pairs (schema RELATION_PIECES) of the tables `relations` of all shards; shown: as above.

    A relation without a description contributes its wording.
    """
    found = _Pieces(["source", "target"], "relations")
    for path in relations:
        rows = pl.read_parquet(path, columns=[_PASSAGE, "source", "target", "kind", "text", "description"])
        wording = pl.when(pl.col("description") == "").then("text").otherwise(pl.lit(""))
        rows = rows.with_columns(pair=pl.lit("-"), wording=wording)
        parts = ["pair", "kind", "description", "wording"]
        found.add(rows.unpivot(parts, index=["source", "target", _PASSAGE], variable_name=_TAG))

    def with_ends(pieces: pl.DataFrame) -> pl.DataFrame:
        pairs = pieces.filter(pl.col(_TAG) == "pair").drop("text", _PASSAGE)
        whole = [pieces.filter(pl.col(_TAG) != "pair")]
        for end in ("source", "target"):
            named = pairs.join(shown.rename({"entity_id": end, "surface": "text"}), on=end)
            whole.append(named.with_columns(pl.lit(end).alias(_TAG)).select(pieces.columns))
        return pl.concat(whole)

    return found.table(with_ends, RELATION_PIECES)


class RowsByDigit:
    """Rows of shards, grouped by the first digit of their ids, so that they are combined one digit at a time."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._found: dict[str, list[pl.DataFrame]] = {digit: [] for digit in "0123456789abcdef"}

    def add(self, rows: pl.DataFrame) -> None:
        """Add the rows of a shard."""
        digit = pl.col(self._column).str.slice(0, 1).alias("digit")
        split = rows.with_columns(digit).partition_by("digit", as_dict=True, include_key=False)
        for (first,), part in split.items():
            self._found[first].append(part)

    def take(self) -> Iterator[list[pl.DataFrame]]:
        """Yield the rows of each digit and release them."""
        for digit in sorted(self._found):
            yield self._found.pop(digit)


class _Pieces:
    """The pieces of some shards. owner: the id columns of a piece's owner; count: the column of its frequency."""

    def __init__(self, owner: list[str], count: str) -> None:
        self._by = [*owner, _TAG, "text"]
        self._count = count
        self._rows = RowsByDigit(owner[0])

    def add(self, parts: pl.DataFrame) -> None:
        """Add a shard's parts: one row per occurrence, with the text in the column `value`."""
        texts = parts.rename({"value": "text"}).filter(pl.col("text") != "")
        count = pl.len().cast(pl.Int32).alias(self._count)
        self._rows.add(texts.group_by(self._by).agg(count, pl.col(_PASSAGE).min()))

    def table(self, complete: Callable[[pl.DataFrame], pl.DataFrame], schema: pa.Schema) -> pa.Table:
        """All pieces, ordered. complete: adds the pieces derived from others."""
        tables = [schema.empty_table()]
        for parts in self._rows.take():
            if parts:
                summed = pl.concat(parts).group_by(self._by).agg(pl.col(self._count).sum(), pl.col(_PASSAGE).min())
                tables.append(conform(complete(summed).sort(self._by).to_arrow(), schema))
        return pa.concat_tables(tables).combine_chunks()
