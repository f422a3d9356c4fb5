"""Fused retrieval: the passages of several methods, each method weighted by its confidence for the question.

    score(p) = sum over the methods m of   w_m  c_m(q)  strength_m(p)   /   sum over m of  w_m c_m(q)

*Strength.* Every method ranks a ``pool`` of passages; the strength of each combines its rank and its score:

    strength = (1 - share) 3 / (3 + rank) + share relative(p),   rank = 0, 1, ...;   0 for a passage not in the pool

A graph walk multiplies evidence along its path, so its scores fall by orders of magnitude, and their ratios count:
relative = 1 - ln(max(s / s_best, floor)) / ln(floor). Lexical and vector scores are sums, so their differences count:
relative = (s - s_last) / (s_best - s_last). A walk's scores show how much better its first passages are,
so most of its strength (``_SHARES``) is relative; for words and vectors the share is smaller.
(Ranks alone are reciprocal rank fusion, Cormack et al., 2009.)

*Confidence.* A walk over entities finds passages that share no words with the question if the question's names are
linked; otherwise it only repeats the nearest passages. So the weight of walks is multiplied by

    c(q) = exp(known coverage(q) + agreed agreement(q) - doubt)

where ``coverage`` is the share of the question that its linked entities explain, and ``agreement`` measures how early a
walk ranks the first passage of each lexical method: the mean of 3 / (3 + rank) of that passage in a walk's pool.
A good walk reaches it; a walk misled by names common to thousands of documents does not. A question that names nothing
is answered by words and vectors.

*Documents with several passages in the pool.* The best passage of each document gains ``second`` times the score of
the document's second-best passage. Its other passages keep their scores, so that no document crowds out the rest.

*Evidence should not count twice.* If a walk begins at the nearest passages, the weight of dense is multiplied by
1 / (1 + c). If a method combines the lists of other methods, the weights of those methods are reduced
(``beside_reader``). The weight of a method that follows both names and vectors is multiplied by c / (1 + c).

*Legibility.* Where the encoder does not read the question's language (``indexmill.retrieve.legibility``), vectors and
walks over entities, which begin at vectors, mislead: the weight of every method but the lexical ones is multiplied by
the legibility. A method that itself combines lists does the same with them.

A family declares which of these rules apply to it: see ``indexmill.retrieve.reader_family.Fusion``.

The order depends only on the question and the settings, not on the number of hits requested. Confidence is
discontinuous at one point: if no name is linked, walks only break ties. Figures: ``docs/measurements/methods.md``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.errors import BadInput, ConfigurationError
from indexmill.retrieve.columns import changes
from indexmill.retrieve.legibility import legibility_of
from indexmill.retrieve.method_registry import METHODS, available, retriever_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.reader_family import Fusion
from indexmill.retrieve.retrieval_method import (
    READ,
    Explanations,
    PassageRetriever,
    QueryBatch,
    Ranking,
    Share,
    Weight,
    by_method,
    did_you_mean,
    parameters_of,
)

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

_SHARES = (0.4, 0.6)
"""The share of the relative score in a strength: for words and vectors, and for walks."""

_HALF_RANK = 3.0
"""The rank at which the rank-based share of a strength has fallen to a half."""

_UNDECIDED = 0.5
"""The agreement of walks if there is no lexical method."""

_NOTHING_KNOWN = 1e-6
"""The confidence in walks for a question that names nothing: they order only passages that no other method finds."""

_Exponent = Annotated[float, Field(ge=-20, le=20)]


_FUSION: dict[str, Fusion] = {
    name: fusion
    for fusion, name in sorted(
        ((method.fusion, method.name) for method in METHODS.values() if method.fusion is not None),
        key=lambda pair: pair[0].place,
    )
}
"""The methods that can be combined, in order, and the role of each."""


_Weights: Any = make_dataclass(
    "_Weights", [(name, Weight, fusion.weight) for name, fusion in _FUSION.items()], frozen=True, slots=True
)


@dataclass(frozen=True, slots=True)
class FusedParameters(_Weights):  # type: ignore[misc] # its fields are the registered methods
    """The settings of fusion: a weight for every method, 0 to leave it out, and the size of the pools.

    Only the weights' ratios matter. The defaults were fitted on eight data sets and variants together;
    ``docs/measurements`` reports their quality on others, and ``indexmill evaluate --fit`` fits them to a corpus.

    known, agreed, doubt: coefficients of the confidence in walks. second: the share of a document's second-best score
    that its best passage gains. See the module's docstring. pool: the number of passages of each method that count.
    """

    known: _Exponent = 5.3
    agreed: _Exponent = 2.5
    doubt: _Exponent = 2.5
    second: Share = 0.25
    pool: Annotated[int, Field(ge=1, le=10_000)] = 50

    def weights(self, methods: Sequence[str]) -> dict[str, float]:
        """Return the weights of some methods, by name."""
        return {name: getattr(self, name) for name in _FUSION if name in methods}

    def confidence(self, coverage: float, agreement: float) -> float:
        """Return the confidence in walks for a question, relative to words and vectors."""
        if coverage <= 0:
            return _NOTHING_KNOWN
        return math.exp(self.known * coverage + self.agreed * agreement - self.doubt)

    def counted(
        self, lists: Mapping[str, Ranking], coverage: float | None, legibility: float = 1.0
    ) -> dict[str, float]:
        """Return the factor of each method's weight for one question, from its passages and the confidence in walks.

        coverage: None if no method walks from the entities that the question names. legibility: that of the question.
        """
        return {
            name: factor if _FUSION[name].first_of_words else legibility * factor
            for name, factor in self._confident(lists, coverage).items()
        }

    def _confident(self, lists: Mapping[str, Ranking], coverage: float | None) -> dict[str, float]:
        """Return the factors for a question that the encoder can read: see ``counted``."""
        roles = {name: _FUSION[name] for name in lists}
        counted = dict.fromkeys(lists, 1.0)
        if any(role.reads_lists for role in roles.values()):
            counted = {name: role.beside_reader for name, role in roles.items()}
        if coverage is None:
            return counted
        walks = [name for name, role in roles.items() if role.floor is not None]
        agreed = agreement(
            [lists[name].rows[: self.pool] for name in walks],
            [lists[name].rows for name, role in roles.items() if role.first_of_words],
        )
        confidence = self.confidence(coverage, agreed)
        counted |= dict.fromkeys(walks, confidence)
        counted |= {name: confidence / (1.0 + confidence) for name, role in roles.items() if role.half_led}
        if "dense" in lists and any(role.from_passages for role in roles.values()):
            counted["dense"] /= 1.0 + confidence
        return counted


def agreement(walks: Sequence[Rows], words: Sequence[Rows]) -> float:
    """Measure how early walks rank the first passages of the lexical lists, 0 to 1: the mean over walks and lists."""
    ranks = [np.flatnonzero(walk == ranking[0])[:1] for walk in walks for ranking in words if len(ranking)]
    if not ranks:
        return _UNDECIDED
    return sum(_HALF_RANK / (_HALF_RANK + int(rank[0])) for rank in ranks if len(rank)) / len(ranks)


class Combined(NamedTuple):
    """Passages, best first, ties by row, and the position of each in every method's list, -1 if absent."""

    rows: Rows
    scores: Scores
    places: Rows  # (n_methods, n_rows)


