"""Degrees of the nodes of a heterograph, and its kinds of nodes, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.heterograph.nodes import GRAPH
from indexmill.families.heterograph.search import KINDS
from indexmill.families.heterograph.show import KIND_NAMES
from indexmill.retrieve.distributions import Distribution, LevelSize
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def distributions(artifacts: Artifacts) -> tuple[Distribution, ...]:
    """Count the links of each node. Raises CorruptBlob."""
    return (Distribution("Links per node", "nodes", row_lengths(artifacts.arrays(GRAPH)["links.indptr"])),)


def levels(artifacts: Artifacts) -> tuple[LevelSize, ...]:
    """Count the nodes of each kind, from texts to overviews. Raises CorruptBlob."""
    counts = np.diff(artifacts.arrays(GRAPH)["offsets"]).tolist()
    return tuple(LevelSize(KIND_NAMES[kind], count) for kind, count in zip(KINDS, counts, strict=True))
