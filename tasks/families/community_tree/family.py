"""community_tree (ArchRAG), declared: entities, and reports on communities of them, level by level."""

from __future__ import annotations

from schemas.config import Configuration
from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.community_tree import clusters, graph, levels, reports, tree
from tasks.families.community_tree.check import CHECKS
from tasks.families.community_tree.report_writer import WRITER
from tasks.families.community_tree.steps import make_tree

__all__ = ["FAMILY"]


def _uses_leiden(configuration: Configuration) -> bool:
    """Leiden alone starts from the communities of the version before."""
    return configuration.families.community_tree.clustering == "leiden"


FAMILY = Family(
    "community_tree",
    steps=(
        Step(
            "community_tree",
            make_tree,
            stages=(graph.STAGE, clusters.STAGE, levels.STAGE, reports.STAGE, tree.STAGE),
            needs=("describe", "same_as"),
        ),
    ),
    artifact="tree",
    counts=tree.counts,
    checks=CHECKS,
    writers=(WRITER,),
    history_dependent=_uses_leiden,
)
