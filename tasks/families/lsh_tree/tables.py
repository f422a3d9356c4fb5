"""The tables and private packs of the family lsh_tree."""

import pyarrow as pa

from indexmill.store.pack_schema import Array, PackSchema, hashes, pointers
from schemas.tables import published

MARK_BYTES = 4
"""The number of a digest's first bytes by which a plan detects changed texts."""

LSH_SEGMENTS = PackSchema(
    "the inputs of the summaries in a block, in the order of the summaries' ids",
    {
        "ids": hashes("nodes", "the node ids"),
        "codes": Array("uint64", ("nodes",), "the code of each node's middle child"),
        "children.indptr": pointers("nodes", "children", "the first child of each node, and the end"),
        "children.ids": hashes("children", "ids of passages or, above the first layer, nodes; ascending in each node"),
        "children.marks": hashes(
            "children", "the first bytes of their texts' digests, which the node ids hash", width=MARK_BYTES
        ),
        "children.paths": Array(
            "uint64", ("children",), "the first bits of the path to the shard or block of the text"
        ),
    },
)

LSH_WRITTEN = PackSchema(
    "the data about a part's summaries that the layer above and the tree need, block by block",
    {
        "digests": hashes("summaries", "the digests of their texts"),
        "stand_ins": Array("uint8", ("summaries",), "1 where no model wrote the summary although one was asked"),
    },
)

LSH_SUMMARIES = published(
    "summaries/<block>",
    "the summaries of lsh_tree",
    node_id=pa.string(),
    layer=(pa.int32(), "1 is the lowest"),
    text=pa.string(),
    tokens=(pa.int32(), "the tokens of the text, special tokens included"),
    digest=(pa.string(), "the digest of the text"),
    stand_in=(pa.bool_(), "no model wrote the summary although one was asked"),
)
"""Ordered by node_id."""
