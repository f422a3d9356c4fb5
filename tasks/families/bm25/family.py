"""The family bm25."""

from __future__ import annotations

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step
from tasks.families.bm25 import postings
from tasks.families.bm25.check import CHECKS

FAMILY = BuilderFamily(
    "bm25",
    steps=(Step("bm25", postings.drive, (postings.STAGE,), of_shards=True),),
    artifact="bm25",
    counts=postings.counts,
    checks=CHECKS,
)
