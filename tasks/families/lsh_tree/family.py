"""The family lsh_tree (EraRAG): passages, and summaries of near passages, layer by layer."""

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step
from tasks.families.lsh_tree import axes, codes, segments, summaries, tree, vectors
from tasks.families.lsh_tree.check import CHECKS
from tasks.families.lsh_tree.steps import make_axes, make_codes, make_tree, make_vectors

FAMILY = BuilderFamily(
    "lsh_tree",
    steps=(
        Step("lsh_axes", make_axes, (axes.STAGE,)),
        Step("lsh_codes", make_codes, (codes.STAGE,)),
        Step("lsh_tree", make_tree, (segments.STAGE, summaries.STAGE, tree.STAGE)),
        Step("lsh_vectors", make_vectors, (vectors.STAGE,)),
    ),
    artifact="tree",
    counts=tree.counts,
    checks=CHECKS,
    writers=(summaries.WRITER,),
)
