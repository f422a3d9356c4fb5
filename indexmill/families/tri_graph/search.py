"""LinearRAG's Tri-graph: entities, sentences and passages, and retrieval by activation and PageRank (section 3).

A question activates the entities it names (eq. 3). Sentences that resemble the question (eq. 4) carry the activation
to further entities (eq. 5), hop by hop, until none passes the threshold. The activated entities and the nearest
passages start a personalised PageRank on the passage-entity graph (eqs. 6, 7), whose scores rank the passages. A tile
of questions goes through the stages together (``tri_graph_activation``, ``tri_graph_ranking``): what one question needs
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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.families.tri_graph.activation import NOTHING, Activated, Activation, activate
from indexmill.families.tri_graph.ranking import rank
from indexmill.retrieve.base import Allowed, Asked, Count, Encode, Finite, Share, Vectors, Weight, preset
from indexmill.retrieve.columns import Pairs, first_of_each, paired, parts, positions, products
from indexmill.retrieve.linking import Links, link_known, links_of
from indexmill.retrieve.matrices import Integers, Matrices, Rows, Scores, TooManyLinks
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.residual_query import LEAST, named_parts, without
from indexmill.text.names import NameIndex

__all__ = ["PAPER", "Retrieved", "TriGraph", "TriGraphParameters"]

QUESTION_TILE = 64
"""Most questions that are answered together."""

TILE_LINKS = 1 << 18
"""Most links of a tile that are laid out at once, some 20 MiB; where questions touch more, fewer go together."""


@dataclass(frozen=True, slots=True)
class TriGraphParameters:
    """The settings of retrieval; the paper's symbol in brackets.

    hops: most iterations of eq. 5 [n].
    activation_threshold: a newly activated entity at or below it is pruned [delta].
    reading: of eq. 5: ``max`` keeps the best path to an entity, ``sum`` adds all paths, as the formula is printed.
    sentences_per_entity: sentences through which one entity passes on, the most similar first; 0 for all.
    sentences_per_step: the same for one whole iteration: 1 is greedy, 3 the beam of appendix E.6; 0 for all.
    damping: the share of a score that follows links [d, eq. 6].
    similarity_weight: of a passage's similarity to the question against its entities [lambda, eq. 7].
    passage_weight: of passages against entities in the start [W_p, eq. 7].
    steps: of the walk.
    dense_passages: nearest passages that take part whatever they contain.
    widest_entity: an entity mentioned in more sentences passes on only through those of the nearest passages, and one
        contained in more passages brings none of them in; it still counts in passages that take part anyway.
    bridge_residual, rank_residual: how much of what a question names is taken out of its vector, 0 to 1.
    agreement: the power of a passage's relative similarity in its final score; 0 leaves it out.
    nearest_name: least similarity at which a name that no entity has stands for the nearest one (eq. 3).
    activation, pagerank, pruning: False leaves that part out (figure 4).
    rarity: whether entities in few documents count for more; the paper's appendix G.3 argues for weights of one.
    relative: whether similarities count against the strongest, in eq. 4 and in eq. 7; False takes the cosines.
    threshold_factor, threshold_step: what the threshold is multiplied by, and lowered by, in every further iteration.
    preset: ``paper`` gives every setting that is left at its default here the value that the paper prints (PAPER).
    """

    preset: Literal["ours", "paper"] = "ours"

    hops: Count = 4
    activation_threshold: Finite = 0.6
    reading: Literal["max", "sum"] = "max"
    sentences_per_entity: Count = 0
    sentences_per_step: Count = 0
    damping: Share = 0.5
    similarity_weight: Weight = 1.0
    passage_weight: Weight = 0.1
    steps: Count = 3
    dense_passages: Annotated[int, Field(ge=1, le=10_000)] = 50
    widest_entity: Count = 100
    bridge_residual: Share = 0.5
    rank_residual: Share = 1.0
    agreement: Weight = 0.5
    nearest_name: Finite = 0.7
    activation: bool = True
    pagerank: bool = True
    pruning: bool = True
    rarity: bool = True
    relative: bool = True
    threshold_factor: Share = 1.0
    threshold_step: Weight = 0.0


PAPER: Mapping[str, object] = {
    "reading": "sum",
    "activation_threshold": 4.0,
    "damping": 0.85,
    "similarity_weight": 0.05,
    "steps": 20,
    "dense_passages": 1_000,
    "widest_entity": 1_000_000_000,
    "bridge_residual": 0.0,
    "rank_residual": 0.0,
    "agreement": 0.0,
    "nearest_name": -1.0,
    "rarity": False,
    "relative": False,
}
"""The settings of the paper's text. What it leaves open stays ours: W_p, and that titles are what sentences are about,
which is in the index."""


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


@dataclass(frozen=True, slots=True)
class TriGraph:
    """A Tri-graph over plain arrays, which may be memory maps; only the rows that a question touches are read.

    passages: ``(n, d) float32`` arrays of unit rows, one after the other the rows of all passages. sentences: the same
    for sentences. names: finds entities by canonical name. name_vectors: the same for the names of the entities
    ``name_rows``, ascending (None: of all entities); a name without a vector stays in the question's. sentence_passage:
    ``(n_sentences,)``, ascending, the passage of each sentence; without it a wide entity passes nothing on. near: finds
    the nearest passages; None for those by their vectors alone.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    matrices: Matrices
    names: NameIndex
    name_vectors: Sequence[Vectors] = ()
    name_rows: Integers | None = None
    sentence_passage: Integers | None = None
    parameters: TriGraphParameters = field(default_factory=TriGraphParameters)
    near: PassageVectors | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", preset(self.parameters, PAPER))

    def rarity(self, entities: Rows) -> Scores:
        """How much some entities tell."""
        return self.matrices.rarity(entities) if self.parameters.rarity else np.ones(len(entities))

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
        asked = Asked(questions, vectors, encode, allowed)
        return [found for tile in self.tiles(asked, k) for found in tile]

    def tiles(self, asked: Asked, k: int) -> Iterator[list[Retrieved]]:
        """What ``retrieve`` gives, some questions at a time: of a large batch not everything is held at once."""
        vectors, allowed = asked.vectors, asked.allowed
        close = self._near.nearest_to(asked, max(k, self.parameters.dense_passages))
        return self._tiles(vectors, self.links(asked), close, k, allowed)

    @property
    def _near(self) -> PassageVectors:
        """What finds the nearest passages: titles are not of the paper."""
        near = self.near or PassageVectors(self.passages)
        return near.untitled if self.parameters.preset == "paper" else near

    def links(self, asked: Asked) -> list[Links]:
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
        named = self._named(vectors, linked)
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

    def _named(self, vectors: Vectors, linked: Sequence[Links]) -> Scores:
        """The part ``(n_questions, d)`` of each question's vector that its names explain."""
        questions = np.arange(len(linked)).repeat([len(links) for links in linked])
        rows = np.array([link.entity for links in linked for link in links], dtype=np.int64)
        if not self.name_vectors:
            return np.zeros(vectors.shape)
        if self.name_rows is not None:
            rows, has_vector = positions(rows, self.name_rows)
            questions, rows = questions[has_vector], rows[has_vector]
        return named_parts(vectors, self.name_vectors, questions, rows)


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
