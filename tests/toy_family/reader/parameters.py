"""The settings of retrieval by incipits."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.retrieve.base import Share


@dataclass(frozen=True, slots=True)
class IncipitParameters:
    """rarity: the power of the number of passages that a word is divided by."""

    rarity: Share = 1.0
