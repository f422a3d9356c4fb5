"""A layer of summaries over nodes: the segments of the nodes, and the ids of their summaries.

(EraRAG, Algorithm 1.) A node's id hashes its inputs, so a node that an earlier tree already has needs no new summary.

A summary has the code of its middle child. The children of a segment share the first bits of their codes, and the layer
above is cut by fewer bits than they share, so the tree has nearly the same nodes as with codes computed from the
children's mean directions, but no vectors above the passages are read or stored. The first child would do nearly as
well, but if a segment spans a cut above it, its first child may be on the smaller side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.core.groups import Ids, hex_ids, id_order
from tasks.families.lsh_tree.segmentation import Segments, segment

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True)
class Bounds:
    """smallest, largest: the bounds of a segment's size. layers: the maximum number of layers of summaries."""

    smallest: int
    largest: int
    layers: int

    def want_another(self, built: int, nodes: int) -> bool:
        """Return True if another layer is built over the uppermost of `built` layers, which has `nodes` nodes."""
        return nodes > self.largest and built < self.layers


@dataclass(frozen=True)
class LayerNodes:
    """Passages, or a layer's summaries: distinct ids (n, 16) uint8, text digests (likewise), codes (n,) uint64."""

    ids: Ids
    digests: Ids
    codes: NDArray[np.uint64]


@dataclass(frozen=True)
class Layer:
    """Layer `number` before it is summarised: ids[i] and codes[i] are those of the summary of segment i.

    children: the rows below, segment by segment, within a segment in the order of their ids.
    """

    number: int
    below: LayerNodes
    segments: Segments
    children: NDArray[np.int64]
    ids: Ids
    codes: NDArray[np.uint64]

    def inputs(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield (node id, [(child id, digest of its text)] in the order of the prompt) of each summary."""
        pairs = list(
            zip(hex_ids(self.below.ids[self.children]), hex_ids(self.below.digests[self.children]), strict=True)
        )
        for identifier, (low, high) in zip(hex_ids(self.ids), pairwise(self.segments.offsets.tolist()), strict=True):
            yield identifier, pairs[low:high]


def layer_over(number: int, below: LayerNodes, bounds: Bounds, fingerprint: str) -> Layer:
    """Cut the nodes below into segments, and compute the ids of their summaries (`segmentation.node_id`)."""
    segments = segment(below.ids, below.codes, bounds.smallest, bounds.largest)
    children = _children(below.ids, segments)
    listed = _listed(below.ids[children], below.digests[children])
    begin, end = f"[{number},[".encode(), f'],"{fingerprint}"]\n'.encode()
    width = len(listed) // max(len(children), 1)
    hashes = b"".join(
        hashlib.sha256(begin + listed[width * low : width * high - 1] + end).digest()[: below.ids.shape[1]]
        for low, high in pairwise(segments.offsets.tolist())
    )
    ids = np.frombuffer(hashes, np.uint8).reshape(-1, below.ids.shape[1])
    return Layer(number, below, segments, children, ids, below.codes[segments.middles()])


def _children(ids: Ids, segments: Segments) -> NDArray[np.int64]:
    """Return the rows in the order of the segments, within a segment in the order of their ids."""
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[id_order(ids)] = np.arange(len(ids))
    owners = np.repeat(np.arange(len(segments.offsets) - 1), np.diff(segments.offsets))
    rows: NDArray[np.int64] = segments.order[np.lexsort((ranks[segments.order], owners))]
    return rows


def _listed(ids: Ids, digests: Ids) -> bytes:
    """Return the JSON of [id, digest] and a comma for each row; all have the same width, since hex needs no escapes."""

    def constant(text: bytes) -> NDArray[np.uint8]:
        return np.broadcast_to(np.frombuffer(text, np.uint8), (len(ids), len(text)))

    def hexadecimal(rows: Ids) -> NDArray[np.uint8]:
        return _DIGITS[np.stack([rows >> 4, rows & 15], axis=2)].reshape(len(rows), -1)

    columns = [constant(b'["'), hexadecimal(ids), constant(b'","'), hexadecimal(digests), constant(b'"],')]
    return np.concatenate(columns, axis=1).tobytes()
