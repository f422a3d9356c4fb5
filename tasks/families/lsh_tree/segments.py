"""Stage `lsh_segments`: the nodes of one layer of lsh_tree, cut into segments (EraRAG, Algorithm 1).

A node is a passage or, above the first layer, a summary. Its position depends on its code alone
(`tasks.families.lsh_tree.hierarchy`), so a layer waits for the texts below it but not for their vectors, and a reworded
summary does not move. A segment becomes a node of the next layer, whose id hashes the layer, the ids and text digests
of its children, and the fingerprint of the summariser: a node with a known id already has its summary. The packs
`segments/<block>` (`tasks.families.lsh_tree.blocks`) list the children of each node.

One part cuts a whole layer, since it is one trie. The part reads ids and 24 bytes of each passage, sorts words, and
hashes ids. That takes seconds for 400,000 passages, so parts by prefix of the code would save little. An unchanged
block is an existing blob, so a nightly build writes only the blocks with new nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.store.canonical import canonical_json, digest_of
from schemas.tables import PASSAGES
from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.core.groups import Ids, expected_rows, id_bytes, spread
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.families.lsh_tree.blocks import LETTERS, blocks_of, document_paths, most_of
from tasks.families.lsh_tree.codes import CODES
from tasks.families.lsh_tree.hierarchy import Bounds, Layer, LayerNodes, layer_over
from tasks.families.lsh_tree.segmentation import gray_ranks
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_WRITTEN, MARK_BYTES
from tasks.families.lsh_tree.texts import texts_of
from tasks.stages.embed.embed import row_key

_REDONE = 2
"""The maximum average number of segments redone per changed node below; 1.0 to 1.3 were measured."""

_REDONE_MORE = 8
"""An allowance for a few badly placed changes. Both numbers are guesses; only the budget is a hard limit."""


def layer_label(layer: int) -> str:
    """Return the label of the part that cuts the nodes below a layer of summaries: `l1` cuts passages."""
    return f"l{layer}"


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(StageSettings):
    """smallest, largest: the bounds of a segment's size. group: the maximum number of summaries in a part.

    summariser: the writer's fingerprint. seed, encoder: the settings that determine codes. texts: the digests of the
    tables with the nodes' texts (`tasks.families.lsh_tree.texts`).
    """

    smallest: int
    largest: int
    group: int
    layer: int
    summariser: Mapping[str, Any]
    seed: int = worker_arg()
    encoder: Mapping[str, Any] = worker_arg()
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    title_in_passage: bool = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        """Return the settings that determine segments, without those that only group them."""
        shaping = self.keyed()
        del shaping["group"]
        return {**shaping, "seed": self.seed, "encoder": self.encoder}


def _below(part: Part[SegmentSettings]) -> tuple[LayerNodes, NDArray[np.uint64]]:
    """Return the nodes to cut, and the first bits of the paths to their texts."""
    if part.settings.layer == 1:
        passages = part.tables("passages", "passage_id", "document_id")
        packs = part.packs("codes")
        digests, words = (np.concatenate([pack[name] for pack in packs]) for name in ("digests", "codes"))
        paths = document_paths(passages["document_id"].combine_chunks())
        return LayerNodes(id_bytes(passages["passage_id"]), digests, words), paths
    blocks = part.packs("segments")
    ids, words = (np.concatenate([pack[name] for pack in blocks]) for name in ("ids", "codes"))
    digests = np.concatenate([pack["digests"] for pack in part.packs("written")])
    return LayerNodes(ids, digests, words), gray_ranks(words)


def _compute(part: Part[SegmentSettings]) -> Outputs:
    settings = part.settings
    below, paths = _below(part)
    bounds = Bounds(settings.smallest, settings.largest, settings.layer)
    layer = layer_over(settings.layer, below, bounds, digest_of(canonical_json(settings.summariser)))
    return Outputs(packs=packs_of(layer, paths, settings.group))


def packs_of(layer: Layer, paths: NDArray[np.uint64], group: int) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the packs `segments/<block>` of a layer. paths: the text paths of the nodes below it."""
    blocks = blocks_of(layer.ids, layer.codes, most_of(layer.number, group), LETTERS[layer.number - 1])
    rows = np.concatenate([np.empty(0, np.int64), *blocks.values()])
    begins, sizes = layer.segments.offsets[rows], layer.segments.offsets[rows + 1] - layer.segments.offsets[rows]
    ends = np.cumsum(sizes)
    children = layer.children[np.repeat(begins - ends + sizes, sizes) + np.arange(len(layer.children))]
    of_nodes: dict[str, NDArray[Any]] = {"ids": layer.ids[rows], "codes": layer.codes[rows]}
    of_children: dict[str, NDArray[Any]] = {
        "children.ids": layer.below.ids[children],
        "children.marks": layer.below.digests[children, :MARK_BYTES],
        "children.paths": paths[children],
    }
    pointers = np.concatenate([[0], ends])
    packs: dict[str, dict[str, NDArray[Any]]] = {}
    first = 0
    for label, block_rows in blocks.items():
        last = first + len(block_rows)
        inside = slice(pointers[first], pointers[last])
        packs[f"segments/{label}"] = {
            **{name: array[first:last] for name, array in of_nodes.items()},
            **{name: array[inside] for name, array in of_children.items()},
            "children.indptr": pointers[first : last + 1] - pointers[first],
        }
        first = last
    return packs


