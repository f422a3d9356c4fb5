"""The tables and private packs of the family lsh_tree."""

import pyarrow as pa

from indexmill.store.pack_schema import Array, PackSchema, hashes, pointers
from schemas.tables import published

MARK_BYTES = 4
"""The first bytes of a digest, by which a plan tells texts that have changed."""

LSH_SEGMENTS = PackSchema(
    "what the summaries of a block are made of, in the order of their ids",
    {
        "ids": hashes("nodes", "the node ids"),
        "codes": Array("uint64", ("nodes",), "where they lie: the code of the middle one of the children"),
        "children.indptr": pointers("nodes", "children", "where the children of each begin, and the end"),
        "children.ids": hashes("children", "of passages or, above the first layer, of nodes; those of one ascend"),
        "children.marks": hashes(
            "children", "of the digests of their texts, which the node ids hash", width=MARK_BYTES
        ),
        "children.paths": Array(
            "uint64", ("children",), "the first bits of the path to the shard or block of the text"
        ),
    },
)

LSH_WRITTEN = PackSchema(
    "what the layer above and the tree need of the summaries of a part, block by block",
    {
        "digests": hashes("summaries", "of their texts"),
        "stand_ins": Array("uint8", ("summaries",), "1 where no model wrote the summary although one was asked"),
    },
)

LSH_SUMMARIES = published(
    "summaries/<block>",
    "the summaries of lsh_tree",
    node_id=pa.string(),
    layer=(pa.int32(), "1 is the lowest"),
    text=pa.string(),
    tokens=(pa.int32(), "of the text, special tokens included"),
    digest=(pa.string(), "of the text"),
    stand_in=(pa.bool_(), "no model wrote the summary although one was asked"),
)
"""Ordered by node_id."""
