"""Stage `lsh_segments`: the nodes of one layer of lsh_tree, cut into segments (EraRAG, Algorithm 1).

A node is a passage or, above the first layer, a summary. A passage's place is its vector, a summary's place the mean of
its children's (ours): so a layer waits for the texts below it but not for their vectors, and a reworded summary does
not move. A segment becomes a node of the next layer, whose id hashes the layer, the ids and text digests of its
children, and the fingerprint of the summariser: a node with a known id already has its summary. The tables
`segments/<group>` list the children of each node. A group is a leaf of a trie over node ids, labelled with the layer's
letter and the leaf's bits; its summaries are one part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.retrieve.shared_schema import VECTORS
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import PASSAGES, conform
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.groups import assigned, expected_groups, expected_rows
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.hierarchy import Bounds, Nodes, layer_over
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import centres
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_SUMMARIES
from tasks.families.lsh_tree.texts import texts_of
from tasks.stages.embed.embed import row_key

__all__ = [
    "CODES",
    "LETTERS",
    "PLACES",
    "STAGE",
    "Gathered",
    "SegmentSettings",
    "estimate",
    "layer_label",
    "planes_of",
]

_REDONE = 2
"""The most segments redone per changed node below, on average over many: 1.0 to 1.3 were measured."""

_REDONE_MORE = 8
"""An allowance for a few badly placed changes. Both numbers are guesses; only the budget is a hard limit."""

LETTERS = "abcdfghijklmnoqr"
"""The letter of each layer's groups, from layer 1: `e` and `p` are shards of entities and of documents."""

CODES = PackSchema(
    "the codes of the nodes that were cut", {"codes": Array("uint64", ("nodes",), "in the order of their rows")}
)
PLACES = PackSchema(
    "where the new nodes lie",
    {"places": Array("float32", ("nodes", "dimensions"), "in the order of their ids, which is that of their rows")},
)


def layer_label(layer: int) -> str:
    """The label of the part that cuts the nodes below a layer of summaries: `l1` cuts passages."""
    return f"l{layer}"


