"""Stage `lsh_vectors`: the vectors of a group of summaries, by which questions find them (EraRAG, section III.D).

No layer waits for them, so they are made of all layers at once. A vector is found by its text in earlier parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import SUMMARY_VECTORS
from schemas.tables import LSH_SUMMARIES
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, Range
from tasks.core.shards import id_hashes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array

__all__ = ["STAGE", "estimate"]


def _compute(inputs: Inputs) -> Outputs:
    summaries = inputs.table("summaries", LSH_SUMMARIES, "node_id", "text")
    known = Vectors((pack["text_keys"], pack["vectors"]) for pack in map(inputs.pack, inputs.job.reuse))
    vectors, keys, _ = embed_texts(
        summaries.column("text").to_pylist(),
        lambda texts: encoder_of(inputs).encode(texts),  # not opened where all are known
        known,
        inputs.settings["encoder"]["dimension"],
    )
    arrays: dict[str, NDArray[Any]] = {
        "keys": id_hashes(summaries.column("node_id").to_pylist()),
        "text_keys": keys_array(keys),
        "vectors": vectors,
    }
    return Outputs(packs={"summary_vectors": SUMMARY_VECTORS.conform(arrays)})


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """The size of the vectors: exact where the summaries are there."""
    rows = expected.get("summaries")
    if rows is None:
        rows = Range.exactly(pq.read_metadata(inputs.path(inputs.job.inputs["summaries"])).num_rows)
    dimension: int = inputs.settings["encoder"]["dimension"]

    def size(count: int) -> int:
        return SUMMARY_VECTORS.size({"own summaries": count, "dimensions": dimension})

    return Estimate(bytes={"summary_vectors": Range(size(rows.low), size(rows.high))}, rows={"summary_vectors": rows})


STAGE = Stage("lsh_vectors", version=1, compute=_compute, libraries=("numpy",), estimate=estimate)
