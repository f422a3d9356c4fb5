"""The fine walk of ZoomRAG: the sentences of a few documents, scored (section 3.2, eqs. 4, 5 and 10).

Sentences are linked to the entities they mention, to their neighbours in the document, and to sentences of similar
meaning. The walk starts from the entities' coarse scores. Its limit (eq. 10) is computed by iteration, without
inverting a matrix, so the cost grows with the number of links; with beta = 0.9 every step shrinks the error to a tenth.
In a graph of up to DENSE_SENTENCES sentences, the semantic links are exp(cos) for every pair of sentences. In a larger
graph, exp(cos) is approximated by 1 + cos, whose product with a vector needs no pairs: time and memory are linear.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.families.zoom_graph.walk import Scale, average
from indexmill.retrieve.columns import before, runs, sums
from indexmill.retrieve.matrices import Rows, Scores

DENSE_SENTENCES = 512
"""The maximum number of sentences for which all pairs are compared."""

_FOLDED = 128  # the maximum number of sentences for which links through entities are folded into the matrix of links

_PADDED = 8  # matrices are padded to a multiple of this number of sentences, so that several questions form one array

_CELLS = 1 << 15  # the maximum number of cells of such an array: 256 KiB

_AT_ONCE = 32  # the maximum number of sentences for which one small OpenBLAS product is fast

_BLOCKS = 64  # up to this number of sentences, products of all with _BLOCK at a time are faster than one large product

_BLOCK = 16

_PRECISION = 1e-15
_MOST_STEPS = 400
_WIDTHS = 6  # standard deviations of the Gaussian beyond which it is zero in the result

_Product = Callable[[Scores], Scores]


@dataclass(frozen=True, slots=True)
class LocalGraphs:
    """The local graphs of some questions, concatenated.

    vectors: the vectors of sentences, ``(n, d)``. counts, named: ``(n_graphs,)``, how many sentences and entities each
    graph has. rows, documents: ``(l,)``, each sentence's row in ``vectors`` and document, ascending within a graph.
    owners, columns: the sentence and the entity of each link, sorted by sentence. entities: ``(h,)``, the entities'
    coarse scores.
    """

    vectors: npt.NDArray[np.float32]
    counts: Rows
    rows: Rows
    documents: Rows
    owners: Rows
    columns: Rows
    named: Rows
    entities: Scores

    def graph(self, place: int) -> LocalGraphs:
        """Select one of the graphs."""
        begin, first = int(self.counts[:place].sum()), int(self.named[:place].sum())
        span = slice(begin, begin + int(self.counts[place]))
        links = slice(*self.owners.searchsorted((span.start, span.stop)))
        return LocalGraphs(
            self.vectors,
            self.counts[place : place + 1],
            self.rows[span],
            self.documents[span],
            self.owners[links] - begin,
            self.columns[links] - first,
            self.named[place : place + 1],
            self.entities[first : first + int(self.named[place])],
        )


@dataclass(frozen=True, slots=True)
class FineWalk:
    """The settings of the walk over sentences.

    restart: beta. temporal_width: sigma, in sentences. temporal_share: omega, the share of temporal links; semantic
    links have the rest. semantic, temporal: False leaves these links out (table 4).
    """

    restart: float
    temporal_width: float
    temporal_share: float
    semantic: bool = True
    temporal: bool = True
    scale: Scale = "cells"

    @property
    def stay(self) -> float:
        """The share of a score that is passed on along links."""
        return 1 - self.restart

    @property
    def share(self) -> float:
        """The share of temporal links among the links between sentences."""
        return self.temporal_share if self.semantic and self.temporal else float(self.temporal)

    @property
    def mixes(self) -> bool:
        """True if sentences are linked to sentences."""
        return self.semantic or self.temporal

    @property
    def steps(self) -> int:
        """The number of steps after which the distance to the limit is rounding error."""
        if self.restart >= 1:
            return 1
        if self.restart <= 0:
            return _MOST_STEPS
        return min(math.ceil(math.log(_PRECISION) / math.log(self.stay)), _MOST_STEPS)


def sentence_scores(graphs: LocalGraphs, setting: FineWalk) -> Scores:
    """Score the sentences ``(l,)`` of each graph separately, in the limit of its walk; zeros without coarse scores."""
    result = np.zeros(len(graphs.documents))
    mass = sums(np.arange(len(graphs.named)).repeat(graphs.named), graphs.entities, len(graphs.named))
    walked = (graphs.counts > 0) & (mass > 0)
    small = graphs.counts <= min(_FOLDED, DENSE_SENTENCES)
    begins = before(graphs.counts)
    for i in (walked & ~small).nonzero()[0].tolist():
        result[begins[i] : begins[i] + graphs.counts[i]] = _scores(graphs.graph(i), setting)
    (chosen,) = (walked & small).nonzero()
    if len(chosen):
        widths = -(-graphs.counts[chosen] // _PADDED) * _PADDED
        order = widths.argsort(kind="stable")
        sentences, scores = _padded(graphs, chosen[order], widths[order], mass, setting)
        result[sentences] = scores
    return result


def _padded(graphs: LocalGraphs, chosen: Rows, widths: Rows, mass: Scores, setting: FineWalk) -> tuple[Rows, Scores]:
    """Score the sentences of some small graphs with one padded matrix per graph; return sentences and scores.

    Links through entities are folded into the matrix: a step on the sentences' scores is two steps of the walk, and
    adds the flow from the start, from sentences, and through entities. Consecutive graphs of one width form one array.
    chosen, widths: the graphs and their widths, narrow graphs first. mass: the sum of coarse scores of every graph.
    """
    stay, counts, named, count = setting.stay, graphs.counts[chosen], graphs.named[chosen], len(chosen)
    begins, cells = before(widths), before(widths * widths)
    first, own_entities, begin_entities = before(graphs.counts)[chosen], before(graphs.named)[chosen], before(named)
    sentences, places = runs(first, counts), runs(begins, counts)

    # The links by graph and entity: the owner, and the position of the sentence in its graph.
    at, owners, columns = np.zeros(len(graphs.owners), dtype=np.int64), graphs.owners, graphs.columns
    if len(graphs.counts) > 1:
        number = np.full(len(graphs.counts), -1, dtype=np.int64)
        number[chosen] = np.arange(count)
        at = number.repeat(graphs.counts).take(owners)
        if count < len(graphs.counts):
            used = at >= 0
            at, owners, columns = at[used], owners[used], columns[used]
        columns = columns + (begin_entities - own_entities).take(at)
    order = columns.argsort(kind="stable")
    at, columns = at.take(order), columns.take(order)
    owners = owners.take(order) - first.take(at)

    # Columns of the mixed block add up to one; then both blocks are scaled to the same average weight.
    links, length = np.bincount(at, minlength=count), int(widths.sum())
    of_all = links if setting.scale == "links" else counts * named
    across = np.where(links > 0, of_all / np.maximum(links, 1), 1.0)
    within = counts.astype(np.float64) if setting.mixes else np.zeros(count)
    at_place = begins.take(at) + owners
    total = within.repeat(widths) + across.repeat(widths) * np.bincount(at_place, minlength=length)
    total[total == 0] = 1.0

    degrees = np.bincount(columns, minlength=int(named.sum()))
    coarse = graphs.entities.take(runs(own_entities, named)) / mass[chosen].repeat(named)
    sharing = degrees.take(columns)
    start = sums(at_place, (stay * setting.restart) * coarse.take(columns) / sharing, length)

    # Through an entity, a sentence is linked to all sentences that mention it.
    pair_cells = owners.take(runs(before(degrees).take(columns), sharing))
    pair_cells += (cells.take(at) + owners * widths.take(at)).repeat(sharing)
    passed = (stay * stay * across.take(at) / sharing).repeat(sharing)
    ends = np.concatenate([[0], np.bincount(at, sharing, count).cumsum()]).astype(np.int64)

    rows, documents = graphs.rows.take(first).repeat(widths), np.full(length, -1, dtype=np.int64)
    rows[places], documents[places] = graphs.rows.take(sentences), graphs.documents.take(sentences)
    scores = np.empty(length)
    for run, width in _cuts(widths):
        span = slice(int(begins[run.start]), int(begins[run.start]) + (run.stop - run.start) * width)
        shape = (run.stop - run.start, width)
        link_span = slice(int(ends[run.start]), int(ends[run.stop]))
        cell = pair_cells[link_span] - cells[run.start]
        matrix = np.bincount(cell, passed[link_span], shape[0] * width * width).astype(np.float64, copy=False)
        matrix = matrix.reshape(*shape, width)
        if setting.mixes:
            vectors = graphs.vectors.take(rows[span], 0).reshape(*shape, -1)
            matrix += _all_mixed(vectors, documents[span].reshape(shape), stay * within[run], setting)
        matrix /= total[span].reshape(shape[0], 1, width)
        from_start = start[span].reshape(*shape, 1)
        score = from_start
        for _ in range(setting.steps - 1):
            score = matrix @ score
            score += from_start
        scores[span] = score.ravel()
    return sentences, scores.take(places)


def _cuts(widths: Rows) -> Iterator[tuple[slice, int]]:
    """Yield slices of graphs of equal width, and the width. A slice has one graph or at most _CELLS cells."""
    every = widths.tolist()
    first = 0
    while first < len(every):
        width = every[first]
        last = min(first + max(1, _CELLS // width**2), bisect_right(every, width))
        yield slice(first, last), width
        first = last


def _all_mixed(vectors: npt.NDArray[np.float32], documents: Rows, weights: Scores, setting: FineWalk) -> Scores:
    """Compute ``_mixed`` of several padded graphs ``(n_graphs, width, width)``, times the weight of each.

    vectors: ``(n_graphs, width, d)``. documents: ``(n_graphs, width)``, -1 for padding.
    """
    width, share = documents.shape[1], setting.share
    near: Scores = _gaussian(width, setting.temporal_width) * (documents[:, :, None] == documents[:, None, :])
    near *= share * weights[:, None, None] / near.sum(axis=1, keepdims=True)
    alike: Scores = np.exp(_products(vectors), dtype=np.float64)
    alike *= (documents >= 0)[:, :, None]
    alike *= (1 - share) * weights[:, None, None] / alike.sum(axis=1, keepdims=True)
    near += alike
    return near


def _products(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the inner products ``(n_graphs, width, width)`` of all pairs of the vectors of each graph.

    OpenBLAS is fast for small products, but takes twice as long to multiply a matrix by itself: hence the copy, which
    numpy does not recognise as the same matrix.
    """
    width = vectors.shape[1]
    products = np.empty((len(vectors), width, width), dtype=np.float32)
    others = vectors.swapaxes(1, 2) if width > _BLOCKS else vectors.copy().swapaxes(1, 2)
    step = _BLOCK if _AT_ONCE < width <= _BLOCKS else width
    for begin in range(0, width, step):
        np.matmul(vectors, others[:, :, begin : begin + step], out=products[:, :, begin : begin + step])
    return products


