"""The degrees of a heterograph's nodes, and the number of nodes of each kind, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.heterograph.nodes import GRAPH
from indexmill.families.heterograph.search import KINDS
from indexmill.families.heterograph.show import KIND_NAMES
from indexmill.retrieve.distributions import Distribution, FamilySizes
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def sizes(artifacts: Artifacts) -> FamilySizes:
    """Count the links of each node, and the nodes of each kind, from texts to overviews. Raises CorruptBlob."""
    arrays = artifacts.arrays(GRAPH)
    counts = np.diff(arrays["offsets"]).tolist()
    return FamilySizes(
        (Distribution("Links per node", "nodes", row_lengths(arrays["links.indptr"])),),
        {KIND_NAMES[kind]: count for kind, count in zip(KINDS, counts, strict=True)},
    )
