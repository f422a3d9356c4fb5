"""Requests to language models and their answers, as plain data, and the protocol of a back-end.

A ``Request`` is one question; a ``Completion`` is the text of one answer and what it cost. Retries, quotas, validation
and the ledger stand above a back-end, in the pipeline; a back-end sends one request once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from indexmill.store.canonical import canonical_json, digest_of


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a language model; picklable.

    task: what kind of question it is, such as ``summary``. instructions: the prompt, by which the model is told what to
    do; nothing of the corpus is in it. prompt_version: names the prompt's text. content: the corpus text, as data
    inside delimiters (``data_block``). schema: the JSON schema of the answer, an object. max_output_tokens: beyond
    which the answer is cut. about: the ids of the documents, passages or nodes whose text the content holds. makes: the
    id of what the answer is for. The last two shape no answer: they tell what a record of it is of. Neither the prompt
    nor the content is in its ``repr``, since logs repeat that.
    """

    task: str
    instructions: str = field(repr=False)
    prompt_version: str
    content: str = field(repr=False)
    schema: Mapping[str, Any]
    max_output_tokens: int
    about: tuple[str, ...] = ()
    makes: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of a model to one request, and the billed tokens.

    finish_reason: ``stop`` for a whole answer; ``length``, ``content_filter``, ``refusal`` and others for what is none.
    """

    text: str = field(repr=False)
    finish_reason: str
    input_tokens: int
    output_tokens: int
    model: str


class LLM(Protocol):
    """A back-end. Thread-safe, and safe to use from many coroutines at once."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The inputs besides the request that shape the answers, JSON-ready and free of secrets: model, parameters."""
        ...

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        """An upper bound of the input tokens that ``complete`` with the same arguments is billed for."""
        ...

    async def ready(self) -> None:
        """Load the prerequisites of the first request, so that it can be sent without delay."""
        ...

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """Send the request once.

        correction: an answer that could not be used, and what is wrong with it, for the one attempt to repair it.
        Raises the errors of ``indexmill.models.llm_errors``, each of which says whether to try again and whether the
        work may have been billed.
        """
        ...


L = TypeVar("L", bound=LLM)


class LlmWrapper(Generic[L]):
    """A model that is asked in its own way: the rest is that of the model it wraps; see ``LLM``."""

    def __init__(self, llm: L) -> None:
        self._llm = llm

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """See ``LLM``."""
        return self._llm.fingerprint

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        """See ``LLM``."""
        return self._llm.input_tokens(request, correction)

    async def ready(self) -> None:
        """See ``LLM``."""
        await self._llm.ready()


def key_of(fingerprint: Any, request: Request) -> str:
    """The key of the answer of a back-end with this fingerprint: a hash of all its inputs."""
    shaping = {
        "llm": dict(fingerprint),
        "task": request.task,
        "prompt_version": request.prompt_version,
        "instructions": digest_of(request.instructions.encode("utf-8")),
        "schema": dict(request.schema),
        "max_output_tokens": request.max_output_tokens,
        "content": request.content,
    }
    return digest_of(canonical_json(shaping))


def data_block(texts: Sequence[str]) -> str:
    """Corpus texts as data: each between delimiters that none of them can contain, since they hash all of them."""
    hashed = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8")
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    mark = hashed.hexdigest()[:16]
    return "\n".join(f"<text-{number} {mark}>\n{text}\n</text-{number} {mark}>" for number, text in enumerate(texts, 1))