def _scores(graph: LocalGraphs, setting: FineWalk) -> Scores:
    """Score a graph of many sentences, whose links are followed one by one."""
    sentences, entities, stay = len(graph.documents), len(graph.entities), setting.stay
    mixed = _mixed(graph, setting.share, setting.temporal_width) if setting.mixes else None
    within = float(sentences) if mixed is not None else 0.0
    links = len(graph.owners)
    across = 1 / average(float(links), links, sentences * entities, setting.scale)
    of_sentence = within + across * np.bincount(graph.owners, minlength=sentences)
    of_entity = across * np.bincount(graph.columns, minlength=entities)
    of_sentence[of_sentence == 0], of_entity[of_entity == 0] = 1.0, 1.0
    start = graph.entities / graph.entities.sum()
    from_entity = stay * across / of_entity[graph.columns]
    first = score = sums(graph.owners, from_entity * (setting.restart * start)[graph.columns], sentences)
    from_sentence = stay * across / of_sentence[graph.owners]
    for _ in range(setting.steps - 1):
        back = sums(graph.columns, from_sentence * score[graph.owners], entities)
        moved = first + sums(graph.owners, from_entity * back[graph.columns], sentences)
        if mixed is not None:
            values = stay * within * score / of_sentence
            moved += mixed @ values if isinstance(mixed, np.ndarray) else mixed(values)
        score = moved
    return score


