"""The high-level elements of a community: how they are written (NodeRAG, section 2.3).

A high-level element tells something that the community as a whole is about; its overview is a title of a few words, by
which questions find it. They are made of the units, attributes and relations of the community, and not of raw text:
which of them, `tasks.families.heterograph.reading` says. `extractive` needs no model and makes one. With a model,
`request` is what it is asked, and `said` the elements in its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.models.llm import Request, data_block
from schemas.config import LlmSettings
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.texts import lines, sentence
from tasks.llm.prompts import Prompt, prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import Extractive, plain

__all__ = ["TASK", "Element", "extractive", "fingerprint", "most_output", "prompt_of", "request", "said"]

_VERSION = 1
"""Of `extractive` and of what is made of an answer: raise it whenever an element changes."""

TASK = "high_level"
_WORDS_PER_TOKEN = 0.75
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


@dataclass(frozen=True)
class Element:
    """A high-level element. title: its overview."""

    title: str
    text: str


# --- without a model -------------------------------------------------------------------------------------------------


def extractive(read: Read, writer: Extractive) -> Element:
    """Central sentences of the attributes, units and relations, under the names of what most of them name."""
    text = writer.summary([*read.of("A", "S"), *map(sentence, read.of("R"))])
    return Element(plain(read.shown, _TITLE_TOKENS) or plain(text, _TITLE_TOKENS // 2), text)


# --- with a model ----------------------------------------------------------------------------------------------------


def prompt_of(settings: LlmSettings) -> Prompt | None:
    """The prompt by which a model is asked, read once for a run: workers need not have the file. None for no model."""
    return None if settings.backend == "extractive" else prompt(TASK, settings.prompts)


def fingerprint(
    settings: LlmSettings, asked: Prompt | None, *, tokens: int, elements: int, input_tokens: int, language: str
) -> dict[str, Any]:
    """What shapes the elements beside what they are made of, JSON-ready. elements: of a community, at most."""
    shaping = {**summarise.fingerprint(settings, asked, tokens, language), "input_tokens": input_tokens}
    return {**shaping, "element": _VERSION} if asked is None else {**shaping, "element": _VERSION, "elements": elements}


def most_output(tokens: int, elements: int) -> int:
    """The tokens of an answer at most: so many elements of so many tokens with their titles, and JSON around them."""
    return 64 + elements * (summarise.most_output(tokens) + 2 * _TITLE_TOKENS)


def request(read: Read, tokens: int, elements: int, room: int, asked: Prompt, *, about: Sequence[str]) -> Request:
    """The question for at most so many elements of about so many tokens; room: the tokens that are told, about.

    about: the ids that what is read comes from: see tasks.families.heterograph.sources.
    """
    instructions, version = asked
    for name, number in {"{words}": tokens * _WORDS_PER_TOKEN, "{elements}": elements}.items():
        instructions = instructions.replace(name, str(round(number)))
    return Request(
        task=TASK,
        instructions=instructions,
        prompt_version=version,
        content=data_block([lines(read.of(kind), room) for kind in "SAR"]),
        schema=_SCHEMA,
        max_output_tokens=most_output(tokens, elements),
        about=tuple(about),
        makes=read.made_of,
    )


def said(value: Mapping[str, Any], tokens: int, elements: int) -> list[Element]:
    """The elements in a valid answer, as plain text on one line; empty where it says nothing.

    The first of those with one text, and no more than so many: an answer that has a few too many is of use.
    """
    found: dict[str, Element] = {}
    for one in value["elements"]:
        title, text = plain(str(one["title"]), _TITLE_TOKENS), plain(str(one["text"]), 2 * tokens)
        if title and text:
            found.setdefault(text, Element(title, text))
    return list(found.values())[:elements]
