"""The family community_tree (ArchRAG): entities, and reports on their communities, level by level."""

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step
from tasks.families.community_tree import clusters, graph, levels, reports, tree
from tasks.families.community_tree.check import CHECKS
from tasks.families.community_tree.steps import make_tree

FAMILY = BuilderFamily(
    "community_tree",
    steps=(Step("community_tree", make_tree, (graph.STAGE, clusters.STAGE, levels.STAGE, reports.STAGE, tree.STAGE)),),
    artifact="tree",
    counts=tree.counts,
    checks=CHECKS,
    writers=(reports.WRITER,),
    history_dependent=True,
)