def strength(method: str, scores: npt.NDArray[np.floating]) -> Scores:
    """Return the strength of a method's passages, given their descending scores: from 1 for the best down to 0."""
    values = scores.astype(np.float64)
    if not len(values):
        return values
    floor = _FUSION[method].floor
    if floor is not None:
        best = max(float(values[0]), np.finfo(np.float64).tiny)
        relative = 1.0 - np.log(np.maximum(values / best, floor)) / np.log(floor)
    else:
        span = float(values[0] - values[-1])
        relative = (values - values[-1]) / span if span > 0 else np.ones_like(values)
    share = _SHARES[floor is not None]
    by_rank = _HALF_RANK / (_HALF_RANK + np.arange(len(values), dtype=np.float64))
    strengths: Scores = np.asarray((1.0 - share) * by_rank + share * relative)
    return strengths


def combine(
    lists: Mapping[str, Ranking],
    weights: Mapping[str, float],
    pool: int,
    k: int,
    documents: Rows | None = None,
    second: float = 0.0,
) -> Combined:
    """Return the k best passages of one question, from several methods' lists of length ``max(k, pool)`` if possible.

    If the pools contain too few passages, the rest of the lists follow with lower scores, by descending weight.
    documents: ``(n_passages,)``, the document of every passage. second: the share of each document's second-best score
    that its best passage gains; ignored if ``documents`` is None.
    """
    heads = {method: ranking.rows[:pool] for method, ranking in lists.items()}
    rows = np.unique(np.concatenate([np.empty(0, np.int64), *heads.values()]))
    scores = np.zeros(len(rows))
    for method, head in heads.items():
        scores[rows.searchsorted(head)] += weights[method] * strength(method, lists[method].scores[:pool])
    scores /= max(sum(weights.values()), np.finfo(np.float64).tiny)
    if documents is not None:
        scores = with_second(scores, documents[rows], second)
    order = np.lexsort((rows, -scores))[:k]
    rows, scores = rows[order], scores[order]
    if len(rows) < k:
        for method in sorted(lists, key=lambda name: (-weights[name], name)):
            tail = lists[method].rows[pool:]
            tail = tail[np.isin(tail, rows, invert=True)][: k - len(rows)]
            last = float(scores[-1]) if len(scores) else 1.0
            rows = np.concatenate([rows, tail])
            scores = np.concatenate([scores, last / np.arange(2, len(tail) + 2)])
    return Combined(rows, scores, np.stack([_places(rows, ranking.rows) for ranking in lists.values()]))


