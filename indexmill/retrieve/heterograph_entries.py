"""Where questions enter a heterograph, with which weights, and what texts get for what their units hold.

NodeRAG (section 2.5) enters at all nodes that dual search finds alike. Here (``preset: ours``) an entry weighs what it
tells, and what the question names outweighs what merely resembles it:

- *A name* in the question weighs its rarity, 1 / ln(e - 1 + n) for an entity of n documents; a longer name that holds
  it, the share that it is of its words, divided by the number of such names.
- *A bridge*. Of the units that name an entity of the question, those that resemble the residual query, relative to the
  most similar, bring their other entities in, each with its rarity times that similarity to a power: what the next step
  of the question is about is seldom named in it.
- *The nearest* units, attributes and high-level elements weigh little beside a name, so that they decide where nothing
  is named, by degrees, and otherwise between what is alike. So do the nearest texts: each gets what an entry of its
  weight would return to, but passes nothing on.

A text has the score of the walk and those of its units: what they hold, it holds. It and its units are then weighed by
its similarity to the residual query, so that it always stands before its units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from indexmill.retrieve.base import Allowed, Vectors
from indexmill.retrieve.columns import best_of_each, products, sums
from indexmill.retrieve.heterograph import Entries, HeterographParameters
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.open_question import LEAST, named_parts, without

if TYPE_CHECKING:
    from indexmill.retrieve.heterograph_nodes import HeterographNodes

__all__ = ["Named", "Weighted", "named_by", "rescored", "weighted"]

_COMPARED = 512
"""Texts of the highest scores that are compared with the residual query; whatever k is, so that fewer are the first."""


@dataclass(frozen=True, slots=True)
class Named:
    """The names and overviews at which one question enters: rows, ascending, their weights, and which have its name."""

    rows: Rows
    weights: Scores
    exact: Rows


@dataclass(frozen=True, slots=True)
class Weighted:
    """The entries of one question, and the nearest texts with their shares: 1 of all together.

    bridges: by entity the unit that brought it in. residual: see ``without``.
    """

    entries: Entries
    texts: Entries
    bridges: Mapping[int, int]
    residual: Vectors


def named_by(nodes: HeterographNodes, names: Sequence[str], most: int, allowed: Allowed | None) -> Named:
    """The names and overviews that hold names of a question. allowed: parallel to ``nodes.words``; None for all."""
    words, first = nodes.words, nodes.graph.rows("N").start
    found, weights, exact = [np.empty(0, dtype=np.int64)], [np.empty(0)], [np.empty(0, dtype=np.int64)]
    for name in names:
        rows = words.find(name, most, allowed)
        share = len(name.split()) / np.maximum(words.starts.take(rows + 1) - words.starts.take(rows), 1)
        longer = share < 1
        found.append(rows + first)
        weights.append(np.where(longer, share / max(int(np.count_nonzero(longer)), 1), 1.0) * nodes.rarity(rows))
        exact.append(rows[~longer] + first)
    rows, best, _ = best_of_each(np.concatenate(found), np.concatenate(weights))
    own = np.unique(np.concatenate(exact))
    return Named(rows, best, own[own < nodes.graph.rows("O").start])


def weighted(
    nodes: HeterographNodes,
    question: Vectors,
    named: Named,
    near: tuple[Rows, Scores],
    texts: tuple[Rows, Scores],
    setting: HeterographParameters,
    allowed: Allowed | None,
) -> Weighted:
    """Where one question enters.

    question: its vector, ``(1, d) float32``. near: the nearest units, attributes and high-level elements and their
    cosines; texts: the same of texts, the best first. allowed: which nodes take part; None for all.
    """
    parts = np.zeros(question.shape)
    if len(vectors := nodes.name_rows(named.exact)):
        parts = named_parts(question, nodes.name_vectors, np.zeros(len(vectors), dtype=np.int64), vectors)
    bridged, weights, units = _bridged(
        nodes, without(question, parts, setting.bridge_residual), named, texts[0], setting, allowed
    )
    values = texts[1]
    width = values[0] - values[-1] if len(values) else 0.0
    scaled = (values - values[-1]) / width if width > 0 else np.ones(len(values))
    rows = np.concatenate([named.rows, bridged, near[0]])
    every = np.concatenate([named.weights, weights, setting.entry_weight * np.maximum(near[1], 0.0)])
    if allowed is not None:
        rows, every = rows[allowed[rows]], every[allowed[rows]]
    rows, every = rows[every > 0], every[every > 0]
    distinct, place = np.unique(rows, return_inverse=True)
    held = sums(place, every, len(distinct))
    total = float(held.sum() + setting.text_weight * scaled.sum())
    total = total if total > 0 else 1.0
    return Weighted(
        Entries(distinct, held / total),
        Entries(texts[0], setting.text_weight * scaled / total),
        dict(zip(bridged.tolist(), units.tolist(), strict=True)),
        without(question, parts, setting.rank_residual),
    )


def _bridged(
    nodes: HeterographNodes,
    residual: Vectors,
    named: Named,
    near: Rows,
    setting: HeterographParameters,
    allowed: Allowed | None,
) -> tuple[Rows, Scores, Rows]:
    """The entities that units of what is named bring in, ascending, their weights, and the best such unit of each."""
    graph, none = nodes.graph, np.empty(0, dtype=np.int64)
    said, entities = graph.rows("S"), graph.rows("N")
    if setting.bridge >= 1 or not len(named.exact):
        return none, np.empty(0), none
    owners, units = _linked(graph.links.links(named.exact)[:2], said, allowed)
    wide = np.bincount(owners, minlength=len(named.exact)) > setting.widest_entity
    kept = ~wide[owners]
    if wide.any():
        kept |= np.isin(nodes.texts_of(units), near)
    units = np.unique(units[kept])
    if not len(units):
        return none, np.empty(0), none
    similarity = np.maximum(nodes.unit_cosines(units, residual), 0.0)
    relative = similarity / max(float(similarity.max()), LEAST)
    strong = relative >= setting.bridge
    units, relative = units[strong], relative[strong]
    owners, brought = _linked(graph.links.links(units)[:2], entities, None)
    found, weights, first = best_of_each(brought, relative[owners] ** setting.bridge_power)
    new = np.isin(found, named.exact, invert=True)
    found, weights, first = found[new], weights[new], first[new]
    return found, weights * nodes.rarity(found - entities.start), units[owners[first]]


def _linked(links: tuple[Rows, Rows], kind: slice, allowed: Allowed | None) -> tuple[Rows, Rows]:
    """Those of some links that lead to nodes of a kind that take part: their owners and columns."""
    owners, columns = links
    kept = (columns >= kind.start) & (columns < kind.stop)
    if allowed is not None:
        kept &= allowed[columns]
    return owners[kept], columns[kept]


def rescored(nodes: HeterographNodes, scores: Scores, question: Weighted, setting: HeterographParameters) -> Scores:
    """The scores of a question's walk ``(n_nodes,)``, with those of texts and units as the module says."""
    found, agreement = scores.copy(), setting.agreement
    texts, units = nodes.graph.rows("T"), nodes.graph.rows("S")
    held = nodes.said_by
    own = scores[texts] + sums(held, scores[units], texts.stop)
    own[question.texts.rows] += setting.restart * question.texts.shares
    if agreement:
        (reached,) = (own > 0).nonzero()
        if len(reached) > _COMPARED:
            reached = np.sort(reached[np.lexsort((reached, -own[reached]))[:_COMPARED]])
        factors = np.full(texts.stop, LEAST**agreement)
        if len(reached):
            similarity = nodes.text_cosines(reached, question.residual)
            factors[reached] = np.maximum(similarity / max(float(similarity.max()), LEAST), LEAST) ** agreement
        own *= factors
        found[units] *= factors[held]
    found[texts] = own
    return found


def rarity(spread: Rows) -> Scores:
    """How much entities tell that so many documents each are about: 1 for one, falling with the logarithm."""
    found: Scores = 1.0 / np.log(math.e - 1 + np.maximum(spread, 1))
    return found


def cosines(shards: Sequence[Vectors], rows: Rows, vector: Vectors) -> Scores:
    """The inner products of some rows of the shards with one vector ``(1, d)``."""
    return products(shards, vector, rows).astype(np.float64)