def _mixed(graph: LocalGraphs, share: float, width: float) -> Scores | _Product:
    """Return the mixed temporal and semantic links, normalised by column: a matrix, or a function if there are many."""
    count, vectors = len(graph.documents), graph.vectors.take(graph.rows, 0)
    if count > DENSE_SENTENCES:
        temporal, semantic = _temporal(graph.documents, width), _semantic(vectors)
        return lambda values: share * temporal(values) + (1 - share) * semantic(values)
    near = _gaussian(count, width)
    near *= graph.documents[:, None] == graph.documents
    near *= share / near.sum(axis=0)
    alike = (vectors @ vectors.T).astype(np.float64)
    np.exp(alike, out=alike)
    alike *= (1 - share) / alike.sum(axis=0)
    near += alike
    return near


def _gaussian(count: int, width: float) -> Scores:
    """Return the temporal links ``(count, count)`` of the sentences of one document."""
    apart = np.arange(count)
    steps = apart / width
    near: Scores = np.exp(-0.5 * steps * steps).take(np.abs(apart[:, None] - apart))
    return near


def _temporal(documents: Rows, width: float) -> _Product:
    """Return a function that multiplies by the Gaussian of distances in a document, column-normalised and truncated."""
    reach = min(math.ceil(_WIDTHS * width), len(documents) - 1)
    steps = [
        (math.exp(-0.5 * (step / width) ** 2) * (documents[step:] == documents[:-step]), step)
        for step in range(1, reach + 1)
    ]

    def spread(values: Scores) -> Scores:
        result = values.copy()
        for weights, step in steps:
            result[step:] += weights * values[:-step]
            result[:-step] += weights * values[step:]
        return result

    total = spread(np.ones(len(documents)))
    return lambda values: spread(values / total)


def _semantic(vectors: npt.NDArray[np.float32]) -> _Product:
    """Return a function that multiplies by 1 + cos, normalised by column."""
    wide = vectors.astype(np.float64)
    total = len(wide) + wide @ wide.sum(axis=0)

    def spread(values: Scores) -> Scores:
        scaled = values / total
        return np.asarray(scaled.sum() + wide @ (scaled @ wide))

    return spread
