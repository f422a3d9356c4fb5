"""Vectors from an endpoint with OpenAI's protocol: ``POST /embeddings``, as OpenAI, vLLM, Ollama and others offer it.

    {"model", "input": [...], "dimensions", "encoding_format"}  ->  {"data": [{"index", "embedding"}], "usage"}

An answer is accepted only if it has one vector for each text, and all are finite, of the same dimension, and not zero.
This module sends a request once; the caller implements retries, quotas and the ledger.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from indexmill.errors import IndexmillError
from indexmill.models.http_failures import HttpFailure, SettingNames
from indexmill.models.llm import Completion
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmUnreachable
from indexmill.models.model_call import model_call
from indexmill.models.openai_connection import EndpointOptions, OpenAiConnection, endpoint_of
from indexmill.models.pooling import unit_rows
from indexmill.store.canonical import json_object

if TYPE_CHECKING:
    import openai
    from numpy.typing import NDArray

EMBED_SETTINGS = SettingNames(
    model="embed.model",
    url="embed.base_url",
    keys="embed.api_key_env, embed.api_key_file and embed.token_provider",
    certificates="embed.ca_file",
    proxy="embed.proxy",
    service="embeddings endpoint",
    timeout="embed.timeout_seconds",
)

_PER_TEXT = 16
"""An upper bound of the tokens that a model adds to a text; common models add one to four."""

_LONGEST = 1 << 16
"""The maximum dimension of a vector."""

_LEAST = 1e-9
"""The minimum norm of a vector; a shorter one has no meaningful direction."""

_ENCODING = re.compile(r"encoding.?format", re.IGNORECASE)
_DIMENSIONS = re.compile(r"\bdimensions?\b|matryoshka", re.IGNORECASE)

_plain: set[tuple[str, str]] = set()
"""The (endpoint, model) pairs that rejected base64 in this process; they send decimal numbers, three times as long."""


@dataclass(frozen=True, slots=True)
class EmbeddingResponse:
    """The unit vectors of texts, ``(n, d) float32``, in the order of the texts, and the bill."""

    vectors: NDArray[np.float32]
    bill: Completion

    @property
    def input_tokens(self) -> int:
        """The billed tokens."""
        return self.bill.input_tokens

    @property
    def output_tokens(self) -> int:
        """Zero: a vector has no tokens."""
        return 0


def open_embeddings(options: EndpointOptions, dimensions: int | None = None) -> OpenAiEmbeddings:
    """Open the embedding model of these settings; the key is not read before the first request.

    dimensions: the dimension requested from the endpoint; None for the model's own. Raises ConfigurationError.
    """
    model, base_url, keys = endpoint_of(options, "embed")
    return OpenAiEmbeddings(
        model,
        base_url,
        replace(keys, service="the encoder"),
        ca_file=options.ca_file,
        proxy=options.proxy,
        timeout_seconds=options.timeout_seconds,
        dimensions=dimensions,
    )


def most_tokens(texts: Sequence[str]) -> int:
    """Return an upper bound of the tokens in texts, for any model whose tokens have at least one byte."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + _PER_TEXT * len(texts)


