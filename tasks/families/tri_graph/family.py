"""The family tri_graph."""

from __future__ import annotations

from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.tri_graph import matrices
from tasks.families.tri_graph.check import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    "tri_graph",
    steps=(Step("tri_graph", matrices.drive, (matrices.STAGE,)),),
    artifact="matrices",
    counts=matrices.counts,
    checks=CHECKS,
)
