"""LinearRAG's Tri-graph: entities, sentences and passages, and retrieval by activation and PageRank (section 3).

A question activates the entities it names (eq. 3). Sentences that resemble the question (eq. 4) carry the activation
to further entities (eq. 5), hop by hop, until none passes the threshold. The activated entities and the nearest
passages start a personalised PageRank on the passage-entity graph (eqs. 6, 7), whose scores rank the passages.

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

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.names import NameIndex
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.matrices import Integers, Matrices, Rows, Scores
from indexmill.retrieve.question_links import Link, Links, link_known, link_nearest
from indexmill.retrieve.stacked import taken

__all__ = [
    "Activation",
    "Retrieved",
    "TriGraph",
    "TriGraphParameters",
]

Vectors = npt.NDArray[np.float32]


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
    """

    hops: int = 4
    activation_threshold: float = 0.6
    reading: Literal["max", "sum"] = "max"
    sentences_per_entity: int = 0
    sentences_per_step: int = 0
    damping: float = 0.5
    similarity_weight: float = 1.0
    passage_weight: float = 0.1
    steps: int = 3
    dense_passages: int = 50
    widest_entity: int = 100
    bridge_residual: float = 0.5
    rank_residual: float = 1.0
    agreement: float = 0.5
    nearest_name: float = 0.7
    activation: bool = True
    pagerank: bool = True
    pruning: bool = True


