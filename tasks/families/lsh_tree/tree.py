"""Stage `lsh_tree`: passages and summaries as the rows of one tree (EraRAG, section III).

Rows are numbered layer by layer: passages as everywhere (shards in the order of their labels), then summaries in the
order of their tables `summaries/<group>`. The pack `tree`: indexmill.families.lsh_tree.schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import TREE
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES, PASSAGES
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.lsh_tree.segments import LETTERS, Gathered, layer_label, planes_of, rows_below

__all__ = ["STAGE", "counts", "estimate"]


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


def _compute(inputs: Inputs) -> Outputs:
    settings = inputs.settings
    planes = planes_of(inputs)
    passages = inputs.tables("passages", PASSAGES, "passage_id").column("passage_id")
    below, offsets = passages.combine_chunks(), [0, len(passages)]
    parents = [np.full(len(passages), -1, dtype=np.int32)]
    indices: list[NDArray[np.int32]] = []
    held: list[NDArray[np.int64]] = []
    stand_ins = []
    codes = []
    layers = sum(f"codes/{layer_label(layer)}" in inputs.job.inputs for layer in range(1, len(LETTERS) + 1))
    for layer in range(1, layers + 1):
        letter = LETTERS[layer - 1]
        nodes = _of_layer(inputs, f"summaries/{letter}", LSH_SUMMARIES, "node_id", "stand_in")
        segments = _of_layer(inputs, f"segments/{letter}", LSH_SEGMENTS, "node_id", "child_id")
        ids = nodes.column("node_id").combine_chunks()
        owner = pc.index_in(segments.column("node_id"), ids).to_numpy()
        child = pc.index_in(segments.column("child_id"), below).to_numpy()
        order = np.lexsort((child, owner))
        indices.append((child[order] + offsets[-2]).astype(np.int32))
        held.append(np.bincount(owner, minlength=len(ids)))
        parents[-1][child] = owner + offsets[-1]
        parents.append(np.full(len(ids), -1, dtype=np.int32))
        stand_ins.append(nodes.column("stand_in").to_numpy().astype(np.uint8))
        codes.append(inputs.pack(inputs.job.inputs[f"codes/{layer_label(layer)}"])["codes"])
        below = ids
        offsets.append(offsets[-1] + len(ids))
    codes.append(_uppermost(inputs, layers).codes(planes))
    none = np.empty(0, dtype=np.int32)
    arrays: dict[str, NDArray[Any]] = {
        "hyperplanes": planes.normals(),
        "bounds": np.array([settings[name] for name in ("smallest", "largest", "layers", "seed")], dtype=np.int64),
        "layer_offsets": np.array(offsets, dtype=np.int64),
        "children.indptr": np.cumsum(np.concatenate([[0], *held])).astype(np.int64),
        "children.indices": np.concatenate([none, *indices]),
        "parents": np.concatenate(parents),
        "codes": np.concatenate(codes),
        "stand_ins": np.concatenate([np.empty(0, dtype=np.uint8), *stand_ins]),
    }
    return Outputs(packs={"tree": TREE.conform(arrays)})


def _of_layer(inputs: Inputs, prefix: str, schema: pa.Schema, *columns: str) -> pa.Table:
    """Some columns of all tables of a layer's groups."""
    names = sorted(name for name in inputs.job.inputs if name.startswith(prefix))
    return pa.concat_tables([inputs.table(name, schema, *columns) for name in names])


def _uppermost(inputs: Inputs, layers: int) -> Gathered:
    """Where the roots lie."""
    prefix, array = ("places", "places") if layers else ("vectors/", "passages")
    names = sorted(name for name in inputs.job.inputs if name.startswith(prefix))
    return Gathered([inputs.pack(inputs.job.inputs[name])[array] for name in names], inputs.settings["dimension"])


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the size of the tree."""
    passages = inputs.rows("passages")
    nodes = rows_below(inputs, expected)  # passages, too
    layers = sum(name.startswith("codes/") for name in inputs.job.inputs)

    lengths = {
        "layers": layers + 1,
        "nodes": nodes.high,
        "summaries": nodes.high - passages,
        "children": nodes.high if layers else 0,
        "dimensions": inputs.settings["dimension"],
    }
    return Estimate(bytes={"tree": Range(0, TREE.size(lengths))}, rows={"tree": Range(nodes.low, nodes.high)})


STAGE = Stage("lsh_tree", version=2, compute=_compute, libraries=("numpy",), estimate=estimate)
