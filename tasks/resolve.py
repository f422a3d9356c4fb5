"""Stage `resolve`: the entity table of the whole corpus, from the mentions of its shards.

Mentions whose canonical names are equal are one entity. The table is cut into entity shards (leaves of a binary trie
over the entity id), so that vectors of names are made and kept shard by shard.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from indexmill.names import NameIndex
from schemas.tables import ENTITIES, NAMES, SURFACES, conform
from tasks.ingest.shards import assign
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "UNLINKED_KINDS", "resolve"]

UNLINKED_KINDS = ("date", "number")
"""Kinds of mentions that link passages which have nothing else in common: they are entities outside the graph."""


def resolve(mentions: list[Path], passages: list[Path]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Entities, their surface forms, and the names that get vectors, each ordered by entity id.

    The schemas are `schemas.tables.ENTITIES`, `SURFACES` and `NAMES`.

    A name gets a vector if it titles a document or is linked in two or more passages: the vector serves to tell what a
    question names from what it asks, and a name that stands in one passage leads nowhere else. (That is a quarter of
    the names, and recall is the same as with all: see docs/families.md.)

    Reads Parquet files of mentions and passages in a stream. An entity is shown by its most frequent surface form,
    the smallest of equals.
    """
    if not mentions:
        return ENTITIES.empty_table(), SURFACES.empty_table(), NAMES.empty_table()
    rows = pl.scan_parquet(mentions).select("entity_id", "name", "surface", "passage_id", "kind")
    owners = pl.scan_parquet(passages).select("passage_id", "document_id")
    counted = rows.group_by("entity_id", "name", "surface").agg(
        mentions=pl.len().cast(pl.Int64),
        linked=(~pl.col("kind").is_in(UNLINKED_KINDS)).any(),
        titles=(pl.col("kind") == "title").any(),
    )
    spread = (
        rows.select("entity_id", "passage_id")
        .unique()
        .join(owners, on="passage_id")
        .group_by("entity_id")
        .agg(passages=pl.len().cast(pl.Int64), documents=pl.col("document_id").n_unique().cast(pl.Int64))
    )
    surfaces, spread_rows = pl.collect_all([counted, spread], engine="streaming")
    surfaces = surfaces.sort("entity_id", "mentions", "surface", descending=[False, True, False])
    entities = (
        surfaces.group_by("entity_id", maintain_order=True)
        .agg(
            pl.col("name").first(),
            pl.col("surface").first(),
            pl.col("mentions").sum(),
            pl.col("linked", "titles").any(),
        )
        .join(spread_rows, on="entity_id")
        .sort("entity_id")
    )
    names = entities.filter(pl.col("titles") | (pl.col("linked") & (pl.col("passages") > 1))).select(
        "entity_id", "name"
    )
    ordered = surfaces.select("entity_id", "surface", "mentions").sort("entity_id", "surface")
    return (
        conform(entities.drop("linked", "titles").to_arrow(), ENTITIES),
        conform(ordered.to_arrow(), SURFACES),
        conform(names.to_arrow(), NAMES),
    )


def _compute(inputs: Inputs) -> Outputs:
    made = resolve(inputs.paths("mentions"), inputs.paths("passages"))
    found = dict(zip(("entities", "surfaces", "named"), made, strict=True))
    keys = {name: NameIndex.keys(table.column("entity_id").to_pylist()) for name, table in found.items()}
    hashes = np.zeros((len(keys["entities"]), 32), dtype=np.uint8)
    hashes[:, :8] = keys["entities"].astype(">u8").view(np.uint8).reshape(-1, 8)
    weights = np.ones(len(hashes), dtype=np.int64)
    tables: dict[str, pa.Table] = {}
    for label, rows in assign(hashes, weights, inputs.settings["entities_per_shard"], letter="e").items():
        # An id is a hash in hexadecimal: the ids of a leaf of the trie stand together in each table.
        first, last = keys["entities"][[rows.min(), rows.max()]]
        for name, table in found.items():
            low, high = np.searchsorted(keys[name], first), np.searchsorted(keys[name], last, side="right")
            tables[f"{name}/{label}"] = table.slice(int(low), int(high - low))
    return Outputs(tables=tables, counts={"entities": len(hashes)})


STAGE = Stage("resolve", version=2, compute=_compute, libraries=("polars", "numpy"))