@dataclass(frozen=True, repr=False, kw_only=True)
class OpenAiEmbeddings(OpenAiConnection):
    """An embedding model behind an endpoint. dimensions: the dimension to request; None for the model's own."""

    dimensions: int | None = None

    names: ClassVar[SettingNames] = EMBED_SETTINGS
    what: ClassVar[str] = "an encoder behind an endpoint"
    instead: ClassVar[str] = ""
    largest: ClassVar[int] = 100_000_000

    @property
    def shaping(self) -> Mapping[str, Any]:
        """The inputs besides the text that determine a vector: the model and the dimension, but not the endpoint."""
        return {"backend": "openai", "model": self.model, "dimensions": self.dimensions}

    async def embed(self, texts: Sequence[str], task: str, dimension: int | None = None) -> EmbeddingResponse:
        """Encode texts with one request.

        task: the purpose of the texts, for traces. dimension: the expected dimension of the vectors; None if it is not
        known yet. Raises the errors of ``indexmill.models.llm_errors``; LlmForbidden for another dimension.
        """
        with model_call("embeddings", self.model, self.base_url, task) as call:
            outcome = await self._embedded(texts, dimension or self.dimensions)
            call.ended(outcome.bill if isinstance(outcome, EmbeddingResponse) else outcome)
        del texts  # so that no traceback with local variables contains the texts
        if isinstance(outcome, IndexmillError):
            raise outcome
        return outcome

    async def _embedded(self, texts: Sequence[str], dimension: int | None) -> EmbeddingResponse | IndexmillError:
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        at = self.base_url, self.model
        for form in ("float",) if at in _plain else ("base64", "float"):
            result = await self._attempt(functools.partial(_sent, {**body, "encoding_format": form}))
            if not (form == "base64" and _blames(result, _ENCODING)):
                break
            _plain.add(at)
        if isinstance(result, HttpFailure):
            if self.dimensions is not None and _blames(result, _DIMENSIONS):
                return LlmForbidden(
                    f"{self.where} answered {result.status}: the model {self.model!r} has a fixed dimension: "
                    "set embed.dimensions to null"
                )
            return result.error(self.where, self.model, self.names)
        if isinstance(result, IndexmillError):
            return result
        return self._read(result, texts, dimension)

    def _read(self, content: bytes, texts: Sequence[str], dimension: int | None) -> EmbeddingResponse | LlmError:
        body = json_object(content)
        if body is None or not isinstance(body.get("data"), list):
            return self._useless(
                "something other than a list of vectors: check that embed.base_url ends at the root of its API"
            )
        bill = _bill(body, self.model, most_tokens(texts))
        by_text: list[NDArray[np.float32] | None] = [None] * len(texts)
        for row in body["data"]:
            index = row.get("index") if isinstance(row, dict) else None
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(texts):
                return self._useless("a vector for a text that was not sent", bill)
            if by_text[index] is not None:
                return self._useless("two vectors for one text", bill)
            vector = _vector(row.get("embedding"))
            if vector is None:
                return self._useless("an invalid vector: numbers are missing, not finite, or all zero", bill)
            by_text[index] = vector
        vectors = [vector for vector in by_text if vector is not None]
        if len(vectors) != len(texts):
            return self._useless(f"{len(vectors)} vectors for {len(texts)} texts", bill)
        lengths = sorted({len(vector) for vector in vectors})
        if len(lengths) > 1:
            return self._useless(f"vectors of dimensions {' and '.join(map(str, lengths))}", bill)
        if lengths and dimension not in (None, lengths[0]):
            return self._of_other_dimension(lengths[0], dimension, bill)
        return EmbeddingResponse(unit_rows(np.stack(vectors)), bill)

    def _of_other_dimension(self, dimension: int, expected: int | None, bill: Completion) -> LlmError:
        if self.dimensions == expected:
            why = "it ignores `dimensions`: set embed.dimensions to null, or to the model's own dimension"
        else:
            why = "the name now refers to another model: see embed.model and embed.base_url"
        error = LlmForbidden(
            f"{self.where} answered with vectors of dimension {dimension}; expected {expected}: {why}",
            billed=bill,
        )
        error.useless_response = True
        return error

    def _useless(self, fault: str, bill: Completion | None = None) -> LlmError:
        error = LlmUnreachable(f"{self.where} answered with {fault}", retry=True, billed=bill or "maybe")
        error.useless_response = True
        return error


def _blames(result: object, what: re.Pattern[str]) -> bool:
    """Return True if an endpoint rejects a request because of the parameter that `what` matches."""
    return (
        isinstance(result, HttpFailure)
        and result.status in (400, 404, 415, 422, 501)
        and bool(what.search(f"{result.parameter} {result.message}"))
    )


def _vector(value: object) -> NDArray[np.float32] | None:
    """Decode a vector from base64 or a list of numbers; None if it is invalid."""
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
        vector = np.frombuffer(data, "<f4").astype(np.float32) if data and len(data) % 4 == 0 else None
    elif isinstance(value, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value):
        try:
            with np.errstate(over="ignore"):
                vector = np.array(value, np.float64).astype(np.float32)
        except OverflowError:  # an integer too large for a float
            return None
    else:
        return None
    if vector is None or not 0 < len(vector) <= _LONGEST or not np.isfinite(vector).all():
        return None
    return vector if np.square(vector, dtype=np.float64).sum() > _LEAST**2 else None


def _bill(body: Mapping[str, Any], model: str, most: int) -> Completion:
    """Return the bill with the tokens that a response reports, or `most` if it reports none."""
    usage = body.get("usage")
    reported = [usage.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    tokens = [count for count in reported if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    reported_model = body.get("model")
    return Completion(
        "",
        "stop",
        tokens[0] if tokens else most,
        0,
        reported_model if isinstance(reported_model, str) and reported_model else model,
    )


async def _sent(body: Mapping[str, Any], client: openai.AsyncOpenAI) -> bytes:
    response = await client.embeddings.with_raw_response.create(**body)
    content: bytes = response.http_response.content
    return content
