"""Sizes of the communities of community_tree, relations of its entities, and its levels, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.community_tree.nodes import TREE
from indexmill.retrieve.distributions import Distribution, LevelSize
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def distributions(artifacts: Artifacts) -> tuple[Distribution, ...]:
    """Count the members of each community, and the related entities and passages of each entity. Raises CorruptBlob."""
    arrays = artifacts.arrays(TREE)
    return (
        Distribution("Members of communities", "communities", row_lengths(arrays["children.indptr"])),
        Distribution("Related entities per extracted entity", "entities", row_lengths(arrays["relations.indptr"])),
        Distribution("Passages per extracted entity", "entities", row_lengths(arrays["passages.indptr"])),
    )


def levels(artifacts: Artifacts) -> tuple[LevelSize, ...]:
    """Count the entities, and the communities of each level above them. Raises CorruptBlob."""
    counts = np.diff(artifacts.arrays(TREE)["level_offsets"]).tolist()
    return tuple(
        LevelSize(f"level {number}, communities" if number else "entities", count)
        for number, count in enumerate(counts)
    )
