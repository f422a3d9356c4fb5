"""LinearRAG's Tri-graph: entities, sentences and passages, and retrieval by activation and PageRank (section 3).

A question activates the entities it names (eq. 3). Sentences that resemble the question (eq. 4) carry the activation to
other entities (eq. 5), hop by hop, until no new entity passes the threshold. The activated entities and the nearest
passages start a personalised PageRank on the passage-entity graph (eqs. 6, 7), whose scores rank the passages. The
stages (`activation`, `ranking`) process a tile of questions at a time: a single question needs only a few hundred
numbers, for which the overhead of a numpy call exceeds the arithmetic.

Our choices where the paper is silent or ambiguous (figures: ``docs/measurements/tri_graph.md``):

- *Linking* (eq. 3): the question's words are matched against all canonical names, the longest match first. A name that
  is not in the corpus is linked to the nearest name if there is an encoder (``encode=``), with the similarity as its
  score.
- *The subject.* A document's title names what its sentences are about ("He was born in ..."), so the title's entity
  counts as mentioned in every sentence of the passage, and as several occurrences in eq. 7.
- *Rarity.* Frequent entities say little. The rarity of an entity in n documents is 1 / ln(e - 1 + n). An entity's
  score is multiplied by its rarity to start the walk (eqs. 6, 7), and by the rarity's square root to spread (eq. 5).
- *Similarity* (eq. 4) is relative to the most similar sentence of the question's own entities, so that one threshold
  suits every phrasing. Where an encoder's vectors are all similar, the similarity of unrelated texts is subtracted from
  both (``indexmill.retrieve.centre``), so that it suits every encoder.
- *The open question.* The names in a question pull its vector towards the named entities. The vector's projection on
  the span of the names' vectors is therefore reduced: by ``bridge_residual`` in eq. 4, and by ``rank_residual`` when
  passages are compared with the question.
- *Links by occurrence.* The number of links between a passage and an entity is the number of mentions ("edges
  connecting passages to their contained entities based on occurrence"), and eq. 6 divides by the number of links.
- *The start* of eq. 6 is the hybrid start of eq. 7 over passages and entities together, normalised to one. A
  passage's similarity is scaled from 0 for the weakest to 1 for the strongest of the ``dense_passages`` nearest
  passages.
- *The walk* stays on the activated entities, the passages that contain them, and the nearest passages, so that its
  cost depends on the question and not on the corpus. A few steps give the same order as the limit.
- *Agreement.* A passage that the walk reaches should also resemble the open question: its score is multiplied by its
  relative similarity to the power of ``agreement``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.families.tri_graph.activation import NOTHING, Activated, activate
from indexmill.families.tri_graph.graph import TriGraphArrays
from indexmill.families.tri_graph.ranking import rank
from indexmill.retrieve.columns import Pairs, first_of_each, paired, parts, positions, products, slices
from indexmill.retrieve.linking import Links, links_of
from indexmill.retrieve.matrices import Rows, Scores, TooManyLinks
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.residual_query import LEAST, linked_parts, without
from indexmill.retrieve.retrieval_method import Allowed, QueryBatch, Vectors

QUESTION_TILE = 64

TILE_LINKS = 1 << 18
"""The maximum number of links of a tile in memory, about 20 MiB; a tile with more is split."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The passages of one question, best first, ties by row.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``; if the walk reached fewer than k passages, the nearest
    others follow, scored below zero by their similarity minus the largest possible one. links, active: the linked and
    the activated entities. dense: True if the question names no entity of the graph and gets the nearest passages.
    """

    passages: Rows
    scores: Scores
    links: Links = ()
    active: Activated = NOTHING
    dense: bool = False


class TriGraph(TriGraphArrays):
    """Retrieval from a Tri-graph: see ``TriGraphArrays`` for its arrays."""

    __slots__ = ()

    def tiles(self, batch: QueryBatch, k: int) -> Iterator[list[Retrieved]]:
        """Yield the k best passages of each question, in tiles of questions, which bounds the memory of a large batch.

        Batching does not change the results. A passage that is not allowed is not found, does not bridge, and takes no
        part in the walk.
        """
        vectors, allowed = batch.vectors, batch.allowed
        close = self._near.nearest_to(batch, max(k, self.parameters.dense_passages))
        return self._tiles(vectors, self.links(batch), close, k, allowed)

    @property
    def _near(self) -> PassageVectors:
        """The passage vectors to search: without titles for ``paper``, which does not use them."""
        near = self.near or PassageVectors(self.passages)
        return near.untitled if self.parameters.preset == "paper" else near

    def links(self, batch: QueryBatch) -> list[Links]:
        """Return the entities of allowed passages that each question names (eq. 3), exactly or by the nearest name."""
        contained_in, least = self.matrices.contained_in, self.parameters.nearest_name
        return links_of(batch, self.names, contained_in, batch.allowed, self.name_vectors, self.name_rows, least)

    def _tiles(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> Iterator[list[Retrieved]]:
        """Yield the answers in tiles, which are halved when their questions touch too many links."""
        first, size = 0, QUESTION_TILE
        while first < len(linked):
            tile = slice(first, first + size)
            try:
                answers = self._answers(vectors[tile], linked[tile], close[tile], k, allowed)
            except TooManyLinks:
                size = (min(size, len(linked) - first) + 1) // 2
                continue
            yield answers
            first, size = first + size, min(size + size // 4 + 1, QUESTION_TILE)

    def _answers(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> list[Retrieved]:
        """Return the answers to a tile of questions; raises TooManyLinks if they touch too many links for one tile."""
        answers = [
            Retrieved(rows[:k], similarities[:k].astype(np.float64), links, dense=True)
            for links, (rows, similarities) in zip(linked, close, strict=True)
        ]
        asking = [i for i, links in enumerate(linked) if links and len(close[i][0])]
        if asking:
            walked = self._walk(vectors[asking], [linked[i] for i in asking], [close[i] for i in asking], k, allowed)
            for i, answer in zip(asking, walked, strict=True):
                answers[i] = answer
        return answers

    def _walk(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> list[Retrieved]:
        """Answer questions that each name an entity and have a nearest passage."""
        setting = self.parameters
        most = TILE_LINKS if len(linked) > 1 else None
        questions = np.arange(len(linked))
        near, similarities = _columns(close, slice(setting.dense_passages))
        named = linked_parts(vectors, linked, self.name_vectors, self.name_rows)
        active = activate(self, without(vectors, named, setting.bridge_residual), linked, near, most, allowed)
        pairs, scores = rank(self, active, near, similarities, most, allowed)
        asking, rows = parts(pairs)
        if setting.agreement:
            opened = without(vectors, named, setting.rank_residual)
            relevance = products(self.passages, opened, pairs) - self.unrelated(opened)[asking]
            strongest = np.maximum.reduceat(relevance, asking.searchsorted(questions))
            relative = relevance / np.maximum(strongest, LEAST)[asking]
            scores = scores * np.maximum(relative, LEAST) ** setting.agreement
        missing = k - np.bincount(asking)
        if missing.max() > 0:
            further, similar = _columns(close, slice(setting.dense_passages, None))
            pairs, scores = _extended(pairs, scores, missing, further, similar - self._near.most)
            asking, rows = parts(pairs)
        best = first_of_each(asking, scores, k)
        rows, scores = rows[best], scores[best]
        hit_spans, entity_spans = slices(asking[best], len(linked)), slices(parts(active.pairs)[0], len(linked))
        return [
            Retrieved(rows[hit_span], scores[hit_span], links, active.at(entity_span))
            for links, hit_span, entity_span in zip(linked, hit_spans, entity_spans, strict=True)
        ]


_Near = tuple[Rows, npt.NDArray[np.float32]]


def _columns(close: Sequence[_Near], cut: slice) -> tuple[Pairs, Scores]:
    """Return the part ``cut`` of each question's nearest passages, with their similarities, question by question."""
    near = [rows[cut] for rows, _ in close]
    questions = np.arange(len(near)).repeat([len(rows) for rows in near])
    similarities = np.concatenate([similarities[cut] for _, similarities in close]).astype(np.float64)
    return paired(questions, np.concatenate(near)), similarities


def _extended(pairs: Pairs, scores: Scores, missing: Rows, near: Pairs, below: Scores) -> tuple[Pairs, Scores]:
    """Add, per question, up to ``missing`` nearest passages that the walk did not reach, with the scores ``below``."""
    _, is_ranked = positions(near, pairs)
    (new,) = (~is_ranked).nonzero()
    asking, _ = parts(near[new])
    new = new[np.arange(len(new)) - asking.searchsorted(asking) < missing[asking]]
    pairs = np.concatenate([pairs, near[new]])
    order = pairs.argsort()
    return pairs[order], np.concatenate([scores, below[new]])[order]
