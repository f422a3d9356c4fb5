"""Stage `community_levels`: the members and sources of a level's communities, by group (ArchRAG, section 3.1.2).

A group is a leaf of a trie over community ids, labelled with the level's letter and the leaf's bits. The reports of a
group are one part. Each group has up to three tables, so that a part's key covers all inputs of its reports:

    community_members/<g>     the members of each community and the digests of their texts; published
    community_relations/<g>   on level 1: the relations between members of one community
    community_sources/<g>     if a language model is asked: the passages, or lower reports, that a report is based on
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from indexmill.errors import IndexmillError
from schemas.tables import PIECES, conform
from tasks.core.communities.clusterings import CLUSTERS, Clusters
from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.core.groups import assigned, expected_groups, expected_rows, hex_ids
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, shared_tables, worker_arg
from tasks.families.community_tree.graph import LETTERS, nodes_below
from tasks.families.community_tree.tables import COMMUNITIES, COMMUNITY_MEMBERS, COMMUNITY_RELATIONS, COMMUNITY_SOURCES

_TABLES = {
    "community_members": COMMUNITY_MEMBERS,
    "community_relations": COMMUNITY_RELATIONS,
    "community_sources": COMMUNITY_SOURCES,
}
_TOGETHER = 8
"""A community of several members is assumed to have, on average, at least 1 / _TOGETHER of the maximum size.

This is a guess; only the budget is a hard limit."""


@dataclass(frozen=True, kw_only=True)
class LevelSettings(StageSettings):
    """group, largest: the maximum sizes of a group and of a community. asks: whether a model writes the reports."""

    level: int
    group: int
    largest: int
    asks: bool
    summariser: Mapping[str, Any] = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        return {"level": self.level, "summariser": self.summariser}


def _compute(part: Part[LevelSettings]) -> Outputs:
    settings = part.settings
    clusters = Clusters.of(part.pack("clusters"))
    nodes = nodes_below(part)
    if nodes["id"].to_pylist() != hex_ids(clusters.nodes):
        raise IndexmillError(
            f"level {settings.level}: the nodes differ from the clustered nodes; run `indexmill build --cold` to "
            "rebuild both"
        )
    communities = hex_ids(clusters.communities)
    members = pl.DataFrame(
        {
            "community_id": pl.Series(communities, dtype=pl.String).gather(clusters.labels),
            "member_id": pl.from_arrow(nodes["id"]),
            "member_digest": pl.from_arrow(nodes["digest"]),
            "shard": pl.from_arrow(nodes["shard"]),
        }
    ).sort("community_id", "member_id")
    tables = {"community_members": members}
    if settings.level == 1:
        tables["community_relations"] = _relations(part, members)
    if settings.asks:
        tables["community_sources"] = _sources(part, members)
    groups = assigned(communities, settings.group, LETTERS[settings.level - 1])
    tables_by_group: dict[str, pa.Table] = {}
    for name, table in tables.items():
        arrow = conform(table.to_arrow(), _TABLES[name])
        ids = table["community_id"]
        for label, rows in groups.items():  # the ids in a leaf of the trie are contiguous
            low, high = (ids.search_sorted(communities[rows[end]], side) for end, side in _ENDS)
            tables_by_group[f"{name}/{label}"] = arrow.slice(low, high - low)
    return Outputs(tables=tables_by_group)


_ENDS: tuple[tuple[int, Literal["left", "right"]], ...] = ((0, "left"), (-1, "right"))


def _relations(part: Part[LevelSettings], members: pl.DataFrame) -> pl.DataFrame:
    """Return the relations with both ends in the same community (columns of COMMUNITY_RELATIONS)."""
    frames = [pl.DataFrame(schema=dict.fromkeys(("source", "target", "digest", "shard"), pl.String))]
    for label in part.labels("related"):
        table = pl.DataFrame(part.table(f"related/{label}", "source", "target", "digest"))
        frames.append(table.with_columns(shard=pl.lit(label)))
    of = members.select("member_id", "community_id")
    return (
        pl.concat(frames)
        .join(of, left_on="source", right_on="member_id")
        .join(of.rename({"community_id": "other"}), left_on="target", right_on="member_id")
        .filter(pl.col("community_id") == pl.col("other"))
        .select(*COMMUNITY_RELATIONS.names)
        .sort("community_id", "source", "target")
    )


def _sources(part: Part[LevelSettings], members: pl.DataFrame) -> pl.DataFrame:
    """Return the sources of each community's text (columns of COMMUNITY_SOURCES).

    The sources of an entity are its passages and one passage with its displayed name, even if that passage says nothing
    about it. A report written by a model is itself a source, in place of its own sources; a community of one member has
    its member's text and sources.
    """
    level = part.settings.level
    if level == 1:
        extracted = part.tables("extracted", "entity_id", "passage_id")
        of = pl.concat([pl.DataFrame(extracted), *_showing(part)])
        of = of.rename({"entity_id": "member_id", "passage_id": "source_id"})
    else:
        below = pl.DataFrame(part.tables("communities", "community_id", "made_of", "members"))
        below = below.rename({"community_id": "member_id"})
        sources = pl.DataFrame(part.tables("community_sources"))
        alone = sources.rename({"community_id": "member_id"}).join(
            below.filter(pl.col("members") == 1), on="member_id", how="semi"
        )
        reported = below.filter(pl.col("members") > 1).select("member_id", pl.col("made_of").alias("source_id"))
        of = pl.concat([reported, alone.select("member_id", "source_id")])
    return (
        members.select("community_id", "member_id")
        .join(of, on="member_id")
        .select(*COMMUNITY_SOURCES.names)
        .unique()
        .sort("community_id", "source_id")
    )


def _showing(part: Part[Any]) -> Iterator[pl.DataFrame]:
    """Yield, for each shard, a passage that shows each entity's displayed name: columns entity_id and passage_id."""
    for path in part.paths("pieces"):
        rows = pl.scan_parquet(path).filter(pl.col("part") == "surface")
        yield rows.select("entity_id", "passage_id").collect()


