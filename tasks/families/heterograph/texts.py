"""The texts of units and relations, as they are read, shown and retrieved."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.families.heterograph.nodes import relation_text
from schemas.tables import conform
from tasks.core.shards import estimate_tokens
from tasks.families.heterograph.tables import HETERO_RELATIONS
from tasks.stages.embed.embed import row_key


def relation_table(nodes: pa.Table, surfaces: pa.Table) -> pa.Table:
    """Make the table HETERO_RELATIONS from the output of `tasks.families.heterograph.graph.relation_nodes`.

    surfaces: columns entity_id (unique) and surface. Raises ValueError for an entity without a surface.
    """
    ends = []
    for side in ("source", "target"):
        at = pc.index_in(nodes[side].combine_chunks(), surfaces["entity_id"].combine_chunks())
        if at.null_count:
            missing = nodes[side].combine_chunks().filter(at.is_null())[0].as_py()
            raise ValueError(f"the entity {missing!r} of a relation has no surface; give the surfaces of all entities")
        ends.append(surfaces["surface"].combine_chunks().take(at).to_pylist())
    rows = zip(ends[0], nodes["text"].to_pylist(), ends[1], strict=True)
    relation_texts = pa.array([relation_text(*row) for row in rows], pa.string())
    return conform(nodes.append_column("said", relation_texts), HETERO_RELATIONS)


def digested(texts: pa.Table) -> pa.Table:
    """Add the columns digest and tokens to texts (columns node_id, text), for `reading.capped`.

    The tokens are estimated from bytes, so they do not depend on the model that reads the text.
    """
    values = texts["text"].to_pylist()
    columns = {
        "digest": pa.array([row_key(text).hex() for text in values], pa.string()),
        "tokens": pa.array([estimate_tokens(len(text.encode())) for text in values], pa.int64()),
    }
    return pa.table({"node_id": texts["node_id"], "text": texts["text"], **columns})


def sentence(text: str) -> str:
    """Return a relation as a sentence; a full stop separates it from the next text."""
    return f"{text}." if text[-1:].isalnum() else text


def lines(texts: Sequence[str], room: int) -> str:
    """Join texts, one on each line, truncated to about `room` tokens."""
    joined = "\n".join(" ".join(text.split()) for text in texts)
    return joined.encode()[: 4 * room].decode("utf-8", "ignore")
