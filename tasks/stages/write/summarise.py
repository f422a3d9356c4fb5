"""Summarise several texts as one: the functions that all writers share.

`Extractive` needs no model: it selects the sentences whose terms occur in most of the texts. For a language model,
`text_request` makes the request, and `plain` puts the answer on one line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.models.llm import Request, data_block
from indexmill.text.terms import COMMON, Analyser
from schemas.config import Configuration
from tasks.core.shards import estimate_tokens
from tasks.llm.prompts import Prompt
from tasks.text.sentences import sentence_spans

_VERSION = 1
"""The version of `Extractive`: raise it whenever a summary changes."""

_WORDS_PER_TOKEN = 0.75
_LEAST_TERMS = 4
"""The minimum number of terms in a usable sentence; with fewer it is a heading or a fragment."""

_LONGEST_HEADING = 120
_HEADING = re.compile(r"[^\n]*[^\s.!?;:,…。！？][ \t]*\n")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class _Sentence:
    text: str
    child: int
    place: int
    terms: frozenset[str]
    tokens: int


class Extractive:
    """Extractive summaries. Caches the analysed words; results do not depend on the cache."""

    def __init__(self, tokens: int, language: str = "en") -> None:
        self._limit = tokens
        self._language = language
        self._terms = Analyser().terms

    def summary(self, texts: Sequence[str]) -> str:
        """Return a summary of up to about `tokens` tokens: sentences of the texts, in their order.

        The weight of a term is the square of the number of texts that contain it. The next sentence is the one that
        adds the most weight of uncovered terms per square root of its length, less if its text already has sentences in
        the summary. So shared content comes first, and only once, then content of each text. (Greedy coverage under a
        budget: Lin and Bilmes, A class of submodular functions for document summarization, 2011.) A sentence from a
        text with a title is prefixed with the title.
        """
        by_text = [self._sentences(text, child) for child, text in enumerate(texts)]
        spread = Counter(
            term for sentences in by_text for term in frozenset[str]().union(*(each.terms for each in sentences))
        )
        every = [sentence for sentences in by_text for sentence in sentences]
        candidates = [sentence for sentence in every if len(sentence.terms) >= _LEAST_TERMS] or every
        covered: set[str] = set()
        chosen: list[_Sentence] = []
        room = self._limit
        times = Counter[int]()
        while candidates:
            best = max(
                candidates, key=lambda each: (self._gain(each, spread, covered, times), -each.child, -each.place)
            )
            chosen.append(best)
            covered |= best.terms
            times[best.child] += 1
            room -= best.tokens
            candidates = [each for each in candidates if each.tokens <= room and not each.terms <= covered]
        chosen.sort(key=lambda each: (each.child, each.place))
        text = " ".join(each.text for each in chosen) or _SPACE.sub(" ", " ".join(texts)).strip()
        return cut(text, 8 * self._limit)

    @staticmethod
    def _gain(sentence: _Sentence, spread: Mapping[str, int], covered: set[str], times: Mapping[int, int]) -> float:
        weight = sum(spread[term] ** 2 for term in sentence.terms if term not in covered)
        return float(weight / (sentence.tokens**0.5 * (1 + times[sentence.child])))

    def _sentences(self, text: str, child: int) -> list[_Sentence]:
        heading = ""
        matched = _HEADING.match(text)
        if matched is not None and len(matched[0]) <= _LONGEST_HEADING and text[matched.end() :].strip():
            heading, text = _SPACE.sub(" ", matched[0]).strip(), text[matched.end() :]
        sentences = []
        for place, (start, end) in enumerate(sentence_spans(text, self._language)):
            sentence = _SPACE.sub(" ", text[start:end]).strip()
            if heading and heading.lower() not in sentence.lower():
                sentence = f"{heading}: {sentence}"
            terms = frozenset(self._terms(sentence)) - COMMON
            sentences.append(_Sentence(sentence, child, place, terms, estimate_tokens(len(sentence.encode("utf-8")))))
        return sentences


def fingerprint(configuration: Configuration, prompt: Prompt | None, tokens: int, **more: int) -> dict[str, Any]:
    """Return the JSON-ready fingerprint of texts of about `tokens` tokens, without their sources. more: more fields."""
    shaping = {**configuration.llm.shaping(), "tokens": tokens, **more}
    if prompt is None:
        return {"version": _VERSION, "language": configuration.split.language, **shaping}
    return {**shaping, "prompt": prompt[1]}


def most_output(tokens: int) -> int:
    """Return the maximum tokens of an answer: more than `tokens`, as models count differently and JSON is added."""
    return 2 * tokens + 64


def text_request(
    task: str,
    prompt: Prompt,
    content: Sequence[str],
    schema: Mapping[str, Any],
    *,
    tokens: int,
    about: Sequence[str],
    makes: str,
    output: int = 0,
    **numbers: int,
) -> Request:
    """Return the request for a text of about `tokens` tokens.

    content: the source texts, as data. about: the ids of the sources; makes: the id of the text's item. output: the
    maximum tokens of an answer; by default `most_output`. numbers: values of placeholders besides `{words}`.
    """
    instructions, version = prompt
    for name, number in {"words": tokens * _WORDS_PER_TOKEN, **numbers}.items():
        instructions = instructions.replace(f"{{{name}}}", str(round(number)))
    return Request(
        task=task,
        instructions=instructions,
        prompt_version=version,
        content=data_block(content),
        schema=schema,
        max_output_tokens=output or most_output(tokens),
        about=tuple(about),
        makes=makes,
    )


def plain(text: str, tokens: int) -> str:
    """Put a text on one line, and truncate it to about twice `tokens` tokens."""
    clean = text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")
    return cut(_SPACE.sub(" ", clean).strip(), 8 * tokens)


def cut(text: str, most: int) -> str:
    """Cut a text, between words if possible, to at most `most` bytes."""
    if len(text.encode("utf-8")) <= most:
        return text
    short = text.encode("utf-8")[:most].decode("utf-8", "ignore")
    return short.rpartition(" ")[0].rstrip() or short
