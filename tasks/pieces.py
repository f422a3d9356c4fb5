"""What the passages say of each entity, and of each two that are related: the pieces that descriptions are made of.

An equal piece of several passages is one, with their number. The tables are cut like that of the entities, so that the
descriptions of a shard are made again only where its own pieces change.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.tables import PIECES, RELATION_PIECES, conform

__all__ = ["entity_pieces", "relation_pieces"]

_PIECE = pl.Schema(
    {"entity_id": pl.String, "part": pl.String, "text": pl.String, "passages": pl.Int32, "passage_id": pl.String}
)
_RELATION = pl.Schema(
    {"source": pl.String, "target": pl.String, "part": pl.String, "text": pl.String}
    | {"relations": pl.Int32, "passage_id": pl.String}
)


def entity_pieces(extracted: Sequence[Path], shown: pl.DataFrame) -> pa.Table:
    """The pieces of all entities (schema PIECES) of the tables `extracted` of all shards.

    shown: by `entity_id`, the `surface` under which each entity is shown. Holds one shard's table, and all pieces.
    """
    found = [_PIECE.to_frame()]
    for path in extracted:
        rows = pl.read_parquet(path, columns=["passage_id", "entity_id", "name", "type", "description"])
        parts = rows.unpivot(["name", "type", "description"], index=["entity_id", "passage_id"], variable_name="part")
        found.append(_counted(parts.rename({"value": "text"}), "passages", _PIECE))
    pieces = _added(found, "passages")
    names = pieces.filter(pl.col("part") == "name").drop("text", "part")
    surfaces = names.join(shown.rename({"surface": "text"}), on="entity_id").with_columns(part=pl.lit("surface"))
    whole = pl.concat([pieces, surfaces.select(pieces.columns)]).sort("entity_id", "part", "text")
    return conform(whole.to_arrow(), PIECES)


def relation_pieces(relations: Sequence[Path], shown: pl.DataFrame) -> pa.Table:
    """The pieces of all pairs (schema RELATION_PIECES) of the tables `relations` of all shards; shown: as above.

    A relation that nothing describes is told by its wording.
    """
    found = [_RELATION.to_frame()]
    for path in relations:
        rows = pl.read_parquet(path, columns=["passage_id", "source", "target", "kind", "text", "description"])
        told = rows.with_columns(
            pair=pl.lit("-"),
            wording=pl.when(pl.col("description") == "").then("text").otherwise(pl.lit("")),
        )
        parts = told.unpivot(
            ["pair", "kind", "description", "wording"], index=["source", "target", "passage_id"], variable_name="part"
        )
        found.append(_counted(parts.rename({"value": "text"}), "relations", _RELATION))
    pieces = _added(found, "relations")
    pairs = pieces.filter(pl.col("part") == "pair").drop("text", "part")
    ends = [
        pairs.join(shown.rename({"entity_id": end, "surface": "text"}), on=end).with_columns(part=pl.lit(end))
        for end in ("source", "target")
    ]
    told = pieces.filter(pl.col("part") != "pair")
    whole = pl.concat([told, *(one.select(told.columns) for one in ends)]).sort("source", "target", "part", "text")
    return conform(whole.to_arrow(), RELATION_PIECES)


def _counted(parts: pl.DataFrame, count: str, schema: pl.Schema) -> pl.DataFrame:
    """The distinct texts among some parts, how many rows say each, and the least passage of these."""
    by = [name for name in schema if name not in (count, "passage_id")]
    counted = parts.filter(pl.col("text") != "").group_by(by).agg(pl.len().alias(count), pl.col("passage_id").min())
    return counted.cast({count: pl.Int32}).select(schema.names())


def _added(found: Sequence[pl.DataFrame], count: str) -> pl.DataFrame:
    whole = pl.concat(found)
    by = [name for name in whole.columns if name not in (count, "passage_id")]
    return whole.group_by(by).agg(pl.col(count).sum(), pl.col("passage_id").min()).select(whole.columns)
