"""The family heterograph (NodeRAG)."""

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step, shard_step
from tasks.families.heterograph import (
    attribute_inputs,
    attributes,
    communities,
    community_graph,
    element_inputs,
    elements,
    index,
    units,
)
from tasks.families.heterograph.check import CHECKS
from tasks.families.heterograph.steps import make_graph

_STAGES = (attribute_inputs, attributes, community_graph, communities, element_inputs, elements, index)

FAMILY = BuilderFamily(
    "heterograph",
    steps=(
        shard_step("hetero_units", units, lambda run: run.opened_encoder.vector_settings),
        Step("heterograph", make_graph, tuple(module.STAGE for module in _STAGES)),
    ),
    artifact="graph",
    counts=index.counts,
    checks=CHECKS,
    writers=(attributes.WRITER, elements.WRITER),
    history_dependent=True,
)
