"""Stage `lsh_tree`: passages and summaries as the rows of one tree (EraRAG, section III).

Rows are numbered layer by layer: passages as everywhere (shards in the order of their labels), then summaries in the
order of their tables `summaries/<group>`. The pack `tree`: indexmill.families.lsh_tree.schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import TREE
from indexmill.retrieve.shared_schema import VECTORS
from schemas.tables import PASSAGES
from tasks.core.layers import TreeRows, tables_of_layer
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.segments import CODES, LETTERS, PLACES, Gathered, layer_label, planes_of
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_SUMMARIES

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
    """smallest, largest: the bounds of a segment's nodes. layers: the most layers."""

    smallest: int
    largest: int
    layers: int
    seed: int
    dimension: int


def _compute(part: Part[TreeSettings]) -> Outputs:
    settings = part.settings
    planes = planes_of(part, settings.seed, settings.dimension)
    rows = TreeRows(part.tables("passages", "passage_id").column(0).combine_chunks())
    codes = []
    for layer in range(1, len(part.labels("codes")) + 1):
        letter = LETTERS[layer - 1]
        rows.add(
            tables_of_layer(part, "summaries", letter, "node_id", "stand_in"),
            tables_of_layer(part, "segments", letter, "node_id", "child_id"),
        )
        codes.append(part.pack(f"codes/{layer_label(layer)}")["codes"])
    arrays: dict[str, NDArray[Any]] = {
        **rows.arrays(),
        "hyperplanes": planes.normals(),
        "bounds": np.array([settings.smallest, settings.largest, settings.layers, settings.seed], dtype=np.int64),
        "layer_offsets": np.array(rows.offsets, dtype=np.int64),
        "codes": np.concatenate([*codes, _uppermost(part).codes(planes)]),
    }
    return Outputs(packs={"tree": arrays})


def _uppermost(part: Part[TreeSettings]) -> Gathered:
    """The places of the roots: their vectors or, for summaries, the means of their children."""
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
