"""Stage `resolve`: the entity table of the whole corpus, from the mentions and extractions of its shards.

Mentions and extracted entities with equal canonical names are one entity. The table is
cut into entity shards (leaves of a binary trie over the entity id), so that vectors of names, and descriptions, are
made and kept shard by shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.text.names import NameIndex
from schemas.tables import (
    ENTITIES,
    EXTRACTED,
    MENTIONS,
    NAMES,
    PASSAGES,
    PIECES,
    RELATION_PIECES,
    RELATIONS,
    SURFACES,
    conform,
)
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.shards import assign
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Settings, Stage, left_out_at
from tasks.stages.resolve.pieces import RowsByDigit, entity_pieces, relation_pieces

__all__ = ["STAGE", "UNLINKED_KINDS", "ResolveStageSettings", "drive", "entity_keys", "resolve"]

UNLINKED_KINDS = ("date", "number")
"""Kinds of mentions that link otherwise unrelated passages: their entities stay outside the graph."""


_SURFACE = pl.Schema(
    {"entity_id": pl.String, "name": pl.String, "surface": pl.String}
    | {"mentions": pl.Int64, "told": pl.Int64, "linked": pl.Boolean, "titles": pl.Boolean, "passage_id": pl.String}
)
_SPREAD = pl.Schema({"entity_id": pl.String} | dict.fromkeys(("passages", "mentioning", "documents"), pl.Int64))

_TOGETHER = 16
"""Shards whose mentions are counted at a time: what a query costs beside its rows takes longer than those of one."""


def resolve(
    mentions: Sequence[Path], passages: Sequence[Path], extracted: Sequence[Path] = ()
) -> tuple[pa.Table, pa.Table, pa.Table, pl.DataFrame]:
    """Entities, surface forms and names to embed, each ordered by entity id, and the surface shown for each entity.

    The schemas are `schemas.tables.ENTITIES`, `SURFACES` and `NAMES`; the last has entity_id, surface and, where
    something is extracted, the least passage_id with this surface. The files are those of the same shards, in one
    order; `extracted` is empty where nothing is extracted. An entity's passages and documents are those that mention it
    or from which it is extracted; one that is only extracted has no mentions, and the kind `subject` does not count.

    A name gets a vector if it titles a document or is linked in two or more passages: the vector serves to tell the
    names in a question from the rest of it, and a name in a single passage leads nowhere else. (That is a quarter of
    the names, and recall is the same as with all: see docs/families.md.)

    Reads the Parquet files of some shards at a time and keeps only the sums: each passage and document is in one shard,
    so that counts add up over the shards. An entity is shown by its most frequent surface form; ties go to the form
    extracted from the most passages, then to the smallest.
    """
    surfaces, spread = RowsByDigit("entity_id"), RowsByDigit("entity_id")
    for low in range(0, len(mentions), _TOGETHER):
        files = (paths[low : low + _TOGETHER] for paths in (mentions, passages, extracted))
        for found, rows in zip((surfaces, spread), _counted(*files), strict=True):
            found.add(rows)
    *tables, shown = zip(*map(_folded, surfaces.take(), spread.take()), strict=True)
    entities, ordered, names = (pa.concat_tables(table).combine_chunks() for table in tables)
    return entities, ordered, names, pl.concat(shown)


def _counted(
    mentions: Sequence[Path], passages: Sequence[Path], extracted: Sequence[Path]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Some shards' surface forms (_SURFACE) and the counts of their entities' passages and documents (_SPREAD)."""
    rows = _read(mentions, "entity_id", "name", "surface", "passage_id", "kind")
    owners = _read(passages, "passage_id", "document_id")
    passage = pl.col("passage_id").min() if extracted else pl.lit("")
    surfaces = rows.group_by("entity_id", "name", "surface").agg(
        mentions=(pl.col("kind") != "subject").sum().cast(pl.Int64),
        told=pl.lit(0, pl.Int64),
        linked=(~pl.col("kind").is_in(UNLINKED_KINDS)).any(),
        titles=(pl.col("kind") == "title").any(),
        passage_id=passage,
    )
    places = rows.select("entity_id", "passage_id").unique().with_columns(mentioning=pl.lit(1, pl.Int64))
    if extracted:
        described = _read(extracted, "entity_id", "name", "surface", "passage_id")
        forms = described.group_by("entity_id", "name", "surface").agg(
            mentions=pl.lit(0, pl.Int64),
            told=pl.len().cast(pl.Int64),
            linked=pl.lit(False),
            titles=pl.lit(False),
            passage_id=passage,
        )
        surfaces = pl.concat([surfaces, forms])
        also = described.select("entity_id", "passage_id", mentioning=pl.lit(0, pl.Int64))
        places = pl.concat([places, also]).group_by("entity_id", "passage_id").agg(pl.col("mentioning").sum())
    spread = (
        places.join(owners, on="passage_id")
        .group_by("entity_id")
        .agg(
            passages=pl.len().cast(pl.Int64),
            mentioning=pl.col("mentioning").sum(),
            documents=pl.col("document_id").n_unique().cast(pl.Int64),
        )
    )
    return surfaces, spread


