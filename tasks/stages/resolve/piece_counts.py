"""Stage `count_pieces`: the description pieces of a group of document shards, which the `pieces` stage adds up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.tables import EXTRACTED, PIECES, RELATION_PIECES, RELATIONS, conform
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, NoSettings, Output, Outputs, Part, Stage
from tasks.stages.resolve.entity_ranges import ranged_bytes
from tasks.stages.resolve.name_counts import in_groups, read_columns


def count_entity_pieces(extracted: Sequence[Path]) -> pa.Table:
    """Return the pieces of entities in the tables `extracted` of some shards (schema PIECES), ordered.

    `entity_pieces` adds the rows whose part is `surface`.
    """
    rows = read_columns(extracted, "passage_id", "entity_id", "name", "type", "description")
    return _counted(rows, ["name", "type", "description"], PIECES)


def count_relation_pieces(relations: Sequence[Path]) -> pa.Table:
    """Return the pieces of pairs in the tables `relations` of some shards (schema RELATION_PIECES), ordered.

    A relation without a description contributes its wording. A row whose part is `pair` has the text "-" in place of
    the two ends, which are added later.
    """
    rows = read_columns(relations, "passage_id", "source", "target", "kind", "text", "description")
    wording = pl.when(pl.col("description") == "").then("text").otherwise(pl.lit(""))
    rows = rows.with_columns(pair=pl.lit("-"), wording=wording).drop("text")
    return _counted(rows, ["pair", "kind", "description", "wording"], RELATION_PIECES)


def _counted(rows: pl.DataFrame, parts: list[str], schema: pa.Schema) -> pa.Table:
    """Count the rows of each owner's distinct texts. schema: the result's, with the owner, part, text and count."""
    by = schema.names[: schema.names.index("text") + 1]
    texts = rows.unpivot(parts, index=[*by[:-2], "passage_id"], variable_name="part", value_name="text")
    count = pl.len().cast(pl.Int32).alias(schema.names[len(by)])
    pieces = texts.filter(pl.col("text") != "").group_by(by).agg(count, pl.col("passage_id").min())
    return conform(pieces.sort(by).to_arrow(), schema)


def drive(run: Run) -> None:
    """Count the pieces of all shards."""
    groups = in_groups(run.outputs("extracted", "relations"))
    run.make(STAGE, [PartSpec(label, inputs, NoSettings()) for label, inputs in groups.items()])


def _compute(part: Part[NoSettings]) -> Outputs:
    counts = {
        "piece_counts": count_entity_pieces(part.paths("extracted")),
        "relation_piece_counts": count_relation_pieces(part.paths("relations")),
    }
    return Outputs(files={name: ranged_bytes(table, table.column(0)) for name, table in counts.items()})


STAGE = Stage(
    "count_pieces",
    version=1,
    compute=_compute,
    libraries=("polars",),
    inputs=(
        Input("extracted", EXTRACTED, each=True),
        Input("relations", RELATIONS, stage="extract", each=True),
    ),
    outputs=(Output("piece_counts"), Output("relation_piece_counts")),
    priority=10,
)
