"""The start of zoom_graph's walks: the links of questions to documents and entities (ZoomRAG, sections 3.1 and 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexmill.families.zoom_graph.graph import Scope, ZoomGraphArrays
from indexmill.families.zoom_graph.question import Named
from indexmill.families.zoom_graph.walk import QuestionLinks, averages
from indexmill.retrieve.columns import (
    Pairs,
    best_of_each,
    changes,
    distinct,
    matches,
    paired,
    parts,
    products,
    runs,
    sums,
)
from indexmill.retrieve.dense import at_least_top
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.residual_query import LEAST
from indexmill.retrieve.retrieval_method import Vectors

_NEAR_ROWS = 512  # the number of documents that stay in the CPU cache while all vectors are multiplied by them

_NEAR = 50  # the number of nearest documents through whose sentences a wide entity is still followed


@dataclass(frozen=True, slots=True)
class Similarities:
    """Products of a tile's questions, and of their open questions, with documents ``(n_questions, n_documents)``.

    The products are exact, and -inf for excluded documents. strongest: ``(n_questions,)``, the largest of ``opened``.
    unrelated: ``(n_questions,)``, the mean of those with unrelated texts.
    """

    products: Vectors
    opened: Vectors
    strongest: Vectors
    unrelated: Scores

    def slice(self, some: slice) -> Similarities:
        """Select the similarities of some questions."""
        return Similarities(self.products[some], self.opened[some], self.strongest[some], self.unrelated[some])


def similarities(graph: ZoomGraphArrays, scope: Scope, named: Named) -> Similarities:
    """Multiply the documents by the questions of a tile; the products are exact."""
    questions = len(named.vectors)
    open_questions = named.residual_queries(1.0)
    both = on_grid(np.concatenate([named.vectors, open_questions]))
    if questions > 2:
        grid_products = np.asarray(both @ graph.vectors.T)
    else:
        grid_products = np.empty((len(both), len(graph.vectors)), dtype=np.float32)
        for first in range(0, len(graph.vectors), _NEAR_ROWS):
            rows = graph.vectors[first : first + _NEAR_ROWS]
            for question, of_one in zip(both, grid_products, strict=True):
                np.dot(rows, question, out=of_one[first : first + _NEAR_ROWS])
    if scope.documents is not None:
        grid_products[:, ~scope.documents] = -np.inf
    opened = grid_products[questions:]
    unrelated = UNIT * graph.unrelated(open_questions)
    return Similarities(grid_products[:questions], opened, opened.max(axis=1), unrelated)


def question_links(graph: ZoomGraphArrays, scope: Scope, named: Named, similar: Similarities) -> QuestionLinks:
    """Return the links H of eq. 6: from each question to entities, and to the documents above its threshold."""
    setting = graph.parameters
    count, n = similar.products.shape
    asking, nodes, weights = _documents(similar, scope, setting.threshold)
    if graph.centre is not None and setting.relative_power:
        weights = _relative(graph, named, similar, asking, nodes) ** setting.relative_power
    total, links = sums(asking, weights, count), np.bincount(asking, minlength=count)
    weights = weights / averages(total, links, scope.count, setting.scale)[asking]
    if setting.entities and setting.question_links and scope.count and len(named.pairs):
        pairs, scores = _entities(graph, scope, named, similar)
        linked, entities = parts(pairs)
        total, links = sums(linked, scores, count), np.bincount(linked, minlength=count)
        average = averages(total, links, int(np.count_nonzero(graph.spread)), setting.scale)
        asking, nodes = np.concatenate([asking, linked]), np.concatenate([nodes, entities + n])
        weights = np.concatenate([weights, setting.question_weight * scores / average[linked]])
        order = asking.argsort(kind="stable")  # documents first, for each question
        asking, nodes, weights = asking[order], nodes[order], weights[order]
    return QuestionLinks(asking, nodes, weights)


def _documents(similar: Similarities, scope: Scope, threshold: float) -> tuple[Rows, Rows, Scores]:
    """Find the links more than ``threshold`` standard deviations above the question's mean: question, document, weight.

    Questions are processed one by one, so that a question's data stay in the CPU cache.
    """
    some = None if scope.documents is None else scope.documents.nonzero()[0]
    weights, apart = np.empty(scope.count), np.empty(scope.count)
    lists = []
    for row in similar.products if scope.count else ():
        np.divide(row if some is None else row[some], UNIT, out=weights)
        np.exp(weights, out=weights)
        mean = np.add.reduce(weights) / len(weights)
        np.subtract(weights, mean, out=apart)
        apart *= apart
        limit = mean + threshold * np.sqrt(np.add.reduce(apart) / len(weights))
        (beyond,) = (weights > limit).nonzero()
        lists.append((beyond, weights[beyond]))
    nothing = np.empty(0, dtype=np.int64)
    rows = np.concatenate([nothing, *(beyond for beyond, _ in lists)])
    owners = np.arange(len(lists)).repeat([len(beyond) for beyond, _ in lists])
    link_weights = np.concatenate([np.empty(0), *(weights for _, weights in lists)])
    return owners, rows if some is None else some[rows], link_weights


def _relative(graph: ZoomGraphArrays, named: Named, similar: Similarities, asking: Rows, nodes: Rows) -> Scores:
    """Return the similarity of linked documents above that of unrelated texts, relative to the question's strongest."""
    unrelated = graph.unrelated(named.vectors)
    above = similar.products[asking, nodes].astype(np.float64) / UNIT - unrelated[asking]
    strongest = np.zeros(len(unrelated))
    np.maximum.at(strongest, asking, above)  # the most similar document is linked if any is
    relative: Scores = np.maximum(above, LEAST) / np.maximum(strongest, LEAST)[asking]
    return relative


