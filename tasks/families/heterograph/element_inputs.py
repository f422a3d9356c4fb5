"""Stage `hetero_elements_read`: the inputs of each community's high-level elements (NodeRAG, section 2.3).

The graph comes from `hetero_graph`, the communities from `hetero_groups`. Rows are cheap, so none are copied; a plan
estimates the groups from earlier parts. For each group `<h>` of communities, a leaf of a trie over `made_of`:

    element_read/<h>      HETERO_READ: the units, attributes and relations that are read
    element_made/<h>      HETERO_MADE; a community's title lists the entities that these nodes name most often
    element_sources/<h>   HETERO_SOURCES, if a model is asked: the sources of each prompt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.core.groups import assigned, expected_groups, expected_rows
from tasks.core.request_estimate import holding
from tasks.core.stage import Input, Outputs, Part, Stage
from tasks.families.heterograph.community_graph import GRAPH, graph_of_pack
from tasks.families.heterograph.graph import TypedGraph
from tasks.families.heterograph.reading import about_communities, made_of
from tasks.families.heterograph.tables import HETERO_ATTRIBUTES, HETERO_COMMUNITIES, HETERO_MADE
from tasks.families.heterograph.text_inputs import (
    CORPUS,
    CorpusTexts,
    ReadingSettings,
    grouped,
    outputs_of,
    read_nodes,
    tables_of,
)
from tasks.families.heterograph.text_sources import named, titles

GROUPS = "H"
"""The letter of the groups' labels."""


@dataclass(frozen=True, kw_only=True)
class ElementReadingSettings(ReadingSettings):
    """attributes: the maximum number of attributes read for one community. group: the maximum number of communities in
    a group. fewest: the minimum number of units, relations and attributes of a community for which elements are made.
    """

    attributes: int
    fewest: int
    group: int

    @property
    def caps(self) -> dict[str, int]:
        """The maximum number of nodes of each kind that are read for one community."""
        return {**super().caps, "A": self.attributes}

    def row_space(self) -> Mapping[str, Any]:
        return {"writer": self.writer}


def read_about(
    graph: TypedGraph,
    communities: pa.Table,
    corpus: CorpusTexts,
    attributes: pa.Table,
    settings: ElementReadingSettings,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the inputs of elements: HETERO_READ with `tokens`, HETERO_MADE, and the output of `text_sources.named`.

    communities: the table HETERO_COMMUNITIES of `graph`. attributes: all rows of HETERO_ATTRIBUTES.
    """
    read = read_nodes(about_communities(graph, communities, settings.fewest), corpus, settings, attributes)
    names = named(graph, read)
    owners = titles(names, corpus.surfaces, read["owner"].unique())
    return read, made_of(read, {"writer": settings.writer}, owners), names


def _tables(part: Part[ElementReadingSettings]) -> tuple[dict[str, pa.Table], int]:
    corpus, settings = CorpusTexts.of(part), part.settings
    graph, communities = graph_of_pack(part.pack("graph")), part.table("hetero_communities")
    attributes = part.tables("attributes", "attribute_id", "text", "made_of")
    read, input_hashes, names = read_about(graph, communities, corpus, attributes, settings)
    # A prompt shows the ends of relations.
    shown = names.filter(pc.equal(names["kind"], "R")) if settings.asks else None
    ids = input_hashes["owner"].combine_chunks()
    groups = assigned(input_hashes["made_of"].to_pylist(), settings.group, GROUPS)
    owners = {label: ids.take(pa.array(rows)) for label, rows in groups.items()}
    return grouped(tables_of(part, "element", corpus, read, input_hashes, shown, attributes), owners), len(input_hashes)


def _compute(part: Part[ElementReadingSettings]) -> Outputs:
    tables, count = _tables(part)
    return Outputs(tables=tables, counts={"communities_read": count})


def estimate(part: Part[ElementReadingSettings], expected: Expected) -> Estimate:
    """Estimate the rows of the part: exact if the graph and its communities are known, otherwise bounds."""
    if not expected:
        return holding(part, _tables(part)[0])
    settings = part.settings
    nodes = expected_rows(part, expected, "units", "relations", "attributes")  # each is read for one community at most
    communities = Range(0, nodes.high // max(1, settings.fewest))
    earlier_hashes = part.reusable_tables(HETERO_MADE, "made_of")
    names = ("element_read", "element_made", *(("element_sources",) if settings.asks else ()))
    return Estimate(
        rows=expected_groups(names, RowRange(0, communities.high, communities), earlier_hashes, settings.group, GROUPS)
    )


STAGE = Stage(
    "hetero_elements_read",
    version=1,
    compute=_compute,
    libraries=("numpy", "polars"),
    estimate=estimate,
    inputs=(
        *CORPUS,
        Input("attributes", HETERO_ATTRIBUTES, each=True),
        Input("graph", GRAPH, stage="hetero_graph"),
        Input("hetero_communities", HETERO_COMMUNITIES),
    ),
    outputs=outputs_of("element"),
)
