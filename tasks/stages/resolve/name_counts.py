"""Stage `count_names`: how often a group of neighbouring shards names each entity; `resolve` adds up the counts.

Each passage and document is in one shard, so counts add up over the shards. A part is made for a group of document
shards: with a part per shard, a build would take longer to look up the parts; with a larger group, a changed document
would cause more rows to be counted and written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.tables import conform, private
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.shards import shard_groups
from tasks.core.stage import NoSettings, Output, Outputs, Part, Stage, shared_tables
from tasks.stages.resolve.entity_ranges import ranged_bytes

UNLINKED_KINDS = ("date", "number")
"""Kinds of mentions that would link otherwise unrelated passages: their entities stay outside the graph."""

SUBJECT_KINDS = ("title", "subject")
"""Kinds of mentions that mark the subject of a passage."""

SHARDS_PER_GROUP = 8
"""The number of document shards whose names one part counts."""

NAME_COUNTS = private(
    name=pa.string(),  # canonical; the entity's id follows from it
    surface=pa.string(),
    mentions=pa.int64(),  # without the kind `subject`
    told=pa.int64(),  # passages from which the entity is extracted in this form
    linked=pa.bool_(),  # whether a mention links passages
    titles=pa.bool_(),  # whether a mention titles a document
    passage_id=pa.string(),  # the smallest id of a passage with this form; empty if there is no extraction
    passages=pa.int64(),  # passages of the entity, in the row of its first form; 0 in its other rows
    mentioning=pa.int64(),  # likewise: passages that mention the entity
    documents=pa.int64(),  # likewise: documents of the entity
)
"""The surface forms of the entities of some shards."""


def count_names(
    mentions: Sequence[Path], passages: Sequence[Path], extracted: Sequence[Path] = ()
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the counts of some shards (schema NAME_COUNTS), by entity id and surface, and the entity id of each row.

    The files are the tables of the same shards, in the same order; `extracted` is empty if there is no extraction.
    """
    rows = read_columns(mentions, "entity_id", "name", "surface", "passage_id", "kind")
    owners = read_columns(passages, "passage_id", "document_id")
    passage = pl.col("passage_id").min() if extracted else pl.lit("")
    forms = rows.group_by("entity_id", "name", "surface").agg(
        mentions=(pl.col("kind") != "subject").sum().cast(pl.Int64),
        told=pl.lit(0, pl.Int64),
        linked=(~pl.col("kind").is_in(UNLINKED_KINDS)).any(),
        titles=(pl.col("kind") == "title").any(),
        passage_id=passage,
    )
    places = rows.select("entity_id", "passage_id").unique().with_columns(mentioning=pl.lit(1, pl.Int64))
    if extracted:
        described = read_columns(extracted, "entity_id", "name", "surface", "passage_id")
        extracted_forms = described.group_by("entity_id", "name", "surface").agg(
            mentions=pl.lit(0, pl.Int64),
            told=pl.len().cast(pl.Int64),
            linked=pl.lit(False),
            titles=pl.lit(False),
            passage_id=passage,
        )
        forms = (
            pl.concat([forms, extracted_forms])
            .group_by("entity_id", "name", "surface")
            .agg(pl.col("mentions", "told").sum(), pl.col("linked", "titles").any(), pl.col("passage_id").min())
        )
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
    counted = pl.col("passages", "mentioning", "documents")
    ordered = (
        forms.join(spread, on="entity_id", how="left")
        .sort("entity_id", "surface")
        .with_columns(pl.when(pl.col("entity_id").is_first_distinct()).then(counted).otherwise(0))
    ).to_arrow()
    return conform(ordered, NAME_COUNTS), ordered.column("entity_id")


def read_columns(paths: Sequence[Path], *columns: str) -> pl.DataFrame:
    """Read columns of tables, one table after the other. Tables of planned parts have additional columns."""
    return pl.concat([pl.read_parquet(path, columns=list(columns)) for path in paths])


def in_groups(outputs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Group outputs `<name>/<label of a document shard>` by the label of the shard's group."""
    labels = {name.partition("/")[2] for name in outputs}
    group_of = {label: group for group, within in shard_groups(labels, SHARDS_PER_GROUP).items() for label in within}
    grouped: dict[str, dict[str, str]] = {group: {} for group in sorted(set(group_of.values()))}
    for name, digest in outputs.items():
        grouped[group_of[name.partition("/")[2]]][name] = digest
    return grouped


def drive(run: Run) -> None:
    """Count the names of all shards."""
    groups = in_groups(run.outputs("mentions", "passages", "extracted"))
    run.make(STAGE, [PartSpec(label, inputs, NoSettings()) for label, inputs in groups.items()])


def _compute(part: Part[NoSettings]) -> Outputs:
    counts, ids = count_names(part.paths("mentions"), part.paths("passages"), part.paths("extracted"))
    return Outputs(files={"name_counts": ranged_bytes(counts, ids)})


STAGE = Stage(
    "count_names",
    version=1,
    compute=_compute,
    libraries=("polars",),
    inputs=(
        *shared_tables("mentions", "passages", each=True),
        *shared_tables("extracted", each=True, optional=True),
    ),
    outputs=(Output("name_counts"),),
    priority=10,
)
