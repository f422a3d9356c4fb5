"""Lexical retrieval: postings, and BM25 over them (Robertson and Zaragoza, The Probabilistic Relevance Framework:
BM25 and Beyond, 2009, section 3.4).

    score(q, p) = sum over the terms t of q of   idf_t f (k1 + 1) / (f + k1 (1 - b + b l_p / mean l))
    idf_t       = ln(1 + (N - n_t + 1/2) / (n_t + 1/2)),   never negative

where f is the number of occurrences of t in the passage p, l_p the number of terms of p, and n_t the number of the N
passages that contain t. A term counts as often as the question repeats it. Shards store occurrences and lengths; n_t
and the mean length are computed here over the whole corpus, so the score does not depend on the division into shards,
nor on which passages may be returned.

Two fields are scored in this way and summed: the passage and, times ``title``, its document's title alone, fully
normalised by length (b = 1), since a title that occurs entirely in the question is worth more than one that occurs in
part. (BM25F, section 3.6, sums occurrences instead, as does a title that is part of its passages.)
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.retrieve.columns import changes, positions, runs
from indexmill.retrieve.dense import at_least_top
from indexmill.retrieve.retrieval_method import Allowed, QueryBatch, Share, Weight
from indexmill.store.pack_checks import row_lengths
from indexmill.text.terms import COMMON, Analyser, compound_cuts, stemmer_of, term_keys

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[Any]]

STEMMERS = (stemmer_of("en"),)
"""The algorithms of stems for snapshots of English texts, and for those made before languages were counted."""

HELD_POSTINGS = 1 << 20
"""The maximum number of postings in memory at once, unless one question has more: about 50 MB."""


_PART_WEIGHT = 0.5
"""How much a part of a compound counts in a question, relative to a word."""

FIELDS = ("", "titles.")
"""The prefix of the array names of each field: passages, and titles of their documents."""


FIELD_ARRAYS = ("keys", "indptr", "passages", "counts", "lengths")
"""The names of the arrays of a field, described in the task that writes the postings."""


_TITLE_B = 1.0
"""The length normalisation of titles."""


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """The settings of ranking.

    k1: the saturation of repeated terms. b: the length normalisation of passages, 0 to 1. title: the weight of the
    title's own score. common_words: True if words like "the" count in a question with other words.
    """

    k1: Weight = 1.2
    b: Share = 0.75
    title: Annotated[float, Field(ge=0, le=100)] = 0.5
    common_words: bool = False


class Ranked(NamedTuple):
    """The passages of one question, best first, ties by row.

    rows: ``(k,) int64``. scores: ``(k,) float64``. places, terms, parts: one entry per question term and passage that
    contains it, and another if the title contains it: the position in ``rows``, the position of the term in the
    question, and its contribution to the score.
    """

    rows: Rows
    scores: Scores
    places: Rows
    terms: Rows
    parts: Scores

    def first(self, k: int) -> Ranked:
        """Return the k best of the passages."""
        inside = self.places < k
        return Ranked(self.rows[:k], self.scores[:k], self.places[inside], self.terms[inside], self.parts[inside])


class _Postings(NamedTuple):
    """The contributions of terms to the scores of passages.

    rows: the passages, term by term, ascending within a term. added: each row's contribution. bounds: ``(n_terms +
    1,)``, the offset of each term's passages, and the end.
    """

    rows: Rows
    added: Scores
    bounds: Rows

    def of(self, terms: Rows, repeats: Scores) -> tuple[list[Rows], list[Scores], Rows]:
        """Return each term's passages, its contributions times its repeats, and its number of passages."""
        low, high = self.bounds[terms], self.bounds[terms + 1]
        parts = [slice(*bounds) for bounds in zip(low.tolist(), high.tolist(), strict=True)]
        added = [self.added[part] * n for part, n in zip(parts, repeats.tolist(), strict=True)]
        return [self.rows[part] for part in parts], added, high - low


