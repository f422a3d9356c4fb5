"""LinearRAG's Tri-graph: entities, sentences and passages, and retrieval by activation and PageRank (section 3).

A question activates the entities it names (eq. 3). Sentences that resemble the question (eq. 4) carry the activation
to further entities (eq. 5), hop by hop, until none passes the threshold. The activated entities and the similarity of
passages start a personalised PageRank on the passage-entity graph (eqs. 6, 7), whose scores rank the passages.

Where the paper is silent or leaves a choice, this is what is done and why (measured on two-wiki and Hotpot questions;
``docs/families.md`` has the numbers):

- *Eq. 3* finds entities by their canonical names, the longest match of the question's words first.
- *Frequency.* An entity that half of the corpus mentions says little. A score is weighed by 1 / ln(e - 1 + n) for an
  entity in n passages where it passes on, enters eq. 7 or starts the walk; one in more sentences than
  ``widest_entity`` passes nothing on.
- *The subject.* A document's title names what its sentences are about ("He was born in ..."), so the title's entity
  counts as mentioned in every sentence, and as several occurrences in eq. 7.
- *Links by occurrence.* The walk leaves a node along its links in proportion to ln(1 + occurrences).
- *The start* of eq. 6 is the hybrid start of eq. 7 over passages and entities together, normalised to one. The
  similarity of a passage counts between the weakest (0) and the strongest (1) of the ``dense_passages`` nearest.
- *The walk* stays on the activated entities, the passages that contain them, and the nearest passages: its cost
  follows the question and not the corpus. A few steps order the passages as the limit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from indexmill.models.recogniser import question_candidates
from indexmill.names import NameIndex
from indexmill.retrieve.dense import nearest

__all__ = [
    "Activation",
    "Link",
    "Matrices",
    "Retrieved",
    "Sparse",
    "TriGraph",
    "TriGraphParameters",
    "build_matrices",
]

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class TriGraphParameters:
    """The settings of retrieval; the paper's symbol in brackets.

    hops: most iterations of eq. 5 [n].
    activation_threshold: a newly activated entity below it is pruned [delta].
    reading: of eq. 5: ``max`` keeps the best path to an entity, ``sum`` adds all paths, as the formula is printed.
    sentences_per_entity: sentences through which one entity passes on, the most similar first; 0 for all.
    sentences_per_step: the same for one whole iteration: 1 is greedy, 3 the beam of appendix E.6; 0 for all.
    damping: the share of a score that follows links [d, eq. 6].
    similarity_weight: of a passage's similarity to the question against its entities [lambda, eq. 7].
    passage_weight: of passages against entities in the start [W_p, eq. 7].
    steps: of the walk.
    dense_passages: nearest passages that take part whatever they contain.
    widest_entity: an entity mentioned in more sentences, or contained in more passages, does not widen the search.
    activation, pagerank, pruning: False leaves that part out (figure 4).
    """

    hops: int = 4
    activation_threshold: float = 0.3
    reading: Literal["max", "sum"] = "max"
    sentences_per_entity: int = 0
    sentences_per_step: int = 0
    damping: float = 0.5
    similarity_weight: float = 1.0
    passage_weight: float = 0.1
    steps: int = 3
    dense_passages: int = 100
    widest_entity: int = 300
    activation: bool = True
    pagerank: bool = True
    pruning: bool = True


@dataclass(frozen=True, slots=True)
class Sparse:
    """A matrix by rows (CSR): row i has the columns ``indices[indptr[i]:indptr[i + 1]]``, ascending, with ``counts``.

    indptr: ``(n_rows + 1,) int64``. indices: ``(n_links,) int32``. counts: ``(n_links,)``, or None where all are one.
    """

    indptr: Integers
    indices: Integers
    counts: Integers | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def links(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """For some rows: the position in ``rows`` of every link, its column, and its place in ``indices``."""
        starts = self.indptr[rows]
        lengths = self.indptr[rows + 1] - starts
        owners = np.repeat(np.arange(len(rows)), lengths)
        places = np.arange(len(owners)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        return owners, self.indices[places].astype(np.int64), places

    def degrees(self, rows: Rows) -> Rows:
        """The number of links of some rows."""
        return (self.indptr[rows + 1] - self.indptr[rows]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Matrices:
    """The graph's matrices (eqs. 1, 2), each by rows and by columns.

    mentions: sentences x entities [M]; mentioned_in: its transpose. contents: passages x entities with occurrence
    counts [C, N]; contained_in: its transpose. titled: ``(n_entities,) bool``, entities that title a document.
    """

    mentions: Sparse
    mentioned_in: Sparse
    contents: Sparse
    contained_in: Sparse
    titled: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Link:
    """An entity that the question names [E_q]: its row, the matched canonical name, and the similarity of eq. 3."""

    entity: int
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class Activation:
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

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``. links and activations: why, activations by falling score.
    dense: True where the question names no entity of the graph and the nearest passages stand in (section 3.2).
    """

    passages: Rows
    scores: Scores
    links: tuple[Link, ...] = ()
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
    for sentences. names: finds entities by canonical name.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    matrices: Matrices
    names: NameIndex
    parameters: TriGraphParameters = field(default_factory=TriGraphParameters)

    def with_parameters(self, **changes: object) -> TriGraph:
        """The same graph, asked with other parameters."""
        return replace(self, parameters=replace(self.parameters, **changes))  # type: ignore[arg-type]

    def retrieve(self, vectors: Vectors, questions: Sequence[str], k: int) -> list[Retrieved]:
        """The k best passages of each question; a question in a batch gets exactly what it gets alone.

        vectors: ``(n_questions, d) float32``, unit rows, parallel to ``questions``.
        """
        reach = max(k, self.parameters.dense_passages)
        close = nearest(self.passages, vectors, reach)
        return [
            self._retrieve(vector, question, k, rows, similarities)
            for vector, question, (rows, similarities) in zip(vectors, questions, close, strict=True)
        ]

    def link(self, question: str) -> tuple[Link, ...]:
        """The entities that a question names (eq. 3), in the order of their rows: canonical names, the longest first."""
        candidates = question_candidates(question)
        rows = self.names.find([candidate.name for candidate in candidates]).tolist()
        taken: set[int] = set()
        found: dict[int, Link] = {}
        for candidate, row in zip(candidates, rows, strict=True):
            words = range(candidate.start, candidate.end)
            if row < 0 or not taken.isdisjoint(words):
                continue
            if not candidate.capital and len(words) == 1:
                continue  # a common word, even where some work is named after it
            taken.update(words)
            found[row] = Link(row, candidate.name, 1.0)
        return tuple(found[row] for row in sorted(found))

    def _retrieve(
        self, vector: Vectors, question: str, k: int, near: Rows, similarities: npt.NDArray[np.float32]
    ) -> Retrieved:
        links = self.link(question)
        if not links:
            return Retrieved(near[:k], similarities[:k].astype(np.float64), dense=True)
        active = self._activate(vector, links)
        rows, scores = self._rank(active, near, similarities.astype(np.float64))
        best = np.lexsort((rows, -scores))[:k]
        order = np.lexsort((active.entities, -active.scores))
        activations = tuple(
            Activation(entity, score, level, None if level == 1 else sentence, None if level == 1 else source)
            for entity, score, level, sentence, source in zip(
                active.entities[order].tolist(),
                active.scores[order].tolist(),
                active.levels[order].tolist(),
                active.sentences[order].tolist(),
                active.sources[order].tolist(),
                strict=True,
            )
        )
        return Retrieved(rows[best], scores[best], links, activations)

    # --- first stage: activation (section 3.2.1) ---

    def _activate(self, vector: Vectors, links: Sequence[Link]) -> _Activated:
        """Spread activation from the question's entities over sentences (eq. 5) with pruning."""
        setting = self.parameters
        threshold = setting.activation_threshold if setting.pruning else 0.0
        entities = np.array([link.entity for link in links], dtype=np.int64)
        nothing = np.full(len(entities), -1, dtype=np.int64)
        scores = np.array([link.score for link in links], dtype=np.float64)
        active = _Activated(entities, scores, np.ones(len(entities), dtype=np.int64), nothing, nothing)
        frontier, carried = active.entities, active.scores
        for hop in range(setting.hops if setting.activation else 0):
            if setting.pruning:
                narrow = self.matrices.mentioned_in.degrees(frontier) <= setting.widest_entity
                frontier, carried = frontier[narrow], carried[narrow]
            if not len(frontier):
                break
            reached = self._bridge(vector, frontier, carried)
            kept = reached.scores > threshold
            frontier, carried = _absorb(active, reached, kept, hop + 2)
        return active

    def _bridge(self, vector: Vectors, frontier: Rows, carried: Scores) -> _Activated:
        """One iteration of eq. 5: from entities over the sentences that mention them to the entities mentioned there."""
        setting, matrices = self.parameters, self.matrices
        sources, sentences, _ = matrices.mentioned_in.links(frontier)
        touched, position = np.unique(sentences, return_inverse=True)
        similarity = np.maximum(_similarities(self.sentences, touched, vector), 0.0)
        weight = carried * _rarity(matrices.contained_in.degrees(frontier))
        flow = weight[sources] * similarity[position]
        if setting.sentences_per_entity:
            kept = _first_of_each(sources, similarity[position], sentences, setting.sentences_per_entity)
            sources, sentences, flow, position = sources[kept], sentences[kept], flow[kept], position[kept]
        if setting.sentences_per_step and len(touched) > setting.sentences_per_step:
            on_path = np.unique(position)
            best = on_path[np.lexsort((touched[on_path], -similarity[on_path]))[: setting.sentences_per_step]]
            kept = np.flatnonzero(np.isin(position, best))
            sources, sentences, flow = sources[kept], sentences[kept], flow[kept]
        rows, level, source = _best_of_each(sentences, flow, sources)
        if setting.reading == "sum":
            level = np.bincount(np.searchsorted(rows, sentences), weights=flow, minlength=len(rows))
        owners, entities, _ = matrices.mentions.links(rows)
        found, score, owner = _best_of_each(entities, level[owners], owners)
        if setting.reading == "sum":
            score = np.bincount(np.searchsorted(found, entities), weights=level[owners], minlength=len(found))
        return _Activated(found, score, np.zeros(0, dtype=np.int64), rows[owner], frontier[source[owner]])

    # --- second stage: importance (section 3.2.2) ---

    def _rank(self, active: _Activated, near: Rows, similarities: Scores) -> tuple[Rows, Scores]:
        """The passages that take part, ascending, and their scores (eqs. 6, 7)."""
        setting, matrices = self.parameters, self.matrices
        spread = matrices.contained_in.degrees(active.entities)
        narrow = active.entities[spread <= setting.widest_entity]
        passages = np.unique(np.concatenate([matrices.contained_in.links(narrow)[1], near]))
        # The links between these passages and the activated entities.
        owners, entities, places = matrices.contents.links(passages)
        strengths = np.log1p(_counts(matrices.contents, places))
        whole = np.bincount(owners, weights=strengths, minlength=len(passages))
        column = np.minimum(np.searchsorted(active.entities, entities), len(active.entities) - 1)
        linked = np.flatnonzero(active.entities[column] == entities)
        owners, column, strengths = owners[linked], column[linked], strengths[linked]

        rarity = _rarity(spread)
        evidence = active.scores * rarity**2 / active.levels
        bonus = np.bincount(owners, weights=evidence[column] * strengths, minlength=len(passages))
        similarity = np.zeros(len(passages))
        similarity[np.searchsorted(passages, near)] = _scaled(similarities[: setting.dense_passages], len(near))
        start = (setting.similarity_weight * similarity + np.log1p(bonus)) * setting.passage_weight
        if not setting.pagerank:
            return passages, start
        entity_start = active.scores * rarity
        total = start.sum() + entity_start.sum()
        start, entity_start = start / total, entity_start / total

        from_passage = strengths / whole[owners]
        from_entity = strengths / self._strength(active.entities)[column]
        score, importance = start, entity_start
        d = setting.damping
        for _ in range(setting.steps):
            score, importance = (
                (1 - d) * start + d * np.bincount(owners, weights=importance[column] * from_entity, minlength=len(passages)),
                (1 - d) * entity_start
                + d * np.bincount(column, weights=score[owners] * from_passage, minlength=len(importance)),
            )
        return passages, score

    def _strength(self, entities: Rows) -> Scores:
        """The sum of the strengths of all links of some entities."""
        owners, _, places = self.matrices.contained_in.links(entities)
        return np.bincount(owners, weights=np.log1p(_counts(self.matrices.contained_in, places)), minlength=len(entities))


