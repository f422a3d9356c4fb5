"""The attribute of an entity: how it is written (NodeRAG, section 2.3; appendix E, the prompt for attributes).

An attribute is a portrait of an important entity, of the units and relations around it and not of raw text.
`extractive` needs no model. With one, `request` is what it is asked, and `said` the text in its answer. What is read,
`tasks.families.heterograph.reading` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.models.llm import Request, data_block
from schemas.config import LlmSettings
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.texts import lines, sentence
from tasks.llm.prompts import Prompt, prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import Extractive, most_output, plain

__all__ = ["extractive", "fingerprint", "most_output", "prompt_of", "request", "said"]

_VERSION = 1
"""Of `extractive` and of what is made of an answer: raise it whenever an attribute changes."""

_TASK = "attribute"
_WORDS_PER_TOKEN = 0.75
_SCHEMA = {
    "type": "object",
    "properties": {"attribute": {"type": "string", "pattern": r"\S"}},
    "required": ["attribute"],
    "additionalProperties": False,
}


# --- without a model -------------------------------------------------------------------------------------------------


def extractive(read: Read, writer: Extractive) -> str:
    """Central sentences of the units and relations, which name the entity if only at their beginning."""
    texts = [*read.of("S"), *map(sentence, read.of("R"))]
    text = writer.summary(texts)
    return text if read.shown.casefold() in text.casefold() else f"{read.shown}: {text}"


# --- with a model ----------------------------------------------------------------------------------------------------


def prompt_of(settings: LlmSettings) -> Prompt | None:
    """The prompt by which a model is asked, read once for a run: workers need not have the file. None for no model."""
    return None if settings.backend == "extractive" else prompt(_TASK, settings.prompts)


def fingerprint(
    settings: LlmSettings, asked: Prompt | None, *, tokens: int, input_tokens: int, language: str
) -> dict[str, Any]:
    """What shapes the attributes beside what they are made of, JSON-ready."""
    shaping = summarise.fingerprint(settings, asked, tokens, language)
    return {**shaping, "input_tokens": input_tokens, "attribute": _VERSION}


def request(read: Read, tokens: int, room: int, asked: Prompt, *, about: Sequence[str]) -> Request:
    """The question for an attribute of about so many tokens; room: the tokens that are told, about.

    about: the ids of the passages that what is read comes from.
    """
    instructions, version = asked
    return Request(
        task=_TASK,
        instructions=instructions.replace("{words}", str(round(tokens * _WORDS_PER_TOKEN))),
        prompt_version=version,
        content=data_block([read.shown, *(lines(read.of(kind), room) for kind in "SR")]),
        schema=_SCHEMA,
        max_output_tokens=most_output(tokens),
        about=tuple(about),
        makes=read.made_of,
    )


def said(value: Mapping[str, Any], tokens: int) -> str:
    """The attribute in a valid answer as plain text on one line; empty where it says nothing."""
    return plain(str(value["attribute"]), 2 * tokens)
