"""Spans and metrics of model calls by OpenTelemetry's conventions (``gen_ai.*``): names, tokens and times, no text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from indexmill.models.llm import Completion
from indexmill.telemetry import Span, record, span

_LONGEST = 100
"""The maximum length of a name from an endpoint, in characters."""


class ModelCall:
    """A call in progress. kind: the name of the call's error, if it failed."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.kind: str | None = None
        self.answer: Completion | None = None

    def ended(self, outcome: Completion | Exception) -> None:
        """Report the call's answer, or its error, which may have been billed."""
        billed = getattr(outcome, "billed", None) if isinstance(outcome, Exception) else outcome
        if isinstance(billed, Completion):
            self.answer = billed
            self._span.set(
                {
                    "gen_ai.response.model": billed.model[:_LONGEST],
                    "gen_ai.response.finish_reasons": [billed.finish_reason[:_LONGEST]],
                    "gen_ai.usage.input_tokens": billed.input_tokens,
                    "gen_ai.usage.output_tokens": billed.output_tokens,
                }
            )
        if isinstance(outcome, Exception):
            self.kind = type(outcome).__name__
            self._span.failed(self.kind)


@contextmanager
def model_call(
    operation: str, model: str, base_url: str, task: str, max_tokens: int | None = None
) -> Iterator[ModelCall]:
    """Report the call in the block as a child of the current span.

    operation: the call's name in the conventions, such as ``chat``. task: the kind of question, such as ``summary``.
    max_tokens: the limit of the answer, if there is one.
    """
    url = urlsplit(base_url)
    labels: dict[str, str | int] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "openai",  # the protocol's name; the endpoint may be another provider's
        "gen_ai.request.model": model,
        "server.address": url.hostname or "",
    }
    if url.port is not None:
        labels["server.port"] = url.port
    more: dict[str, str | int] = {"indexmill.llm.task": task}
    if max_tokens is not None:
        more["gen_ai.request.max_tokens"] = max_tokens
    began = time.perf_counter()
    with span(f"{operation} {model}", labels | more, kind="client", inner=True) as call_span:
        call = ModelCall(call_span)
        try:
            yield call
        except BaseException as error:
            call.kind = type(error).__name__
            raise
        finally:
            if call.answer is not None:
                for kind, tokens in (("input", call.answer.input_tokens), ("output", call.answer.output_tokens)):
                    record("gen_ai.client.token.usage", tokens, {**labels, "gen_ai.token.type": kind})
            if call.kind is not None:
                labels["error.type"] = call.kind
            record("gen_ai.client.operation.duration", time.perf_counter() - began, labels)
