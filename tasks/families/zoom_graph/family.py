"""The family zoom_graph."""

from __future__ import annotations

from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.zoom_graph import document_vectors, graph, links
from tasks.families.zoom_graph.check import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    "zoom_graph",
    steps=(
        Step("document_vectors", document_vectors.drive, (document_vectors.STAGE,), of_shards=True),
        Step("zoom_links", links.drive, (links.STAGE,)),
        Step("zoom_graph", graph.drive, (graph.STAGE,)),
    ),
    artifact="sizes",
    counts=graph.counts,
    checks=CHECKS,
)
