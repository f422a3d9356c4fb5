"""lsh_tree (EraRAG), declared: passages, and summaries of what lies near each other, layer by layer."""

from __future__ import annotations

from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.lsh_tree.check import CHECKS
from tasks.families.lsh_tree.steps import make_axes, make_tree, make_vectors
from tasks.families.lsh_tree.summary_writer import WRITER
from tasks.families.lsh_tree.tree import counts

__all__ = ["FAMILY"]

FAMILY = Family(
    "lsh_tree",
    steps=(
        Step("lsh_axes", ("encoder",), make_axes),
        Step("lsh_tree", ("embed", "lsh_axes"), make_tree),
        Step("lsh_vectors", ("lsh_tree",), make_vectors),
    ),
    artifact="tree",
    counts=counts,
    checks=CHECKS,
    writers=(WRITER,),
)
