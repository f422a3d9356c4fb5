"""Vectors from an endpoint of OpenAI's protocol: ``POST /embeddings``, as OpenAI, vLLM, Ollama and others have it.

    {"model", "input": [...], "dimensions", "encoding_format"}  ->  {"data": [{"index", "embedding"}], "usage"}

An answer is taken only if it has one vector for each text, each of finite numbers, of one length, and not zero. It
sends a request once: retries, quotas and the ledger stand above it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from indexmill.errors import IndexmillError
from indexmill.models.http_failures import Failure, SettingNames
from indexmill.models.llm import Completion
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmUnreachable
from indexmill.models.model_call import model_call
from indexmill.models.openai_connection import EndpointOptions, OpenAiConnection, endpoint_of
from indexmill.models.pooling import unit_rows

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
"""Tokens that a model may put around a text; those in use put one to four."""

_LONGEST = 1 << 16
"""The most numbers of a vector."""

_LEAST = 1e-9
"""The least length of a vector that has a direction."""

_ENCODING = re.compile(r"encoding.?format", re.IGNORECASE)
_DIMENSIONS = re.compile(r"\bdimensions?\b|matryoshka", re.IGNORECASE)

_plain: set[tuple[str, str]] = set()
"""The endpoints and models that refused base64 in this process; they send numbers as text, three times as long."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of some texts ``(n, d) float32``, of unit length and in their order, and what they cost."""

    vectors: NDArray[np.float32]
    bill: Completion

    @property
    def input_tokens(self) -> int:
        """The billed tokens."""
        return self.bill.input_tokens

    @property
    def output_tokens(self) -> int:
        """None: vectors are no tokens."""
        return 0


def open_embeddings(options: EndpointOptions, dimensions: int | None = None) -> OpenAiEmbeddings:
    """The endpoint of some settings; looks nothing up before the first request.

    dimensions: asked of the endpoint; None for as many as it gives. Raises ConfigurationError for settings that cannot
    work.
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
    """At least as many tokens as some texts have for any model whose tokens are at least a byte."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + _PER_TEXT * len(texts)


