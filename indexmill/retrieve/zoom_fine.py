"""The fine walk of ZoomRAG: the sentences of a few documents, scored (section 3.2, eqs. 4, 5 and 10).

Sentences are linked to the entities they mention, to their neighbours in the document, and to sentences of similar
meaning. The walk starts where the coarse walk left the entities. Its limit (eq. 10) is reached by iterating: with
beta = 0.9 every step shrinks what is missing to a tenth, and no matrix is inverted, so that cost grows with the number
of links. Up to DENSE_SENTENCES the semantic links are exp(cos) for every pair of sentences. Beyond, where documents
are long, exp(cos) is taken as 1 + cos, whose product with a vector needs no pairs: time and memory are linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import sums
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.zoom_walk import Scale, average

__all__ = ["DENSE_SENTENCES", "FineWalk", "Local", "sentence_scores"]

DENSE_SENTENCES = 512
"""Most sentences of which all pairs are compared."""

_FOLDED = 128
"""Most sentences whose links by way of entities are made into one matrix with the others."""

_PADDED = 8
"""Matrices are filled up to a multiple of so many sentences, so that those of several questions are one array."""

_CELLS = 1 << 15
"""Most cells of such an array: 256 KiB."""

_PRECISION = 1e-15
_MOST_STEPS = 400
_WIDTHS = 6  # standard deviations of the Gaussian beyond which it is zero in the result

_Product = Callable[[Scores], Scores]


@dataclass(frozen=True, slots=True)
class Local:
    """The local graph of one question.

    vectors: ``(l, d)`` of the sentences. documents: ``(l,)``, ascending, the document of each. owners, columns: the
    links of sentences and entities, positions in both. entities: ``(h,)``, the entities' coarse scores.
    """

    vectors: npt.NDArray[np.float32]
    documents: Rows
    owners: Rows
    columns: Rows
    entities: Scores


@dataclass(frozen=True, slots=True)
class FineWalk:
    """The settings of the walk over sentences.

    restart: beta. temporal_width: sigma, in sentences. temporal_share: omega, of temporal links against semantic ones.
    semantic, temporal: False leaves these links out (table 4).
    """

    restart: float
    temporal_width: float
    temporal_share: float
    semantic: bool = True
    temporal: bool = True
    scale: Scale = "cells"

    @property
    def stay(self) -> float:
        """The share of a score that follows links."""
        return 1 - self.restart

    @property
    def share(self) -> float:
        """Of temporal links in the block of sentences."""
        return self.temporal_share if self.semantic and self.temporal else float(self.temporal)

    @property
    def mixes(self) -> bool:
        """Whether sentences are linked to sentences."""
        return self.semantic or self.temporal

    @property
    def steps(self) -> int:
        """Steps after which what is missing of the limit is rounding."""
        if self.restart >= 1:
            return 1
        if self.restart <= 0:
            return _MOST_STEPS
        return min(math.ceil(math.log(_PRECISION) / math.log(self.stay)), _MOST_STEPS)


def sentence_scores(graphs: Sequence[Local], setting: FineWalk) -> list[Scores]:
    """The scores of the sentences ``(l,)`` of each graph in the limit of its walk, whatever stands beside it; zeros
    where no entity has a coarse score."""
    found = [np.zeros(len(graph.documents)) for graph in graphs]
    alike: dict[int, list[int]] = {}
    for i, graph in enumerate(graphs):
        if len(graph.documents) and graph.entities.any():
            folded = len(graph.documents) <= min(_FOLDED, DENSE_SENTENCES)
            alike.setdefault(-(-len(graph.documents) // _PADDED) * _PADDED if folded else 0, []).append(i)
    for i in alike.pop(0, ()):
        found[i] = _scores(graphs[i], setting)
    for width, those in alike.items():
        together = max(1, _CELLS // width**2)
        for first in range(0, len(those), together):
            some = those[first : first + together]
            for i, scores in zip(some, _stacked([graphs[i] for i in some], width, setting), strict=True):
                found[i] = scores
    return found


def _stacked(graphs: Sequence[Local], width: int, setting: FineWalk) -> list[Scores]:
    """The scores of graphs of at most ``width`` sentences: of each one matrix, filled up with zeros to that width.

    The links by way of entities are folded into it: a step of the sentences' scores is two of the walk, and brings what
    comes from the start, from sentences, and by way of entities.
    """
    count, stay = len(graphs), setting.stay
    lengths = np.array([len(graph.documents) for graph in graphs])
    named = np.array([len(graph.entities) for graph in graphs])
    links = np.array([len(graph.owners) for graph in graphs])
    cells = (lengths * named).tolist()
    across = 1 / np.array([average(n, n, of, setting.scale) for n, of in zip(links.tolist(), cells, strict=True)])
    asking, whose = np.arange(count).repeat(links), np.arange(count).repeat(named)
    owners = np.concatenate([graph.owners for graph in graphs])
    columns = np.concatenate([graph.columns for graph in graphs])
    places, entities = asking * width + owners, (named.cumsum() - named)[asking] + columns

    # Columns of the mixed block add up to one; then both blocks are brought to one average weight.
    within = lengths.astype(np.float64) if setting.mixes else np.zeros(count)
    of_sentence = within.repeat(width) + across.repeat(width) * np.bincount(places, minlength=count * width)
    of_entity = across[whose] * np.bincount(entities, minlength=len(whose))
    of_sentence[of_sentence == 0], of_entity[of_entity == 0] = 1.0, 1.0

    start = np.concatenate([graph.entities / graph.entities.sum() for graph in graphs])
    from_entity = (stay * across)[asking] / of_entity[entities]
    first = sums(places, from_entity * (setting.restart * start)[entities], count * width).reshape(count, width, 1)
    ends = (width * named).cumsum()
    mentions = np.zeros(int(ends[-1]))
    mentions[(ends - width * named)[asking] + owners * named[asking] + columns] = across[asking]
    passed = stay * stay / of_entity
    matrix = np.empty((count, width, width))
    cuts, begins = [0, *ends.tolist()], [0, *named.cumsum().tolist()]
    for i in range(count):
        own = mentions[cuts[i] : cuts[i + 1]].reshape(width, begins[i + 1] - begins[i])
        np.matmul(own * passed[begins[i] : begins[i + 1]], own.T, out=matrix[i])
    if setting.mixes:
        matrix += (stay * within)[:, None, None] * _all_mixed(graphs, lengths, width, setting)
    matrix /= of_sentence.reshape(count, 1, width)
    score = first
    for _ in range(setting.steps - 1):
        score = first + matrix @ score
    return [one[:length, 0] for one, length in zip(score, lengths.tolist(), strict=True)]


def _all_mixed(graphs: Sequence[Local], lengths: Rows, width: int, setting: FineWalk) -> Scores:
    """``_mixed`` of several graphs ``(n_graphs, width, width)``, filled up."""
    apart, share = np.arange(width), setting.share
    documents = np.full((len(graphs), width), -1, dtype=np.int64)
    documents[apart < lengths[:, None]] = np.concatenate([graph.documents for graph in graphs])
    near: Scores = _gaussian(width, setting.temporal_width) * (documents[:, :, None] == documents[:, None, :])
    near *= share / near.sum(axis=1, keepdims=True)
    alike = np.full(near.shape, -np.inf)
    for own, graph in zip(alike, graphs, strict=True):
        length = len(graph.documents)
        own[:length, :length] = graph.vectors @ graph.vectors.T
    np.exp(alike, out=alike)
    alike *= (1 - share) / np.maximum(alike.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    near += alike
    return near


def _scores(graph: Local, setting: FineWalk) -> Scores:
    """The scores of a graph of many sentences, whose links are followed one by one."""
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


def _mixed(graph: Local, share: float, width: float) -> Scores | _Product:
    """The block of sentences, temporal and semantic links, columns normalised, then mixed; of many sentences
    multiplication with it."""
    count = len(graph.documents)
    if count > DENSE_SENTENCES:
        temporal, semantic = _temporal(graph.documents, width), _semantic(graph.vectors)
        return lambda values: share * temporal(values) + (1 - share) * semantic(values)
    near = _gaussian(count, width)
    near *= graph.documents[:, None] == graph.documents
    near *= share / near.sum(axis=0)
    alike = (graph.vectors @ graph.vectors.T).astype(np.float64)
    np.exp(alike, out=alike)
    alike *= (1 - share) / alike.sum(axis=0)
    near += alike
    return near


def _gaussian(count: int, width: float) -> Scores:
    """The temporal links ``(count, count)`` of the sentences of one document."""
    apart = np.arange(count)
    steps = apart / width
    near: Scores = np.exp(-0.5 * steps * steps).take(np.abs(apart[:, None] - apart))
    return near


def _temporal(documents: Rows, width: float) -> _Product:
    """Multiplication with the Gaussian of the distance within a document, columns normalised, without its far ends."""
    reach = min(math.ceil(_WIDTHS * width), len(documents) - 1)
    steps = [
        (math.exp(-0.5 * (step / width) ** 2) * (documents[step:] == documents[:-step]), step)
        for step in range(1, reach + 1)
    ]

    def spread(values: Scores) -> Scores:
        found = values.copy()
        for weights, step in steps:
            found[step:] += weights * values[:-step]
            found[:-step] += weights * values[step:]
        return found

    total = spread(np.ones(len(documents)))
    return lambda values: spread(values / total)


def _semantic(vectors: npt.NDArray[np.float32]) -> _Product:
    """Multiplication with 1 + cos, columns normalised."""
    wide = vectors.astype(np.float64)
    total = len(wide) + wide @ wide.sum(axis=0)

    def spread(values: Scores) -> Scores:
        scaled = values / total
        return np.asarray(scaled.sum() + wide @ (scaled @ wide))

    return spread
