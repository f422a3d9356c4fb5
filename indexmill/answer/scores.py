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


def stands_in(text: str, right: Sequence[str]) -> bool | None:
    """Return whether a text contains a right answer; None if they are only "yes" or "no", which no text contains."""
    others = [answer for answer in map(words, right) if answer and not {*answer} <= _YES_NO]
    if not others:
        return None
    text_words = words(text)
    return any(_contains(text_words, answer) for answer in others)


def words(text: str) -> list[str]:
    """Split a text into words for comparison, without articles unless it has no other words."""
    folded = normalise("NFKC", text).casefold()
    plain = "".join(" " if unicodedata.category(c) == "Pd" else c for c in folded if not _is_punctuation(c))
    every = _UNSPACED.sub(r" \1 ", plain).split()
    return [word for word in every if word not in _ARTICLES] or every


def margin(values: Sequence[float]) -> float:
    """Return half the width of the 95 % confidence interval of the mean (normal approximation); 0 for one value."""
    return NormalDist().inv_cdf(0.975) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


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
    return Scores(float(_contains(answer, right)), recall, float(same), f1)


def _contains(text: list[str], part: list[str]) -> bool:
    return any(text[at : at + len(part)] == part for at in range(len(text) - len(part) + 1))
