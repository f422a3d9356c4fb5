"""Fused retrieval: the passages of several methods, ranked by all of them together.

    ln score(p) = sum over the methods m that found passages of   w_m  strength_m(p)

A graph walk multiplies evidence along its way, so its scores fall by orders of magnitude, and what tells two passages
apart is their ratio:  strength = ln(max(s / s_best, floor)).  Lexical and vector scores are sums that tell apart by
their difference:  strength = (s - s_best) / (s_best - s_last).  Best and last are of the ``pool`` passages that the
method ranks first; a passage that is not among them has the strength of the floor, or -1. So the score is 1 for what
every method likes best, and the order depends on the question and the weights alone, not on how many hits are asked
for.

The combination of logarithms is a product of experts; ranks, which reciprocal rank fusion (Cormack et al., 2009)
adds up, throw away how sure a method is, and lose to the best method alone (``docs/families.md`` has the numbers).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.errors import BadInput, ConfigurationError
from indexmill.retrieve.base import (
    Asked,
    Explanations,
    Found,
    PassageRetriever,
    by_method,
    did_you_mean,
    parameters_of,
)

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["FLOORS", "Combined", "Fused", "FusedParameters", "combine", "strength"]

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

FLOORS = {"tri_graph": 1e-3, "zoom_graph": 0.05, "heterograph": 1e-3}
"""What the score of a graph walk counts at least, as a part of its best, for the methods that walk: below, differences
are noise. zoom_graph ranks few documents well and the rest hardly."""

_FROM_PASSAGES = ("tri_graph", "zoom_graph")
"""The walks that begin at the nearest passages; that of heterograph never does."""

_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class FusedParameters:
    """The settings of fusion: a weight for every method, 0 to leave it out, and how many passages of each count.

    Only the weights' ratios matter. Those here were found on the even-numbered questions of two sets;
    ``docs/families.md`` says how well they do on the others, ``indexmill evaluate --fit`` finds one's own. dense counts
    where no graph is walked from the nearest passages: to count them twice does harm. So it does with lsh_tree, which
    ranks passages as dense does.
    """

    tri_graph: _Weight = 1.0
    zoom_graph: _Weight = 1.0
    bm25: _Weight = 0.3
    dense: _Weight = 0.15
    lsh_tree: _Weight = 0.0
    community_tree: _Weight = 0.02
    heterograph: _Weight = 0.0
    pool: Annotated[int, Field(ge=1, le=10_000)] = 50

    def weights(self, methods: Sequence[str]) -> dict[str, float]:
        """The weights of those of some methods that count."""
        weights = {one.name: getattr(self, one.name) for one in fields(self) if one.name in methods}
        if any(weights.get(walk) for walk in _FROM_PASSAGES):
            weights.pop("dense", None)
        return weights


class Combined(NamedTuple):
    """Passages, best first, ties by row, and where each stands in every method's list, -1 where it does not."""

    rows: Rows
    scores: Scores
    places: Rows  # (n_methods, n_rows)


def strength(method: str, scores: npt.NDArray[np.floating]) -> tuple[Scores, float]:
    """How strongly a method speaks for the passages of these scores, falling, and for those it did not find."""
    values = scores.astype(np.float64)
    if not len(values):
        return values, -1.0
    if method in FLOORS:
        floor = FLOORS[method]
        best = max(float(values[0]), np.finfo(np.float64).tiny)
        return np.log(np.maximum(values / best, floor)), float(np.log(floor))
    span = float(values[0] - values[-1])
    return ((values - values[0]) / span if span > 0 else np.zeros_like(values)), -1.0


def combine(lists: Mapping[str, Found], weights: Mapping[str, float], pool: int, k: int) -> Combined:
    """The k best passages of one question by the lists of some methods, ``max(k, pool)`` long where there are so many.

    After the passages of the pools come the others of the heaviest method that has more, in its order, with scores
    below.
    """
    heads = {method: found.rows[:pool] for method, found in lists.items()}
    rows = np.unique(np.concatenate([np.empty(0, np.int64), *heads.values()]))
    scores = np.zeros(len(rows))
    for method, head in heads.items():
        values, absent = strength(method, lists[method].scores[:pool])
        if len(values):
            total = np.full(len(rows), absent)
            total[rows.searchsorted(head)] = values
            scores += weights[method] * total
    order = np.lexsort((rows, -scores))[:k]
    rows, scores = rows[order], scores[order]
    if len(rows) < k:
        for method in sorted(lists, key=lambda name: (-weights[name], name)):
            tail = lists[method].rows[pool:]
            tail = tail[np.isin(tail, rows, invert=True)][: k - len(rows)]
            last = float(scores[-1]) if len(scores) else 0.0
            rows = np.concatenate([rows, tail])
            scores = np.concatenate([scores, last - np.arange(1, len(tail) + 1)])
    return Combined(rows, np.exp(scores), np.stack([_places(rows, found.rows) for found in lists.values()]))


