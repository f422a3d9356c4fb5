"""Scores of an answer's agreement with the right answer, without a model.

Accuracy and recall are those of ArchRAG (appendix B.1), exact match and F1 those of SQuAD and HotpotQA. As there, words
are compared in lower case, without punctuation and English articles. The differences: accuracy requires complete words,
so that "no" does not match "north"; a dash separates words; compatibility forms are equal; in scripts without spaces
every character is a word.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, stdev
from typing import NamedTuple

from indexmill.text.normalise import normalise
from indexmill.text.terms import UNSPACED

_ARTICLES = frozenset({"a", "an", "the"})
_YES_NO = frozenset({"yes", "no"})
_UNSPACED = re.compile(f"([{UNSPACED}])")


class Scores(NamedTuple):
    """The scores of one answer, from 0 to 1. Each score is the best over all right answers.

    accuracy: 1 if the answer contains the right answer. recall: the share of the right answer's words that it contains,
    0 if either has the word "yes" or "no" (as in ArchRAG). exact_match: 1 if it equals the right answer. f1: the F1 of
    the words of both, 0 if one is "yes" or "no" and the other differs.
    """

    accuracy: float
    recall: float
    exact_match: float
    f1: float


def scores_of(answer: str, right: Sequence[str]) -> Scores:
    """Score an answer against the right answers (at least one)."""
    answer_words = words(answer)
    each = [_scores(answer_words, words(text)) for text in right]
    return Scores(*(max(column) for column in zip(*each, strict=True)))


def contains_answer(text: str, right: Sequence[str]) -> bool | None:
    """Return whether a text contains a right answer, also where punctuation alone parts it from other words.

    None without right answers, or if they are only "yes" or "no", which no text contains.
    """
    answers = [answer for answer in right if not {*words(answer)} <= _YES_NO]
    if not answers:
        return None
    return any(
        _joined(split(answer)) in text_words
        for split in (words, _parted)
        for text_words in [_joined(split(text))]
        for answer in answers
    )


def words(text: str) -> list[str]:
    """Split a text into words for comparison, without articles unless it has no other words."""
    return _words(
        "".join(" " if unicodedata.category(c) == "Pd" else c for c in _folded(text) if not _is_punctuation(c))
    )


def _parted(text: str) -> list[str]:
    """Split a text into words as ``words`` does, but also at punctuation."""
    return _words("".join(" " if unicodedata.category(c)[0] == "P" else c for c in _folded(text)))


def _folded(text: str) -> str:
    return normalise("NFKC", text).casefold()


def _words(plain: str) -> list[str]:
    every = _UNSPACED.sub(r" \1 ", plain).split()
    return [word for word in every if word not in _ARTICLES] or every


def _joined(text_words: Sequence[str]) -> str:
    return f" {' '.join(text_words)} "


def margin(values: Sequence[float]) -> float:
    """Return half the width of the 95 % confidence interval of the mean (normal approximation); 0 for one value."""
    return NormalDist().inv_cdf(0.975) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def with_margin(value: float, half: float) -> str:
    """Format a mean and half the width of its confidence interval."""
    return f"{value:.3f} ±{half:.3f}"


def _is_punctuation(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind != "Pd" and (kind.startswith("P") or character in string.punctuation)


def _scores(answer: list[str], right: list[str]) -> Scores:
    if not right:
        return Scores(0.0, 0.0, 0.0, 0.0)
    shared = (Counter(answer) & Counter(right)).total()
    same = answer == right
    f1 = 2 * shared / (len(answer) + len(right))
    if not same and ({*answer} <= _YES_NO or {*right} <= _YES_NO):
        f1 = 0.0
    recall = shared / len(right) if _YES_NO.isdisjoint([*answer, *right]) else 0.0
    return Scores(float(_joined(right) in _joined(answer)), recall, float(same), f1)
