"""Families whose declarations do not lie with them yet."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from operator import methodcaller
from typing import Any

from schemas.tables import (
    ENTITIES,
    HETERO_ATTRIBUTES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_RELATIONS,
    PASSAGES,
    UNITS,
)
from tasks.core.checks import Check
from tasks.core.family import Family
from tasks.core.stage import ARRAYS, Input, Inputs
from tasks.core.step import Step
from tasks.families.heterograph import check as hetero

__all__ = ["HETEROGRAPH"]

Counts = Mapping[str, int]


def _counts_in(module: str) -> Any:
    return lambda pack: importlib.import_module(module).counts(pack)


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
    history_dependent=True,
)