@dataclass(frozen=True, repr=False, kw_only=True)
class OpenAiEmbeddings(OpenAiConnection):
    """A model that turns texts into vectors, behind an endpoint. dimensions: asked of it; None for all it gives."""

    dimensions: int | None = None

    names: ClassVar[SettingNames] = EMBED_SETTINGS
    what: ClassVar[str] = "an encoder behind an endpoint"
    instead: ClassVar[str] = ""
    largest: ClassVar[int] = 100_000_000

    @property
    def shaping(self) -> Mapping[str, Any]:
        """What shapes a vector beside its text: the model and the dimension asked for, not the endpoint."""
        return {"backend": "openai", "model": self.model, "dimensions": self.dimensions}

    async def embed(self, texts: Sequence[str], task: str, dimension: int | None = None) -> Embedded:
        """The vectors of some texts, by one request.

        task: what they are for, in traces. dimension: that each vector must have; None where it is not known yet.
        Raises the errors of ``indexmill.models.llm_errors``; LlmForbidden for vectors of another dimension.
        """
        with model_call("embeddings", self.model, self.base_url, task) as told:
            came = await self._embedded(texts, dimension or self.dimensions)
            told.ended(came.bill if isinstance(came, Embedded) else came)
        del texts  # a traceback with its locals holds no text
        if isinstance(came, IndexmillError):
            raise came
        return came

    async def _embedded(self, texts: Sequence[str], dimension: int | None) -> Embedded | IndexmillError:
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        at = self.base_url, self.model
        for form in ("float",) if at in _plain else ("base64", "float"):
            came = await self._attempt(functools.partial(_sent, {**body, "encoding_format": form}))
            if not (form == "base64" and _blames(came, _ENCODING)):
                break
            _plain.add(at)
        if isinstance(came, Failure):
            if self.dimensions is not None and _blames(came, _DIMENSIONS):
                return LlmForbidden(
                    f"{self.where} answered {came.status}: the model {self.model!r} gives vectors of one dimension "
                    "only: set embed.dimensions to null"
                )
            return came.error(self.where, self.model, self.names)
        if isinstance(came, IndexmillError):
            return came
        return self._read(came, texts, dimension)

    def _read(self, content: bytes, texts: Sequence[str], dimension: int | None) -> Embedded | LlmError:
        """The vectors in an answer, or an error if it is not usable."""
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("data"), list):
            return self._useless(
                "something that is no list of vectors: does embed.base_url end where its protocol begins"
            )
        bill = _bill(body, self.model, most_tokens(texts))
        found: list[NDArray[np.float32] | None] = [None] * len(texts)
        for row in body["data"]:
            place = row.get("index") if isinstance(row, dict) else None
            if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(texts):
                return self._useless("a vector of a text that was not sent", bill)
            if found[place] is not None:
                return self._useless("two vectors of one text", bill)
            vector = _vector(row.get("embedding"))
            if vector is None:
                return self._useless("a vector that is none: numbers are missing, not finite, or all zero", bill)
            found[place] = vector
        vectors = [vector for vector in found if vector is not None]
        if len(vectors) != len(texts):
            return self._useless(f"{len(vectors)} vectors for {len(texts)} texts", bill)
        lengths = sorted({len(vector) for vector in vectors})
        if len(lengths) > 1:
            return self._useless(f"vectors of {' and '.join(map(str, lengths))} numbers", bill)
        if lengths and dimension not in (None, lengths[0]):
            return self._of_other_dimension(lengths[0], dimension, bill)
        return Embedded(unit_rows(np.stack(vectors)), bill)

    def _of_other_dimension(self, found: int, expected: int | None, bill: Completion) -> LlmError:
        if self.dimensions == expected:
            why = "it takes no notice of `dimensions`: set embed.dimensions to null, or to what it gives"
        else:
            why = "another model has its name now: see embed.model and embed.base_url"
        error = LlmForbidden(
            f"{self.where} answered with vectors of {found} numbers, and {expected} were expected: {why}", billed=bill
        )
        error.answered = True
        return error

    def _useless(self, came: str, bill: Completion | None = None) -> LlmError:
        error = LlmUnreachable(f"{self.where} answered with {came}", retry=True, billed=bill or "maybe")
        error.answered = True
        return error


def _blames(came: object, what: re.Pattern[str]) -> bool:
    """True if an endpoint refuses a request for a parameter."""
    return (
        isinstance(came, Failure)
        and came.status in (400, 404, 415, 422, 501)
        and bool(what.search(f"{came.parameter} {came.message}"))
    )


def _vector(value: object) -> NDArray[np.float32] | None:
    """A vector as it came, in base64 or as a list of numbers; None where it is of no use."""
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
        found = np.frombuffer(data, "<f4").astype(np.float32) if data and len(data) % 4 == 0 else None
    elif isinstance(value, list) and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in value):
        try:
            with np.errstate(over="ignore"):
                found = np.array(value, np.float64).astype(np.float32)
        except OverflowError:  # a whole number beyond any float
            return None
    else:
        return None
    if found is None or not 0 < len(found) <= _LONGEST or not np.isfinite(found).all():
        return None
    return found if np.square(found, dtype=np.float64).sum() > _LEAST**2 else None


def _bill(body: Mapping[str, Any], model: str, most: int) -> Completion:
    """What an answer says that it cost; `most` tokens where it says nothing."""
    usage = body.get("usage")
    reported = [usage.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    tokens = [one for one in reported if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
    named = body.get("model")
    return Completion(
        "", "stop", tokens[0] if tokens else most, 0, named if isinstance(named, str) and named else model
    )


async def _sent(body: Mapping[str, Any], client: openai.AsyncOpenAI) -> bytes:
    response = await client.embeddings.with_raw_response.create(**body)
    content: bytes = response.http_response.content
    return content
