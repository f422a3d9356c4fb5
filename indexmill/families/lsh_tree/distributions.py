"""The number of children of lsh_tree's summaries, and the size of its layers, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.lsh_tree.summaries import open_tree
from indexmill.retrieve.distributions import Distribution, FamilySizes
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def sizes(artifacts: Artifacts) -> FamilySizes:
    """Count the children of each summary, the passages, and the summaries of each layer. Raises CorruptBlob."""
    tree = open_tree(artifacts)
    counts = np.diff(tree.offsets).tolist()
    return FamilySizes(
        (Distribution("Sizes of segments", "segments", row_lengths(tree.children.indptr)),),
        {f"layer {number}, summaries" if number else "passages": count for number, count in enumerate(counts)},
    )
