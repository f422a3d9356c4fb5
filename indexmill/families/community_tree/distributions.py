"""The sizes of community_tree's communities and levels, and the links of its entities, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.community_tree.nodes import TREE
from indexmill.retrieve.distributions import Distribution, FamilySizes
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def sizes(artifacts: Artifacts) -> FamilySizes:
    """Count members per community, related entities and passages per entity, and nodes per level.

    Raises CorruptBlob.
    """
    arrays = artifacts.arrays(TREE)
    counts = np.diff(arrays["level_offsets"]).tolist()
    return FamilySizes(
        (
            Distribution("Members of communities", "communities", row_lengths(arrays["children.indptr"])),
            Distribution("Related entities per extracted entity", "entities", row_lengths(arrays["relations.indptr"])),
            Distribution("Passages per extracted entity", "entities", row_lengths(arrays["passages.indptr"])),
        ),
        {f"level {number}, communities" if number else "entities": count for number, count in enumerate(counts)},
    )
