"""The tables of the family lsh_tree."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import private, published

__all__ = ["LSH_SEGMENTS", "LSH_SUMMARIES"]

LSH_SEGMENTS = private(
    node_id=pa.string(),
    child_id=pa.string(),  # of a passage or, above the first layer, of a node
    child_digest=pa.string(),  # of the child's text: see tasks.stages.embed.embed.row_key, 32 hex digits
    shard=pa.string(),  # the shard or group of the child's text
)
"""Ordered by (node_id, child_id)."""

LSH_SUMMARIES = published(
    "summaries/<group>",
    "the summaries of lsh_tree",
    node_id=pa.string(),
    layer=(pa.int32(), "1 is the lowest"),
    text=pa.string(),
    tokens=(pa.int32(), "of the text, special tokens included"),
    digest=(pa.string(), "of the text"),
    stand_in=(pa.bool_(), "no model wrote the summary although one was asked"),
)
"""Ordered by node_id."""