def _entities(graph: ZoomGraphArrays, scope: Scope, named: Named, similar: Similarities) -> tuple[Pairs, Scores]:
    """Return the entities that questions are linked to by name or by the look-ahead, ascending, and their weights."""
    pairs, scores = named.pairs, named.scores
    if graph.parameters.look_ahead <= 1:
        further, weights = _look_ahead(graph, scope, named, similar)
        new = np.ones(len(further), dtype=np.bool_)
        new[matches(further, pairs)[0]] = False
        pairs, scores = np.concatenate([pairs, further[new]]), np.concatenate([scores, weights[new]])
        order = pairs.argsort()
        pairs, scores = pairs[order], scores[order]
    present = graph.spread[parts(pairs)[1]] > 0
    return pairs[present], scores[present]


def _look_ahead(graph: ZoomGraphArrays, scope: Scope, named: Named, similar: Similarities) -> tuple[Pairs, Scores]:
    """Weight the entities of the sentences that mention named entities and best match the open question."""
    setting = graph.parameters
    touched = distinct(_touched(graph, named, similar, min(_NEAR, scope.count)))
    if scope.passages is not None:
        touched = touched[scope.passages[graph.sentence_passage[parts(touched)[1]]]]
    if not len(touched):
        return touched, np.empty(0)
    asking, sentences = parts(touched)
    ahead = named.residual_queries(setting.open_share)
    similarity = products(graph.sentences, ahead, touched).astype(np.float64) - graph.unrelated(ahead)[asking]
    similarity = np.maximum(similarity, 0.0)
    (first,) = changes(asking).nonzero()
    strongest = np.zeros(len(ahead))
    strongest[asking[first]] = np.maximum.reduceat(similarity, first)
    relative = similarity / np.maximum(strongest, LEAST)[asking]
    (strong,) = (relative >= setting.look_ahead).nonzero()
    owners, mentioned, _ = graph.mentions.links(sentences[strong])
    owners = strong[owners]
    pairs, weights, _ = best_of_each(paired(asking[owners], mentioned), relative[owners])
    return pairs, weights**setting.look_ahead_power


def _touched(graph: ZoomGraphArrays, named: Named, similar: Similarities, near: int) -> Pairs:
    """Find sentences that mention named entities; for a wide entity only those of the ``near`` nearest documents."""
    asking, entities = parts(named.pairs)
    is_wide = graph.mentioned_in.degrees(entities) > graph.parameters.widest_entity
    (narrow,), (wide,) = (~is_wide).nonzero(), is_wide.nonzero()
    owners, sentences, _ = graph.mentioned_in.links(entities[narrow])
    touched = paired(asking[narrow[owners]], sentences)
    if not len(wide):
        return touched
    which = distinct(asking[wide])
    close = [at_least_top(similar.products[i], near) for i in which.tolist()]
    askers, documents = which.repeat([len(rows) for rows in close]), np.concatenate(close)
    rows, lengths = rows_under(graph.sentence_starts, documents)
    sentences = paired(askers.repeat(lengths), rows)
    owners, mentioned, _ = graph.mentions.links(rows)
    hit, _ = matches(paired(parts(sentences)[0][owners], mentioned), named.pairs[wide])
    return np.concatenate([touched, sentences[owners[hit]]])


def rows_under(starts: Rows, owners: Rows) -> tuple[Rows, Rows]:
    """Return the rows under each owner (up to the next owner's start), concatenated, and their number per owner."""
    first = starts.take(owners)
    lengths = starts.take(owners + 1) - first
    return runs(first, lengths), lengths
