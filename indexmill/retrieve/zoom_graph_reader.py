"""zoom_graph over a snapshot: its arrays and parameters handed to ``ZoomGraph``, its answers made into hits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.names import NameIndex
from indexmill.retrieve.base import Asked, Found, PassageRetriever, parameters_of
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.rows import Rows
from indexmill.retrieve.tri_graph_explanations import EXPLAINED
from indexmill.retrieve.tri_graph_reader import names_of
from indexmill.retrieve.zoom_graph import ZoomBlocks, Zoomed, ZoomGraph, ZoomGraphParameters
from indexmill.retrieve.zoom_question import QuestionNames
from indexmill.retrieve.zoom_walk import Block

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["MATRICES", "VECTORS", "ZoomGraphReader", "open_zoom_graph"]

MATRICES = "zoom_graph/matrices"
"""The artifact that holds the graph."""

VECTORS = "zoom_graph/vectors"
"""The artifact that holds the vectors of documents."""

Arrays = Mapping[str, npt.NDArray[Any]]


def open_zoom_graph(snapshot: Snapshot) -> ZoomGraph:
    """The snapshot's graph over mapped arrays, with the parameters of its family.

    Raises CorruptBlob where arrays do not fit each other, ConfigurationError for a parameter that is not known here.
    """
    arrays = snapshot.arrays(MATRICES)
    vectors = _array(snapshot, snapshot.arrays(VECTORS), "vectors")
    passages, sentences = snapshot.vectors("vectors", "passages"), snapshot.vectors("vectors", "sentences")
    keys = _array(snapshot, arrays, "entity_keys")
    contents, titles = _block(snapshot, arrays, "contents", "titles"), _array(snapshot, arrays, "contents.titles")
    mentions, mentioned_in = (_sparse(snapshot, arrays, name) for name in ("mentions", "mentioned_in"))
    blocks = ZoomBlocks(
        _block(snapshot, arrays, "documents", "weights"),
        contents,
        titles,
        _block(snapshot, arrays, "entities", "weights"),
    )
    sentence_passage = _array(snapshot, arrays, "sentence_passage")
    passage_document = _array(snapshot, arrays, "passage_document")
    for what, held, expected in (
        ("documents", len(vectors), len(contents.indptr) - 1),
        ("documents", len(blocks.documents.indptr) - 1, len(contents.indptr) - 1),
        ("passages", len(passage_document), sum(map(len, passages))),
        ("sentences", len(sentence_passage), sum(map(len, sentences))),
        ("sentences", len(mentions), sum(map(len, sentences))),
        ("entities", len(mentioned_in), len(keys)),
        ("entities", len(blocks.entities.indptr) - 1, len(keys)),
    ):
        if held != expected:
            raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} has {held} {what}; the snapshot has {expected}")
    parameters = parameters_of(snapshot, "zoom_graph", ZoomGraphParameters)
    name_vectors, name_rows = names_of(snapshot, keys)
    names = QuestionNames(
        NameIndex(keys),
        _transposed(contents, len(keys)),
        name_vectors,
        name_rows,
        parameters.nearest_name,
    )
    return ZoomGraph(
        passages,
        sentences,
        vectors,
        blocks,
        mentions,
        mentioned_in,
        names,
        sentence_passage,
        passage_document,
        parameters,
    )


def _transposed(block: Block, width: int) -> Sparse:
    order = np.argsort(block.indices, kind="stable")
    indptr = np.concatenate([[0], np.bincount(block.indices, minlength=width).cumsum()]).astype(np.int64)
    return Sparse(indptr, block.owners()[order].astype(np.int32))


def _sparse(snapshot: Snapshot, arrays: Arrays, name: str) -> Sparse:
    indptr, indices = _array(snapshot, arrays, f"{name}.indptr"), _array(snapshot, arrays, f"{name}.indices")
    if not len(indptr) or indptr[-1] != len(indices):
        raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} holds a matrix {name!r} whose arrays do not fit each other")
    return Sparse(indptr, indices)


def _block(snapshot: Snapshot, arrays: Arrays, name: str, values: str) -> Block:
    matrix = _sparse(snapshot, arrays, name)
    weights = _array(snapshot, arrays, f"{name}.{values}")
    if len(weights) != len(matrix.indices):
        raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} holds a matrix {name!r} whose arrays do not fit each other")
    return Block(matrix.indptr, matrix.indices, weights)


def _array(snapshot: Snapshot, arrays: Arrays, name: str) -> npt.NDArray[Any]:
    try:
        return arrays[name]
    except KeyError:
        raise CorruptBlob(f"{snapshot.path}: zoom_graph has no array {name!r}; it has {', '.join(arrays)}") from None


class ZoomGraphReader(PassageRetriever):
    """Passages of documents by a coarse walk, their sentences by a fine one.

    The explanation of a hit is ``{"dense": bool, "sentences": [...], "entities": [...]}``: the kept sentences of the
    passage, each ``text`` and ``score`` (none beyond the K documents that were zoomed into), and the entities that
    link its document to the question, each ``entity_id``, ``surface`` and ``score``.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._graph = open_zoom_graph(snapshot)
        self._sentences = Rows(snapshot, "sentences", ["start", "end"])
        self._entities = Rows(snapshot, "entities", ["entity_id", "surface"])

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The passages of each question: see ``PassageRetriever``."""
        for found in self._graph.answers(asked, k, explain=asked.explain):
            yield Found(found.passages, found.scores, partial(self._explanations, found))

    def _explanations(self, found: Zoomed, places: Sequence[int]) -> list[dict[str, Any]]:
        """One for each of some of the passages that were found."""
        contents, weights = self._graph.blocks.contents, dict(found.entities)
        linked = []
        for document in self._graph.passage_document[found.passages[list(places)]].tolist():
            inside = contents.indices[contents.indptr[document] : contents.indptr[document + 1]].tolist()
            known = sorted((one for one in inside if one in weights), key=lambda one: (-weights[one], one))
            linked.append(known[:EXPLAINED])
        entities = np.unique(np.array([entity for own in linked for entity in own], dtype=np.int64))
        told = {
            entity: {"entity_id": identity, "surface": surface, "score": weights[entity]}
            for entity, identity, surface in zip(
                entities.tolist(),
                self._entities.take(entities, "entity_id"),
                self._entities.take(entities, "surface"),
                strict=True,
            )
        }
        explanations = []
        for place, own in zip(places, linked, strict=True):
            passage, kept = int(found.passages[place]), found.sentences[place]
            text = self.passages.text(passage)
            rows = np.array([one.row for one in kept], dtype=np.int64)
            starts, ends = self._sentences.take(rows, "start"), self._sentences.take(rows, "end")
            explanations.append(
                {
                    "dense": found.dense,
                    "sentences": [
                        {"text": text[start:end], "score": one.score}
                        for start, end, one in zip(starts, ends, kept, strict=True)
                    ],
                    "entities": [told[entity] for entity in own],
                }
            )
        return explanations
