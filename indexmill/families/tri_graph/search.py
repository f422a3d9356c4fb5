"""LinearRAG's Tri-graph: entities, sentences and passages, and retrieval by activation and PageRank (section 3).

A question activates the entities it names (eq. 3). Sentences that resemble the question (eq. 4) carry the activation
to further entities (eq. 5), hop by hop, until none passes the threshold. The activated entities and the nearest
passages start a personalised PageRank on the passage-entity graph (eqs. 6, 7), whose scores rank the passages. A tile
of questions goes through the stages together (`activation`, `ranking`): what one question needs
is a few hundred numbers, for which a call of numpy costs more than the arithmetic.

Where the paper is silent or leaves a choice, this is what is done (``docs/families.md`` has the measurements):

- *Linking* (eq. 3): the question's words are matched against all canonical names, the longest match first. A name that
  the corpus does not have stands for its nearest one where an encoder is at hand (``encode=``), with the similarity as
  its score.
- *The subject.* A document's title names what its sentences are about ("He was born in ..."), so the title's entity
  counts as mentioned in every sentence of the passage, and as several occurrences in eq. 7.
- *Rarity.* What half of the corpus mentions says little. With rarity 1 / ln(e - 1 + n) for an entity in n documents, a
  score starts the walk (eqs. 6, 7) times the rarity and passes on (eq. 5) times its square root.
- *Similarity* (eq. 4) is relative to the most similar sentence that the question's own entities touch, so that one
  threshold suits every embedder and every way to ask.
- *The open question.* The names in a question pull its vector to what they name. The part of the vector that lies in
  the span of their vectors is reduced where similarity looks for the next hop: by ``bridge_residual`` in eq. 4, by
  ``rank_residual`` where passages are weighed against the question.
- *Links by occurrence.* A passage and an entity are linked as often as the one mentions the other ("edges connecting
  passages to their contained entities based on occurrence"), and eq. 6 divides by the number of links.
- *The start* of eq. 6 is the hybrid start of eq. 7 over passages and entities together, normalised to one. A
  passage's similarity counts from the weakest (0) to the strongest (1) of the ``dense_passages`` nearest.
- *The walk* stays on the activated entities, the passages that contain them, and the nearest passages: its cost
  follows the question and not the corpus. A few steps order the passages as the limit does.
- *Agreement.* A passage that the walk reaches should also resemble the open question: its score is multiplied by its
  relative similarity to the power of ``agreement``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from indexmill.families.tri_graph.activation import NOTHING, Activated, Activation, activate
from indexmill.families.tri_graph.graph import Graph
from indexmill.families.tri_graph.ranking import rank
from indexmill.retrieve.base import Allowed, Encode, QueryBatch, Vectors
from indexmill.retrieve.columns import Pairs, first_of_each, paired, parts, positions, products
from indexmill.retrieve.linking import Links, link_known, links_of
from indexmill.retrieve.matrices import Rows, Scores, TooManyLinks
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.residual_query import LEAST, linked_parts, without

__all__ = ["Retrieved", "TriGraph"]

QUESTION_TILE = 64
"""Most questions that are answered together."""

TILE_LINKS = 1 << 18
"""Most links of a tile that are laid out at once, some 20 MiB; where questions touch more, fewer go together."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The passages of one question, best first, ties by row.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``; where k asks for more passages than the walk reached, the
    nearest others follow with their similarity minus the largest that there can be, below zero. links and active: why.
    dense: True where the question names no entity of the graph and the nearest passages stand in.
    """

    passages: Rows
    scores: Scores
    links: Links = ()
    active: Activated = NOTHING
    dense: bool = False

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activated entities by falling score, ties by row."""
        return self.active.by_score()


