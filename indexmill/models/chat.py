"""Chat completions in OpenAI's protocol: request bodies from requests, and completions from response bodies.

Endpoints differ in how a request sets the form and the length of an answer (``RequestShape``). A request uses the first
of ``shapes`` that the endpoint supports.
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
"""The maximum size of an answer in bytes: 125,000 tokens of 64 bytes, more than a model writes at once."""

Structured = Literal["auto", "json_schema", "json_object", "text"]
Limit = Literal["max_tokens", "max_completion_tokens"]

_AS_JSON = "Answer with one JSON object and nothing else. It has to be valid against this JSON schema:"
_REPAIR = "That answer cannot be used: {problem}\n" + _AS_JSON + "\n{schema}"

_PER_MESSAGE = 16
"""An upper bound of the tokens that a model's template adds to a message; common templates add three to eight."""

_STRICT = frozenset(
    """
    $defs $ref additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum format items maxItems
    maximum minItems minimum multipleOf pattern properties required title type
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
_LENGTHS = frozenset({"minLength", "maxLength"})
"""The keywords that OpenAI's strict mode lacks."""

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
class RequestShape:
    """How a request sets the form and the length of an answer.

    strict, strict_lengths: a strict JSON schema without and with the lengths of texts, which OpenAI rejects and a small
    model needs. json_schema: a schema with lengths, not strict.
    """

    form: Literal["strict_lengths", "strict", "json_schema", "json_object", "text"]
    limit: Limit

    def with_other_limit(self) -> RequestShape:
        """Return the shape with the same form and the other name for the limit."""
        return RequestShape(
            self.form, "max_tokens" if self.limit == "max_completion_tokens" else "max_completion_tokens"
        )


def shapes(
    structured: Structured, schema: Mapping[str, Any], limit: Limit, *, lengths: bool = True
) -> Iterator[RequestShape]:
    """Yield the shapes to try for a schema, the strictest first. lengths: False for OpenAI's own endpoints."""
    if structured in ("auto", "json_schema"):
        if takes_strict(schema):
            if lengths and _without_lengths(schema) != schema:
                yield RequestShape("strict_lengths", limit)
            yield RequestShape("strict", limit)
        yield RequestShape("json_schema", limit)
    if structured in ("auto", "json_object"):
        yield RequestShape("json_object", limit)
    if structured in ("auto", "text"):
        yield RequestShape("text", limit)


def takes_strict(schema: Any) -> bool:
    """Return True if OpenAI's strict mode accepts a schema: closed objects whose properties are all required."""
    if not isinstance(schema, Mapping) or not set(schema) <= _STRICT | _LENGTHS:
        return False
    properties = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    if (schema.get("type") == "object" or properties) and not closed:
        return False
    below = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(takes_strict(part) for part in [*below, *([schema["items"]] if "items" in schema else [])])


def _without_lengths(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_lengths(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {name: _without_lengths(part) for name, part in schema.items() if name not in _LENGTHS}


def chat_body(
    request: Request,
    shape: RequestShape,
    model: str,
    temperature: float | None,
    correction: tuple[str, str] | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(request, shape, correction),
        shape.limit: request.max_output_tokens,
    }
    if temperature is not None:
        body["temperature"] = temperature
    if shape.form in ("strict_lengths", "strict", "json_schema"):
        schema = _without_lengths(request.schema) if shape.form == "strict" else dict(request.schema)
        named = {"name": re.sub(r"\W", "_", request.task)[:64] or "answer", "schema": schema}
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": named | {"strict": shape.form != "json_schema"},
        }
    elif shape.form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def input_bound(request: Request, correction: tuple[str, str] | None = None) -> int:
    """Return an upper bound of the request's tokens, for any model and shape.

    A token of a byte-level tokenizer has at least one byte, so there are no more tokens than bytes. The schema counts
    twice, since an endpoint may add white space to it before the model reads it. The bound includes tokens that the
    model's template adds to each message.
    """
    texts = [request.instructions, request.content, _AS_JSON, _schema(request), _schema(request)]
    if correction is not None:
        texts += [_answer(request, correction), _REPAIR, correction[1], _schema(request)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + _PER_MESSAGE * (
        3 if correction is None else 5
    )


def completion_of(request: Request, body: Mapping[str, Any], model: str, input_tokens: int) -> Completion:
    """Read the answer in the body of a chat completion.

    If the body reports no tokens, `input_tokens` and the bytes of the answer are used as upper bounds. Raises
    LlmUnreachable if the body is not a chat completion.
    """
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        error = LlmUnreachable(
            "the endpoint's response is not a chat completion; check that llm.base_url ends at the root of its API, "
            "such as /v1",
            retry=True,
            billed="maybe",
        )
        error.useless_response = True
        raise error
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    reason = str(first.get("finish_reason") or "stop").lower().partition(":")[0]  # Gemini: content_filter: SAFETY
    reported = body.get("usage")
    usage = reported if isinstance(reported, Mapping) else {}
    reported_model = body.get("model")
    return Completion(
        text=_THOUGHT.sub("", text),
        finish_reason="refusal" if message.get("refusal") else _REASONS.get(reason, reason),
        input_tokens=_count(usage.get("prompt_tokens"), input_tokens),
        output_tokens=_count(
            usage.get("completion_tokens"), min(request.max_output_tokens, len(text.encode("utf-8", "replace")))
        ),
        model=reported_model if isinstance(reported_model, str) and reported_model else model,
    )


def _messages(request: Request, shape: RequestShape, correction: tuple[str, str] | None) -> list[dict[str, str]]:
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
    """Return the answer to correct, shortened, since a model in a loop writes long runs of white space or text."""
    text = re.sub(r"\s{4,}", "\n", correction[0])[: 8 * request.max_output_tokens].strip()
    return text.encode("utf-8", "replace").decode() or "(nothing)"


def _count(reported: object, otherwise: int) -> int:
    return reported if isinstance(reported, int) and not isinstance(reported, bool) and reported >= 0 else otherwise
