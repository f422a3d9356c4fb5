"""One description in the place of many pieces, by a language model: what it is asked, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.models.llm import Request, data_block
from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.llm.prompts import Prompt
from tasks.stages.write import summarise

__all__ = ["WRITER", "request", "said"]

_VERSION = 1
"""Of what is made of an answer: raise it whenever that changes."""

_SCHEMA = {
    "type": "object",
    "properties": {"description": {"type": "string", "pattern": r"\S"}},
    "required": ["description"],
    "additionalProperties": False,
}
_WORDS_PER_TOKEN = 0.75


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    llm, tokens = configuration.llm, configuration.resolve.description.tokens
    if asked is None:
        return summarise.fingerprint(llm, None, tokens, configuration.split.language)
    return {**llm.shaping(), "prompt": asked[1], "tokens": tokens, "version": _VERSION}


WRITER = Writer("description", "describer", _fingerprint, needed=lambda configuration: configuration.describes)
"""Of descriptions, which are made of pieces."""


def request(
    named: str, pieces: Sequence[str], tokens: int, asked: Prompt, *, about: Sequence[str], makes: str
) -> Request:
    """The question for a description of about so many tokens.

    named: the entity, or the two that are related. about: the ids of the passages that the pieces are of; makes: an id
    for what the pieces become.
    """
    instructions, version = asked
    return Request(
        task="description",
        instructions=instructions.replace("{words}", str(round(tokens * _WORDS_PER_TOKEN))),
        prompt_version=version,
        content=data_block([named, *pieces]),
        schema=_SCHEMA,
        max_output_tokens=summarise.most_output(tokens),
        about=tuple(about),
        makes=makes,
    )


def said(value: Mapping[str, Any], tokens: int) -> str:
    """The description in a valid answer as plain text on one line; empty where it says nothing."""
    return summarise.plain(str(value["description"]), 2 * tokens)
