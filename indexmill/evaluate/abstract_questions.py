"""Questions about a collection as a whole, by a language model (after ArchRAG, figure 8).

They have no right answer; they serve to compare the answers of two methods (``indexmill.evaluate.judging``). As in the
paper, the model reads a description of the collection but none of its texts, and writes five questions for each of five
tasks of five users.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from indexmill.answer.answer_prompts import prompt
from indexmill.answer.answer_types import Bill
from indexmill.answer.asking import Ask
from indexmill.answer.turns import Turns
from indexmill.errors import BadInput
from indexmill.evaluate.recall import Question
from indexmill.models.llm import LLM, Request, data_block, object_schema
from indexmill.models.retries import RetryLimits, run_coroutine

ABSTRACT = "abstract"
"""The type of these questions."""


def _list_of(name: str, items: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    return object_schema(**{of: {"type": "string"}, name: {"type": "array", "items": items}})


USERS: Mapping[str, Any] = object_schema(
    users={"type": "array", "items": _list_of("tasks", _list_of("questions", {"type": "string"}, "task"), "user")}
)
"""The JSON schema of the model's answer."""


class GeneratedQuestions(NamedTuple):
    """The questions, and the cost of generating them."""

    questions: tuple[Question, ...]
    billed: Bill


def abstract_questions(
    description: str,
    llm: LLM,
    *,
    max_output_tokens: int = 16_384,
    deadline_seconds: float = 60.0,
    prompts: Path | None = None,
) -> GeneratedQuestions:
    """Generate questions from a collection's description. Raises BadInput if it is empty, and LlmError."""
    if not description.strip():
        raise BadInput("the description of the collection is empty; describe its texts in a sentence or two")
    text, version = prompt("questions", prompts)
    request = Request(
        task="questions",
        instructions=text,
        prompt_version=version,
        content=data_block([description.strip()]),
        schema=USERS,
        max_output_tokens=max_output_tokens,
    )

    async def generate() -> GeneratedQuestions:
        ask = Ask(llm, Turns(1), max_output_tokens, RetryLimits(deadline_seconds=deadline_seconds))
        reply = await ask(request)
        return GeneratedQuestions(tuple(questions_of(reply)), Bill(ask.calls, ask.input_tokens, ask.output_tokens))

    return run_coroutine(generate())


def questions_of(reply: Mapping[str, Any]) -> list[Question]:
    """Return the distinct questions in a reply (``USERS``); an id contains the numbers of user, task and question."""
    distinct: dict[str, Question] = {}
    for user, of_user in enumerate(reply["users"], start=1):
        for task, of_task in enumerate(of_user["tasks"], start=1):
            for number, text in enumerate(of_task["questions"], start=1):
                question = " ".join(text.split())
                if question:
                    distinct.setdefault(
                        question.casefold(), Question(f"{user}-{task}-{number}", question, (), ABSTRACT)
                    )
    return list(distinct.values())
