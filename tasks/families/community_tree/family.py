"""community_tree (ArchRAG), declared: entities, and reports on communities of them, level by level."""

from __future__ import annotations

from schemas.config import Configuration
from tasks.core.family import Family
from tasks.core.run import Run
from tasks.core.step import Step
from tasks.families.community_tree.check import CHECKS
from tasks.families.community_tree.report_writer import WRITER
from tasks.families.community_tree.tree import counts

__all__ = ["FAMILY"]


def _make_tree(run: Run) -> None:
    """Find communities, level by level, and report on them."""
    from tasks.families.community_tree.steps import make_tree  # igraph and leidenalg are slow to import

    make_tree(run)


def _uses_leiden(configuration: Configuration) -> bool:
    """Leiden alone starts from the communities of the version before."""
    return configuration.families.community_tree.clustering == "leiden"


FAMILY = Family(
    "community_tree",
    steps=(Step("community_tree", ("describe", "same_as"), _make_tree),),
    artifact="tree",
    counts=counts,
    checks=CHECKS,
    writers=(WRITER,),
    history_dependent=_uses_leiden,
)
