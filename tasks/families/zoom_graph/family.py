"""The family zoom_graph."""

from __future__ import annotations

from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.zoom_graph import graph, links
from tasks.families.zoom_graph.check import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    "zoom_graph",
    steps=(
        Step("zoom_links", links.drive, (links.STAGE,)),
        Step("zoom_graph", graph.drive, (graph.STAGE,)),
    ),
    artifact="matrices",
    counts=graph.counts,
    shared=("mention_links",),
    checks=CHECKS,
)
