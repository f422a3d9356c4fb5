"""The back-end for endpoints with OpenAI's protocol: OpenAI, vLLM, Ollama, llama.cpp, gateways.

See ``indexmill.models.openai_connection``. The caller implements retries, quotas and the ledger.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from indexmill.errors import IndexmillError
from indexmill.models.chat import Limit, RequestShape, Structured, chat_body, completion_of, input_bound, shapes
from indexmill.models.chat_stream import LONGEST, ChatStream
from indexmill.models.http_failures import HttpFailure
from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.models.model_call import model_call
from indexmill.models.openai_connection import EndpointOptions, OpenAiConnection, endpoint_of
from indexmill.store.canonical import canonical_json, digest_of, json_object

if TYPE_CHECKING:
    import openai

_OPENAI = ("api.openai.com", ".openai.azure.com")
"""Hosts whose newer models do not accept `max_tokens`, and whose strict schemas have no lengths of texts."""

_CONTEXTS = ("max_model_len", "n_ctx", "loaded_context_length", "context_length")
"""How vLLM, llama.cpp, LM Studio and gateways name the tokens of a model's context."""

_LEAST_CONTEXT = 1_024

_UNEXPLAINED = (400, 422)
"""The statuses of a rejected request whose reason may be its form, though nothing says so."""

_LEAST_ROOM = 4
"""The part of an answer's limit for which a request is repeated if the context has no room for all of it."""

_without_streams: set[tuple[str, str]] = set()
"""The endpoints and models that rejected a streamed request in this process."""

_working_shapes: dict[tuple[str, str, str], RequestShape] = {}
"""The request shape that last worked in this process, by endpoint, model and schema."""


class LlmOptions(EndpointOptions, Protocol):
    """The settings of a language model, as in the section `llm` of the configuration."""

    @property
    def structured(self) -> Structured: ...
    @property
    def temperature(self) -> float | None: ...


def open_llm(options: LlmOptions) -> OpenAiLlm:
    """Open the language model of these settings.

    The package openai and the key are loaded at the first request, so neither is needed if the ledger has all answers.
    ``check`` checks both in advance. Raises ConfigurationError for invalid settings.
    """
    return OpenAiLlm(
        *endpoint_of(options, "llm"),
        ca_file=options.ca_file,
        proxy=options.proxy,
        timeout_seconds=options.timeout_seconds,
        structured=options.structured,
        temperature=options.temperature,
    )


