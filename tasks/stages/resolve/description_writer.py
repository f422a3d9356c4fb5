"""Writes one description from many pieces: with a language model or, without one, from the pieces alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.llm.prompts import Prompt
from tasks.stages.resolve.consolidate import Many, joined
from tasks.stages.write.summarise import fingerprint, plain
from tasks.stages.write.text_writer import TextWriter

_VERSION = 1
"""The version of the answer parser: raise it whenever its result changes."""


def _fingerprint(configuration: Configuration, prompt: Prompt | None) -> dict[str, Any]:
    shaping = fingerprint(configuration, prompt, configuration.resolve.description.tokens)
    return shaping if prompt is None else {**shaping, "version": _VERSION}


WRITER = Writer("description", "describer", _fingerprint, lambda configuration: configuration.describes)


class DescriptionWriter(TextWriter[Many, str]):
    """Writes descriptions of entities and of related pairs."""

    declared = WRITER

    def key_of(self, item: Many) -> str:
        """Return the hash of everything that determines the text."""
        return item.made_of

    def content(self, item: Many) -> list[str]:
        """Return the name, then the chosen pieces."""
        return [item.named, *item.texts]

    def about(self, item: Many) -> Sequence[str]:
        """Return the passages of the item's pieces and names."""
        return item.about

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """Return the description as plain text on one line; None if it is empty."""
        return plain(str(answer["description"]), 2 * self.tokens) or None

    def fallback(self, item: Many) -> str:
        """Return the pieces' central sentences if there is no model; otherwise the first pieces, joined."""
        return self.extractive.summary(item.texts) if self.prompt is None else joined(item.all, self.tokens)