class Activation(NamedTuple):
    """An activated entity: its score, its level [L, eq. 7; 1 for what the question names], and how it was reached.

    ``sentence`` is the row of the sentence that bridged from the entity ``source``; None on level 1.
    """

    entity: int
    score: float
    level: int
    sentence: int | None = None
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The passages of one question, best first, ties by row.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``; where k asks for more passages than the walk reached, the
    nearest others follow with their similarity minus one, below zero. links and activations: why, activations by
    falling score. dense: True where the question names no entity of the graph and the nearest passages stand in.
    """

    passages: Rows
    scores: Scores
    links: Links = ()
    activations: tuple[Activation, ...] = ()
    dense: bool = False


@dataclass(slots=True)
class _Activated:
    """Activated entities as columns, ascending by entity."""

    entities: Rows
    scores: Scores
    levels: Rows
    sentences: Rows
    sources: Rows


@dataclass(frozen=True, slots=True)
class TriGraph:
    """A Tri-graph over plain arrays, which may be memory maps; only the rows that a question touches are read.

    passages: ``(n, d) float32`` arrays of unit rows, one after the other the rows of all passages. sentences: the same
    for sentences. names: finds entities by canonical name. name_vectors: the same for the names of the entities
    ``name_rows``, ascending (None: of all entities); a name without a vector stays in the question's. sentence_passage:
    ``(n_sentences,)``, ascending, the passage of each sentence; without it a wide entity passes nothing on.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    matrices: Matrices
    names: NameIndex
    name_vectors: Sequence[Vectors] = ()
    name_rows: Integers | None = None
    sentence_passage: Integers | None = None
    parameters: TriGraphParameters = field(default_factory=TriGraphParameters)

    def with_parameters(self, **changes: object) -> TriGraph:
        """The same graph, asked with other parameters."""
        return replace(self, parameters=replace(self.parameters, **changes))  # type: ignore[arg-type]

    def retrieve(
        self,
        vectors: Vectors,
        questions: Sequence[str],
        k: int,
        encode: Callable[[list[str]], Vectors] | None = None,
    ) -> list[Retrieved]:
        """The k best passages of each question; a question in a batch gets exactly what it gets alone.

        vectors: ``(n_questions, d) float32``, unit rows, parallel to ``questions``. encode: gives the unit vectors of
        names, for those in the questions that no entity has; without it they count for nothing.
        """
        return list(self.answers(vectors, questions, k, encode))

    def answers(
        self,
        vectors: Vectors,
        questions: Sequence[str],
        k: int,
        encode: Callable[[list[str]], Vectors] | None = None,
    ) -> Iterator[Retrieved]:
        """What ``retrieve`` gives, one by one: of a large batch not everything is held at once."""
        close = nearest(self.passages, vectors, max(k, self.parameters.dense_passages))
        linked = self._link(questions)
        if encode is not None and self.name_vectors:
            least = self.parameters.nearest_name
            linked = link_nearest(questions, linked, encode, self.name_vectors, self.name_rows, least)
        for vector, links, (rows, similarities) in zip(vectors, linked, close, strict=True):
            yield self._retrieve(vector, links, k, rows, similarities.astype(np.float64))

    def link(self, question: str) -> Links:
        """The entities that a question names (eq. 3), ascending by row."""
        return self._link([question])[0]

    def _link(self, questions: Sequence[str]) -> list[Links]:
        return link_known(questions, self.names, lambda rows: self.matrices.contained_in.degrees(rows) > 0)

    def _retrieve(self, vector: Vectors, links: Links, k: int, near: Rows, similarities: Scores) -> Retrieved:
        if not links or not len(near):
            return Retrieved(near[:k], similarities[:k], links, dense=True)
        setting = self.parameters
        named = _projection(vector, self._span(links))
        start = slice(setting.dense_passages)
        active = self._activate(_residual(vector, named, setting.bridge_residual), links, near[start])
        rows, scores = self._rank(active, near[start], similarities[start])
        if setting.agreement:
            relevance = _similarities(self.passages, rows, _residual(vector, named, setting.rank_residual))
            scores = scores * np.maximum(relevance / max(relevance.max(), _LEAST), _LEAST) ** setting.agreement
        if len(rows) < k:
            rest = np.isin(near, rows, invert=True).nonzero()[0][: k - len(rows)]
            rows, scores = np.concatenate([rows, near[rest]]), np.concatenate([scores, similarities[rest] - 1.0])
        best = np.lexsort((rows, -scores))[:k]
        return Retrieved(rows[best], scores[best], links, _explained(active))

    def _span(self, links: Sequence[Link]) -> Scores:
        """An orthonormal basis ``(n, d)`` of the vectors of the names in a question."""
        rows = np.array([link.entity for link in links], dtype=np.int64)
        if self.name_rows is not None:
            at = np.searchsorted(self.name_rows, rows)
            at, rows = at[at < len(self.name_rows)], rows[at < len(self.name_rows)]
            rows = at[self.name_rows[at] == rows]
        basis: list[Scores] = []
        for name in taken(self.name_vectors, rows).astype(np.float64) if self.name_vectors else ():
            rest = name
            for direction in basis:
                rest = rest - np.add.reduce(rest * direction) * direction
            length = np.sqrt(np.add.reduce(rest * rest))
            if length > _LEAST:
                basis.append(rest / length)
        return np.array(basis, dtype=np.float64)

    # --- first stage: activation (section 3.2.1) ---

    def _activate(self, vector: Vectors, links: Sequence[Link], near: Rows) -> _Activated:
        """Spread activation from the question's entities over sentences (eq. 5) with pruning."""
        setting, matrices = self.parameters, self.matrices
        threshold = setting.activation_threshold if setting.pruning else 0.0
        entities = np.array([link.entity for link in links], dtype=np.int64)
        nothing = np.full(len(entities), -1, dtype=np.int64)
        scores = np.array([link.score for link in links], dtype=np.float64)
        active = _Activated(entities, scores, np.ones(len(entities), dtype=np.int64), nothing, nothing)
        frontier, carried = active.entities, active.scores
        strongest = 0.0  # similarity of the best sentence of the first iteration
        for hop in range(setting.hops if setting.activation else 0):
            carried = carried * np.sqrt(_rarity(matrices.spread(frontier)))  # what each passes on
            if hop and setting.reading == "max":
                # No path is longer than its first part: what cannot pass the threshold need not be tried.
                able = carried > threshold
                frontier, carried = frontier[able], carried[able]
            if not len(frontier):
                break
            sources, sentences = self._mentioning(frontier, near)
            if not len(sentences):
                break
            touched = _distinct(sentences)
            position = touched.searchsorted(sentences)
            similarity = np.maximum(_similarities(self.sentences, touched, vector), 0.0)
            strongest = strongest or max(float(similarity.max()), _LEAST)
            reached = self._bridge(
                frontier, carried, sources, sentences, np.minimum(similarity / strongest, 1.0)[position]
            )
            frontier, carried = _absorb(active, reached, threshold, hop + 2)
        return active

    def _mentioning(self, entities: Rows, near: Rows) -> tuple[Rows, Rows]:
        """The sentences that mention some entities: positions in ``entities``, ascending, and sentences."""
        mentions, mentioned_in = self.matrices.mentions, self.matrices.mentioned_in
        is_wide = mentioned_in.degrees(entities) > self.parameters.widest_entity
        if not self.parameters.pruning or not is_wide.any():
            sources, sentences, _ = mentioned_in.links(entities)
            return sources, sentences
        (wide,), (narrow,) = is_wide.nonzero(), (~is_wide).nonzero()
        sources, sentences, _ = mentioned_in.links(entities[narrow])
        sources = narrow[sources]
        if self.sentence_passage is not None:
            passages = np.sort(near)
            first = self.sentence_passage.searchsorted(passages, side="left")
            lengths = self.sentence_passage.searchsorted(passages, side="right") - first
            rows = np.arange(int(lengths.sum())) + (first - lengths.cumsum() + lengths).repeat(lengths)
            owners, mentioned, _ = mentions.links(rows)
            at = np.minimum(entities[wide].searchsorted(mentioned), len(wide) - 1)
            (hit,) = (entities[wide][at] == mentioned).nonzero()
            sources = np.concatenate([sources, wide[at[hit]]])
            sentences = np.concatenate([sentences, rows[owners[hit]]])
            order = np.argsort(sources, kind="stable")
            sources, sentences = sources[order], sentences[order]
        return sources, sentences

    def _bridge(
        self, frontier: Rows, carried: Scores, sources: Rows, sentences: Rows, similarity: Scores
    ) -> _Activated:
        """One iteration of eq. 5: from entities over the sentences that mention them to the entities mentioned there.

        carried: what each entity of the frontier passes on. sources, sentences, similarity: the links of the frontier:
        position of the entity, sentence, its similarity.
        """
        setting, matrices = self.parameters, self.matrices
        flow = carried[sources] * similarity
        kept = None
        if setting.sentences_per_entity:
            kept = _first_of_each(sources, similarity, sentences, setting.sentences_per_entity)
        elif setting.sentences_per_step:
            best = np.unique(sentences[np.lexsort((sentences, -similarity))], return_index=True)
            (kept,) = np.isin(sentences, best[0][np.argsort(best[1])][: setting.sentences_per_step]).nonzero()
        if kept is not None:
            sources, sentences, flow = sources[kept], sentences[kept], flow[kept]
        if setting.reading == "max" and setting.pruning:  # a weaker link leads to nothing that is kept
            (strong,) = (flow > setting.activation_threshold).nonzero()
            if not len(strong):
                return _Activated(strong, flow[strong], strong, strong, strong)
            sources, sentences, flow = sources[strong], sentences[strong], flow[strong]
        rows, level, first = _best_of_each(sentences, flow)
        if setting.reading == "sum":
            level = _sums(rows.searchsorted(sentences), flow, len(rows))
        owners, entities, _ = matrices.mentions.links(rows)
        found, score, best_link = _best_of_each(entities, level[owners])
        if setting.reading == "sum":
            score = _sums(found.searchsorted(entities), level[owners], len(found))
        through = owners[best_link]
        return _Activated(found, score, np.empty(0, dtype=np.int64), rows[through], frontier[sources[first[through]]])

    # --- second stage: importance (section 3.2.2) ---

    def _rank(self, active: _Activated, near: Rows, similarities: Scores) -> tuple[Rows, Scores]:
        """The passages that take part, ascending, and their scores (eqs. 6, 7)."""
        setting, matrices = self.parameters, self.matrices
        narrow = active.entities[matrices.contained_in.degrees(active.entities) <= setting.widest_entity]
        _, containing, _ = matrices.contained_in.links(narrow)
        passages = _distinct(np.concatenate([containing, near]))
        # The links between these passages and the activated entities.
        owners, entities, places = matrices.contents.links(passages)
        counts = matrices.contents.occurrences(places)
        whole = _sums(owners, counts, len(passages))
        column = np.minimum(active.entities.searchsorted(entities), len(active.entities) - 1)
        (linked,) = (active.entities[column] == entities).nonzero()
        owners, column, counts = owners[linked], column[linked], counts[linked]

        evidence = active.scores * _rarity(matrices.spread(active.entities))
        bonus = _sums(owners, (evidence / active.levels)[column] * np.log1p(counts), len(passages))
        similarity = np.zeros(len(passages))
        similarity[passages.searchsorted(near)] = _scaled(similarities)
        start = (setting.similarity_weight * similarity + np.log1p(bonus)) * setting.passage_weight
        if not setting.pagerank:
            return passages, start
        total = start.sum() + evidence.sum()
        start, entity_start = start / total, evidence / total

        from_passage = counts / whole[owners]
        from_entity = counts / matrices.strengths[active.entities][column]
        d, score, importance = setting.damping, start, entity_start
        start, entity_start = (1 - d) * start, (1 - d) * entity_start
        for step in range(setting.steps):
            to_passages = _sums(owners, importance[column] * from_entity, len(score))
            if step + 1 < setting.steps:  # nothing comes after the last step's entities
                importance = entity_start + d * _sums(column, score[owners] * from_passage, len(importance))
            score = start + d * to_passages
        return passages, score


