"""What the passages say of each entity, and of each two that are related: the pieces that descriptions are made of.

An equal piece of several passages is one, with their number. The tables are cut like that of the entities, so that the
descriptions of a shard are made again only where its own pieces change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.tables import PIECES, RELATION_PIECES, conform

__all__ = ["entity_pieces", "relation_pieces"]

_FOLDS = tuple("0123456789abcdef")
"""The first digits of entity ids: pieces are put together one digit after the other."""

_TAG, _PASSAGE = "part", "passage_id"


def entity_pieces(extracted: Sequence[Path], shown: pl.DataFrame) -> pa.Table:
    """The pieces of all entities (schema PIECES) of the tables `extracted` of all shards.

    shown: by `entity_id`, the `surface` under which each entity is shown, and the least `passage_id` that writes it so.
    Holds one shard's table, and all pieces.
    """
    found = _Found(["entity_id"], "passages")
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

    A relation that nothing describes is told by its wording.
    """
    found = _Found(["source", "target"], "relations")
    for path in relations:
        rows = pl.read_parquet(path, columns=[_PASSAGE, "source", "target", "kind", "text", "description"])
        told = rows.with_columns(
            pair=pl.lit("-"), wording=pl.when(pl.col("description") == "").then("text").otherwise(pl.lit(""))
        )
        parts = ["pair", "kind", "description", "wording"]
        found.add(told.unpivot(parts, index=["source", "target", _PASSAGE], variable_name=_TAG))

    def with_ends(pieces: pl.DataFrame) -> pl.DataFrame:
        pairs = pieces.filter(pl.col(_TAG) == "pair").drop("text", _PASSAGE)
        ends = [
            pairs.join(shown.rename({"entity_id": end, "surface": "text"}), on=end).with_columns(
                pl.lit(end).alias(_TAG)
            )
            for end in ("source", "target")
        ]
        told = pieces.filter(pl.col(_TAG) != "pair")
        return pl.concat([told, *(one.select(told.columns) for one in ends)])

    return found.table(with_ends, RELATION_PIECES)


class _Found:
    """Pieces of some shards. owner: the columns of ids whose pieces they are; count: of those that say a piece."""

    def __init__(self, owner: list[str], count: str) -> None:
        self._by = [*owner, _TAG, "text"]
        self._count = count
        self._found: dict[str, list[pl.DataFrame]] = {digit: [] for digit in _FOLDS}

    def add(self, parts: pl.DataFrame) -> None:
        """Add a shard's parts, a text for each row that says it, as the column `value`."""
        texts = parts.rename({"value": "text"}).filter(pl.col("text") != "")
        counted = texts.group_by(self._by).agg(pl.len().cast(pl.Int32).alias(self._count), pl.col(_PASSAGE).min())
        digit = pl.col(self._by[0]).str.slice(0, 1).alias("digit")
        split = counted.with_columns(digit).partition_by("digit", as_dict=True, include_key=False)
        for (first,), rows in split.items():
            self._found[first].append(rows)

    def table(self, more: Callable[[pl.DataFrame], pl.DataFrame], schema: pa.Schema) -> pa.Table:
        """All pieces, and what is made of those of some entities, ordered."""
        tables = [schema.empty_table()]
        for digit in _FOLDS:
            parts = self._found.pop(digit)
            if parts:
                summed = pl.concat(parts).group_by(self._by).agg(pl.col(self._count).sum(), pl.col(_PASSAGE).min())
                tables.append(conform(more(summed).sort(self._by).to_arrow(), schema))
        return pa.concat_tables(tables).combine_chunks()
