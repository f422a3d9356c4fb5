"""Stage `pieces`: the pieces of descriptions, that is, what the passages say about each entity and related pair.

Equal pieces from several passages are one row with a count. A part adds up the pieces of `count_pieces` for a range of
entities and cuts them like the entity table, so that a shard's descriptions are made again only if its pieces change.
The target of a relation may be in another range, so each part reads the displayed forms of all ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from schemas.tables import PIECES, RELATION_PIECES, conform
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings
from tasks.stages.resolve import piece_counts
from tasks.stages.resolve.entity_ranges import cut, range_rows
from tasks.stages.resolve.resolve import SHOWN


def entity_pieces(counts: pa.Table, shown: pl.DataFrame) -> pa.Table:
    """Add up the pieces of each entity (schema PIECES). shown: the entities' displayed forms (schema SHOWN)."""
    pieces = _added(counts, ["entity_id"], "passages")
    names = pieces.filter(pl.col("part") == "name").drop("text", "passage_id")
    surfaces = names.join(shown.rename({"surface": "text"}), on="entity_id").with_columns(part=pl.lit("surface"))
    return _ordered(pl.concat([pieces, surfaces.select(pieces.columns)]), PIECES)


def relation_pieces(counts: pa.Table, shown: Iterable[pl.DataFrame]) -> pa.Table:
    """Add up the pieces of pairs (schema RELATION_PIECES). shown: tables (schema SHOWN) that contain all ends."""
    pieces = _added(counts, ["source", "target"], "relations")
    pairs = pieces.filter(pl.col("part") == "pair").drop("text", "passage_id")
    whole = [pieces.filter(pl.col("part") != "pair")]
    for some in shown:
        for end in ("source", "target"):
            named = pairs.join(some.rename({"entity_id": end, "surface": "text"}), on=end)
            whole.append(named.with_columns(part=pl.lit(end)).select(pieces.columns))
    return _ordered(pl.concat(whole), RELATION_PIECES)


def _added(counts: pa.Table, owner: list[str], count: str) -> pl.DataFrame:
    rows = pl.DataFrame(pl.from_arrow(counts))
    return rows.group_by(*owner, "part", "text").agg(pl.col(count).sum(), pl.col("passage_id").min())


def _ordered(pieces: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    return conform(pieces.sort(schema.names[: schema.names.index("text") + 1]).to_arrow(), schema)


@dataclass(frozen=True, kw_only=True)
class PiecesSettings(StageSettings):
    """Settings of the `pieces` stage. entities_per_shard: the same as in the settings of `resolve`."""

    entities_per_shard: int


def drive(run: Run) -> None:
    """Count the pieces of all shards and add them up."""
    piece_counts.drive(run)
    settings = PiecesSettings(entities_per_shard=run.configuration.shards.entities)
    inputs = run.outputs("piece_counts", "relation_piece_counts", "shown")
    labels = sorted(name.partition("/")[2] for name in run.outputs("shown"))
    run.make(STAGE, [PartSpec(label, inputs, settings) for label in labels])


def _compute(part: Part[PiecesSettings]) -> Outputs:
    label = part.job.shard
    shown = part.table(f"shown/{label}")
    every = (pl.read_parquet(path) for path in part.paths("shown"))
    counts = range_rows(part.paths("piece_counts"), label, PIECES)
    related = range_rows(part.paths("relation_piece_counts"), label, RELATION_PIECES)
    tables = {
        "pieces": entity_pieces(counts, pl.DataFrame(pl.from_arrow(shown))),
        "relation_pieces": relation_pieces(related, every),
    }
    return Outputs(tables=cut(tables, shown.column("entity_id"), label, part.settings.entities_per_shard))


STAGE = Stage(
    "pieces",
    version=1,
    compute=_compute,
    libraries=("polars", "numpy"),
    inputs=(
        Input("piece_counts", each=True),
        Input("relation_piece_counts", each=True),
        Input("shown", SHOWN, each=True),
    ),
    outputs=(
        Output("pieces", PIECES, pieces=True),
        Output("relation_pieces", RELATION_PIECES, pieces=True),
    ),
    priority=10,
)