def _places(rows: Rows, among: Rows) -> Rows:
    """Where each of some rows stands in a list, -1 where it does not."""
    if not len(among):
        return np.full(len(rows), -1)
    order = among.argsort()
    at = np.minimum(among[order].searchsorted(rows), len(among) - 1)
    return np.where(among[order][at] == rows, order[at], -1)


class Fused(PassageRetriever):
    """All methods of a snapshot that have a weight, together.

    The explanation of a hit is ``{"methods": [{"name", "rank", "score"}, ...]}``, with what each of them has to say
    about it under its name.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._snapshot = snapshot
        self._methods: dict[str, PassageRetriever] = {}
        self._use(parameters_of(snapshot, "fused", FusedParameters))

    def having(self, parameters: Mapping[str, object]) -> Self:
        """Its own settings, and by ``tri_graph.damping`` those of a method that it combines: see ``Retriever``."""
        own, of_methods = by_method(parameters)
        other = super().having(own)
        if of_methods:
            other = copy.copy(other)
            other._methods = dict(other._methods)
        for name, given in of_methods.items():
            if name not in other._methods:
                meant = "" if name in self._snapshot.methods else did_you_mean([name], other._methods)
                raise BadInput(
                    f"parameters= names {f'{name}.{next(iter(given))}'!r}; fused combines {', '.join(other._methods)}"
                    f" here, each by its weight{meant}"
                )
            other._methods[name] = other._methods[name].having(given)
        return other

    def _use(self, setting: Any) -> None:
        """Open the methods that have a weight, once in a snapshot: see ``PassageRetriever``."""
        super()._use(setting)
        weights = {name: weight for name, weight in setting.weights(self._snapshot.methods).items() if weight}
        self._weights = weights or {"dense": 1.0}  # vectors are always held
        self._methods = {name: self._methods.get(name) or _ranking(self._snapshot, name) for name in self._weights}
        self.uses_vectors = any(method.uses_vectors for method in self._methods.values())

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The passages of each question: see ``PassageRetriever``."""
        depth = max(k, self._setting.pool)
        ranked = [method.rank(asked, depth) for method in self._methods.values()]
        for of_question in zip(*ranked, strict=True):
            lists = dict(zip(self._methods, of_question, strict=True))
            found = combine(lists, self._weights, self._setting.pool, k)
            yield Found(found.rows, found.scores, answer=(of_question, found.places))

    def explanations(self, found: Sequence[Found], places: Sequence[Sequence[int]]) -> list[Explanations]:
        """Of several questions at once: see ``PassageRetriever``."""
        told: list[list[dict[str, Any]]] = [[{"methods": []} for _ in its] for its in places]
        for number, (name, method) in enumerate(self._methods.items()):
            lists = [one.answer[0][number] for one in found]
            standing = [one.answer[1][number, list(its)].tolist() for one, its in zip(found, places, strict=True)]
            inside = [[place for place in of_one if place >= 0] for of_one in standing]
            for reasons, of_one, ranked, more in zip(
                told, standing, lists, method.explanations(lists, inside), strict=True
            ):
                its = [(reason, place) for reason, place in zip(reasons, of_one, strict=True) if place >= 0]
                saying: Sequence[dict[str, Any] | None] = [None] * len(its) if more is None else more
                for (reason, place), said in zip(its, saying, strict=True):
                    score = float(ranked.scores[place])
                    reason["methods"].append({"name": name, "rank": place + 1, "score": score})
                    if said is not None:
                        reason[name] = said
        return list(told)


def _ranking(snapshot: Snapshot, name: str) -> PassageRetriever:
    retriever = snapshot.retriever(name)
    if not isinstance(retriever, PassageRetriever):
        raise ConfigurationError(f"{snapshot.path}: {name} finds more than passages and cannot be fused; weigh it 0")
    return retriever