def estimate(part: Part[LevelSettings], expected: Expected) -> Estimate:
    """Estimate bounds for the numbers of communities and of needed reports; a plan lacks the vectors for exact numbers.

    Only communities of several members count as fresh: a community of one needs no report.
    """
    settings = part.settings
    below = expected_rows(part, expected, "described", "communities")
    joined = below.high if settings.level == 1 else below.fresh.high
    several = math.ceil(joined / max(2.0, settings.largest / _TOGETHER))
    communities = RowRange(0, below.high, Range(0, min(several, below.high)))
    earlier_members = part.reusable_tables(COMMUNITY_MEMBERS, "community_id")
    names = [name for name in _TABLES if _is_made(name, settings.level, settings.asks)]
    return Estimate(
        rows=expected_groups(names, communities, earlier_members, settings.group, LETTERS[settings.level - 1])
    )


def _is_made(name: str, level: int, asks: bool) -> bool:
    return name == "community_members" or (level == 1 if name == "community_relations" else asks)


STAGE = Stage(
    "community_levels",
    version=2,
    compute=_compute,
    libraries=("polars", "numpy"),
    estimate=estimate,
    inputs=(
        Input("clusters", CLUSTERS),
        *shared_tables("described", "related", "extracted", each=True, optional=True),
        Input("communities", COMMUNITIES, each=True, optional=True),
        Input("pieces", PIECES, each=True, optional=True),
        Input("community_sources", COMMUNITY_SOURCES, each=True, optional=True),
    ),
    outputs=(
        Output("community_members", COMMUNITY_MEMBERS, artifact="{name}", each=True),
        Output("community_relations", COMMUNITY_RELATIONS, each=True),
        Output("community_sources", COMMUNITY_SOURCES, each=True),
    ),
)
