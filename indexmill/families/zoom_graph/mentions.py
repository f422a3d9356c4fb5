"""The entities in documents and sentences: assembled from all shards, or read from an older snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.matrices import Integers, Sparse
from indexmill.retrieve.mention_links import mention_links_of

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

MATRICES = "zoom_graph/matrices"
"""The artifact that holds the links of documents and of entities; in older snapshots these mentions, too."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """The entities in documents and sentences.

    keys: the start of each entity's id. mentions, mentioned_in: sentences by entities, and its transpose. contents,
    contained_in: documents by entities, and its transpose. titles: of each link of ``contents``, 1 for the document's
    title or a subject of it, else 0. sentence_passage, passage_document: ascending.
    """

    keys: npt.NDArray[np.uint64]
    mentions: Sparse
    mentioned_in: Sparse
    contents: Sparse
    contained_in: Sparse
    titles: npt.NDArray[Any]
    sentence_passage: Integers
    passage_document: Integers


def mentions_of(artifacts: Artifacts) -> Mentions:
    """The mentions of a snapshot with the family. Raises CorruptBlob."""
    arrays = artifacts.arrays(MATRICES) if artifacts.shards(MATRICES) else {}
    if "entity_keys" in arrays:
        return _stored(arrays)
    links = mention_links_of(artifacts)
    contents, contained_in = links.documents()
    titles = np.empty(0, np.uint8) if contents.counts is None else contents.counts
    whole = (links.sentence_passage(), links.passage_document())
    return Mentions(links.keys, *links.sentences(), contents, contained_in, titles, *whole)


def _stored(arrays: Mapping[str, npt.NDArray[Any]]) -> Mentions:
    keys, contents = arrays["entity_keys"], Sparse.of(arrays, "contents")
    order = np.argsort(contents.indices, kind="stable")
    owners = np.arange(len(contents), dtype=np.int32).repeat(np.diff(contents.indptr))
    indptr = np.concatenate([[0], np.bincount(contents.indices, minlength=len(keys)).cumsum()]).astype(np.int64)
    return Mentions(
        keys,
        Sparse.of(arrays, "mentions"),
        Sparse.of(arrays, "mentioned_in"),
        contents,
        Sparse(indptr, owners[order]),
        arrays["contents.titles"],
        arrays["sentence_passage"],
        arrays["passage_document"],
    )
