"""One description in the place of many pieces: what a language model is asked for it, and what stands in for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.models.llm import Request
from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.llm.ask import Asking
from tasks.llm.prompts import Prompt
from tasks.stages.resolve.consolidate import Many, joined
from tasks.stages.write.summarise import Extractive, fingerprint, plain, text_request, text_schema
from tasks.stages.write.text_writer import TextWriter

__all__ = ["WRITER", "DescriptionWriter"]

_VERSION = 1
"""Of what is made of an answer: raise it whenever that changes."""


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    tokens = configuration.resolve.description.tokens
    shaping = fingerprint(configuration.llm, asked, tokens, configuration.split.language)
    return shaping if asked is None else {**shaping, "version": _VERSION}


WRITER = Writer("description", "describer", _fingerprint, lambda configuration: configuration.describes)

_SCHEMA = text_schema("description")


class DescriptionWriter(TextWriter[Many, str]):
    """Writes descriptions of about so many tokens."""

    def __init__(self, tokens: int, language: str, prompt: Prompt | None, asking: Asking) -> None:
        self.prompt, self.asking = prompt, asking
        self._tokens = tokens
        self._extractive = Extractive(tokens, language)

    def request(self, item: Many) -> Request:
        """The question for a description: the name, then the pieces that are read."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        content = [item.named, *item.texts]
        return text_request(
            WRITER.task, self.prompt, content, _SCHEMA, tokens=self._tokens, about=item.about, makes=item.made_of
        )

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """The description as plain text on one line; None where it says nothing."""
        return plain(str(answer["description"]), 2 * self._tokens) or None

    def fallback(self, item: Many) -> str:
        """The central sentences of the pieces without a model; the first pieces where its answer is of no use."""
        return self._extractive.summary(item.texts) if self.prompt is None else joined(item.all, self._tokens)
