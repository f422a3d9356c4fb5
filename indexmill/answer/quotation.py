"""Answering without a model: with a verbatim sentence from the hits.

The sentence is the one that, with its title, shares the rarest words with the question: a starting point for reading.
It combines no statements, and may not answer the question.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from indexmill.answer.answer_types import Reply
from indexmill.hits import Hit
from indexmill.text.terms import COMMON, Analyser

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask

_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")


class Quotation:
    """Answers with a quotation; calls no model."""

    uses_explanations = False

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask | None = None) -> Reply:
        """Answer as ``Answering`` does. ``found`` is True if the sentence or its title has a word of the question."""
        terms = Analyser().terms
        question_terms = frozenset(terms(question))
        question_terms = question_terms - COMMON or question_terms
        sentences = [
            (sentence, question_terms.intersection(terms(f"{hit.title}\n{sentence}")))
            for hit in hits
            for sentence in _sentences(hit.text)
        ]
        if not sentences:
            return Reply("", False)
        spread = Counter(term for _, shared in sentences for term in shared)
        weights = [sum(math.log1p(len(sentences) / spread[term]) for term in sorted(shared)) for _, shared in sentences]
        best = weights.index(max(weights))
        return Reply(sentences[best][0], weights[best] > 0)


def _sentences(text: str) -> Iterator[str]:
    for piece in _END.split(text):
        sentence = " ".join(piece.split())
        if sentence:
            yield sentence
