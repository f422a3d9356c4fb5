"""The ids of communities, and the number of levels: each level clusters the level below (ArchRAG, Algorithm 1)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.store.canonical import canonical_json


@dataclass(frozen=True)
class Stops:
    """When to stop building levels. levels: the maximum number. fewest: the minimum number of nodes to cluster."""

    levels: int = 4
    fewest: int = 5

    def want_another(self, built: int, nodes: int) -> bool:
        """Return True if another level is built over `built` levels, the uppermost of which has `nodes` nodes."""
        return nodes >= self.fewest and built < self.levels


def community_id(level: int, members: Sequence[str]) -> str:
    """Return a community's id: a hash of its level and its members, whatever their order."""
    return hashlib.sha256(canonical_json([level, sorted(members)])).hexdigest()[:32]
