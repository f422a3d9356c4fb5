"""Stage `resolve`: one table of all entities, from the mentions and extractions of all shards.

Mentions and extracted entities with equal canonical names are one entity. A part adds up the sums of `count_names` for
a range of entities (`tasks.stages.resolve.entity_ranges`), and cuts it into entity shards (leaves of a binary trie over
the entity id), so that name vectors and descriptions are made and stored shard by shard.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from indexmill.text.canonical_names import entity_id
from schemas.tables import ENTITIES, NAMES, SURFACES, conform, private
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, left_out_at
from tasks.stages.resolve import name_counts
from tasks.stages.resolve.entity_ranges import cut, entity_ranges, range_rows
from tasks.stages.resolve.name_counts import NAME_COUNTS

SHOWN = private(
    entity_id=pa.string(),
    surface=pa.string(),
    passage_id=pa.string(),  # the smallest id of a passage with this form
)
"""The displayed form of each entity of a range, ordered by id."""


def resolve(counts: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Return entities, surface forms, names to embed, and displayed forms, each ordered by entity id.

    The schemas are `schemas.tables.ENTITIES`, `SURFACES` and `NAMES`, and SHOWN. counts: the concatenated sums of some
    shards (schema NAME_COUNTS). An entity's passages and documents include those from which it is only extracted; an
    entity that is only extracted has no mentions. The kind `subject` does not count.

    A name gets a vector if it titles a document or is linked in two or more passages: vectors serve to recognise names
    in a question, and a name in a single passage leads nowhere else. The displayed form is the most frequent
    surface form; ties go to the form extracted from the most passages, then to the smallest.
    """
    sums = ("mentions", "told", "passages", "mentioning", "documents")
    forms = (
        pl.DataFrame(pl.from_arrow(counts))
        .group_by("name", "surface")
        .agg(pl.col(*sums).sum(), pl.col("linked", "titles").any(), pl.col("passage_id").min())
        .sort("name", "mentions", "told", "surface", descending=[False, True, True, False])
    )
    entities = forms.group_by("name", maintain_order=True).agg(
        pl.col("surface", "passage_id").first(), pl.col(*sums).sum(), pl.col("linked", "titles").any()
    )
    ids = pl.Series("entity_id", map(entity_id, entities["name"].to_list()), pl.String)
    entities = entities.with_columns(ids).sort("entity_id")
    names = entities.filter(pl.col("titles") | (pl.col("linked") & (pl.col("mentioning") > 1)))
    surfaces = forms.select("name", "surface", "mentions").join(entities.select("name", "entity_id"), on="name")
    return (
        conform(entities.to_arrow(), ENTITIES),
        conform(surfaces.sort("entity_id", "surface").to_arrow(), SURFACES),
        conform(names.to_arrow(), NAMES),
        conform(entities.to_arrow(), SHOWN),
    )


@dataclass(frozen=True, kw_only=True)
class ResolveStageSettings(StageSettings):
    """Settings of the `resolve` stage. shown: whether to store the displayed forms, which `pieces` needs."""

    entities_per_shard: int
    shown: bool = left_out_at(False)


def drive(run: Run) -> None:
    """Count the names of all shards, and make the table of entities."""
    name_counts.drive(run)
    settings = ResolveStageSettings(
        entities_per_shard=run.configuration.shards.entities, shown=run.configuration.describes
    )
    counts = run.outputs("name_counts")
    labels = entity_ranges(len(run.outputs("mentions")))
    run.make(STAGE, [PartSpec(label, counts, settings) for label in labels])


def _compute(part: Part[ResolveStageSettings]) -> Outputs:
    label = part.job.shard
    *tables, shown = resolve(range_rows(part.paths("name_counts"), label, NAME_COUNTS))
    whole = dict(zip(("entities", "surfaces", "named"), tables, strict=True))
    shards = cut(whole, whole["entities"].column("entity_id"), label, part.settings.entities_per_shard)
    if part.settings.shown:
        shards["shown"] = shown
    return Outputs(tables=shards, counts={"entities": len(whole["entities"])})


STAGE = Stage(
    "resolve",
    version=4,
    compute=_compute,
    libraries=("polars", "numpy"),
    inputs=(Input("name_counts", each=True),),
    outputs=(
        Output("entities", ENTITIES, artifact="entities/{label}", pieces=True),
        Output("surfaces", SURFACES, artifact="surfaces/{label}", pieces=True),
        Output("named", NAMES, pieces=True),
        Output("shown", SHOWN),
    ),
    priority=10,
)
