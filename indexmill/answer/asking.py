"""Interactive calls to a language model: a few retries, one repair, and no ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from indexmill.answer.turns import Turns
from indexmill.models.llm import LLM, Completion, Request
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmUnusable
from indexmill.models.readable import BadAnswer, value_of
from indexmill.models.retries import RetryLimits, Sleep, with_retries

_ADVICE = {
    "cut-off": "was cut off: raise max_output_tokens (--max-output-tokens of the command), which models that reason "
    "at length need",
    "endless-space": "was cut off within white space: another model or another response form (structured) may help",
    "filtered": "was withheld by a filter of the endpoint",
    "declined": "is a refusal",
}


@dataclass
class Ask:
    """Sends the requests of one question and counts their costs.

    turns: shared by all questions of a batch; a call keeps its turn while it waits for a retry, so that an endpoint
    that requests a pause gets one. sleep: waits for the given seconds.
    """

    llm: LLM
    turns: Turns
    max_output_tokens: int
    limits: RetryLimits = field(default_factory=RetryLimits)
    sleep: Sleep = asyncio.sleep
    input_tokens: int = field(default=0, init=False)
    output_tokens: int = field(default=0, init=False)
    calls: int = field(default=0, init=False)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Send a request and return its answer, an object that fits the schema (``_fits``).

        An answer that does not fit is sent back once, to be repaired. Raises LlmUnusable if that does not help or the
        answer is incomplete, otherwise what the model raises.
        """
        completion = await self._complete(request, None)
        try:
            return read_answer(completion, request.schema)
        except BadAnswer as bad:
            if completion.finish_reason != "stop":
                raise _unusable(bad, completion) from None
            correction = (completion.text, bad.advice) if completion.text.strip() else None
        completion = await self._complete(request, correction)
        try:
            return read_answer(completion, request.schema)
        except BadAnswer as bad:
            raise _unusable(bad, completion) from None

    async def _complete(self, request: Request, correction: tuple[str, str] | None) -> Completion:
        async def attempt() -> Completion:
            self.calls += 1
            try:
                completion = await self.llm.complete(request, correction)
            except LlmError as error:
                if isinstance(error.billed, Completion):
                    self._count(error.billed)
                raise
            self._count(completion)
            return completion

        async with self.turns.turn():
            return await with_retries(attempt, self.limits, self.sleep, lambda: self.turns.ended)

    def _count(self, completion: Completion) -> None:
        self.input_tokens += completion.input_tokens
        self.output_tokens += completion.output_tokens


async def answer_or_error(ask: Ask, request: Request) -> dict[str, Any] | LlmError:
    """Return the answer or the error: raising would abandon parallel calls, which are billed. Raises LlmForbidden."""
    try:
        return await ask(request)
    except LlmForbidden:
        raise
    except LlmError as error:
        return error


def read_answer(completion: Completion, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read the answer to a request with this schema; raises BadAnswer if it cannot be used."""
    value = value_of(completion)
    if not isinstance(value, dict) or not _fits(value, schema):
        raise BadAnswer("wrong-schema")
    return value


def _unusable(bad: BadAnswer, completion: Completion) -> LlmUnusable:
    what = _ADVICE.get(bad.reason, f"cannot be used ({bad.reason})")
    return LlmUnusable(f"the model's answer {what}", billed=completion)


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a value has a schema's types, required properties and enumerated values; no other rule counts."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if isinstance(value, dict):
        below = schema.get("properties", {})
        return set(schema.get("required", ())) <= set(value) and all(
            _fits(value[name], below[name]) for name in below if name in value
        )
    return not isinstance(value, list) or all(_fits(item, schema.get("items", {})) for item in value)
