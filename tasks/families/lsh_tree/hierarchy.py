"""A layer of summaries over nodes: the segments that these are cut into, and the ids of their summaries.

(EraRAG, Algorithm 1.) A node's id says what it was made from, so a node of one tree that another tree holds, too, needs
no summary again.
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
    """smallest, largest: nodes of a segment. layers: of summaries, at most."""

    smallest: int
    largest: int
    layers: int

    def want_another(self, built: int, nodes: int) -> bool:
        """Whether a layer is built over the uppermost of `built` layers of summaries, which has so many nodes."""
        return nodes > self.largest and built < self.layers


@dataclass(frozen=True)
class Nodes:
    """Passages, or the summaries of a layer: their ids, the digests of their texts, and their vectors; no repeats."""

    ids: Sequence[str]
    digests: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True)
class Layer:
    """Layer `number` before it is summarised: ids[i] is of the summary of segment i of the nodes below."""

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

    codes: of the nodes below, where they are known.
    """
    segments = segment(id_hashes(below.ids), below.vectors, planes, bounds.smallest, bounds.largest, codes)
    ids = [
        node_id(number, [(below.ids[row], below.digests[row]) for row in rows.tolist()], fingerprint)
        for rows in segments.rows()
    ]
    return Layer(number, below, segments, ids)
