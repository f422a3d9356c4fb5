"""Sizes of the segments of lsh_tree, and its layers, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.lsh_tree.summaries import open_tree
from indexmill.retrieve.distributions import Distribution, LevelSize
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def distributions(artifacts: Artifacts) -> tuple[Distribution, ...]:
    """Count the children of each summary, over all layers. Raises CorruptBlob."""
    sizes = row_lengths(open_tree(artifacts).children.indptr)
    return (Distribution("Sizes of segments", "segments", sizes),)


def levels(artifacts: Artifacts) -> tuple[LevelSize, ...]:
    """Count the passages, and the summaries of each layer above them. Raises CorruptBlob."""
    counts = np.diff(open_tree(artifacts).offsets).tolist()
    return tuple(
        LevelSize(f"layer {number}, summaries" if number else "passages", count) for number, count in enumerate(counts)
    )
