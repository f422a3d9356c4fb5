"""The answer by one call of a language model, the same for every family (after ZoomRAG, figure 7, in our words).

The model reads the hits in their order as data inside delimiters, then the question. It reasons before it answers, as
the figure wants it, in fields of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.answer.base import Said
from indexmill.canonical import digest_of
from indexmill.hits import Hit
from indexmill.models.llm import Request, data_block

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask

__all__ = ["SCHEMA", "OnePrompt"]

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "found": {"type": "boolean"}, "answer": {"type": "string"}},
    "required": ["reasoning", "found", "answer"],
    "additionalProperties": False,
}

_TITLE = 200  # characters of a title that are sent


class OnePrompt:
    """Answers from all hits at once."""

    uses_explanations = False

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Said:
        """See ``Answering``."""
        said = await ask(self.request(question, hits, ask.max_output_tokens))
        return Said(said["answer"].strip(), said["found"], said["reasoning"].strip())

    def request(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Request:
        """What the model is asked."""
        instructions = _instructions()
        texts = [f"{title}\n\n{hit.text}" if (title := hit.title.strip()[:_TITLE]) else hit.text for hit in hits]
        return Request(
            task="answer",
            instructions=instructions,
            prompt_version=digest_of(instructions.encode())[:16],
            content=f"{data_block(texts)}\n\nQuestion: {question}",
            schema=SCHEMA,
            max_output_tokens=max_output_tokens,
            about=tuple(hit.id for hit in hits),
        )


@cache
def _instructions() -> str:
    return (Path(__file__).parent / "answer.md").read_text(encoding="utf-8").strip()