class TriGraph(Graph):
    """Retrieval from a Tri-graph: see ``Graph`` for its arrays."""

    __slots__ = ()

    def with_parameters(self, **changes: object) -> TriGraph:
        """The same graph, asked with other parameters."""
        return replace(self, parameters=replace(self.parameters, **changes))  # type: ignore[arg-type]

    def retrieve(
        self,
        vectors: Vectors,
        questions: Sequence[str],
        k: int,
        encode: Encode | None = None,
        allowed: Allowed | None = None,
    ) -> list[Retrieved]:
        """The k best passages of each question; a question in a batch gets exactly what it gets alone.

        vectors: ``(n_questions, d) float32``, unit rows, parallel to ``questions``. encode: gives the unit vectors of
        names, for those in the questions that no entity has; without it they count for nothing. allowed: which
        passages ``(n_passages,)`` take part, None for all: no other is found, bridges, or is walked on.
        """
        asked = QueryBatch(questions, vectors, encode, allowed)
        return [found for tile in self.tiles(asked, k) for found in tile]

    def tiles(self, asked: QueryBatch, k: int) -> Iterator[list[Retrieved]]:
        """What ``retrieve`` gives, some questions at a time: of a large batch not everything is held at once."""
        vectors, allowed = asked.vectors, asked.allowed
        close = self._near.nearest_to(asked, max(k, self.parameters.dense_passages))
        return self._tiles(vectors, self.links(asked), close, k, allowed)

    @property
    def _near(self) -> PassageVectors:
        """What finds the nearest passages: titles are not of the paper."""
        near = self.near or PassageVectors(self.passages)
        return near.untitled if self.parameters.preset == "paper" else near

    def links(self, asked: QueryBatch) -> list[Links]:
        """The entities that each question names (eq. 3), also by its nearest name."""
        return links_of(
            asked, self.names, self._is_linked, self.name_vectors, self.name_rows, self.parameters.nearest_name
        )

    def _tiles(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> Iterator[list[Retrieved]]:
        """The answers to some questions, fewer at a time where they touch much."""
        first, size = 0, QUESTION_TILE
        while first < len(linked):
            tile = slice(first, first + size)
            try:
                found = self._answers(vectors[tile], linked[tile], close[tile], k, allowed)
            except TooManyLinks:
                size = (min(size, len(linked) - first) + 1) // 2
                continue
            yield found
            first, size = first + size, min(size + size // 4 + 1, QUESTION_TILE)

    def link(self, question: str) -> Links:
        """The entities that a question names (eq. 3), ascending by row."""
        return link_known([question], self.names, self._is_linked)[0]

    def _is_linked(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether some entities are in any passage: dates and numbers are in none."""
        return self.matrices.contained_in.degrees(rows) > 0

    def _answers(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> list[Retrieved]:
        """The answers to a tile of questions; raises TooManyLinks where they touch too much to go together."""
        found = [
            Retrieved(rows[:k], similarities[:k].astype(np.float64), links, dense=True)
            for links, (rows, similarities) in zip(linked, close, strict=True)
        ]
        asking = [i for i, links in enumerate(linked) if links and len(close[i][0])]
        if asking:
            walked = self._walk(vectors[asking], [linked[i] for i in asking], [close[i] for i in asking], k, allowed)
            for i, answer in zip(asking, walked, strict=True):
                found[i] = answer
        return found

    def _walk(
        self, vectors: Vectors, linked: Sequence[Links], close: Sequence[_Near], k: int, allowed: Allowed | None
    ) -> list[Retrieved]:
        """The answers to questions of which each names an entity and has a nearest passage."""
        setting = self.parameters
        most = TILE_LINKS if len(linked) > 1 else None
        questions = np.arange(len(linked))
        near, similarities = _columns(close, slice(setting.dense_passages))
        named = linked_parts(vectors, linked, self.name_vectors, self.name_rows)
        active = activate(self, without(vectors, named, setting.bridge_residual), linked, near, most, allowed)
        pairs, scores = rank(self, active, near, similarities, most, allowed)
        asking, rows = parts(pairs)
        if setting.agreement:
            relevance = products(self.passages, without(vectors, named, setting.rank_residual), pairs)
            strongest = np.maximum.reduceat(relevance, asking.searchsorted(questions)).astype(np.float64)
            relative = relevance / np.maximum(strongest, LEAST)[asking]
            scores = scores * np.maximum(relative, LEAST) ** setting.agreement
        missing = k - np.bincount(asking)
        if missing.max() > 0:
            further, similar = _columns(close, slice(setting.dense_passages, None))
            pairs, scores = _extended(pairs, scores, missing, further, similar - self._near.most)
            asking, rows = parts(pairs)
        best = first_of_each(asking, scores, k)
        rows, scores = rows[best], scores[best]
        found, reached = _slices(asking[best], len(linked)), _slices(parts(active.pairs)[0], len(linked))
        return [
            Retrieved(rows[one], scores[one], links, active.at(its))
            for links, one, its in zip(linked, found, reached, strict=True)
        ]


def _slices(questions: Rows, count: int) -> list[slice]:
    """Where each question stands in a column of ascending ones."""
    return [slice(*cut) for cut in pairwise(questions.searchsorted(np.arange(count + 1)).tolist())]


_Near = tuple[Rows, npt.NDArray[np.float32]]


def _columns(close: Sequence[_Near], cut: slice) -> tuple[Pairs, Scores]:
    """Some of the nearest passages of each question, with their similarities, question by question."""
    near = [rows[cut] for rows, _ in close]
    questions = np.arange(len(near)).repeat([len(rows) for rows in near])
    similarities = np.concatenate([similarities[cut] for _, similarities in close]).astype(np.float64)
    return paired(questions, np.concatenate(near)), similarities


def _extended(pairs: Pairs, scores: Scores, missing: Rows, near: Pairs, below: Scores) -> tuple[Pairs, Scores]:
    """Add the nearest passages that the walk did not reach, with scores below, to the questions that miss some."""
    _, known = positions(near, pairs)
    (new,) = (~known).nonzero()
    asking, _ = parts(near[new])
    new = new[np.arange(len(new)) - asking.searchsorted(asking) < missing[asking]]
    pairs = np.concatenate([pairs, near[new]])
    order = pairs.argsort()
    return pairs[order], np.concatenate([scores, below[new]])[order]