_LEAST = 1e-2
"""Below this a relative similarity or the length of a remainder is noise."""


def _absorb(active: _Activated, reached: _Activated, threshold: float, level: int) -> tuple[Rows, Scores]:
    """Take over what was reached (the MAX of eq. 5); return the entities that are new and above the threshold."""
    if not len(reached.entities):
        return reached.entities, reached.scores
    at = np.minimum(active.entities.searchsorted(reached.entities), len(active.entities) - 1)
    known = active.entities[at] == reached.entities
    (better,) = (known & (active.levels[at] > 1) & (reached.scores > active.scores[at])).nonzero()
    if len(better):
        changed = at[better]
        active.scores[changed] = reached.scores[better]
        active.sentences[changed], active.sources[changed] = reached.sentences[better], reached.sources[better]
    (new,) = (~known & (reached.scores > threshold)).nonzero()
    if not len(new):
        return reached.entities[new], reached.scores[new]
    entities = np.concatenate([active.entities, reached.entities[new]])
    order = entities.argsort(kind="stable")
    active.entities = entities[order]
    active.scores = np.concatenate([active.scores, reached.scores[new]])[order]
    active.levels = np.concatenate([active.levels, np.full(len(new), level)])[order]
    active.sentences = np.concatenate([active.sentences, reached.sentences[new]])[order]
    active.sources = np.concatenate([active.sources, reached.sources[new]])[order]
    return reached.entities[new], reached.scores[new]


