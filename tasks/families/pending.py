"""Families whose declarations do not lie with them yet."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from operator import methodcaller
from typing import Any

from schemas.config import Configuration
from schemas.tables import (
    COMMUNITIES,
    COMMUNITY_MEMBERS,
    ENTITIES,
    HETERO_ATTRIBUTES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_RELATIONS,
    LSH_SEGMENTS,
    LSH_SUMMARIES,
    PASSAGES,
    UNITS,
)
from tasks.core.checks import Check
from tasks.core.family import Family
from tasks.core.stage import ARRAYS, Input, Inputs
from tasks.core.step import Step
from tasks.families import trees_check
from tasks.families.heterograph import check as hetero

__all__ = ["COMMUNITY_TREE", "HETEROGRAPH", "LSH_TREE"]

Counts = Mapping[str, int]


def _counts_in(module: str) -> Any:
    return lambda pack: importlib.import_module(module).counts(pack)


def _summaries(inputs: Inputs[Any], _: Counts) -> Counts:
    return trees_check.check_group(inputs, trees_check.SUMMARIES)


def _tree(inputs: Inputs[Any], counts: Counts) -> Counts:
    trees_check.check_tree(inputs.pack("lsh_tree/tree"), counts["passages"], counts.get("summaries", 0))
    return {}


LSH_TREE = Family(
    "lsh_tree",
    steps=(
        Step("lsh_axes", methodcaller("lsh_axes"), after=("encoder",)),
        Step("lsh_tree", methodcaller("lsh_tree"), after=("embed", "lsh_axes")),
        Step("lsh_vectors", methodcaller("lsh_vectors"), after=("lsh_tree",)),
    ),
    artifact="tree",
    counts=_counts_in("tasks.families.lsh_tree.tree"),
    checks=(
        Check(
            (Input("summaries", LSH_SUMMARIES), Input("summary_vectors", ARRAYS), Input("segments", LSH_SEGMENTS)),
            _summaries,
        ),
        Check((Input("lsh_tree/tree", ARRAYS),), _tree, whole=True),
    ),
)


def _reports(inputs: Inputs[Any], _: Counts) -> Counts:
    return trees_check.check_group(inputs, trees_check.REPORTS)


def _communities(inputs: Inputs[Any], counts: Counts) -> Counts:
    tree, index = (inputs.pack(f"community_tree/{name}") for name in ("tree", "index"))
    sizes = {name: counts.get(name, 0) for name in ("passages", "communities", "related")}
    trees_check.check_communities(tree, index, entities=counts.get("described", 0), **sizes)
    return {}


def _by_leiden(configuration: Configuration) -> bool:
    return configuration.families.community_tree.clustering == "leiden"


COMMUNITY_TREE = Family(
    "community_tree",
    steps=(Step("community_tree", methodcaller("community_tree"), after=("describe", "same_as")),),
    artifact="tree",
    counts=_counts_in("tasks.families.community_tree.tree"),
    checks=(
        Check(
            (
                Input("communities", COMMUNITIES),
                Input("community_vectors", ARRAYS),
                Input("members", COMMUNITY_MEMBERS, output="community_members"),
            ),
            _reports,
        ),
        Check((Input("community_tree/tree", ARRAYS), Input("community_tree/index", ARRAYS)), _communities, whole=True),
    ),
    history_dependent=_by_leiden,
)


def _units(inputs: Inputs[Any], _: Counts) -> Counts:
    return hetero.check_units(inputs)


def _attributes(inputs: Inputs[Any], _: Counts) -> Counts:
    return hetero.check_attributes(inputs)


def _elements(inputs: Inputs[Any], _: Counts) -> Counts:
    return hetero.check_elements(inputs)


def _graph(inputs: Inputs[Any], _: Counts) -> Counts:
    hetero.check_graph(hetero.Made.of(inputs), hetero.rows_of_kinds(inputs))
    return {}


HETEROGRAPH = Family(
    "heterograph",
    steps=(
        Step("hetero_units", methodcaller("hetero_units"), after=("encoder", "extract"), of_shards=True),
        Step("heterograph", methodcaller("heterograph"), after=("embed", "resolve", "same_as", "hetero_units")),
    ),
    artifact="graph",
    counts=_counts_in("tasks.families.heterograph.index"),
    checks=(
        Check((Input("unit_vectors", ARRAYS), Input("units", UNITS)), _units),
        Check(
            (
                Input("attributes", HETERO_ATTRIBUTES),
                Input("attribute_vectors", ARRAYS),
                Input("entities", ENTITIES),
            ),
            _attributes,
        ),
        Check((Input("elements", HETERO_ELEMENTS), Input("element_vectors", ARRAYS)), _elements),
        Check(
            (
                Input("heterograph/graph", ARRAYS),
                Input("heterograph/names", ARRAYS),
                Input("heterograph/nodes", HETERO_NODES),
                Input("heterograph/edges", HETERO_EDGES),
                Input("heterograph/relations", HETERO_RELATIONS),
                Input("passages", PASSAGES, each=True),
                Input("units", UNITS, each=True),
                Input("attributes", HETERO_ATTRIBUTES, each=True),
                Input("elements", HETERO_ELEMENTS, each=True),
                Input("entities", ENTITIES, each=True),
            ),
            _graph,
            whole=True,
        ),
    ),
    history_dependent=lambda _: True,
)
