"""Chat completions in OpenAI's protocol: from a request to the body that is sent, and from what comes back to text.

Endpoints differ in how they can be told the form of an answer and its length (``Shape``). A body takes the first of
``shapes`` that the endpoint has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmUnreachable
from indexmill.store.canonical import canonical_json

LARGEST_ANSWER = 8_000_000
"""The maximum bytes of an answer: 125,000 tokens, more than models write at once, of 64 bytes each."""

Structured = Literal["auto", "json_schema", "json_object", "text"]
Limit = Literal["max_tokens", "max_completion_tokens"]

_AS_JSON = "Answer with one JSON object and nothing else. It has to be valid against this JSON schema:"
_REPAIR = "That answer cannot be used: {problem}\n" + _AS_JSON + "\n{schema}"

_PER_MESSAGE = 16
"""Tokens by which a model's template marks a message; the templates in use take three to eight."""

_STRICT = frozenset(
    """
    $defs $ref additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum format items maxItems
    maximum minItems minimum multipleOf pattern properties required title type
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
_REASONS = {
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "max_tokens": "length",
    "safety": "content_filter",
    "stop_sequence": "stop",
}
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shape:
    """The way to ask an endpoint for the form and the length of an answer."""

    form: Literal["strict", "json_schema", "json_object", "text"]
    limit: Limit

    def with_other_limit(self) -> Shape:
        """The same form, with the other name of the limit."""
        return Shape(self.form, "max_tokens" if self.limit == "max_completion_tokens" else "max_completion_tokens")


def shapes(structured: Structured, schema: Mapping[str, Any], limit: Limit) -> Iterator[Shape]:
    """The shapes to try for a schema, the tightest first."""
    if structured in ("auto", "json_schema"):
        if takes_strict(schema):
            yield Shape("strict", limit)
        yield Shape("json_schema", limit)
    if structured in ("auto", "json_object"):
        yield Shape("json_object", limit)
    if structured in ("auto", "text"):
        yield Shape("text", limit)


def takes_strict(schema: Any) -> bool:
    """True if a schema has only what OpenAI's strict mode accepts: closed objects whose properties are all required."""
    if not isinstance(schema, Mapping) or not set(schema) <= _STRICT:
        return False
    properties = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    if (schema.get("type") == "object" or properties) and not closed:
        return False
    below = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(takes_strict(one) for one in [*below, *([schema["items"]] if "items" in schema else [])])


def chat_body(
    request: Request,
    shape: Shape,
    model: str,
    temperature: float | None,
    correction: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """The body of a chat completion."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(request, shape, correction),
        shape.limit: request.max_output_tokens,
    }
    if temperature is not None:
        body["temperature"] = temperature
    if shape.form in ("strict", "json_schema"):
        named = {"name": re.sub(r"\W", "_", request.task)[:64] or "answer", "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named | {"strict": shape.form == "strict"}}
    elif shape.form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def input_bound(request: Request, correction: tuple[str, str] | None = None) -> int:
    """At least as many tokens as the request has for any model, whichever shape it takes.

    A token of a byte-level tokenizer is at least one byte, so there are no more tokens than bytes. The schema counts
    twice, since an endpoint may lay it out with spaces of its own before the model reads it; each message has room for
    what the model's template adds.
    """
    texts = [request.instructions, request.content, _AS_JSON, _schema(request), _schema(request)]
    if correction is not None:
        texts += [_answer(request, correction), _REPAIR, correction[1], _schema(request)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + _PER_MESSAGE * (
        3 if correction is None else 5
    )


def completion_of(request: Request, body: Mapping[str, Any], model: str, input_tokens: int) -> Completion:
    """The answer in the body of a chat completion.

    Where the body says nothing of tokens, `input_tokens` and the bytes of the answer stand for them: more than there
    were. Raises LlmUnreachable where the body is none of the protocol.
    """
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        error = LlmUnreachable(
            "the endpoint answered with something that is no chat completion: does llm.base_url end where its "
            "protocol begins, such as in /v1?",
            retry=True,
            billed="maybe",
        )
        error.answered = True
        raise error
    content = message.get("content")
    spoken = content if isinstance(content, str) else ""
    reason = str(first.get("finish_reason") or "stop").lower().partition(":")[0]  # Gemini: content_filter: SAFETY
    reported = body.get("usage")
    usage = reported if isinstance(reported, Mapping) else {}
    named = body.get("model")
    return Completion(
        text=_THOUGHT.sub("", spoken),
        finish_reason="refusal" if message.get("refusal") else _REASONS.get(reason, reason),
        input_tokens=_count(usage.get("prompt_tokens"), input_tokens),
        output_tokens=_count(
            usage.get("completion_tokens"), min(request.max_output_tokens, len(spoken.encode("utf-8", "replace")))
        ),
        model=named if isinstance(named, str) and named else model,
    )


def _messages(request: Request, shape: Shape, correction: tuple[str, str] | None) -> list[dict[str, str]]:
    instructions = request.instructions
    if shape.form in ("json_object", "text"):
        instructions = f"{instructions}\n\n{_AS_JSON}\n{_schema(request)}"
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": request.content}]
    if correction is not None:
        repair = _REPAIR.format(problem=correction[1], schema=_schema(request))
        messages += [
            {"role": "assistant", "content": _answer(request, correction)},
            {"role": "user", "content": repair},
        ]
    return messages


def _schema(request: Request) -> str:
    return canonical_json(dict(request.schema)).decode().strip()


def _answer(request: Request, correction: tuple[str, str]) -> str:
    """The answer to correct, without what a loop made of it."""
    text = re.sub(r"\s{4,}", "\n", correction[0])[: 8 * request.max_output_tokens].strip()
    return text.encode("utf-8", "replace").decode() or "(nothing)"


def _count(reported: object, otherwise: int) -> int:
    return reported if isinstance(reported, int) and not isinstance(reported, bool) and reported >= 0 else otherwise
