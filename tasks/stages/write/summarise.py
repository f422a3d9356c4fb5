"""One text in the place of several: the functions that all writers share.

`Extractive` needs no model: it takes the sentences whose terms occur in most of the texts. For a language model,
`text_request` makes the question, and `plain` turns the answer into one line.
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
"""The minimum for a usable sentence: one with fewer is a heading, or a fragment."""

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
    """Summaries of the texts' own sentences. It caches the words it has seen; results do not depend on the cache."""

    def __init__(self, tokens: int, language: str = "en") -> None:
        self._limit = tokens
        self._language = language
        self._terms = Analyser().terms

    def summary(self, texts: Sequence[str]) -> str:
        """A summary of up to about `tokens` tokens: sentences of the texts, in their order.

        A term weighs the square of the number of texts that contain it. The next sentence is the one that adds the most
        weight of uncovered terms per root of its length, less if its text already has sentences in the summary: shared
        content comes first and once, then something of each text. (Greedy coverage under a budget: Lin and Bilmes, A
        class of submodular functions for document summarization, 2011.) A sentence of a text with a title is prefixed
        with the title.
        """
        found = [self._sentences(text, child) for child, text in enumerate(texts)]
        spread = Counter(term for own in found for term in frozenset[str]().union(*(one.terms for one in own)))
        left = [one for own in found for one in own if len(one.terms) >= _LEAST_TERMS] or [
            one for own in found for one in own
        ]
        told: set[str] = set()
        chosen: list[_Sentence] = []
        room = self._limit
        times = Counter[int]()
        while left:
            best = max(left, key=lambda one: (self._gain(one, spread, told, times), -one.child, -one.place))
            chosen.append(best)
            told |= best.terms
            times[best.child] += 1
            room -= best.tokens
            left = [one for one in left if one.tokens <= room and not one.terms <= told]
        chosen.sort(key=lambda one: (one.child, one.place))
        return _cut(" ".join(one.text for one in chosen) or _SPACE.sub(" ", " ".join(texts)).strip(), self._limit)

    @staticmethod
    def _gain(one: _Sentence, spread: Mapping[str, int], told: set[str], times: Mapping[int, int]) -> float:
        weight = sum(spread[term] ** 2 for term in one.terms if term not in told)
        return float(weight / (one.tokens**0.5 * (1 + times[one.child])))

    def _sentences(self, text: str, child: int) -> list[_Sentence]:
        heading = ""
        matched = _HEADING.match(text)
        if matched is not None and len(matched[0]) <= _LONGEST_HEADING and text[matched.end() :].strip():
            heading, text = _SPACE.sub(" ", matched[0]).strip(), text[matched.end() :]
        found = []
        for place, (start, end) in enumerate(sentence_spans(text, self._language)):
            said = _SPACE.sub(" ", text[start:end]).strip()
            if heading and heading.lower() not in said.lower():
                said = f"{heading}: {said}"
            terms = frozenset(self._terms(said)) - COMMON
            found.append(_Sentence(said, child, place, terms, estimate_tokens(len(said.encode("utf-8")))))
        return found


def fingerprint(configuration: Configuration, asked: Prompt | None, tokens: int, **more: int) -> dict[str, Any]:
    """The key of texts of about so many tokens, beside their sources, JSON-ready; more: further fields of the key."""
    found = {**configuration.llm.shaping(), "tokens": tokens, **more}
    if asked is None:
        return {"version": _VERSION, "language": configuration.split.language, **found}
    return {**found, "prompt": asked[1]}


def most_output(tokens: int) -> int:
    """The maximum tokens of an answer: models count tokens differently, and JSON surrounds the text."""
    return 2 * tokens + 64


TEXT: Mapping[str, Any] = {"type": "string", "pattern": r"\S"}
"""The JSON schema of a text that is not blank."""


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object that has all of these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(name: str) -> dict[str, Any]:
    """The JSON schema of an answer that is one text, not blank, of this name."""
    return object_schema(**{name: TEXT})


def text_request(
    task: str,
    asked: Prompt,
    content: Sequence[str],
    schema: Mapping[str, Any],
    *,
    tokens: int,
    about: Sequence[str],
    makes: str,
    output: int = 0,
    **numbers: int,
) -> Request:
    """The question for a text of about so many tokens.

    content: the source texts, as data. about: the ids of the sources; makes: the id of the text's item. output: the
    maximum tokens of an answer, if not `most_output`. numbers: values for the prompt's placeholders, beside `{words}`.
    """
    instructions, version = asked
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
    """A text on one line, cut to its beginning if it has more than twice so many tokens."""
    clean = text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")
    return _cut(_SPACE.sub(" ", clean).strip(), tokens)


def _cut(text: str, tokens: int) -> str:
    """The beginning of a text, whole words if it has any, of at most twice so many tokens: one sentence may be long."""
    most = 8 * tokens
    if len(text.encode("utf-8")) <= most:
        return text
    short = text.encode("utf-8")[:most].decode("utf-8", "ignore")
    return short.rpartition(" ")[0].rstrip() or short
