"""The layers of summaries over passages: segments, their ids, their summaries, and again (EraRAG, Algorithm 1).

What summarises is handed in: the stages that ask a language model, or a function of a test or a benchmark. A node's id
says what it was made from, so a node of one tree that another tree holds, too, needs no summary again: `new_ids` are
what an update redoes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.shards import id_hashes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import Segments, Vectors, node_id, segment

__all__ = ["Bounds", "Layer", "Nodes", "Summarise", "layer_over", "layers_over", "new_ids"]


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


Summarise = Callable[[Layer], Nodes]
"""Gives the summaries of a layer, in any order."""


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


def layers_over(
    passages: Nodes, summarise: Summarise, planes: Hyperplanes, bounds: Bounds, fingerprint: str
) -> list[Layer]:
    """All layers, from the one over the passages up; none over `largest` passages or fewer.

    The last layer's summaries are made, too: `summarise` is called once for each layer.
    """
    layers: list[Layer] = []
    nodes = passages
    while bounds.want_another(len(layers), len(nodes.ids)):
        layers.append(layer_over(len(layers) + 1, nodes, planes, bounds, fingerprint))
        nodes = summarise(layers[-1])
    return layers


def new_ids(layers: Sequence[Layer], known: Sequence[Layer]) -> list[int]:
    """Per layer, how many of its summaries an earlier tree does not hold."""
    there = {identifier for layer in known for identifier in layer.ids}
    return [sum(identifier not in there for identifier in layer.ids) for layer in layers]
