"""The fine walk of ZoomRAG: the sentences of a few documents, scored (section 3.2, eqs. 4, 5 and 10).

Sentences are linked to the entities they mention, to their neighbours in the document, and to sentences of similar
meaning. The walk starts where the coarse walk left the entities. Its limit (eq. 10) is reached by iterating: with
beta = 0.9 every step shrinks what is missing to a tenth, and no matrix is inverted, so that cost grows with the number
of links. Up to DENSE_SENTENCES the semantic links are exp(cos) for every pair of sentences. Beyond, where documents
are long, exp(cos) is taken as 1 + cos, whose product with a vector needs no pairs: time and memory are linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.zoom_walk import Scale, average

__all__ = ["DENSE_SENTENCES", "Local", "sentence_scores"]

DENSE_SENTENCES = 512
"""Most sentences of which all pairs are compared."""

_FOLDED = 128
"""Most sentences whose links by way of entities are made into one matrix with the others."""

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


def sentence_scores(
    graph: Local,
    *,
    restart: float,
    temporal_width: float,
    temporal_share: float,
    semantic: bool = True,
    temporal: bool = True,
    scale: Scale = "cells",
) -> Scores:
    """The scores of the sentences ``(l,)`` in the limit of the walk; zeros where no entity has a coarse score.

    restart: beta. temporal_width: sigma, in sentences. temporal_share: omega, of temporal links against semantic ones.
    semantic, temporal: False leaves these links out (table 4).
    """
    sentences, entities = len(graph.documents), len(graph.entities)
    total = float(graph.entities.sum())
    start: Scores = graph.entities / (total if total > 0 else 1.0)
    if not sentences or not start.any():
        return np.zeros(sentences)
    share = temporal_share if semantic and temporal else float(temporal)
    mixed = _mixed(graph, share, temporal_width) if semantic or temporal else None
    # Columns of the mixed block add up to one; then both blocks are brought to one average weight.
    within = float(sentences) if mixed is not None else 0.0
    links = len(graph.owners)
    across = 1 / average(float(links), links, sentences * entities, scale)
    of_sentence = within + across * np.bincount(graph.owners, minlength=sentences)
    of_entity = across * np.bincount(graph.columns, minlength=entities)
    of_sentence[of_sentence == 0], of_entity[of_entity == 0] = 1.0, 1.0

    # A step of the sentences' scores is two of the walk: what comes from the start, from sentences, and by way of
    # entities.
    stay = 1 - restart
    from_entity = stay * across / of_entity[graph.columns]
    first = score = _sums(graph.owners, from_entity * (restart * start)[graph.columns], sentences)
    if sentences <= _FOLDED and isinstance(mixed, np.ndarray | None):
        mentions = np.zeros((sentences, entities))
        mentions[graph.owners, graph.columns] = across
        matrix = (mentions * (stay * stay / of_entity)) @ mentions.T
        if mixed is not None:
            matrix += stay * within * mixed
        matrix /= of_sentence
        for _ in range(_steps(restart) - 1):
            score = first + matrix @ score
        return score
    from_sentence = stay * across / of_sentence[graph.owners]
    for _ in range(_steps(restart) - 1):
        back = _sums(graph.columns, from_sentence * score[graph.owners], entities)
        moved = first + _sums(graph.owners, from_entity * back[graph.columns], sentences)
        if mixed is not None:
            values = stay * within * score / of_sentence
            moved += mixed @ values if isinstance(mixed, np.ndarray) else mixed(values)
        score = moved
    return score


def _sums(keys: Rows, values: Scores, length: int) -> Scores:
    return np.bincount(keys, values, length).astype(np.float64, copy=False)


def _steps(restart: float) -> int:
    """Steps after which what is missing of the limit is rounding."""
    if restart >= 1:
        return 1
    return min(math.ceil(math.log(_PRECISION) / math.log(1 - restart)), _MOST_STEPS) if restart > 0 else _MOST_STEPS


def _mixed(graph: Local, share: float, width: float) -> Scores | _Product:
    """The block of sentences, temporal and semantic links, columns normalised, then mixed; of many sentences
    multiplication with it."""
    count = len(graph.documents)
    if count > DENSE_SENTENCES:
        temporal, semantic = _temporal(graph.documents, width), _semantic(graph.vectors)
        return lambda values: share * temporal(values) + (1 - share) * semantic(values)
    apart = np.arange(count)
    steps = apart / width
    near = np.exp(-0.5 * steps * steps).take(np.abs(apart[:, None] - apart))
    near *= graph.documents[:, None] == graph.documents
    near *= share / near.sum(axis=0)
    alike = (graph.vectors @ graph.vectors.T).astype(np.float64)
    np.exp(alike, out=alike)
    alike *= (1 - share) / alike.sum(axis=0)
    mixed: Scores = near + alike
    return mixed


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

    sums = spread(np.ones(len(documents)))
    return lambda values: spread(values / sums)


def _semantic(vectors: npt.NDArray[np.float32]) -> _Product:
    """Multiplication with 1 + cos, columns normalised."""
    wide = vectors.astype(np.float64)
    sums = len(wide) + wide @ wide.sum(axis=0)

    def spread(values: Scores) -> Scores:
        scaled = values / sums
        return np.asarray(scaled.sum() + wide @ (scaled @ wide))

    return spread