class Gathered:
    """The rows of several arrays (n_i, d), concatenated and read on demand."""

    def __init__(self, arrays: Sequence[NDArray[np.float32]], dimension: int) -> None:
        self._arrays = arrays
        self._dimension = dimension
        self._ends = np.cumsum([0, *(len(array) for array in arrays)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors (len(rows), d) of some rows."""
        found = np.empty((len(rows), self._dimension), dtype=np.float32)
        owner = np.searchsorted(self._ends, rows, side="right") - 1
        for one in np.unique(owner):
            mine = owner == one
            found[mine] = self._arrays[one][rows[mine] - self._ends[one]]
        return found

    def codes(self, planes: Hyperplanes) -> NDArray[np.uint64]:
        """The first word of the codes of all rows."""
        found = [planes.codes(array) for array in self._arrays]
        return np.concatenate([np.empty(0, dtype=np.uint64), *found])


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(Settings):
    """smallest, largest: the bounds of a segment's nodes. group: the most segments in a group.

    summariser: the fingerprint of the writer. texts: the digests of the tables with the nodes' texts
    (`tasks.families.lsh_tree.texts`).
    """

    smallest: int
    largest: int
    group: int
    seed: int
    layer: int
    dimension: int
    summariser: Mapping[str, Any]
    encoder: Mapping[str, Any] = worker_arg()
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    title_in_passage: bool = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        """The settings that determine segments, without those of their groups."""
        shaping = self.keyed()
        del shaping["group"]
        return {**shaping, "encoder": self.encoder}


def _below(part: Part[SegmentSettings]) -> tuple[Nodes, list[str], Gathered]:
    """The nodes to cut, and for each row the shard of its text and its place."""
    ids: list[str] = []
    digests: list[str] = []
    shards: list[str] = []
    vectors = [part.pack("places")["places"]] if part.has("places") else []
    for label in part.labels("passages"):
        found = part.table(f"passages/{label}", "passage_id").column("passage_id").to_pylist()
        for pack in part.packs("vectors", label):
            digests += [key.tobytes().hex() for key in pack["passage_keys"]]
            vectors.append(pack["passages"])
        ids += found
        shards += [label] * len(found)
    for label in part.labels("summaries"):
        rows = part.table(f"summaries/{label}", "node_id", "digest")
        ids += rows.column("node_id").to_pylist()
        digests += rows.column("digest").to_pylist()
        shards += [label] * len(rows)
    gathered = Gathered(vectors, part.settings.dimension)
    return Nodes(ids, digests, gathered), shards, gathered


def _compute(part: Part[SegmentSettings]) -> Outputs:
    settings = part.settings
    planes = planes_of(part, settings.seed, settings.dimension)
    bounds = Bounds(settings.smallest, settings.largest, settings.layer)
    below, shards, vectors = _below(part)
    codes = vectors.codes(planes)
    layer = layer_over(settings.layer, below, planes, bounds, digest_of(canonical_json(settings.summariser)), codes)
    place = dict(zip(below.ids, shards, strict=True))
    made = sorted(layer.children())
    groups = assigned([node for node, _ in made], settings.group, LETTERS[settings.layer - 1])
    tables = {
        f"segments/{label}": _table([made[row] for row in rows.tolist()], place) for label, rows in groups.items()
    }
    places = centres(layer.segments, vectors, settings.dimension)
    in_order = np.argsort(np.array(layer.ids, dtype=np.bytes_))
    return Outputs(tables=tables, packs={"codes": {"codes": codes}, "places": {"places": places[in_order]}})


def planes_of(part: Part[Any], seed: int, dimension: int) -> Hyperplanes:
    """The hyperplanes of a seed and of the input `axes`."""
    return Hyperplanes(seed, dimension, part.pack("axes")["axes"])


def _table(made: Sequence[tuple[str, list[tuple[str, str]]]], place: Mapping[str, str]) -> pa.Table:
    """The table of some segments: (node id, [(child id, digest of its text)]), all in order."""
    rows = [(node, child, digest, place[child]) for node, children in made for child, digest in children]
    columns = dict(zip(LSH_SEGMENTS.names, map(list, zip(*rows, strict=True)), strict=True))
    return conform(pa.table(columns), LSH_SEGMENTS)


def estimate(part: Part[SegmentSettings], expected: Expected) -> Estimate:
    """Bounds of the numbers of segments and of new segments: a plan makes no vectors, so these are not exact."""
    settings = part.settings
    below = expected_rows(part, expected, "passages", "summaries")
    least = -(-below.low // settings.largest) if below.low > settings.largest else 0  # or there is no such layer
    made = Range(least, max(1, below.high // settings.smallest))
    fresh = made
    if part.job.reuse:
        changes = _changes(part) if settings.layer == 1 else Range(below.fresh.low, 2 * below.fresh.high)
        most = min(made.high, _REDONE * changes.high + _REDONE_MORE) if changes.high else 0
        fresh = Range(min(most, -(-changes.low // settings.largest)), most)
    rows, known = Rows(made.low, made.high, fresh), part.reusable_tables(LSH_SEGMENTS, "node_id")
    return Estimate(rows=expected_groups(["segments"], rows, known, settings.group, LETTERS[settings.layer - 1]))


def _changes(part: Part[SegmentSettings]) -> Range:
    """The number of new passages (low), and of new and deleted ones together (high)."""
    before: set[tuple[str, str]] = set()
    for table in part.reusable_tables(LSH_SEGMENTS, "child_id", "child_digest"):
        before.update(zip(table["child_id"].to_pylist(), table["child_digest"].to_pylist(), strict=True))
    now: set[tuple[str, str]] = set()
    for digests in part.settings.texts.values():
        now.update((identity, row_key(text).hex()) for identity, text in texts_of(part, digests))
    added = len(now - before)
    return Range(added, added + len(before - now))


STAGE = Stage(
    "lsh_segments",
    version=2,
    compute=_compute,
    settings=SegmentSettings,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(
        Input("axes", DIRECTIONS),
        Input("passages", PASSAGES, each=True, optional=True),
        Input("vectors", VECTORS, each=True, optional=True),
        Input("summaries", LSH_SUMMARIES, each=True, optional=True),
        Input("places", PLACES, optional=True),
    ),
    outputs=(
        Output("segments", LSH_SEGMENTS, each=True),
        Output("codes", CODES),
        Output("places", PLACES),
    ),
    priority=30,
)