@dataclass(frozen=True, repr=False, kw_only=True)
class OpenAiLlm(OpenAiConnection):
    """A language model behind an endpoint with OpenAI's protocol."""

    structured: Structured = "auto"
    temperature: float | None = 0.0

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The model and its parameters, without the endpoint and the shape of requests."""
        return {"backend": "openai", "model": self.model, "temperature": self.temperature}

    async def context(self) -> int | None:
        """Ask the endpoint for the tokens of the model's context; None if it does not say, or does not answer."""
        if self.where.endswith(_OPENAI):
            return None
        try:
            listed = await self.call(_models)
        except IndexmillError:
            return None
        named = [model for model in listed if model.get("id") == self.model]
        if not named and len(listed) == 1:  # llama.cpp lists the file that it serves
            named = listed
        for model in named:
            meta = model.get("meta")
            stated = {**(meta if isinstance(meta, dict) else {}), **model}
            for name in _CONTEXTS:
                if isinstance(tokens := stated.get(name), int) and tokens >= _LEAST_CONTEXT:
                    return tokens
        return None

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        """Return an upper bound of the billed input tokens: the request's bytes, and some for the model's template."""
        return input_bound(request, correction)

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """Send the request; repeat it with the next response format if the endpoint rejects the format. See ``LLM``."""
        with model_call("chat", self.model, self.base_url, request.task, request.max_output_tokens) as call:
            outcome = await self._completed(request, correction)
            call.ended(outcome)
        del request, correction  # so that no traceback with local variables contains the prompt
        if isinstance(outcome, IndexmillError):
            raise outcome
        return outcome

    def body(self, request: Request, correction: tuple[str, str] | None = None) -> dict[str, Any]:
        """Return the body that ``complete`` sends, in the shape that the endpoint last accepted.

        If none is known, in the strictest that is common, since a batch has no second try.
        """
        common = [shape for shape in self._shapes(request) if shape.form != "strict_lengths" or self._working(request)]
        return chat_body(request, common[0], self.model, self.temperature, correction)

    def completion(self, request: Request, body: Mapping[str, Any]) -> Completion:
        """Read the answer in the body of a chat completion; raises LlmUnreachable for any other body."""
        return completion_of(request, body, self.model, self.input_tokens(request))

    async def _completed(self, request: Request, correction: tuple[str, str] | None) -> Completion | IndexmillError:
        forms = self._shapes(request)
        swapped = shortened = False
        endpoint = self.base_url, self.model
        while True:
            shape = forms[0]
            body = chat_body(request, shape, self.model, self.temperature, correction)
            stream = ChatStream(body, self.timeout_seconds)
            if endpoint in _without_streams:
                result: Any = await self._attempt(functools.partial(_sent, body))
            else:
                result = await self._attempt(stream.send, (LONGEST + 1) * self.timeout_seconds)
            if not isinstance(result, HttpFailure):
                break
            blamed = result.blames()
            if (
                blamed == ""
                and result.status in _UNEXPLAINED
                and shape.form == "strict_lengths"
                and not self._working(request)
            ):
                blamed = "form"  # a gateway to an endpoint without lengths may not repeat its reason
            if blamed == "stream" and endpoint not in _without_streams:
                _without_streams.add(endpoint)
            elif blamed == "limit" and not swapped:
                forms, swapped = [form.with_other_limit() for form in forms], True
            elif blamed == "length" and not shortened and result.room() >= request.max_output_tokens // _LEAST_ROOM:
                request, shortened = replace(request, max_output_tokens=result.room()), True
            elif blamed == "form" and shape.form != "text" and forms[1:]:
                forms = forms[1:]
            elif blamed == "form" and shape.form != "text":
                return LlmForbidden(
                    f"{self.where} does not support the response format {shape.form}: set llm.structured to auto"
                )
            else:
                error = result.error(self.where, self.model)
                if stream.chunks and error.billed == "no":
                    error.billed = "maybe"
                return error
        if isinstance(result, IndexmillError):
            return result
        outcome = self._read(request, correction, result, stream.waited)
        if isinstance(outcome, Completion):
            _working_shapes[self._memory(request)] = shape
        return outcome

    def _read(
        self, request: Request, correction: tuple[str, str] | None, content: bytes, waited: float
    ) -> Completion | LlmError:
        body = json_object(content) or {}
        error = body.get("error")
        if not body.get("choices") and isinstance(error, dict) and isinstance(error.get("code"), int):
            # Some gateways return 200 with the status of the model's own endpoint in the body.
            return HttpFailure.of(error["code"], {}, content, time.time()).error(self.where, self.model)
        try:
            completion = completion_of(request, body, self.model, input_bound(request, correction))
            return replace(completion, waited=waited)
        except LlmError as none:
            return none.with_traceback(None)

    def _shapes(self, request: Request) -> list[RequestShape]:
        """Return the shapes to try, starting with the one that last worked."""
        working = self._working(request)
        openai = self.where.endswith(_OPENAI)
        limit: Limit = working.limit if working else "max_completion_tokens" if openai else "max_tokens"
        candidates = list(shapes(self.structured, request.schema, limit, lengths=not openai))
        return candidates[candidates.index(working) :] if working in candidates else candidates

    def _working(self, request: Request) -> RequestShape | None:
        return _working_shapes.get(self._memory(request))

    def _memory(self, request: Request) -> tuple[str, str, str]:
        return self.base_url, self.model, digest_of(canonical_json(dict(request.schema)))


async def _models(client: openai.AsyncOpenAI) -> list[dict[str, Any]]:
    response = await client.models.with_raw_response.list()
    listed = (json_object(response.http_response.content) or {}).get("data")
    return [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []


async def _sent(body: Mapping[str, Any], client: openai.AsyncOpenAI) -> bytes:
    response = await client.chat.completions.with_raw_response.create(**body)
    content: bytes = response.http_response.content
    return content