def _explained(active: _Activated) -> tuple[Activation, ...]:
    order = (-active.scores).argsort(kind="stable")  # the entities are ascending
    columns = (active.entities, active.scores, active.levels, active.sentences, active.sources)
    return tuple(
        Activation(entity, score, level, None if sentence < 0 else sentence, None if source < 0 else source)
        for entity, score, level, sentence, source in zip(*(c[order].tolist() for c in columns), strict=True)
    )


def _rarity(documents: Rows) -> Scores:
    """How much an entity tells, by the number of documents it is in: 1 for one, falling with the logarithm."""
    weight: Scores = 1.0 / np.log(math.e - 1 + np.maximum(documents, 1))
    return weight


def _sums(keys: Rows, values: Scores, length: int) -> Scores:
    """The sum of the values of each key below ``length``, added in their order."""
    return np.bincount(keys, values, length).astype(np.float64, copy=False)


def _scaled(similarities: Scores) -> Scores:
    """Similarities, strongest first, on the scale from the weakest (0) to the strongest (1)."""
    if not len(similarities) or similarities[0] <= similarities[-1]:
        return np.ones(len(similarities))
    scaled: Scores = (similarities - similarities[-1]) / (similarities[0] - similarities[-1])
    return scaled


def _projection(vector: Vectors, basis: Scores) -> Scores | None:
    """The vector's part in the span of an orthonormal basis; None where that is empty."""
    if not len(basis):
        return None
    part: Scores = np.add.reduce(np.add.reduce(basis * vector, axis=1)[:, None] * basis, axis=0)
    return part


def _residual(vector: Vectors, part: Scores | None, share: float) -> Vectors:
    """The unit vector without a share of some part of it."""
    if part is None or not share:
        return vector
    rest = vector - share * part
    length = np.sqrt(np.add.reduce(rest * rest))
    return vector if length < _LEAST else (rest / length).astype(np.float32)


def _similarities(shards: Sequence[Vectors], rows: Rows, vector: Vectors) -> Scores:
    """Inner products of some rows, ascending, with one vector (eq. 4).

    Products are summed along each row, in an order that does not depend on the other rows, as a matrix product's may.
    """
    products = taken(shards, rows)
    products *= vector
    found: Scores = np.add.reduce(products, axis=1).astype(np.float64)
    return found


def _best_of_each(keys: Rows, values: Scores) -> tuple[Rows, Scores, Rows]:
    """Distinct keys, ascending, each with its largest value and that value's position; of equals the first."""
    order = np.lexsort((-values, keys))
    first = order[_changes(keys[order])]
    return keys[first], values[first], first


def _distinct(rows: Rows) -> Rows:
    """The distinct rows, ascending."""
    ordered = rows.copy()
    ordered.sort()
    return ordered[_changes(ordered)]


def _changes(ordered: Rows) -> npt.NDArray[np.bool_]:
    """Where sorted rows differ from the one before."""
    changes = np.empty(len(ordered), dtype=np.bool_)
    changes[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return changes


def _first_of_each(owners: Rows, values: Scores, rows: Rows, count: int) -> Rows:
    """Positions of the ``count`` largest values of each owner, ties by row; owners are ascending."""
    order = np.lexsort((rows, -values, owners))
    starts = np.searchsorted(owners, owners)  # the owners are sorted, so the links of one stand together
    kept: Rows = np.sort(order[np.arange(len(order)) - starts < count])
    return kept
