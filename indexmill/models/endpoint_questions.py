"""The question encoder of an index whose vectors come from an endpoint; used only if the caller names an endpoint.

A snapshot never names an endpoint, since its author would then receive the reader's key and questions. It names the
model of its vectors, and the caller names an endpoint that serves this model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.errors import ConfigurationError, CorruptBlob
from indexmill.models.embedder import HashEmbedder, Prompts, Tokeniser
from indexmill.models.endpoint_embedder import EndpointEmbedder, EndpointModel, TokenCounter
from indexmill.models.openai_embeddings import OpenAiEmbeddings
from indexmill.models.retries import RetryLimits, run_coroutine, with_retries

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TASK = "question"

_AT_ONCE = 64
"""The maximum number of texts in one request."""

_CONCURRENCY = 8
"""The maximum number of concurrent requests."""

_LONGEST_PROMPT = 4096
"""The maximum length of a prompt in characters; it is sent and billed with each question."""

_LARGEST = 1 << 16
_LIMITS = RetryLimits()


def endpoint_encoder(
    endpoint: OpenAiEmbeddings,
    made_by: Mapping[str, Any],
    tokenizer: bytes | None,
    limits: RetryLimits = _LIMITS,
) -> EndpointEmbedder:
    """Open the encoder of questions that uses an endpoint named by the caller.

    made_by: the encoder's record in the manifest. tokenizer: the snapshot's tokenizer.json; None for the deterministic
    test double. Raises ConfigurationError if the endpoint has a different model, CorruptBlob for an invalid manifest.
    """
    name, dimension, most = made_by.get("model"), made_by.get("dimension"), made_by.get("max_tokens")
    requested, prompts = made_by.get("asked_dimension", 0), _prompts(made_by)
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (dimension, most, requested))
    if not isinstance(name, str) or not whole or not 0 < dimension <= _LARGEST or not 3 <= most <= 1 << 20:  # type: ignore[operator]
        raise CorruptBlob("the encoder in the manifest, behind an endpoint, has an invalid model, dimension or length")
    if endpoint.model != name:
        raise ConfigurationError(
            f"the index has vectors of the model {name!r}, but the encoder is {endpoint.model!r}: see embed.model"
        )
    client = replace(endpoint, dimensions=requested or None)
    counter: TokenCounter = HashEmbedder(most) if tokenizer is None else Tokeniser(tokenizer, most)  # type: ignore[arg-type]

    def vectors(texts: list[str], tokens: list[int]) -> NDArray[np.float32]:
        return run_coroutine(_all(client, texts, dimension, limits))  # type: ignore[arg-type]

    return EndpointEmbedder(EndpointModel(name, dimension, "", prompts, requested), counter, vectors)  # type: ignore[arg-type]


async def _all(
    client: OpenAiEmbeddings, texts: Sequence[str], dimension: int, limits: RetryLimits
) -> NDArray[np.float32]:
    """Encode texts with a few concurrent requests; the first error cancels the other requests."""
    turns = asyncio.Semaphore(_CONCURRENCY)

    async def embed(some: Sequence[str]) -> NDArray[np.float32]:
        async with turns:
            return (await with_retries(lambda: client.embed(some, _TASK, dimension), limits)).vectors

    parts = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
    return np.concatenate(await asyncio.gather(*map(embed, parts)))


def _prompts(made_by: Mapping[str, Any]) -> Prompts:
    prompts = [made_by.get(name, "") for name in ("query_prompt", "document_prompt")]
    if not all(isinstance(text, str) and len(text) <= _LONGEST_PROMPT for text in prompts):
        raise CorruptBlob(f"the manifest's prompts: expected strings of at most {_LONGEST_PROMPT:,} characters")
    return Prompts(*prompts)