def _absorb(active: _Activated, reached: _Activated, kept: npt.NDArray[np.bool_], level: int) -> tuple[Rows, Scores]:
    """Put the newly reached entities into ``active`` (the MAX of eq. 5); return those that are new, with their scores."""
    entities, scores = reached.entities[kept], reached.scores[kept]
    sentences, sources = reached.sentences[kept], reached.sources[kept]
    at = np.minimum(np.searchsorted(active.entities, entities), len(active.entities) - 1)
    known = active.entities[at] == entities
    np.maximum.at(active.scores, at[known], np.where(active.levels[at[known]] > 1, scores[known], 0.0))
    new = ~known
    fresh, fresh_scores = entities[new], scores[new]
    order = np.argsort(np.concatenate([active.entities, fresh]), kind="stable")
    active.entities = np.concatenate([active.entities, fresh])[order]
    active.scores = np.concatenate([active.scores, fresh_scores])[order]
    active.levels = np.concatenate([active.levels, np.full(len(fresh), level)])[order]
    active.sentences = np.concatenate([active.sentences, sentences[new]])[order]
    active.sources = np.concatenate([active.sources, sources[new]])[order]
    return fresh, fresh_scores


def _rarity(passages: Rows) -> Scores:
    """How much an entity tells, by the number of passages that contain it: 1 for one, falling with the logarithm."""
    weight: Scores = np.log(np.e - 1 + np.maximum(passages, 1)) ** -0.5
    return weight


