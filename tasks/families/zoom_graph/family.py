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
        # Nothing waits for zoom_links alone, and much does for the first layer of a tree: so it waits for resolve, too.
        Step("zoom_links", links.drive_documents, after=("embed", "resolve")),
        Step(
            "zoom_entity_links",
            links.drive_entities,
            after=("embed_names",),
            enabled=lambda settings: settings.families.zoom_graph.entity_links,
        ),
        Step("zoom_graph", graph.drive, after=("embed_names", "zoom_links", "zoom_entity_links")),
    ),
    artifact="matrices",
    counts=graph.counts,
    checks=CHECKS,
)
