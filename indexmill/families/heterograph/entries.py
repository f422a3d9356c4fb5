"""The entries of questions into a heterograph, their weights, and the scores that texts gain from their units.

NodeRAG (section 2.5) gives all nodes found by dual search equal weight. Here (``preset: ours``) entries are weighted,
and nodes that the question names outweigh nodes that merely resemble it:

- *A name* in the question weighs 1. A longer name that contains it weighs the shorter name's share of its words,
  divided by the number of such longer names.
- *A bridge*. The units that name an entity of the question and resemble the residual query, relative to the most
  similar unit, add their other entities as entries, each weighted by a power of that similarity. They are needed since
  the question seldom names the subject of its next step, which may be a common entity.
- *The nearest* units, attributes and high-level elements weigh little compared with a name: they decide only to the
  extent that the question names nothing, and otherwise break near-ties.

The score of a text is its score in the walk plus the scores of its units. Both are then multiplied by the text's
similarity to the residual query, so that a text always ranks before its units. The top texts of the search by words and
vectors then gain a share of the best score that decreases with their rank: with d = 3 / (3 + rank), ``text_weight``
times d^5 plus, the less the question names, up to ``unnamed_text_weight`` times d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from indexmill.families.heterograph.parameters import HeterographParameters
from indexmill.families.heterograph.search import Entries
from indexmill.retrieve.columns import (
    Pairs,
    best_of_each,
    distinct,
    first_of_each,
    paired,
    parts,
    positions,
    slices,
    sums,
)
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.residual_query import LEAST, named_parts, without
from indexmill.retrieve.retrieval_method import Allowed, Vectors

if TYPE_CHECKING:
    from indexmill.families.heterograph.nodes import HeterographNodes

_COMPARED = 512
"""The number of top texts compared with the residual query, whatever k is, so that fewer hits are a prefix of more."""

_HALF, _STEEPNESS = 3.0, 5  # the decay of a text's lift with its rank: see the module's docstring


class NameEntries(NamedTuple):
    """The names and overviews at which questions enter, as ascending pairs, and their weights.

    exact: the pairs whose entity has a name from the question, ascending.
    """

    pairs: Pairs
    weights: Scores
    exact: Pairs

    def of(self, first: int, last: int) -> NameEntries:
        """Return the entries of the questions ``first`` to ``last`` (exclusive), renumbered from 0."""
        low, high = paired(np.array([first, last]), np.zeros(2, dtype=np.int64)).tolist()
        whole, exact = (slice(*pairs.searchsorted([low, high])) for pairs in (self.pairs, self.exact))
        return NameEntries(self.pairs[whole] - low, self.weights[whole], self.exact[exact] - low)


class WeightedEntries(NamedTuple):
    """The entries of one question, its lifted texts, and the share of the best score that each lifted text gains.

    bridged, units: the entities that bridges added, ascending, and the unit that added each. residual: ``(d,)``, the
    question's vector without its names, for comparing texts.
    """

    entries: Entries
    texts: Rows
    lifts: Scores
    bridged: Rows
    units: Rows
    residual: Vectors


def name_entries(
    nodes: HeterographNodes, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None
) -> NameEntries:
    """Find names and overviews that contain a question's names. allowed: parallel to ``nodes.words``; None for all."""
    words, entities = nodes.words, nodes.graph.rows("N")
    question_names = [(question, name) for question, of_one in enumerate(names) for name in of_one]
    every = list(dict.fromkeys(name for _, name in question_names))
    matches = dict(zip(every, words.find_each(every, most, allowed), strict=True))
    counts = np.array([len(matches[name]) for _, name in question_names], dtype=np.int64)
    of_name = np.arange(len(question_names)).repeat(counts)
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(matches[name] for _, name in question_names)])
    length = np.array([len(name.split()) for _, name in question_names], dtype=np.int64)[of_name]
    share = length / np.maximum(words.starts.take(rows + 1) - words.starts.take(rows), 1)
    longer = share < 1
    others = np.bincount(of_name[longer], minlength=len(question_names))
    weights = np.where(longer, share / np.maximum(others, 1)[of_name], 1.0)
    pairs = paired(
        np.array([question for question, _ in question_names], dtype=np.int64)[of_name], rows + entities.start
    )
    found_pairs, best, _ = best_of_each(pairs, weights)
    return NameEntries(found_pairs, best, distinct(pairs[~longer & (rows < entities.stop - entities.start)]))