def _scaled(similarities: Scores, length: int) -> Scores:
    """Similarities of the nearest passages, strongest first, on the scale from the weakest (0) to the strongest (1)."""
    scaled = np.zeros(length)
    low, high = similarities[-1], similarities[0]
    scaled[: len(similarities)] = (similarities - low) / (high - low) if high > low else 1.0
    return scaled


def _counts(matrix: Sparse, places: Rows) -> Scores:
    return np.ones(len(places)) if matrix.counts is None else matrix.counts[places].astype(np.float64)


def _similarities(shards: Sequence[Vectors], rows: Rows, vector: Vectors) -> Scores:
    """Inner products of some rows, ascending, with one vector (eq. 4): each the same whatever the others are."""
    found = np.empty(len(rows), dtype=np.float64)
    first = done = 0
    for shard in shards:
        upto = done + int(np.searchsorted(rows[done:], first + len(shard)))
        if upto > done:
            # Products summed along a row in a fixed order; a matrix product's order may depend on its shape.
            found[done:upto] = np.add.reduce(shard[rows[done:upto] - first] * vector, axis=1)
        first, done = first + len(shard), upto
    return found


def _best_of_each(keys: Rows, values: Scores, tags: Rows) -> tuple[Rows, Scores, Rows]:
    """Distinct keys, ascending, each with its largest value and that value's tag; of equals the smallest tag."""
    order = np.lexsort((tags, -values, keys))
    ordered = keys[order]
    first = order[np.flatnonzero(np.diff(ordered, prepend=-1))]
    return keys[first], values[first], tags[first]