def with_second(scores: Scores, documents: Rows, second: float) -> Scores:
    """Add a share of each document's second-best score to the score of its best passage."""
    order = np.lexsort((-scores, documents))
    owners, falling = documents[order], scores[order]
    first = np.flatnonzero(changes(owners))
    size = np.diff(first, append=len(owners))
    several = first[size > 1]
    gained = scores.copy()
    gained[order[several]] += second * falling[several + 1]
    return gained


def _places(rows: Rows, among: Rows) -> Rows:
    """Find the position of each row in a list, -1 if absent."""
    if not len(among):
        return np.full(len(rows), -1)
    order = among.argsort()
    at = np.minimum(among[order].searchsorted(rows), len(among) - 1)
    return np.where(among[order][at] == rows, order[at], -1)


class Fused(PassageRetriever):
    """The fusion of all methods of a snapshot that have a weight.

    The explanation of a hit is ``{"methods": [{"name", "rank", "score"}, ...]}``, with each method's own explanation
    under its name.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._artifacts = artifacts
        self._methods: dict[str, PassageRetriever] = {}
        self._use(parameters_of(artifacts, "fused", FusedParameters))

    def with_parameters(self, parameters: Mapping[str, object]) -> Self:
        """Return a copy with other settings of fusion, or of a combined method (``dense.title``): see ``Retriever``."""
        plain, of_methods = by_method(parameters)
        changed = super().with_parameters(plain)
        if of_methods:
            changed = copy.copy(changed)
            changed._methods = dict(changed._methods)
        for name, of_method in of_methods.items():
            if name not in changed._methods:
                meant = "" if name in available(self._artifacts.manifest) else did_you_mean([name], changed._methods)
                raise BadInput(
                    f"parameters= names {f'{name}.{next(iter(of_method))}'!r}; fused combines only "
                    f"{', '.join(changed._methods)} here, the methods with a weight{meant}"
                )
            changed._methods[name] = changed._methods[name].with_parameters(of_method)
        return changed

    def _use(self, setting: Any) -> None:
        """Open the methods that have a weight and are not open yet: see ``PassageRetriever``."""
        super()._use(setting)
        weights = {
            name: weight for name, weight in setting.weights(available(self._artifacts.manifest)).items() if weight
        }
        self._weights = weights or {"dense": 1.0}  # every snapshot has vectors
        self._methods = {name: self._methods.get(name) or _ranking(self._artifacts, name) for name in self._weights}
        self.uses_vectors = any(method.uses_vectors for method in self._methods.values())

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        setting = self._setting
        depth = max(k, setting.pool)
        batch.shared[READ] = max(method.reads(depth) for method in self._methods.values())
        ranked = [method.rank(batch, depth) for method in self._methods.values()]
        coverages = covered(self._methods.values(), batch)
        legibilities = legibility_of(self._artifacts).of_questions(batch)
        documents = passages_of(self._artifacts).documents if setting.second else None
        for coverage, legibility, *of_question in zip(coverages, legibilities, *ranked, strict=True):
            lists = dict(zip(self._methods, of_question, strict=True))
            counted = setting.counted(lists, coverage, legibility)
            weights = {name: weight * counted[name] for name, weight in self._weights.items()}
            combined = combine(lists, weights, setting.pool, k, documents, setting.second)
            yield Ranking(combined.rows, combined.scores, answer=(of_question, combined.places))

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[Explanations]:
        explanations: list[list[dict[str, Any]]] = [[{"methods": []} for _ in explained] for explained in positions]
        for number, (name, method) in enumerate(self._methods.items()):
            lists = [ranking.answer[0][number] for ranking in rankings]
            standing = [
                ranking.answer[1][number, list(explained)].tolist()
                for ranking, explained in zip(rankings, positions, strict=True)
            ]
            inside = [[place for place in places if place >= 0] for places in standing]
            for of_question, places, ranked, of_method in zip(
                explanations, standing, lists, method.explanations(lists, inside), strict=True
            ):
                listed = [(reason, place) for reason, place in zip(of_question, places, strict=True) if place >= 0]
                details: Sequence[dict[str, Any] | None] = [None] * len(listed) if of_method is None else of_method
                for (reason, place), detail in zip(listed, details, strict=True):
                    score = float(ranked.scores[place])
                    reason["methods"].append({"name": name, "rank": place + 1, "score": score})
                    if detail is not None:
                        reason[name] = detail
        return list(explanations)


def covered(methods: Iterable[PassageRetriever], batch: QueryBatch) -> list[float | None]:
    """Return the share of each question that the methods' graphs cover; all None if no method links entities.

    All methods of a snapshot share their links (``links_of``), so the first one that links decides.
    """
    for method in methods:
        coverage = method.coverage(batch)
        if coverage is not None:
            return coverage.tolist()  # type: ignore[no-any-return]
    return [None] * len(batch.questions)


def _ranking(artifacts: Artifacts, name: str) -> PassageRetriever:
    retriever = retriever_of(artifacts, name)
    if not isinstance(retriever, PassageRetriever):
        raise ConfigurationError(
            f"{artifacts.path}: {name} returns more than passages and cannot be fused; set its weight to 0"
        )
    return retriever
