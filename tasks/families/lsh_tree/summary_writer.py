"""The summary of a segment: what a language model is asked for it, and what an answer says (EraRAG, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.models.llm import Request
from schemas.config import Configuration
from tasks.core.writer import Writer
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import fingerprint, plain, text_request, text_schema

__all__ = ["WRITER", "parse", "request"]


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    tokens = configuration.families.lsh_tree.summary_tokens
    return fingerprint(configuration.llm, asked, tokens, configuration.split.language)


WRITER = Writer("summary", "llm", _fingerprint, lambda configuration: configuration.families.lsh_tree.enabled)

_SCHEMA = text_schema("summary")


def request(texts: Sequence[str], tokens: int, asked: Prompt, *, about: Sequence[str], makes: str) -> Request:
    """The question for a summary of about so many tokens; about: the ids of the texts, makes: that of the node."""
    return text_request(WRITER.task, asked, texts, _SCHEMA, tokens=tokens, about=about, makes=makes)


def parse(answer: Mapping[str, Any], tokens: int) -> str:
    """The summary in a valid answer as plain text on one line; empty where it says nothing."""
    return plain(str(answer["summary"]), 4 * tokens)
