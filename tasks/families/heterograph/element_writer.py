"""The high-level elements of a community: how they are written (NodeRAG, section 2.3).

A high-level element tells something that the community as a whole is about; its overview is a title of a few words, by
which questions find it. They are made of the units, attributes and relations of the community, and not of raw text:
which of them, `tasks.families.heterograph.reading` says. Without a model there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.models.llm import Request
from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.texts import lines, sentence
from tasks.llm.prompts import Prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import Extractive, plain, text_request

__all__ = ["WRITER", "Element", "extractive", "most_output", "parse", "request"]

_VERSION = 1
"""Of `extractive` and of what is made of an answer: raise it whenever an element changes."""

_TITLE_TOKENS = 24

_TEXT = {"type": "string", "pattern": r"\S"}
_ELEMENT = {
    "type": "object",
    "properties": {"title": _TEXT, "text": _TEXT},
    "required": ["title", "text"],
    "additionalProperties": False,
}
_SCHEMA = {
    "type": "object",
    "properties": {"elements": {"type": "array", "items": _ELEMENT, "minItems": 1}},
    "required": ["elements"],
    "additionalProperties": False,
}


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.heterograph
    shaping = summarise.fingerprint(configuration.llm, asked, settings.element_tokens, configuration.split.language)
    shaping |= {"input_tokens": settings.input_tokens, "element": _VERSION}
    return shaping if asked is None else {**shaping, "elements": settings.elements}


WRITER = Writer(
    "high_level", "elements", _fingerprint, lambda configuration: configuration.families.heterograph.enabled
)


@dataclass(frozen=True)
class Element:
    """A high-level element. title: its overview."""

    title: str
    text: str


def extractive(read: Read, writer: Extractive) -> Element:
    """Central sentences of the attributes, units and relations, under the names of what most of them name."""
    text = writer.summary([*read.of("A", "S"), *map(sentence, read.of("R"))])
    return Element(plain(read.shown, _TITLE_TOKENS) or plain(text, _TITLE_TOKENS // 2), text)


def most_output(writer: Mapping[str, Any]) -> int:
    """The tokens of an answer at most: so many elements of so many tokens with their titles, and JSON around them.

    writer: the fingerprint.
    """
    return 64 + int(writer["elements"]) * (summarise.most_output(writer["tokens"]) + 2 * _TITLE_TOKENS)


def request(read: Read, writer: Mapping[str, Any], asked: Prompt, *, about: Sequence[str]) -> Request:
    """The question for at most `elements` elements.

    writer: the fingerprint, whose `tokens` an element has, about, and whose `input_tokens` are read for them. about:
    the ids that what is read comes from: see tasks.families.heterograph.sources.
    """
    return text_request(
        WRITER.task,
        asked,
        [lines(read.of(kind), writer["input_tokens"]) for kind in "SAR"],
        _SCHEMA,
        tokens=writer["tokens"],
        about=about,
        makes=read.made_of,
        output=most_output(writer),
        elements=writer["elements"],
    )


def parse(answer: Mapping[str, Any], writer: Mapping[str, Any]) -> list[Element]:
    """The elements in a valid answer, as plain text on one line; empty where it says nothing.

    The first of those with one text, and no more than `elements`: an answer that has a few too many is of use.
    """
    found: dict[str, Element] = {}
    for one in answer["elements"]:
        title, text = plain(str(one["title"]), _TITLE_TOKENS), plain(str(one["text"]), 2 * writer["tokens"])
        if title and text:
            found.setdefault(text, Element(title, text))
    return list(found.values())[: writer["elements"]]
