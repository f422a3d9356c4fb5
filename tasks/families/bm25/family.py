"""The family bm25."""

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import shard_step
from tasks.families.bm25 import postings
from tasks.families.bm25.check import CHECKS

FAMILY = BuilderFamily(
    "bm25",
    steps=(shard_step("bm25", postings, postings.settings_of),),
    artifact="bm25",
    counts=postings.counts,
    checks=CHECKS,
)
