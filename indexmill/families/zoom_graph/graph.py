"""The graph of documents and entities over their passages and sentences, and the scope of a call (ZoomRAG, 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from indexmill.families.zoom_graph.parameters import PAPER, ZoomGraphParameters
from indexmill.families.zoom_graph.question import QuestionNames
from indexmill.families.zoom_graph.walk import CsrBlock, Shared, shared
from indexmill.forks import Lock
from indexmill.retrieve.centre import Centre, mean_similarity
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse
from indexmill.retrieve.retrieval_method import Allowed, Vectors, preset
from indexmill.store.canonical import digest_of_texts
from indexmill.store.pack_schema import Arrays

MOST_MATRICES = 4
"""The number of matrices, one per combination of settings, in the cache."""


@dataclass(frozen=True, slots=True)
class ZoomBlocks:
    """The parts of the coarse graph (eq. 2).

    documents, entities: functions that open the similarity links, weighted by exp(cos). contents: documents x
    entities; the weight of a link is 1 if the entity is the document's title, else 0. spread: ``(n_entities,)``, the
    document frequency of each entity. assembled: caches the matrix of the default settings: see ``Artifacts``.
    """

    documents: Callable[[], CsrBlock]
    contents: CsrBlock
    entities: Callable[[], CsrBlock]
    spread: Rows
    assembled: Callable[[str, Callable[[], Arrays]], Arrays]

    def matrix(self, setting: ZoomGraphParameters) -> Shared:
        """Build the matrix M of eq. 6 for some settings."""
        incidence = self.contents._replace(weights=np.where(self.contents.weights > 0, setting.title_weight, 1.0))
        n, m = len(self.contents.indptr) - 1, len(self.spread)
        return shared(
            self.documents() if setting.document_links else _empty(n),
            incidence if setting.entities else _empty(n),
            self.entities() if setting.entities else _empty(m),
            int(np.count_nonzero(self.spread)),
            setting.scale,
        )

    def cached_matrix(self, setting: ZoomGraphParameters) -> Shared:
        """Return the same matrix, mapped from the cache of assembled arrays; it is built if missing."""

        def make() -> Arrays:
            matrix = self.matrix(setting)
            return {"indptr": matrix.indptr, "indices": matrix.indices, "weights": matrix.weights, "sums": matrix.sums}

        key = digest_of_texts(*(repr(value) for value in _shaping(setting)))[:16]
        arrays = self.assembled(f"zoom_graph.matrix.{key}.1", make)
        return Shared(**arrays, documents=len(self.contents.indptr) - 1)


def _shaping(setting: ZoomGraphParameters) -> tuple[object, ...]:
    """Return the settings that M depends on."""
    return setting.title_weight, setting.document_links, setting.entities, setting.scale


class _Matrices:
    """A cache of the matrix M (eq. 6) for the latest settings; it is small, since each M is as large as the graph."""

    def __init__(self, blocks: ZoomBlocks, default: ZoomGraphParameters) -> None:
        """default: the settings of the snapshot; their matrix is shared with other processes."""
        self._blocks = blocks
        self._default = _shaping(default)
        self._cache: dict[tuple[object, ...], Shared] = {}
        self._lock = Lock()

    def of(self, setting: ZoomGraphParameters) -> Shared:
        """Return the matrix for some settings, cached by the settings that affect it."""
        key = _shaping(setting)
        with self._lock:
            matrix = self._cache.pop(key, None)
            if matrix is None:
                make = self._blocks.cached_matrix if key == self._default else self._blocks.matrix
                matrix = make(setting)
            self._cache[key] = matrix
            while len(self._cache) > MOST_MATRICES:
                del self._cache[next(iter(self._cache))]  # the least recently used
            return matrix


@dataclass(frozen=True, slots=True)
class ZoomGraphArrays:
    """A ZoomRAG index over plain arrays, which may be memory maps.

    passages, sentences: arrays of unit rows, numbered consecutively. vectors: documents, ``(n_documents, d)
    float32``, on the grid of ``indexmill.retrieve.grid``. mentions: sentences x entities; mentioned_in: its transpose.
    sentence_passage, passage_document: ascending. centre: see ``centre_of``.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    vectors: Vectors
    blocks: ZoomBlocks
    mentions: Sparse
    mentioned_in: Sparse
    names: QuestionNames
    sentence_passage: Integers
    passage_document: Integers
    parameters: ZoomGraphParameters = field(default_factory=ZoomGraphParameters)
    centre: Centre | None = None
    matrices: _Matrices = field(init=False, repr=False)
    passage_starts: Rows = field(init=False, repr=False)
    sentence_starts: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", preset(self.parameters, PAPER))
        every = np.arange(len(self.vectors) + 1, dtype=self.passage_document.dtype)
        passages = self.passage_document.searchsorted(every)
        sentences = self.sentence_passage.searchsorted(passages.astype(self.sentence_passage.dtype))
        object.__setattr__(self, "passage_starts", passages)
        object.__setattr__(self, "sentence_starts", sentences)
        object.__setattr__(self, "matrices", _Matrices(self.blocks, self.parameters))

    def unrelated(self, vectors: Vectors) -> Scores:
        """Return the mean similarity of each vector to unrelated texts; 0 without a centre."""
        return np.zeros(len(vectors)) if self.centre is None else mean_similarity(vectors, self.centre)

    @property
    def spread(self) -> Rows:
        """The document frequency of each entity: ``(n_entities,)``."""
        return self.blocks.spread

    @property
    def matrix(self) -> Shared:
        """The matrix M, built from the blocks on first use."""
        return self.matrices.of(self.parameters)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a call may use, and the matrix M without excluded documents and entities that occur only in them.

    passages, documents: masks; None for all. counts: the usable passages per document. count: the number of documents.
    """

    passages: Allowed | None
    documents: Allowed | None
    counts: Rows
    count: int
    matrix: Shared

    @classmethod
    def of(cls, graph: ZoomGraphArrays, allowed: Allowed | None) -> Scope:
        """Return the scope of the allowed passages."""
        if allowed is None or allowed.all():
            return cls(None, None, np.diff(graph.passage_starts), len(graph.vectors), graph.matrix)
        counts = np.bincount(graph.passage_document[allowed], minlength=len(graph.vectors))
        documents = counts > 0
        if documents.all():
            return cls(allowed, None, counts, len(documents), graph.matrix)
        inside = graph.names.contained_in.counts_of(documents) > 0
        matrix = graph.matrix.without(~documents, ~inside & (graph.spread > 0))
        return cls(allowed, documents, counts, int(np.count_nonzero(documents)), matrix)


def _empty(rows: int) -> CsrBlock:
    return CsrBlock(np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
