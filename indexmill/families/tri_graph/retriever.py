"""tri_graph over a snapshot: its arrays and parameters handed to ``TriGraph``, its answers made into hits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.families.tri_graph.explanations import Explanations
from indexmill.families.tri_graph.search import TriGraph, TriGraphParameters
from indexmill.retrieve.base import Asked, Found, PassageRetriever, Vectors, parameters_of
from indexmill.retrieve.base import Explanations as Told
from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.matrices import Matrices, Sparse
from indexmill.text.names import NameIndex

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["MATRICES", "TriGraphReader", "names_of", "open_tri_graph"]

MATRICES = "tri_graph/matrices"
"""The artifact that holds the graph."""


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
    name_vectors, name_rows = names_of(snapshot, keys)
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
        NameIndex(keys, snapshot.name_filter),
        name_vectors=name_vectors,
        name_rows=name_rows,
        sentence_passage=_array(snapshot, arrays, "sentence_passage"),
        parameters=parameters_of(snapshot, "tri_graph", TriGraphParameters),
        near=snapshot.passage_vectors,
    )


def names_of(snapshot: Snapshot, keys: npt.NDArray[np.uint64]) -> tuple[list[Vectors], npt.NDArray[np.int64] | None]:
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
        self._setting = self._graph.parameters
        sentence_passage = _array(snapshot, snapshot.arrays(MATRICES), "sentence_passage")
        self._explanations = Explanations(snapshot, self._graph.matrices.contents, sentence_passage)

    def _use(self, setting: Any) -> None:
        """The graph is asked with other settings: see ``PassageRetriever``."""
        super()._use(setting)
        self._graph = replace(self._graph, parameters=setting)

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The passages of each question: see ``PassageRetriever``."""
        for tile in self._graph.tiles(asked, k):
            for found in tile:
                yield Found(found.passages, found.scores, answer=found)

    def coverage(self, asked: Asked) -> npt.NDArray[np.float64]:
        """By the entities that the questions name: see ``PassageRetriever``."""
        return coverage(asked.questions, self._graph.links(asked), self._graph.matrices.rarity)

    def explanations(self, found: Sequence[Found], places: Sequence[Sequence[int]]) -> list[Told]:
        """Of several questions at once: see ``PassageRetriever``."""
        some = [
            replace(one.answer, passages=one.rows[np.array(its, dtype=np.int64)])
            for one, its in zip(found, places, strict=True)
        ]
        return list(self._explanations.of(some))