class _Field:
    """The postings of one field. prefix: the prefix of its array names."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        self._keys, self._indptr = arrays[f"{prefix}keys"], arrays[f"{prefix}indptr"]
        self._passages, self._counts = arrays[f"{prefix}passages"], arrays[f"{prefix}counts"]
        self._lengths = arrays[f"{prefix}lengths"].astype(np.float64)
        self._mean = float(self._lengths.mean()) if self._lengths.any() else 1.0
        self._norms, self._gain = np.ones(len(self._lengths)), 1.0

    def __len__(self) -> int:
        return len(self._lengths)

    def with_parameters(self, k1: float, b: float, weight: float) -> _Field:
        """Return the same postings, scored with other settings."""
        changed = copy.copy(self)
        changed._norms = k1 * (1 - b + b * self._lengths / self._mean)
        changed._gain = weight * (k1 + 1)
        return changed

    def find(self, keys: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
        """Find the start and the count of each term's postings, each ``(n_terms,)``."""
        at, present = positions(keys, self._keys)
        firsts, sizes = np.zeros((2, len(keys)), np.int64)
        firsts[present] = self._indptr[at[present]]
        sizes[present] = self._indptr[at[present] + 1] - firsts[present]
        return firsts, sizes

    def postings(self, firsts: Rows, sizes: Rows, allowed: Allowed | None) -> _Postings:
        """Read the postings of terms, given their starts and sizes from ``find``."""
        places = runs(firsts, sizes)
        rows, counts = self._passages[places].astype(np.int64), self._counts[places].astype(np.float64)
        bounds = np.concatenate(([0], sizes.cumsum()))
        odds = (len(self) - sizes + 0.5) / (sizes + 0.5)
        idf = np.array([math.log1p(ratio) for ratio in odds.tolist()])
        added = idf.repeat(sizes) * (counts * self._gain / (counts + self._norms[rows]))
        if allowed is not None:
            selected = allowed[rows]
            bounds = np.concatenate(([0], selected.cumsum()))[bounds]
            rows, added = rows[selected], added[selected]
        return _Postings(rows, added, bounds)


class TermIndex:
    """Postings from ``joined_postings``, which may be memory maps; a question reads only the postings of its terms."""

    def __init__(
        self, arrays: Arrays, parameters: Bm25Parameters | None = None, stemmers: Sequence[str] = STEMMERS
    ) -> None:
        """Set up an index. stemmers: the algorithms of the stems in the postings (`indexmill.text.terms`)."""
        self.stemmers = stemmers
        self._all_fields = [_Field(arrays, prefix) for prefix in FIELDS]
        self._use(parameters or Bm25Parameters())

    def with_parameters(self, parameters: Bm25Parameters) -> TermIndex:
        """Return the same postings, ranked with other settings."""
        changed = copy.copy(self)
        changed._use(parameters)
        return changed

    def _use(self, setting: Bm25Parameters) -> None:
        self.setting = setting
        passages, titles = self._all_fields
        self._fields = [passages.with_parameters(setting.k1, setting.b, 1.0)]
        if setting.title:
            self._fields.append(titles.with_parameters(setting.k1, _TITLE_B, setting.title))

    def __len__(self) -> int:
        return len(self._all_fields[0])

    def question_weights(self, questions: Sequence[str]) -> list[dict[str, float]]:
        """Return the weight of each ranking term of each question: its occurrences, and a half for each compound.

        A compound of the question is cut in two terms of the corpus if these are, by the geometric mean of their
        numbers of passages, more frequent than the compound; where several cuts are possible, at the most frequent.
        """
        every = question_terms(questions, self.setting.common_words, self.stemmers)
        return [self._with_parts(question, Counter(terms)) for question, terms in zip(questions, every, strict=True)]

    def _with_parts(self, question: str, counts: Mapping[str, float]) -> dict[str, float]:
        weights = dict(counts)
        if cuts := list(compound_cuts(question, self.stemmers)):
            terms = sorted({term for whole, pairs in cuts for term in itertools.chain([whole], *pairs)})
            frequency = dict(zip(terms, self._all_fields[0].find(term_keys(terms))[1].tolist(), strict=True))
            for whole, pairs in cuts:
                first, second = max(pairs, key=lambda pair: (frequency[pair[0]] * frequency[pair[1]], pair))
                if frequency[first] * frequency[second] > frequency[whole] ** 2:
                    for part in (first, second):
                        weights[part] = weights.get(part, 0.0) + _PART_WEIGHT
        return weights

    def rank(
        self,
        questions: Sequence[Sequence[str] | Mapping[str, float]],
        k: int,
        allowed: Allowed | None = None,
        explain: bool = True,
    ) -> Iterator[Ranked]:
        """Yield, for each question, up to k passages that contain one of its terms, best first.

        questions: each question's terms, or a weight per term. allowed: ``(n_passages,)``, a mask of the passages that
        may be returned; None for all. explain: False leaves places, terms and parts empty, to save time.
        """
        counted = [
            sorted(terms.items() if isinstance(terms, Mapping) else Counter(terms).items()) for terms in questions
        ]
        order = sorted({term for terms in counted for term, _ in terms})
        number = {term: i for i, term in enumerate(order)}
        keys = term_keys(order)
        places = [field.find(keys) for field in self._fields]
        frequencies = np.sum([sizes for _, sizes in places], axis=0)
        sought = [
            (np.array([number[term] for term, _ in terms], np.int64), np.array([n for _, n in terms], np.float64))
            for terms in counted
        ]
        first = 0
        for end in _groups([terms for terms, _ in sought], frequencies):
            chosen = np.unique(np.concatenate([terms for terms, _ in sought[first:end]]))
            postings = [
                field.postings(firsts[chosen], sizes[chosen], allowed)
                for field, (firsts, sizes) in zip(self._fields, places, strict=True)
            ]
            for terms, repeats in sought[first:end]:
                yield self._best([field.of(chosen.searchsorted(terms), repeats) for field in postings], k, explain)
            first = end

    def _best(self, fields: Sequence[tuple[list[Rows], list[Scores], Rows]], k: int, explain: bool) -> Ranked:
        """Rank the passages of one question; a score is summed field by field in the order of the terms."""
        passages = np.concatenate([np.empty(0, np.int64), *(rows for field, _, _ in fields for rows in field)])
        added = np.concatenate([np.empty(0), *(scores for _, field, _ in fields for scores in field)])
        scores = np.bincount(passages, added, len(self)).astype(np.float64, copy=False)
        best = at_least_top(scores, k)
        best = best[scores[best] > 0]
        best = best[np.lexsort((best, -scores[best]))[:k]]
        if not explain:
            return Ranked(best, scores[best], best[:0], best[:0], scores[:0])
        places = np.full(len(self), -1)
        places[best] = np.arange(len(best))
        at = places[passages]
        (inside,) = (at >= 0).nonzero()
        owners = np.concatenate([np.arange(len(counts)).repeat(counts) for _, _, counts in fields])
        return Ranked(best, scores[best], at[inside], owners[inside], added[inside])


