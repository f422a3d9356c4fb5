"""Stage `document_vectors`: the normalised mean of each document's passage vectors, on the grid, for a shard.

A document without passages has a vector of zeros. The rows are those of the shard's table `documents`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import DOCUMENT_VECTORS
from indexmill.retrieve.grid import on_grid
from indexmill.retrieve.shared_schema import VECTORS
from tasks.core.shards import id_hashes
from tasks.core.stage import Input, Output, Outputs, Part, Stage, shared_tables


def mean_vectors(owners: NDArray[np.int64], vectors: NDArray[np.float32], documents: int) -> NDArray[np.int16]:
    """Return each document's mean vector, normalised and on the grid. owners: each vector's document, in runs."""
    sums = np.zeros((documents, vectors.shape[1]))
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    sums[owners[first]] = np.add.reduceat(vectors, first, axis=0, dtype=np.float64) if len(first) else 0.0
    lengths = np.sqrt(np.add.reduce(sums * sums, axis=1))
    return on_grid((sums / np.maximum(lengths, 1e-12)[:, None]).astype(np.float32)).astype(np.int16)


def _compute(part: Part[Any]) -> Outputs:
    ids = part.table("documents", "document_id").column("document_id").combine_chunks()
    passages = part.table("passages", "document_id").column("document_id")
    owners = pc.index_in(passages, ids).to_numpy().astype(np.int64)
    vectors = np.concatenate([pack["passages"] for pack in part.packs("vectors")])
    names = id_hashes(ids.to_pylist())[:, :8].copy().view(">u8").reshape(-1).astype(np.uint64)
    return Outputs(packs={"document_vectors": {"keys": names, "vectors": mean_vectors(owners, vectors, len(ids))}})


STAGE = Stage(
    "document_vectors",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(*shared_tables("documents", "passages"), Input("vectors", VECTORS, pieces=True)),
    outputs=(Output("document_vectors", DOCUMENT_VECTORS, artifact="document_vectors/{label}"),),
)
