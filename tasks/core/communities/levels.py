"""Communities of nodes, then communities of those, level by level (ArchRAG, Algorithm 1): ids, and where it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.store.canonical import canonical_json

__all__ = ["Stops", "community_id"]


@dataclass(frozen=True)
class Stops:
    """levels: at most. fewest: nodes of a graph that is clustered."""

    levels: int = 4
    fewest: int = 5

    def want_another(self, built: int, nodes: int) -> bool:
        """Whether a level is built over the uppermost of `built` levels, which has so many nodes."""
        return nodes >= self.fewest and built < self.levels


def community_id(level: int, members: Sequence[str]) -> str:
    """The id of a community: of its level and its members, in any order."""
    return hashlib.sha256(canonical_json([level, sorted(members)])).hexdigest()[:32]
