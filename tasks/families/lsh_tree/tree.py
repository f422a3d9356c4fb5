"""Stage `lsh_tree`: passages and summaries as the rows of one tree (EraRAG, section III).

Rows are numbered layer by layer: passages as everywhere (shards in the order of their labels), then summaries in the
order of their tables `summaries/<group>`. The pack `tree`: indexmill.families.lsh_tree.schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import TREE
from indexmill.retrieve.shared_schema import VECTORS
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES, PASSAGES
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.segments import CODES, LETTERS, PLACES, Gathered, layer_label, planes_of

__all__ = ["STAGE", "TreeSettings", "counts"]


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


def _compute(part: Part[TreeSettings]) -> Outputs:
    settings = part.settings
    planes = planes_of(part, settings.seed, settings.dimension)
    passages = part.tables("passages", "passage_id").column("passage_id")
    below, offsets = passages.combine_chunks(), [0, len(passages)]
    parents = [np.full(len(passages), -1, dtype=np.int32)]
    indices: list[NDArray[np.int32]] = []
    held: list[NDArray[np.int64]] = []
    stand_ins = []
    codes = []
    layers = len(part.labels("codes"))
    for layer in range(1, layers + 1):
        letter = LETTERS[layer - 1]
        nodes = _of_layer(part, "summaries", letter, "node_id", "stand_in")
        segments = _of_layer(part, "segments", letter, "node_id", "child_id")
        ids = nodes.column("node_id").combine_chunks()
        owner = pc.index_in(segments.column("node_id"), ids).to_numpy()
        child = pc.index_in(segments.column("child_id"), below).to_numpy()
        order = np.lexsort((child, owner))
        indices.append((child[order] + offsets[-2]).astype(np.int32))
        held.append(np.bincount(owner, minlength=len(ids)))
        parents[-1][child] = owner + offsets[-1]
        parents.append(np.full(len(ids), -1, dtype=np.int32))
        stand_ins.append(nodes.column("stand_in").to_numpy().astype(np.uint8))
        codes.append(part.pack(f"codes/{layer_label(layer)}")["codes"])
        below = ids
        offsets.append(offsets[-1] + len(ids))
    codes.append(_uppermost(part).codes(planes))
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


def _of_layer(part: Part[Any], name: str, letter: str, *columns: str) -> pa.Table:
    """Some columns of all tables of a layer's groups."""
    labels = [label for label in part.labels(name) if label.startswith(letter)]
    return pa.concat_tables([part.table(f"{name}/{label}", *columns) for label in labels])


def _uppermost(part: Part[TreeSettings]) -> Gathered:
    """Where the roots lie."""
    if part.has("places"):
        found = [part.pack("places")["places"]]
    else:
        found = [pack["passages"] for pack in part.packs("vectors")]
    return Gathered(found, part.settings.dimension)


STAGE = Stage(
    "lsh_tree",
    version=2,
    compute=_compute,
    settings=TreeSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("axes", DIRECTIONS),
        Input("passages", PASSAGES, each=True),
        Input("codes", CODES, each=True),
        Input("segments", LSH_SEGMENTS, each=True),
        Input("summaries", LSH_SUMMARIES, each=True),
        Input("places", PLACES, optional=True),
        Input("vectors", VECTORS, each=True, optional=True),
    ),
    outputs=(Output("tree", TREE, artifact="lsh_tree/tree"),),
)
