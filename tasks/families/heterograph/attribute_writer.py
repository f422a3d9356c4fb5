"""The attribute of an entity: how it is written (NodeRAG, section 2.3; appendix E, the prompt for attributes).

An attribute is a portrait of an important entity, of the units and relations around it and not of raw text: which of
them, `tasks.families.heterograph.reading` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.models.llm import Request
from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.texts import lines, sentence
from tasks.llm.prompts import Prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import Extractive, plain, text_request, text_schema

__all__ = ["WRITER", "extractive", "parse", "request"]

_VERSION = 1
"""Of `extractive` and of what is made of an answer: raise it whenever an attribute changes."""

_SCHEMA = text_schema("attribute")


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.heterograph
    shaping = summarise.fingerprint(configuration.llm, asked, settings.attribute_tokens, configuration.split.language)
    return {**shaping, "input_tokens": settings.input_tokens, "attribute": _VERSION}


WRITER = Writer(
    "attribute", "attributes", _fingerprint, lambda configuration: configuration.families.heterograph.enabled
)


def extractive(read: Read, writer: Extractive) -> str:
    """Central sentences of the units and relations, which name the entity if only at their beginning."""
    text = writer.summary([*read.of("S"), *map(sentence, read.of("R"))])
    return text if read.shown.casefold() in text.casefold() else f"{read.shown}: {text}"


def request(read: Read, writer: Mapping[str, Any], asked: Prompt, *, about: Sequence[str]) -> Request:
    """The question for an attribute.

    writer: the fingerprint, whose `tokens` an attribute has, about, and whose `input_tokens` are read for it. about:
    the ids of the passages that what is read comes from.
    """
    content = [read.shown, *(lines(read.of(kind), writer["input_tokens"]) for kind in "SR")]
    return text_request(WRITER.task, asked, content, _SCHEMA, tokens=writer["tokens"], about=about, makes=read.made_of)


def parse(answer: Mapping[str, Any], tokens: int) -> str:
    """The attribute in a valid answer as plain text on one line; empty where it says nothing."""
    return plain(str(answer["attribute"]), 2 * tokens)