def weighted_entries(
    nodes: HeterographNodes,
    questions: Vectors,
    named: NameEntries,
    near: Sequence[tuple[Rows, Scores]],
    texts: Sequence[Rows],
    setting: HeterographParameters,
    allowed: Allowed | None,
) -> list[WeightedEntries]:
    """Weight the entries of questions.

    questions: vectors, ``(n_questions, d) float32``. near: the nearest units, attributes and high-level elements of
    each question, with cosines. texts: the texts to lift, which words and vectors found, best first. allowed: a mask of
    the nodes that take part; None for all.
    """
    count = len(questions)
    owners, entities = parts(named.exact)
    rows = nodes.name_rows(entities)
    has = rows >= 0
    about = named_parts(questions, nodes.name_vectors, owners[has], rows[has])
    lifted = paired(np.arange(count).repeat([len(rows) for rows in texts]), np.concatenate(texts))
    residual = without(questions, about, setting.bridge_residual)
    bridged, weights, units = _bridged(nodes, residual, named, distinct(lifted), setting, allowed)
    near_pairs, similar = _column(near)
    pairs = np.concatenate([named.pairs, bridged, near_pairs])
    every = np.concatenate([named.weights, weights, setting.entry_weight * np.maximum(similar, 0.0)])
    chosen = every > 0
    if allowed is not None:
        chosen &= allowed[parts(pairs)[1]]
    pairs, every = pairs[chosen], every[chosen]
    entries = distinct(pairs)
    entry_weights = sums(entries.searchsorted(pairs), every, len(entries))
    asking, entered = parts(entries)
    named_weights = np.minimum(sums(parts(named.pairs)[0], named.weights, count), 1.0)
    unnamed = setting.unnamed_text_weight * (1.0 - named_weights) ** 2
    total = sums(asking, entry_weights, count)
    total[total <= 0] = 1.0
    shares = entry_weights / total[asking]
    rest = without(questions, about, setting.rank_residual)
    owners, brought = parts(bridged)
    spans = zip(slices(asking, count), slices(owners, count), strict=True)
    places = [_HALF / (_HALF + np.arange(len(rows))) for rows in texts]
    return [
        WeightedEntries(
            Entries(entered[entry_span], shares[entry_span]),
            texts[question],
            setting.text_weight * place**_STEEPNESS + unnamed[question] * place,
            brought[bridge_span],
            units[bridge_span],
            rest[question],
        )
        for question, (place, (entry_span, bridge_span)) in enumerate(zip(places, spans, strict=True))
    ]


def _column(near: Sequence[tuple[Rows, Scores]]) -> tuple[Pairs, Scores]:
    owners = np.arange(len(near)).repeat([len(rows) for rows, _ in near])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for rows, _ in near)])
    return paired(owners, rows), np.concatenate([np.empty(0), *(values for _, values in near)])


def _bridged(
    nodes: HeterographNodes,
    residual: Vectors,
    named: NameEntries,
    lifted: Pairs,
    setting: HeterographParameters,
    allowed: Allowed | None,
) -> tuple[Pairs, Scores, Rows]:
    """Find the entities added through units of named entities, ascending, their weights, and the best unit of each."""
    graph = nodes.graph
    unit_rows, entities = graph.rows("S"), graph.rows("N")
    exact = named.exact if setting.bridge < 1 else named.exact[:0]
    asking, names = parts(exact)
    owners, units = _linked(graph.links.links(names)[:2], unit_rows, allowed)
    wide = np.bincount(owners, minlength=len(names)) > setting.widest_entity
    questions = asking[owners]
    if wide.any():
        (others,) = wide[owners].nonzero()
        chosen = ~wide[owners]
        chosen[others] = positions(
            paired(questions[others], nodes.text_of_unit[units[others] - unit_rows.start]), lifted
        )[1]
        questions, units = questions[chosen], units[chosen]
    pairs = distinct(paired(questions, units))
    questions, units = parts(pairs)
    similarity = np.maximum(nodes.cosines("S", pairs, residual), 0.0)
    relative = similarity / _best(questions, similarity, len(residual))[questions]
    strong = relative >= setting.bridge
    questions, units, relative = questions[strong], units[strong], relative[strong]
    owners, brought = _linked(graph.links.links(units)[:2], entities, None)
    added, weights, first = best_of_each(paired(questions[owners], brought), (relative**setting.bridge_power)[owners])
    new = ~positions(added, exact)[1]
    added, weights, first = added[new], weights[new], first[new]
    return added, weights, units[owners[first]]


def _best(owners: Rows, values: Scores, count: int) -> Scores:
    """Return the largest value of each of ``count`` owners, at least LEAST."""
    best = np.full(count, LEAST)
    np.maximum.at(best, owners, values)
    return best


def _linked(links: tuple[Rows, Rows], kind: slice, allowed: Allowed | None) -> tuple[Rows, Rows]:
    """Keep the links to allowed nodes of a kind; return their owners and columns."""
    owners, columns = links
    of_kind = (columns >= kind.start) & (columns < kind.stop)
    if allowed is not None:
        of_kind &= allowed[columns]
    return owners[of_kind], columns[of_kind]


def rescored(
    nodes: HeterographNodes, scores: Scores, questions: Sequence[WeightedEntries], setting: HeterographParameters
) -> Scores:
    """Rescore texts and units in the scores of the walks ``(n_questions, n_nodes)``: see the module's docstring."""
    count, agreement = len(questions), setting.agreement
    texts, units, text_of_unit = nodes.graph.rows("T").stop, nodes.graph.rows("S"), nodes.text_of_unit
    result = scores.copy()
    at = (np.arange(count)[:, None] * texts + text_of_unit).ravel()
    text_scores = scores[:, :texts].ravel() + sums(at, scores[:, units].ravel(), count * texts)
    if agreement:
        (reached,) = (text_scores > 0).nonzero()
        asking = reached // max(texts, 1)
        if np.bincount(asking, minlength=1).max() > _COMPARED:
            reached = np.sort(reached[first_of_each(asking, text_scores[reached], _COMPARED)])
            asking = reached // texts
        residual = np.stack([question.residual for question in questions])
        similarity = nodes.cosines("T", paired(asking, reached - asking * texts), residual)
        factors = np.full(count * texts, LEAST**agreement)
        relative = similarity / _best(asking, similarity, count)[asking]
        factors[reached] = np.maximum(relative, LEAST) ** agreement
        text_scores *= factors
        result[:, units] *= factors[at].reshape(count, len(text_of_unit))
    result[:, :texts] = text_scores.reshape(count, texts)
    for of_one, question in zip(result, questions, strict=True):
        of_one[question.texts] += of_one[:texts].max(initial=0.0) * question.lifts
    return result
