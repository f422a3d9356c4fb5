"""tri_graph over a snapshot: its arrays and parameters handed to ``TriGraph``, its answers made into hits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import ConfigurationError, CorruptBlob
from indexmill.names import NameIndex
from indexmill.retrieve.base import Asked, Found, PassageRetriever, Vectors
from indexmill.retrieve.matrices import Matrices, Sparse
from indexmill.retrieve.rows import Rows
from indexmill.retrieve.tri_graph import Activation, Retrieved, TriGraph, TriGraphParameters

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["EXPLAINED", "MATRICES", "TriGraphReader", "open_tri_graph"]

MATRICES = "tri_graph/matrices"
"""The artifact that holds the graph."""

EXPLAINED = 5
"""Most entities that a hit's explanation names: those of the highest score."""


def open_tri_graph(snapshot: Snapshot) -> TriGraph:
    """The snapshot's graph over mapped arrays, with the parameters of its family.

    Raises CorruptBlob where arrays do not fit each other, ConfigurationError for a parameter that is not known here.
    """
    arrays = snapshot.arrays(MATRICES)
    passages, sentences = snapshot.vectors("vectors", "passages"), snapshot.vectors("vectors", "sentences")
    matrices = Matrices(
        mentions=_sparse(snapshot, arrays, "mentions"),
        mentioned_in=_sparse(snapshot, arrays, "mentioned_in"),
        contents=_sparse(snapshot, arrays, "contents"),
        contained_in=_sparse(snapshot, arrays, "contained_in"),
        strengths=_array(snapshot, arrays, "strengths"),
        documents=_array(snapshot, arrays, "documents"),
    )
    keys = _array(snapshot, arrays, "entity_keys")
    name_vectors, name_rows = _names(snapshot, keys)
    for what, held, expected in (
        ("passages", len(matrices.contents), sum(map(len, passages))),
        ("sentences", len(matrices.mentions), sum(map(len, sentences))),
        ("entities", len(matrices.contained_in), len(keys)),
        ("entities", len(matrices.mentioned_in), len(keys)),
        ("entities", len(matrices.strengths), len(keys)),
    ):
        if held != expected:
            raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} has {held} {what}; the snapshot has {expected}")
    return TriGraph(
        passages,
        sentences,
        matrices,
        NameIndex(keys),
        name_vectors=name_vectors,
        name_rows=name_rows,
        sentence_passage=_array(snapshot, arrays, "sentence_passage"),
        parameters=_parameters(snapshot),
    )


def _names(snapshot: Snapshot, keys: npt.NDArray[np.uint64]) -> tuple[list[Vectors], npt.NDArray[np.int64] | None]:
    """The vectors of names by entity shard, and the rows of their entities; no rows where every entity has one.

    A pack says by ``entity_keys``, ascending, whose names its vectors are; an entity without one has no vector.
    """
    vectors = snapshot.vectors("names", "vectors")
    if not vectors:
        return [], None
    owners = np.concatenate([cast("npt.NDArray[np.uint64]", own) for own in snapshot.vectors("names", "entity_keys")])
    rows = np.searchsorted(keys, owners)
    if len(owners) != sum(map(len, vectors)) or (rows >= len(keys)).any() or (keys[rows] != owners).any():
        raise CorruptBlob(f"{snapshot.path}: the vectors of {len(owners)} names do not fit the {len(keys)} entities")
    return vectors, None if len(rows) == len(keys) else rows.astype(np.int64)


def _parameters(snapshot: Snapshot) -> TriGraphParameters:
    given: dict[str, Any] = dict(snapshot.manifest.families["tri_graph"].parameters)
    unknown = sorted(set(given) - {field.name for field in fields(TriGraphParameters)})
    if unknown:
        raise ConfigurationError(f"{snapshot.path}: tri_graph has no parameters {unknown}; install a newer indexmill")
    return TriGraphParameters(**given)


def _sparse(snapshot: Snapshot, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Sparse:
    indptr, indices = _array(snapshot, arrays, f"{name}.indptr"), _array(snapshot, arrays, f"{name}.indices")
    counts = arrays.get(f"{name}.counts")
    if not len(indptr) or indptr[-1] != len(indices) or (counts is not None and len(counts) != len(indices)):
        raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} holds a matrix {name!r} whose arrays do not fit each other")
    return Sparse(indptr, indices, counts)


def _array(snapshot: Snapshot, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    try:
        return arrays[name]
    except KeyError:
        raise CorruptBlob(f"{snapshot.path}: {MATRICES!r} has no array {name!r}; it has {', '.join(arrays)}") from None


class TriGraphReader(PassageRetriever):
    """Passages by activation of entities and PageRank; a question that names no entity gets the nearest ones.

    The explanation of a hit is ``{"dense": bool, "entities": [...]}``: the activated entities that the passage
    contains, of which each says ``surface``, ``score``, ``hop`` (0 where the question names it), and, for those
    further on, the text of the ``sentence`` that bridged to it and the surface ``reached_from``.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._graph = open_tri_graph(snapshot)
        self._sentence_passage = _array(snapshot, snapshot.arrays(MATRICES), "sentence_passage")
        self._sentences = Rows(snapshot, "sentences", ["start", "end"])
        self._entities = Rows(snapshot, "entities", ["entity_id", "surface"])

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The passages of each question: see ``PassageRetriever``."""
        for found in self._graph.answers(asked.vectors, asked.questions, k, asked.encode, allowed=asked.allowed):
            yield Found(found.passages, found.scores, partial(self._explanations, found))

    def _explanations(self, found: Retrieved, places: Sequence[int]) -> list[dict[str, Any]]:
        """One for each of some of the passages that were found."""
        rank = {activation.entity: i for i, activation in enumerate(found.activations)}
        contents = self._graph.matrices.contents
        told: dict[int, dict[str, Any]] = {}
        explanations = []
        rows = found.passages[list(places)]
        starts, ends = contents.indptr[rows].tolist(), contents.indptr[rows + 1].tolist()
        for start, end in zip(starts, ends, strict=True):
            inside = contents.indices[start:end].tolist()
            best = sorted([rank[entity] for entity in inside if entity in rank])[:EXPLAINED]
            for i in best:
                if i not in told:
                    told[i] = self._told(found.activations[i])
            explanations.append({"dense": found.dense, "entities": [told[i] for i in best]})
        return explanations

    def _told(self, activation: Activation) -> dict[str, Any]:
        identity, surface = self._entities.values(activation.entity)
        return {
            "entity_id": identity,
            "surface": surface,
            "score": activation.score,
            "hop": activation.level - 1,
            "reached_from": None if activation.source is None else self._entities.value(activation.source, "surface"),
            "sentence": None if activation.sentence is None else self._sentence(activation.sentence),
        }

    def _sentence(self, row: int) -> str:
        start, end = self._sentences.values(row)
        return self.passages.text(int(self._sentence_passage[row]))[start:end]
