"""A layer of summaries over nodes: the segments of the nodes, and the ids of their summaries.

(EraRAG, Algorithm 1.) A node's id hashes its inputs, so a node that another tree already holds needs no new summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.shards import id_hashes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import Segments, Vectors, node_id, segment

__all__ = ["Bounds", "Layer", "Nodes", "layer_over"]


@dataclass(frozen=True)
class Bounds:
    """smallest, largest: the bounds of a segment's nodes. layers: the most layers of summaries."""

    smallest: int
    largest: int
    layers: int

    def want_another(self, built: int, nodes: int) -> bool:
        """True if another layer is built over the uppermost of `built` layers, which has `nodes` nodes."""
        return nodes > self.largest and built < self.layers


@dataclass(frozen=True)
class Nodes:
    """Passages, or the summaries of a layer: their distinct ids, the digests of their texts, and their vectors."""

    ids: Sequence[str]
    digests: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True)
class Layer:
    """Layer `number` before it is summarised: ids[i] is the id of the summary of segment i."""

    number: int
    below: Nodes
    segments: Segments
    ids: list[str]

    def children(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """(node id, [(child id, digest of its text)] in the order of the prompt) of each summary."""
        for identifier, rows in zip(self.ids, self.segments.rows(), strict=True):
            yield identifier, sorted((self.below.ids[row], self.below.digests[row]) for row in rows.tolist())


def layer_over(
    number: int,
    below: Nodes,
    planes: Hyperplanes,
    bounds: Bounds,
    fingerprint: str,
    codes: NDArray[np.uint64] | None = None,
) -> Layer:
    """The segments of the nodes below, and the ids of their summaries. A node's key is the SHA-256 of its id.

    codes: the first word of the codes of the nodes below, if known.
    """
    segments = segment(id_hashes(below.ids), below.vectors, planes, bounds.smallest, bounds.largest, codes)
    ids = [
        node_id(number, [(below.ids[row], below.digests[row]) for row in rows.tolist()], fingerprint)
        for rows in segments.rows()
    ]
    return Layer(number, below, segments, ids)
