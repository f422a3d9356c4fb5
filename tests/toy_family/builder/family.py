"""The family incipits."""

from __future__ import annotations

from tasks.families.incipits import first_words, words
from tasks.families.incipits.check import CHECKS

from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step

FAMILY = BuilderFamily(
    "incipits",
    steps=(
        Step("first_words", first_words.drive, (first_words.STAGE,), of_shards=True),
        Step("incipits", words.drive, (words.STAGE,)),
    ),
    artifact="words",
    counts=words.counts,
    checks=CHECKS,
)
