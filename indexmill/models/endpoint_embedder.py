"""An embedder whose vectors come from an endpoint, and whose tokens are counted on this machine.

A local tokenizer truncates texts to the model's limit, so that requests depend on the settings and not on the endpoint.
An endpoint returns no hidden states, so every sentence is encoded as a text of its own. Responses to the same request
may differ in their last bits, so the first response is cached and used from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from indexmill.errors import ConfigurationError
from indexmill.models.embedder import (
    NO_PROMPTS,
    Embedder,
    EncoderFingerprint,
    HashEmbedder,
    Prompts,
    Tokeniser,
    readable,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BACKEND = "openai"
"""The name of this back-end in settings and fingerprints."""

_BLANK = "."
"""The text that is sent instead of a blank text, which endpoints reject."""

Vectors = Callable[[list[str], list[int]], "NDArray[np.float32]"]
"""A function from texts, as they are sent, and their token counts to unit vectors ``(n, d) float32``."""

TokenCounter = Tokeniser | HashEmbedder
"""A counter of tokens; the second type is the deterministic test double."""


@dataclass(frozen=True)
class EndpointModel:
    """The inputs, besides the texts, that determine an endpoint's vectors.

    name: the model's name at the endpoint. dimension: the dimension of its vectors. tokenizer: the SHA-256 of the
    tokenizer.json that counts and truncates tokens; empty for the test double. asked_dimension: the dimension to
    request; 0 for the model's own.
    """

    name: str
    dimension: int
    tokenizer: str = ""
    prompts: Prompts = NO_PROMPTS
    asked_dimension: int = 0


class EndpointEmbedder(Embedder):
    """An Embedder that gets its vectors from an endpoint. Thread-safe if `vectors` is."""

    def __init__(self, model: EndpointModel, counter: TokenCounter, vectors: Vectors) -> None:
        """counter: a counter whose `max_tokens` is the model's limit less the document prompt."""
        self.model = model
        self.dimension = model.dimension
        self.max_tokens, self.special_tokens = counter.max_tokens, counter.special_tokens
        self._counter, self._vectors = counter, vectors

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """The inputs that determine the vectors, without the endpoint's address."""
        return EncoderFingerprint(
            model=self.model.name,
            weights="",
            tokenizer=self.model.tokenizer,
            graph="",
            backend=BACKEND,
            precision="f32",
            instructions="",
            pooling="",
            max_tokens=self.max_tokens,
            dimension=self.dimension,
            libraries={},
            reproducible=False,
            query_prompt=self.model.prompts.query,
            document_prompt=self.model.prompts.document,
            asked_dimension=self.model.asked_dimension,
        )

    def token_offsets(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        return self._counter.token_offsets(texts)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return self._counter.count_tokens(texts)

    def sent(self, texts: Sequence[str], *, query: bool = False) -> tuple[list[str], list[int]]:
        """Return the texts as they are sent, truncated and after their prompt, and the token count of each."""
        prompt = self.model.prompts.query if query else self.model.prompts.document
        whole = [readable(text) if text.strip() else _BLANK for text in texts]
        lengths = self._counter.count_tokens(whole).tolist()
        of_prompt = int(self._counter.count_tokens([prompt])[0]) - self.special_tokens if prompt else 0
        room = self.max_tokens
        if query and self.model.prompts != NO_PROMPTS:  # max_tokens leaves room for the prompt of documents
            of_document = self._counter.count_tokens([self.model.prompts.document])[0] - self.special_tokens
            room = max(self.special_tokens + 1, self.max_tokens + int(of_document) - of_prompt)
        long = [row for row, length in enumerate(lengths) if length > room]
        for row, offsets in zip(long, self._counter.token_offsets([whole[row] for row in long]), strict=True):
            whole[row] = whole[row][: int(offsets[room - self.special_tokens - 1, 1])]
            lengths[row] = room
        return [prompt + text for text in whole], [length + of_prompt for length in lengths]

    def _encode(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        if not len(texts):
            return np.empty((0, self.dimension), np.float32)
        vectors = self._vectors(*self.sent(texts, query=query))
        if vectors.shape != (len(texts), self.dimension):
            raise ConfigurationError(
                f"the encoder {self.model.name!r} returned vectors of dimension {vectors.shape[-1]}, but the index has "
                f"dimension {self.dimension}: it is not the model that built the index"
            )
        return vectors