def _groups(questions: Sequence[Rows], frequencies: Rows) -> Iterator[int]:
    """Yield the ends of consecutive groups of questions: at most HELD_POSTINGS postings each, or one question."""
    size = 0
    for i, terms in enumerate(questions):
        more = int(frequencies[terms].sum())
        if size and size + more > HELD_POSTINGS:
            yield i
            size = 0
        size += more
    if questions:
        yield len(questions)


def question_terms(
    questions: Sequence[str], common_words: bool = False, stemmers: Sequence[str] = STEMMERS
) -> list[list[str]]:
    """Return the terms of each question by which passages are ranked, in order, with repetitions.

    Common words are dropped, unless ``common_words`` is True or the question has no other terms.
    """
    every = map(Analyser(stemmers).terms, questions)
    return [[term for term in terms if common_words or term not in COMMON] or terms for terms in every]


def by_words(index: TermIndex, batch: QueryBatch, k: int) -> list[Ranked]:
    """Rank the k best passages of each question by BM25, cached for all methods."""

    def find(length: int) -> list[Ranked]:
        return list(index.rank(index.question_weights(batch.questions), length, batch.allowed, batch.explain))

    return batch.first_of(f"words {index.setting}", k, find, lambda ranked: ranked.first(k))


def joined_postings(shards: Sequence[Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Join the postings of shards, with passages numbered consecutively across shards."""
    return {name: array for prefix in FIELDS for name, array in _joined(shards, prefix).items()}


def _joined(shards: Sequence[Arrays], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Join the postings of one field: the terms of all shards, each with its postings shard after shard."""
    parts = [{name: shard[prefix + name] for name in FIELD_ARRAYS} for shard in shards]
    every = np.concatenate([np.empty(0, np.uint64), *(part["keys"] for part in parts)])
    order = every.argsort(kind="stable")
    ordered = every[order]
    first = changes(ordered)
    rows = np.empty(len(every), np.int64)
    rows[order] = first.cumsum() - 1
    degrees = [row_lengths(part["indptr"]) for part in parts]
    keys = ordered[first]
    frequencies = np.bincount(rows, np.concatenate([np.empty(0), *degrees]), len(keys)).astype(np.int64)
    indptr = np.concatenate([np.zeros(1, np.int64), frequencies.cumsum()])
    passages = np.empty(int(indptr[-1]), np.int32)
    counts = np.empty(len(passages), np.result_type(np.uint8, *(part["counts"].dtype for part in parts)))
    ends = indptr[:-1].copy()
    row = term = 0
    for part, sizes in zip(parts, degrees, strict=True):
        terms = rows[term : term + len(sizes)]
        places = runs(ends[terms], sizes)
        passages[places] = part["passages"]
        passages[places] += row
        counts[places] = part["counts"]
        ends[terms] += sizes
        row, term = row + len(part["lengths"]), term + len(sizes)
    lengths = np.concatenate([np.empty(0, np.int64), *(part["lengths"] for part in parts)])
    arrays = {"keys": keys, "indptr": indptr, "passages": passages, "counts": counts, "lengths": lengths}
    return {prefix + name: array for name, array in arrays.items()}