def _first_of_each(owners: Rows, values: Scores, rows: Rows, count: int) -> Rows:
    """Positions of the ``count`` largest values of each owner, ties by row; owners are ascending."""
    order = np.lexsort((rows, -values, owners))
    starts = np.searchsorted(owners, owners)  # owners are sorted, so an owner's links stand together
    kept: Rows = np.sort(order[np.arange(len(order)) - starts < count])
    return kept


def build_matrices(
    passage: Integers,
    sentence: Integers,
    entity: Integers,
    kind: npt.NDArray[np.str_] | Sequence[str],
    *,
    sentence_passage: Integers,
    passages: int,
    entities: int,
    title_occurrences: int = 4,
    ignored_kinds: Sequence[str] = ("date", "number"),
) -> Matrices:
    """Build the matrices from mention columns: column operations only, in any order of the mentions.

    passage, sentence, entity: ``(n_mentions,)`` rows; ``sentence`` is -1 for a mention in the title. kind: of each
    mention, as the recogniser says. sentence_passage: ``(n_sentences,)``, ascending. passages, entities: their numbers.
    title_occurrences: what a mention in the title counts in N (eq. 7). ignored_kinds: dates and numbers link passages
    that have nothing else in common.
    """
    kinds = np.asarray(kind)
    used = ~np.isin(kinds, list(ignored_kinds))
    passage, sentence, entity, kinds = passage[used], sentence[used], entity[used], kinds[used]
    in_text = sentence >= 0
    subject = np.flatnonzero(kinds == "title")
    titled = np.zeros(entities, dtype=np.bool_)
    titled[entity[subject]] = True

    # The title's entity is mentioned in every sentence of the passage.
    first = np.searchsorted(sentence_passage, passage[subject], side="left")
    last = np.searchsorted(sentence_passage, passage[subject], side="right")
    lengths = last - first
    places = np.arange(int(lengths.sum())) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    mentions, mentioned_in = _both_ways(
        np.concatenate([sentence[in_text], places]),
        np.concatenate([entity[in_text], np.repeat(entity[subject], lengths)]),
        None,
        len(sentence_passage),
        entities,
    )
    occurrences = np.where(in_text, 1, title_occurrences).astype(np.int64)
    contents, contained_in = _both_ways(passage, entity, occurrences, passages, entities)
    return Matrices(mentions, mentioned_in, contents, contained_in, titled)


def _both_ways(rows: Integers, columns: Integers, counts: Integers | None, height: int, width: int) -> tuple[Sparse, Sparse]:
    """A sparse matrix from links, repeated ones added up, by rows and by columns."""
    key = rows.astype(np.int64) * width + columns.astype(np.int64)
    distinct, inverse = np.unique(key, return_inverse=True)
    row, column = np.divmod(distinct, max(width, 1))
    total = None
    if counts is not None:
        total = np.bincount(inverse, weights=counts, minlength=len(distinct)).astype(np.int32)
    across = np.lexsort((row, column))
    return (
        Sparse(_pointers(row, height), column.astype(np.int32), total),
        Sparse(_pointers(column, width), row[across].astype(np.int32), None if total is None else total[across]),
    )


def _pointers(rows: Rows, height: int) -> Rows:
    pointers: Rows = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))]).astype(np.int64)
    return pointers
