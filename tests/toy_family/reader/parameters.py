"""The retrieval settings of the family incipits."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.retrieve.retrieval_method import Share


@dataclass(frozen=True, slots=True)
class IncipitParameters:
    """rarity: a word counts 1 / passages ** rarity, for the number of passages that have it."""

    rarity: Share = 1.0
