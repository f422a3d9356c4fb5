"""Requests to language models and their answers, as plain data, and the protocol of a back-end.

A ``Request`` is one question; a ``Completion`` is the text of one answer and its billed tokens. A back-end sends a
request once; the pipeline implements retries, quotas, validation and the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from indexmill.store.canonical import canonical_json, digest_of, digest_of_texts


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a language model; picklable.

    task: the kind of question, such as ``summary``. instructions: the prompt, without any corpus text. prompt_version:
    identifies the prompt's text. content: the corpus text, as data between delimiters (``data_block``). schema: the
    JSON schema of the answer, an object. max_output_tokens: the answer's limit, beyond which it is cut off. about: the
    ids of the documents, passages or nodes whose text is in `content`. makes: the id of the output that the answer is
    for. `about` and `makes` do not affect the answer; they are stored in its record. The ``repr`` contains neither the
    prompt nor the content, since logs print it.
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
    """A model's answer to one request, and the billed tokens.

    finish_reason: ``stop`` for a complete answer; otherwise ``length``, ``content_filter``, ``refusal`` or another.
    waited: the seconds until the endpoint began to write; 0 if it does not stream.
    """

    text: str = field(repr=False)
    finish_reason: str
    input_tokens: int
    output_tokens: int
    model: str
    waited: float = field(default=0.0, compare=False)


class LLM(Protocol):
    """A back-end. Thread-safe, and safe to use from many coroutines at once."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The inputs besides the request that affect answers (model, parameters), as JSON values without secrets."""
        ...

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        """Return an upper bound of the input tokens billed for ``complete`` with the same arguments."""
        ...

    async def ready(self) -> None:
        """Load what the first request needs, so that it can be sent without delay."""
        ...

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """Send the request once.

        correction: an unusable answer and its fault, for the single attempt to repair the answer. Raises the errors of
        ``indexmill.models.llm_errors``, which say whether to retry and whether the work may have been billed.
        """
        ...


def object_schema(**properties: Any) -> dict[str, Any]:
    """Build the JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


L = TypeVar("L", bound=LLM)


class LlmWrapper(Generic[L]):
    """A base class for wrappers that define ``complete`` and delegate the rest to the wrapped model; see ``LLM``."""

    def __init__(self, llm: L) -> None:
        self._llm = llm

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return self._llm.fingerprint

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        return self._llm.input_tokens(request, correction)

    async def ready(self) -> None:
        await self._llm.ready()


def key_of(fingerprint: Any, request: Request) -> str:
    """Return the key of an answer: a hash of the fingerprint and of the request without ``about`` and ``makes``."""
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
    """Join corpus texts as data between delimiters that no text can contain, since they include a hash of all texts."""
    tag = digest_of_texts(*texts)[:16]
    return "\n".join(f"<text-{number} {tag}>\n{text}\n</text-{number} {tag}>" for number, text in enumerate(texts, 1))
