"""The packs of the family lsh_tree: passages and summaries as the rows of one tree (EraRAG, section III)."""

from __future__ import annotations

from indexmill.store.pack_checks import tree_check
from indexmill.store.pack_schema import Array, PackSchema, hashes, indices, pointers, vectors

__all__ = ["PACKS", "SUMMARY_VECTORS", "TREE"]

SUMMARY_VECTORS = PackSchema(
    "vectors of summaries, row by row with `summaries`",
    {
        "vectors": vectors("own summaries", "the vector of each summary"),
        "keys": hashes("own summaries", "the SHA-256 of each node id", width=32),
        "text_keys": hashes("own summaries", "what each vector was made from"),
    },
    tables=("own summaries",),
)

TREE = PackSchema(
    "the tree; its rows are nodes: layer 0, the passages, then the rows of `summaries`, layer by layer",
    {
        "layer_offsets": pointers("layers", "nodes", "where each layer begins, and the end"),
        "children.indptr": pointers("summaries", "children", "where the children of each summary begin, and the end"),
        "children.indices": indices("children", "nodes", "rows of the layer below, ascending"),
        "parents": indices("nodes", "nodes", "-1 for a root", least=-1),
        "codes": Array(
            "uint64",
            ("nodes",),
            "on which side of each hyperplane a row lies: a passage where its vector does, a summary where its "
            "children do in the mean; the first hyperplane's bit is the most significant",
        ),
        "hyperplanes": Array("int16", (64, "dimensions"), "the normals of the hyperplanes"),
        "bounds": Array("int64", (4,), "smallest and largest segment, layers at most, seed"),
        "stand_ins": Array("uint8", ("summaries",), "1 where no model wrote the summary although one was asked"),
    },
    tables=("summaries",),
    checks=(tree_check("layer_offsets"),),
)

PACKS = {"summary_vectors/<group>": SUMMARY_VECTORS, "lsh_tree/tree": TREE}
