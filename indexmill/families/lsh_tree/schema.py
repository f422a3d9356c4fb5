"""The packs of the family lsh_tree: passages and summaries as the rows of one tree (EraRAG, section III)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from indexmill.store.pack_schema import SMALLEST, Array, PackCheck, PackSchema, hashes, vectors

SUMMARY_VECTORS = PackSchema(
    "vectors of summaries, one per row of `summaries`",
    {
        "vectors": vectors("own summaries", "the vector of each summary", dtype="float16"),
        "keys": hashes("own summaries", "the SHA-256 of each node id", width=32),
        "text_keys": hashes("own summaries", "what each vector was computed from"),
    },
    tables=("own summaries",),
)


def _parents_problems(offsets: npt.NDArray[Any], above: npt.NDArray[Any], nodes: npt.NDArray[Any]) -> Iterator[str]:
    """Yield the problems of a tree. nodes: an array with a value for each node above the lowest layer."""
    if len(offsets) < 2 or int(offsets[0]) != 0 or len(above) != int(offsets[-2]):
        yield f"{len(above)} nodes have a parent; expected all below the uppermost of {len(offsets) - 1} layers"
        return
    if len(nodes) != int(offsets[-1]) - int(offsets[1]):
        yield f"there are {int(offsets[-1]) - int(offsets[1])} nodes above the lowest layer; expected {len(nodes)}"
        return
    for first, end, last in zip(offsets.tolist(), offsets.tolist()[1:], offsets.tolist()[2:], strict=False):
        if end > first and int(above[first:end].max()) >= last - end:
            yield f"a parent has the number {above[first:end].max()}; the layer above has {last - end} nodes"


TREE = PackSchema(
    "the tree; its rows are nodes: layer 0, the passages, then the rows of `summaries`, layer by layer",
    {
        "layer_offsets": Array("int64", ("layers + 1",), "where each layer begins, and the end", rising=True),
        "above": Array(
            SMALLEST,
            ("children",),
            "for each node below the uppermost layer, the number of its parent in the layer above it",
            least=0,
        ),
        "hyperplanes": Array("int16", (64, "dimensions"), "the normals of the hyperplanes"),
        "bounds": Array("int64", (4,), "smallest and largest segment, maximum number of layers, seed"),
        "stand_ins": Array("uint8", ("summaries",), "1 if a model was asked for the summary but did not write it"),
    },
    tables=("summaries",),
    checks=(
        PackCheck(
            "each parent is a node of the layer above its child",
            ("layer_offsets", "above", "stand_ins"),
            _parents_problems,
        ),
    ),
)

PACKS = {"summary_vectors/<block>": SUMMARY_VECTORS, "lsh_tree/tree": TREE}