def estimate(part: Part[SegmentSettings], expected: Expected) -> Estimate:
    """Estimate bounds of the numbers of all and of new segments, since a plan computes no vectors."""
    settings = part.settings
    below = expected_rows(part, expected, "passages" if settings.layer == 1 else "written")
    least = -(-below.low // settings.largest) if below.low > settings.largest else 0  # 0: there may be no such layer
    segments = Range(least, max(1, below.high // settings.smallest))
    fresh = segments
    if part.job.reuse:
        changes = _changes(part, expected) if settings.layer == 1 else Range(below.fresh.low, 2 * below.fresh.high)
        most = min(segments.high, _REDONE * changes.high + _REDONE_MORE) if changes.high else 0
        fresh = Range(min(most, -(-changes.low // settings.largest)), most)
    most, letter = most_of(settings.layer, settings.group), LETTERS[settings.layer - 1]
    block_labels = _labels(part, most, letter)
    return Estimate(rows=spread(["segments"], RowRange(segments.low, segments.high, fresh), block_labels, most, letter))


def _labels(part: Part[SegmentSettings], most: int, letter: str) -> list[str]:
    """Return the block labels of the previous version, as an estimate of the new ones."""
    packs = part.reusable_packs()
    if not packs:
        return []
    ids, codes = (np.concatenate([pack[name] for pack in packs]) for name in ("ids", "codes"))
    _, first = np.unique(ids, axis=0, return_index=True)
    return list(blocks_of(ids[first], codes[first], most, letter))


def _changes(part: Part[SegmentSettings], expected: Expected) -> Range:
    """Return bounds of the number of changed passages: new passages (low), and new and deleted passages (high)."""
    before = {row for pack in part.reusable_packs() for row in _marked(pack["children.ids"], pack["children.marks"])}
    now: set[bytes] = set()
    for label, digests in part.settings.texts.items():
        if f"codes/{label}" not in expected:
            ids = id_bytes(part.table(f"passages/{label}", "passage_id").column(0))
            now.update(_marked(ids, part.pack(f"codes/{label}")["digests"][:, :MARK_BYTES]))
            continue
        node_texts = list(texts_of(part, digests))
        marks = np.frombuffer(b"".join(row_key(text)[:MARK_BYTES] for _, text in node_texts), np.uint8).reshape(
            -1, MARK_BYTES
        )
        now.update(_marked(id_bytes([identity for identity, _ in node_texts]), marks))
    added = len(now - before)
    return Range(added, added + len(before - now))


def _marked(ids: Ids, marks: NDArray[np.uint8]) -> list[bytes]:
    """Return each row's id with the first bytes of its text's digest."""
    rows = np.concatenate([ids, marks], axis=1)
    return [row.tobytes() for row in rows]


STAGE = Stage(
    "lsh_segments",
    version=3,
    compute=_compute,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(
        Input("passages", PASSAGES, each=True, optional=True),
        Input("codes", CODES, each=True, optional=True),
        Input("segments", LSH_SEGMENTS, each=True, optional=True),
        Input("written", LSH_WRITTEN, each=True, optional=True),
    ),
    outputs=(Output("segments", LSH_SEGMENTS, each=True),),
    priority=30,
)
