"""Stage `lsh_tree`: passages and summaries as the rows of one tree (EraRAG, section III).

Rows are numbered layer by layer: passages as everywhere (shards in the order of their labels), then summaries in the
order of their tables `summaries/<group>`. The arrays of the pack `tree` are these, over n rows in L + 1 layers:

    hyperplanes       (64, d) int16, the first block of normals
    bounds            (4,) int64: smallest, largest, layers at most, seed
    layer_offsets     (L + 2,) int64: the rows of layer l are layer_offsets[l] to layer_offsets[l + 1]
    children.indptr   (summaries + 1,) int64, where the children of each summary begin in
    children.indices  (n - roots,) int32, ascending rows
    parents           (n,) int32, -1 for a root
    codes             (n,) uint64: bit by bit, on which side of each hyperplane the row lies: a passage where its vector
                      does, a summary where its children do in the mean
    stand_ins         (summaries,) uint8, 1 where no model wrote the summary that one was asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.store.packs import pack_size
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES, PASSAGES
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import ARRAYS, Input, Inputs, Output, Outputs, Settings, Stage
from tasks.families.lsh_tree.hyperplanes import BITS
from tasks.families.lsh_tree.segments import LETTERS, Gathered, layer_label, planes_of, rows_below

__all__ = ["STAGE", "TreeSettings", "counts", "estimate"]


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of a built tree, as the manifest states them: `nodes` are summaries."""
    sizes = np.diff(pack["layer_offsets"]).tolist()
    return {
        "layers": len(sizes) - 1,
        "nodes": sum(sizes[1:]),
        **{f"layer_{layer}": size for layer, size in enumerate(sizes) if layer},
        "roots": int(np.count_nonzero(pack["parents"] < 0)),
        "stand_ins": int(pack["stand_ins"].sum()),
    }


@dataclass(frozen=True, kw_only=True)
class TreeSettings(Settings):
    """smallest, largest: nodes of a segment. layers: at most."""

    smallest: int
    largest: int
    layers: int
    seed: int
    dimension: int


def _compute(inputs: Inputs[TreeSettings]) -> Outputs:
    settings = inputs.settings
    planes = planes_of(inputs, settings.seed, settings.dimension)
    passages = inputs.tables("passages", "passage_id").column("passage_id")
    below, offsets = passages.combine_chunks(), [0, len(passages)]
    parents = [np.full(len(passages), -1, dtype=np.int32)]
    indices: list[NDArray[np.int32]] = []
    held: list[NDArray[np.int64]] = []
    stand_ins = []
    codes = []
    layers = len(inputs.labels("codes"))
    for layer in range(1, layers + 1):
        letter = LETTERS[layer - 1]
        nodes = _of_layer(inputs, "summaries", letter, "node_id", "stand_in")
        segments = _of_layer(inputs, "segments", letter, "node_id", "child_id")
        ids = nodes.column("node_id").combine_chunks()
        owner = pc.index_in(segments.column("node_id"), ids).to_numpy()
        child = pc.index_in(segments.column("child_id"), below).to_numpy()
        order = np.lexsort((child, owner))
        indices.append((child[order] + offsets[-2]).astype(np.int32))
        held.append(np.bincount(owner, minlength=len(ids)))
        parents[-1][child] = owner + offsets[-1]
        parents.append(np.full(len(ids), -1, dtype=np.int32))
        stand_ins.append(nodes.column("stand_in").to_numpy().astype(np.uint8))
        codes.append(inputs.pack(f"codes/{layer_label(layer)}")["codes"])
        below = ids
        offsets.append(offsets[-1] + len(ids))
    codes.append(_uppermost(inputs).codes(planes))
    none = np.empty(0, dtype=np.int32)
    arrays: dict[str, NDArray[Any]] = {
        "hyperplanes": planes.normals(),
        "bounds": np.array([settings.smallest, settings.largest, settings.layers, settings.seed], dtype=np.int64),
        "layer_offsets": np.array(offsets, dtype=np.int64),
        "children.indptr": np.cumsum(np.concatenate([[0], *held])).astype(np.int64),
        "children.indices": np.concatenate([none, *indices]),
        "parents": np.concatenate(parents),
        "codes": np.concatenate(codes),
        "stand_ins": np.concatenate([np.empty(0, dtype=np.uint8), *stand_ins]),
    }
    return Outputs(packs={"tree": arrays})


def _of_layer(inputs: Inputs[Any], name: str, letter: str, *columns: str) -> pa.Table:
    """Some columns of all tables of a layer's groups."""
    labels = [label for label in inputs.labels(name) if label.startswith(letter)]
    return pa.concat_tables([inputs.table(f"{name}/{label}", *columns) for label in labels])


def _uppermost(inputs: Inputs[TreeSettings]) -> Gathered:
    """Where the roots lie."""
    if inputs.has("places"):
        found = [inputs.pack("places")["places"]]
    else:
        found = [pack["passages"] for pack in inputs.packs("vectors")]
    return Gathered(found, inputs.settings.dimension)


def estimate(inputs: Inputs[TreeSettings], expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the size of the tree."""
    passages = inputs.rows("passages")
    nodes = rows_below(inputs, expected)  # passages, too
    summaries = Range(nodes.low - passages, nodes.high - passages)
    layers = len(inputs.labels("codes"))

    def size(count: int, built: int) -> int:
        rows = passages + count
        return pack_size(
            {
                "hyperplanes": (np.int16, (BITS, inputs.settings.dimension)),
                "bounds": (np.int64, (4,)),
                "layer_offsets": (np.int64, (built + 2,)),
                "children.indptr": (np.int64, (count + 1,)),
                "children.indices": (np.int32, (rows if built else 0,)),
                "parents": (np.int32, (rows,)),
                "codes": (np.uint64, (rows,)),
                "stand_ins": (np.uint8, (count,)),
            }
        )

    return Estimate(
        bytes={"tree": Range(0, size(summaries.high, layers))},
        rows={"tree": Range(nodes.low, nodes.high)},
    )


STAGE = Stage(
    "lsh_tree",
    version=2,
    compute=_compute,
    settings=TreeSettings,
    libraries=("numpy",),
    estimate=estimate,
    inputs=(
        Input("axes", ARRAYS),
        Input("passages", PASSAGES, each=True),
        Input("codes", ARRAYS, each=True),
        Input("segments", LSH_SEGMENTS, each=True),
        Input("summaries", LSH_SUMMARIES, each=True),
        Input("places", ARRAYS, optional=True),
        Input("vectors", ARRAYS, each=True, optional=True),
    ),
    outputs=(Output("tree", ARRAYS, artifact="lsh_tree/tree"),),
)
