"""Stage `lsh_tree`: passages and summaries as the rows of one tree (EraRAG, section III).

Rows are numbered layer by layer: passages in the usual order (shards by label), then summaries in the order of their
tables `summaries/<block>`. The pack `tree` is described in indexmill.families.lsh_tree.schema.

It is one pack for the whole corpus, with the number of each node's parent: two bytes for up to 65,536 summaries. Blocks
with the ids of children would write less when four documents change, but a reader would have to look up 400,000 ids
before its first answer.
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
from schemas.tables import PASSAGES
from tasks.core.groups import Ids, id_bytes
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings
from tasks.families.lsh_tree.axes import DIRECTIONS
from tasks.families.lsh_tree.blocks import LETTERS
from tasks.families.lsh_tree.codes import planes_of
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_WRITTEN


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the sizes of a built tree, as the manifest states them: `nodes` are summaries."""
    sizes = np.diff(pack["layer_offsets"]).tolist()
    return {
        "layers": len(sizes) - 1,
        "nodes": sum(sizes[1:]),
        **{f"layer_{layer}": size for layer, size in enumerate(sizes) if layer},
        "roots": sizes[-1],
        "stand_ins": int(pack["stand_ins"].sum()),
    }


@dataclass(frozen=True, kw_only=True)
class SegmentTreeSettings(StageSettings):
    """smallest, largest: the bounds of a segment's size. layers: the maximum number of layers."""

    smallest: int
    largest: int
    layers: int
    seed: int
    dimension: int


def _compute(part: Part[SegmentTreeSettings]) -> Outputs:
    settings = part.settings
    below = id_bytes(part.tables("passages", "passage_id").column(0))
    sizes, above = [len(below)], [np.empty(0, dtype=np.int64)]
    for letter in LETTERS:
        packs = part.packs("segments", within=letter)
        if not packs:
            break
        above.append(_parents(below, packs))
        below = np.concatenate([pack["ids"] for pack in packs])
        sizes.append(len(below))
    numbers = np.concatenate(above)
    stand_ins = [pack["stand_ins"] for pack in part.packs("written")]
    arrays: dict[str, NDArray[Any]] = {
        "layer_offsets": np.cumsum([0, *sizes]),
        "above": numbers.astype(np.min_scalar_type(int(numbers.max(initial=0)))),
        "hyperplanes": planes_of(part, settings.seed, settings.dimension).normals(),
        "bounds": np.array([settings.smallest, settings.largest, settings.layers, settings.seed], dtype=np.int64),
        "stand_ins": np.concatenate([np.empty(0, dtype=np.uint8), *stand_ins]),
    }
    return Outputs(packs={"tree": arrays})


def _parents(below: Ids, packs: list[Mapping[str, NDArray[Any]]]) -> NDArray[np.int64]:
    """Return each node's parent among the nodes of some blocks; raises ValueError for a node without a parent."""
    children = _as_ids(np.concatenate([pack["children.ids"] for pack in packs]))
    child_counts = np.concatenate([np.diff(pack["children.indptr"]) for pack in packs])
    at = pc.index_in(children, value_set=_as_ids(below)).to_numpy()
    parents = np.full(len(below), -1, dtype=np.int64)
    parents[at] = np.arange(len(child_counts)).repeat(child_counts)
    if (parents < 0).any():
        raise ValueError(f"{np.count_nonzero(parents < 0)} of {len(below)} nodes are in no segment")
    return parents


def _as_ids(ids: Ids) -> pa.Array:
    kind = pa.binary(ids.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))])


STAGE = Stage(
    "lsh_tree",
    version=3,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("axes", DIRECTIONS),
        Input("passages", PASSAGES, each=True),
        Input("segments", LSH_SEGMENTS, each=True),
        Input("written", LSH_WRITTEN, each=True),
    ),
    outputs=(Output("tree", TREE, artifact="lsh_tree/tree"),),
)