def _read(paths: Sequence[Path], *columns: str) -> pl.DataFrame:
    """Some columns of tables, one after the other. Tables of planned parts have more columns than others."""
    return pl.concat([pl.read_parquet(path, columns=list(columns)) for path in paths])


def _folded(
    surfaces: list[pl.DataFrame], spread: list[pl.DataFrame]
) -> tuple[pa.Table, pa.Table, pa.Table, pl.DataFrame]:
    """The tables of some entities, with the counts of all shards added up."""
    forms = (
        pl.concat([_SURFACE.to_frame(), *surfaces])
        .group_by("entity_id", "name", "surface")
        .agg(pl.col("mentions", "told").sum(), pl.col("linked", "titles").any(), pl.col("passage_id").min())
        .sort("entity_id", "mentions", "told", "surface", descending=[False, True, True, False])
    )
    places = pl.concat([_SPREAD.to_frame(), *spread]).group_by("entity_id").agg(pl.exclude("entity_id").sum())
    entities = (
        forms.group_by("entity_id", maintain_order=True)
        .agg(
            pl.col("name").first(),
            pl.col("surface", "passage_id").first(),
            pl.col("mentions").sum(),
            pl.col("linked", "titles").any(),
        )
        .join(places, on="entity_id")
        .sort("entity_id")
    )
    names = entities.filter(pl.col("titles") | (pl.col("linked") & (pl.col("mentioning") > 1)))
    ordered = forms.select("entity_id", "surface", "mentions").sort("entity_id", "surface")
    return (
        conform(entities.to_arrow(), ENTITIES),
        conform(ordered.to_arrow(), SURFACES),
        conform(names.select("entity_id", "name").to_arrow(), NAMES),
        entities.select("entity_id", "surface", "passage_id"),
    )


def entity_keys(ids: pa.ChunkedArray) -> NDArray[np.uint64]:
    """The keys of a column of entity ids (`NameIndex.keys`), converted in chunks to save memory."""
    step = 65_536
    keys = [NameIndex.keys(ids.slice(low, step).to_pylist()) for low in range(0, len(ids), step)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *keys])


@dataclass(frozen=True, kw_only=True)
class ResolveStageSettings(Settings):
    """pieces: True to collect the pieces that descriptions are made from."""

    entities_per_shard: int
    pieces: bool = left_out_at(False)


def drive(run: Run) -> None:
    """Make the entity table of the whole corpus."""
    describes = run.configuration.describes
    settings = ResolveStageSettings(entities_per_shard=run.configuration.shards.entities, pieces=describes)
    inputs = run.outputs("mentions", "passages", "extracted", *(["relations"] if describes else []))
    run.make(STAGE, [PartSpec(WHOLE, inputs, settings)])


def _compute(part: Part[ResolveStageSettings]) -> Outputs:
    *made, shown = resolve(part.paths("mentions"), part.paths("passages"), part.paths("extracted"))
    found = dict(zip(("entities", "surfaces", "named"), made, strict=True))
    if part.settings.pieces:
        found["pieces"] = entity_pieces(part.paths("extracted"), shown)
        found["relation_pieces"] = relation_pieces(part.paths("relations"), shown)
    keys = {name: entity_keys(table.column(0)) for name, table in found.items()}
    hashes = np.zeros((len(keys["entities"]), 32), dtype=np.uint8)
    hashes[:, :8] = keys["entities"].astype(">u8").view(np.uint8).reshape(-1, 8)
    weights = np.ones(len(hashes), dtype=np.int64)
    tables: dict[str, pa.Table] = {}
    for label, rows in assign(hashes, weights, part.settings.entities_per_shard, letter="e").items():
        # An id is a hash in hexadecimal: the ids of a leaf of the trie stand together in each table.
        first, last = keys["entities"][[rows.min(), rows.max()]]
        for name, table in found.items():
            low, high = np.searchsorted(keys[name], first), np.searchsorted(keys[name], last, side="right")
            tables[f"{name}/{label}"] = table.slice(int(low), int(high - low))
    return Outputs(tables=tables, counts={"entities": len(hashes)})


STAGE = Stage(
    "resolve",
    version=3,
    compute=_compute,
    settings=ResolveStageSettings,
    libraries=("polars", "numpy"),
    inputs=(
        Input("mentions", MENTIONS, each=True),
        Input("passages", PASSAGES, each=True),
        Input("extracted", EXTRACTED, each=True, optional=True),
        Input("relations", RELATIONS, stage="extract", each=True, optional=True),
    ),
    outputs=(
        Output("entities", ENTITIES, artifact="entities/{label}", each=True),
        Output("surfaces", SURFACES, artifact="surfaces/{label}", each=True),
        Output("named", NAMES, each=True),
        Output("pieces", PIECES, each=True),
        Output("relation_pieces", RELATION_PIECES, each=True),
    ),
    priority=10,
)
