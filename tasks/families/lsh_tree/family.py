"""lsh_tree (EraRAG), declared: passages, and summaries of what lies near each other, layer by layer."""

from __future__ import annotations

from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.lsh_tree import axes, segments, summaries, tree, vectors
from tasks.families.lsh_tree.check import CHECKS
from tasks.families.lsh_tree.steps import make_axes, make_tree, make_vectors
from tasks.families.lsh_tree.summary_writer import WRITER

__all__ = ["FAMILY"]

FAMILY = Family(
    "lsh_tree",
    steps=(
        Step("lsh_axes", make_axes, stages=(axes.STAGE,), needs=("encoder",)),
        Step("lsh_tree", make_tree, (segments.STAGE, summaries.STAGE, tree.STAGE), needs=("embed", "lsh_axes")),
        Step("lsh_vectors", make_vectors, stages=(vectors.STAGE,), needs=("lsh_tree",)),
    ),
    artifact="tree",
    counts=tree.counts,
    checks=CHECKS,
    writers=(WRITER,),
)
