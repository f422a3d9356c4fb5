"""Answering with one call to a language model, in the same way for every family (after ZoomRAG, figure 7).

The model reads the hits in order, as data between delimiters, and then the question. As in the figure, it reasons
before it answers, in a separate field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.answer.answer_prompts import prompt
from indexmill.answer.answer_types import Bill, Reply, context_tokens, prompt_tokens
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.llm import Request, data_block, object_schema
from indexmill.retrieve.method_registry import METHODS

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask

SCHEMA: Mapping[str, Any] = object_schema(
    reasoning={"type": "string"}, found={"type": "boolean"}, answer={"type": "string"}
)

_TITLE = 200  # maximum characters of a title in a prompt


class OnePrompt:
    """Answers from all hits at once, without settings; see ``Answering``."""

    def __init__(self, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> None:
        if settings:
            others = ", ".join(f"{method.name} has some" for method in METHODS.values() if method.answering_options)
            raise BadInput(
                f"answering= names {', '.join(map(repr, settings))}, but this method answers by one prompt, which "
                f"has no settings; {others}"
            )
        self._instructions, self._version = prompt("answer", prompts)

    @property
    def uses_explanations(self) -> bool:
        return False

    def retrieval(self, k: int, parameters: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        return k, parameters

    def tokens(self, hit: Hit) -> int:
        return context_tokens(hit)

    def shown(self, hit: Hit) -> str:
        return shown(hit)

    def bill(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Bill:
        return Bill(1, prompt_tokens(self.request(question, hits, max_output_tokens)), max_output_tokens)

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Reply:
        reply = await ask(self.request(question, hits, ask.max_output_tokens))
        return Reply(reply["answer"].strip(), reply["found"], reply["reasoning"].strip())

    def request(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Request:
        return Request(
            task="answer",
            instructions=self._instructions,
            prompt_version=self._version,
            content=f"{data_block([self.shown(hit) for hit in hits])}\n\nQuestion: {question}",
            schema=SCHEMA,
            max_output_tokens=max_output_tokens,
            about=tuple(hit.id for hit in hits),
        )


def shown(hit: Hit) -> str:
    """Return a hit's text as sent to the model, after its title if it has one."""
    title = hit.title.strip()[:_TITLE]
    return f"{title}\n\n{hit.text}" if title else hit.text
