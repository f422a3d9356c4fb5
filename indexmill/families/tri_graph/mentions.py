"""The matrices of tri_graph: assembled from all shards, or read from an older snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.matrices import Integers, Matrices, Sparse
from indexmill.retrieve.mention_links import mention_links_of

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

MATRICES = "tri_graph/matrices"
"""The artifact that holds the matrices of older snapshots."""


class Mentions(NamedTuple):
    """The matrices. keys: the start of each entity's id. sentence_passage: ascending."""

    keys: npt.NDArray[np.uint64]
    matrices: Matrices
    sentence_passage: Integers


def mentions_of(artifacts: Artifacts) -> Mentions:
    """The matrices of a snapshot with the family, assembled once. Raises CorruptBlob."""
    return artifacts.once("tri_graph matrices", lambda: _mentions(artifacts))


def _mentions(artifacts: Artifacts) -> Mentions:
    if artifacts.shards(MATRICES):
        arrays = artifacts.arrays(MATRICES)
        whole = Matrices(
            Sparse.of(arrays, "mentions"),
            Sparse.of(arrays, "mentioned_in"),
            Sparse.of(arrays, "contents"),
            Sparse.of(arrays, "contained_in"),
            arrays["strengths"],
            arrays["documents"],
        )
        return Mentions(arrays["entity_keys"], whole, arrays["sentence_passage"])
    links = mention_links_of(artifacts)
    documents = np.diff(links.documents()[1].indptr)
    whole = Matrices(*links.sentences(), *links.passages(), links.strengths(), documents)
    return Mentions(links.keys, whole, links.sentence_passage())
