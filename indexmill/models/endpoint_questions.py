"""The encoder of questions where an index has its vectors from an endpoint: asked only if the caller names it.

A snapshot never says where to ask, since whoever made it would then learn the reader's key and questions. It says which
model made its vectors; the caller names an endpoint that has this model.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.errors import ConfigurationError, CorruptBlob
from indexmill.models.embedder import HashEmbedder, Prompts, Tokeniser
from indexmill.models.endpoint_embedder import EndpointEmbedder, EndpointModel, TokenCounter
from indexmill.models.openai_embeddings import OpenAiEmbeddings
from indexmill.models.patience import Patience, patiently

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TASK = "question"

_AT_ONCE = 64
"""The most texts of one request."""

_CONCURRENCY = 8
"""The most requests at a time."""

_LONGEST_PROMPT = 4096
"""The most characters of a prompt, which is sent, and paid for, with each question."""

_LARGEST = 1 << 16


def endpoint_encoder(
    endpoint: OpenAiEmbeddings, made_by: Mapping[str, Any], tokenizer: bytes | None, patience: Patience | None = None
) -> EndpointEmbedder:
    """The encoder of questions over an endpoint that the caller has named.

    made_by: the encoder as the manifest names it. tokenizer: the tokenizer.json that the snapshot carries; None for the
    deterministic double. Raises ConfigurationError if the endpoint is asked for another model, CorruptBlob for a
    manifest that makes no sense.
    """
    name, dimension, most = made_by.get("model"), made_by.get("dimension"), made_by.get("max_tokens")
    asked, prompts = made_by.get("asked_dimension", 0), _prompts(made_by)
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (dimension, most, asked))
    if not isinstance(name, str) or not whole or not 0 < dimension <= _LARGEST or not 3 <= most <= 1 << 20:  # type: ignore[operator]
        raise CorruptBlob("the manifest names an encoder behind an endpoint whose model, dimension or length is none")
    if endpoint.model != name:
        raise ConfigurationError(
            f"the index has vectors of the model {name!r}, and the encoder that is given asks for {endpoint.model!r}: "
            "see embed.model"
        )
    client = replace(endpoint, dimensions=asked or None)
    counter: TokenCounter = HashEmbedder(most) if tokenizer is None else Tokeniser(tokenizer, most)  # type: ignore[arg-type]
    limits = patience or Patience()

    def vectors(texts: list[str], tokens: list[int]) -> NDArray[np.float32]:
        return _finished(lambda: _all(client, texts, dimension, limits))  # type: ignore[arg-type]

    return EndpointEmbedder(EndpointModel(name, dimension, "", prompts, asked), counter, vectors)  # type: ignore[arg-type]


async def _all(
    client: OpenAiEmbeddings, texts: Sequence[str], dimension: int, patience: Patience
) -> NDArray[np.float32]:
    """The vectors of texts, a few requests at a time; the first error ends the others."""
    turns = asyncio.Semaphore(_CONCURRENCY)

    async def one(some: Sequence[str]) -> NDArray[np.float32]:
        async with turns:
            return (await patiently(lambda: client.embed(some, _TASK, dimension), patience)).vectors

    parts = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
    return np.concatenate(await asyncio.gather(*map(one, parts)))


def _finished(begin: Callable[[], Coroutine[Any, Any, NDArray[np.float32]]]) -> NDArray[np.float32]:
    """The result of a coroutine, also where the caller's thread runs an event loop, as notebooks do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(begin())
    came: list[NDArray[np.float32] | BaseException] = []

    def run() -> None:
        try:
            came.append(asyncio.run(begin()))
        except BaseException as error:
            came.append(error)

    thread = threading.Thread(target=run, name="encoder-endpoint", daemon=True)
    thread.start()
    thread.join()
    (result,) = came
    if isinstance(result, BaseException):
        raise result
    return result


def _prompts(made_by: Mapping[str, Any]) -> Prompts:
    given = [made_by.get(name, "") for name in ("query_prompt", "document_prompt")]
    if not all(isinstance(text, str) and len(text) <= _LONGEST_PROMPT for text in given):
        raise CorruptBlob(f"the manifest's prompts are no texts of {_LONGEST_PROMPT:,} characters at most")
    return Prompts(*given)
