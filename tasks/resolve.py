"""Stage `resolve`: the entity table of the whole corpus, from the mentions of its shards.

Mentions whose canonical names are equal are one entity. The table is cut into entity shards (leaves of a binary trie
over the entity id), so that vectors of names are made and kept shard by shard.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.tables import ENTITIES, NAMES, SURFACES, conform
from tasks.ingest.shards import assign
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "resolve"]


def resolve(mentions: list[Path], passages: list[Path]) -> tuple[pa.Table, pa.Table]:
    """Entities and their surface forms (`schemas.tables.ENTITIES`, `SURFACES`), ordered by entity id.

    Reads Parquet files of mentions and passages in a stream. An entity is shown by its most frequent surface form,
    the smallest of equals.
    """
    if not mentions:
        return ENTITIES.empty_table(), SURFACES.empty_table()
    rows = pl.scan_parquet(mentions).select("entity_id", "name", "surface", "passage_id")
    owners = pl.scan_parquet(passages).select("passage_id", "document_id")
    counted = rows.group_by("entity_id", "name", "surface").agg(mentions=pl.len().cast(pl.Int64))
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
        .agg(pl.col("name").first(), pl.col("surface").first(), pl.col("mentions").sum())
        .join(spread_rows, on="entity_id")
        .sort("entity_id")
    )
    ordered = surfaces.select("entity_id", "surface", "mentions").sort("entity_id", "surface")
    return conform(entities.to_arrow(), ENTITIES), conform(ordered.to_arrow(), SURFACES)


def _compute(inputs: Inputs) -> Outputs:
    def paths(prefix: str) -> list[Path]:
        return [inputs.path(digest) for name, digest in sorted(inputs.job.inputs.items()) if name.startswith(prefix)]

    entities, surfaces = resolve(paths("mentions/"), paths("passages/"))
    ids = entities["entity_id"].to_pylist()
    hashes = np.zeros((len(ids), 32), dtype=np.uint8)
    hashes[:, :16] = np.frombuffer(bytes.fromhex("".join(ids)), dtype=np.uint8).reshape(-1, 16)
    shards = assign(hashes, np.ones(len(ids), dtype=np.int64), inputs.settings["entities_per_shard"], letter="e")
    tables: dict[str, pa.Table] = {}
    surface_owner = surfaces["entity_id"].to_numpy(zero_copy_only=False).astype(str)
    for label, rows in shards.items():
        own = entities.take(pa.array(np.sort(rows)))
        tables[f"entities/{label}"] = own
        tables[f"names/{label}"] = conform(own, NAMES)
        # Ids of a leaf are contiguous in sorted order, and so are their surfaces.
        bounds = [ids[int(rows.min())], ids[int(rows.max())]] if len(rows) else ["", ""]
        first, last = np.searchsorted(surface_owner, bounds[0]), np.searchsorted(surface_owner, bounds[1], side="right")
        tables[f"surfaces/{label}"] = surfaces.slice(int(first), int(last - first))
    return Outputs(tables=tables, counts={"entities": len(ids)})


STAGE = Stage("resolve", version=1, compute=_compute, libraries=("polars", "numpy"))
