"""The packs of the family lsh_tree: passages and summaries as the rows of one tree (EraRAG, section III)."""

from __future__ import annotations

from indexmill.store.pack_checks import parents_check, tree_check
from indexmill.store.pack_schema import SMALLEST, Array, PackSchema, hashes, pointers, vectors

SUMMARY_VECTORS = PackSchema(
    "vectors of summaries, row by row with `summaries`",
    {
        "vectors": vectors("own summaries", "the vector of each summary; float32 in older snapshots", dtype="float16"),
        "keys": hashes("own summaries", "the SHA-256 of each node id", width=32),
        "text_keys": hashes("own summaries", "what each vector was made from"),
    },
    tables=("own summaries",),
)

_OLDER = "older snapshots: "

TREE = PackSchema(
    "the tree; its rows are nodes: layer 0, the passages, then the rows of `summaries`, layer by layer",
    {
        "layer_offsets": pointers("layers", "nodes", "where each layer begins, and the end"),
        "above": Array(
            SMALLEST,
            ("children",),
            "for each node below the uppermost layer, the number of its parent in the layer above it",
            least=0,
            optional=True,
        ),
        "children.indptr": pointers(
            "summaries", "links", f"{_OLDER}where the children of each summary begin, and the end", optional=True
        ),
        "children.indices": Array(
            "int32",
            ("links",),
            f"{_OLDER}rows of the layer below, ascending",
            below="nodes",
            least=0,
            optional=True,
        ),
        "parents": Array(
            "int32", ("nodes",), f"{_OLDER}in place of `above`, -1 for a root", below="nodes", least=-1, optional=True
        ),
        "codes": Array(
            "uint64",
            ("nodes",),
            f"{_OLDER}on which side of each hyperplane a row lies; nothing reads it",
            optional=True,
        ),
        "hyperplanes": Array("int16", (64, "dimensions"), "the normals of the hyperplanes"),
        "bounds": Array("int64", (4,), "smallest and largest segment, layers at most, seed"),
        "stand_ins": Array("uint8", ("summaries",), "1 where no model wrote the summary although one was asked"),
    },
    tables=("summaries",),
    checks=(tree_check("layer_offsets"), parents_check("layer_offsets", "above", "stand_ins")),
)

PACKS = {"summary_vectors/<block>": SUMMARY_VECTORS, "lsh_tree/tree": TREE}
