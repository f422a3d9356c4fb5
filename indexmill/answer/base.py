"""What an answer is, and what every way of answering is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from indexmill.hits import Hit
from indexmill.store.canonical import canonical_json

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask
    from indexmill.models.llm import Request
    from indexmill.models.llm_errors import LlmError

__all__ = ["Answer", "Answering", "Bill", "Reply", "context_tokens", "prompt_tokens", "text_tokens"]

_BYTES_PER_TOKEN = 8
"""At most, of any text: an encoder takes a run of letters in a script that it does not know for one token."""

_BYTES_OF_A_TOKEN = 4
"""About as many as a language model's token has in English; in most other languages its tokens have more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question, and what it was made from.

    text: the answer; empty where there is an error. found: whether the hits hold it, as far as the model can tell.
    hits: what was read, best first, whole. context_tokens: what the model read of these (``Answering.tokens``).
    input_tokens, output_tokens: of all calls for this question, as the endpoint counts them; those of a call whose
    answer was lost are not known. version: the snapshot's, as in a hit. model: the model that was asked, None where
    none was. reasoning: what the answer was concluded from. error: why there is no answer, in a batch; alone, it is
    raised. calls: to the model, repairs and those that failed included. cautions: what could not be read, and why,
    where the rest was enough.
    """

    text: str
    found: bool
    hits: tuple[Hit, ...]
    context_tokens: int
    input_tokens: int
    output_tokens: int
    version: int | None
    method: str
    model: str | None = None
    reasoning: str = ""
    error: LlmError | None = None
    calls: int = 0
    cautions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON holds it; ``error`` and ``cautions`` only where there are some."""
        fields: dict[str, Any] = {
            "version": self.version,
            "method": self.method,
            "model": self.model,
            "answer": self.text,
            "found": self.found,
            "reasoning": self.reasoning,
            "context_tokens": self.context_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "calls": self.calls,
            "hits": [hit.to_dict() for hit in self.hits],
        }
        if self.error is not None:
            fields["error"] = str(self.error)
        if self.cautions:
            fields["cautions"] = list(self.cautions)
        return fields


class Reply(NamedTuple):
    """What a way of answering brings: see ``Answer``. read: the hits that were read, best first; None for all."""

    text: str
    found: bool
    reasoning: str = ""
    read: tuple[Hit, ...] | None = None
    cautions: tuple[str, ...] = ()


class Bill(NamedTuple):
    """What answers take: before they are asked for, as ``prompt_tokens`` estimates it, or as it was billed."""

    calls: int
    input_tokens: int
    output_tokens: int


class Answering(Protocol):
    """A way of answering. Thread-safe; holds no state of a question.

    It is made with ``settings``, a mapping that replaces some of its own, and ``prompts``, a folder whose files replace
    its prompts, or None; raises BadInput for a setting that it does not take, ConfigurationError for a folder or a
    prompt that cannot be read. A family that has one of its own declares it (``ReaderFamily.answering``).
    """

    @property
    def uses_explanations(self) -> bool:
        """Whether the hits are to say why they were found."""
        ...

    def retrieval(self, k: int, parameters: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """How many hits are retrieved, and by which parameters, where k are wanted and some parameters are given."""
        ...

    def tokens(self, hit: Hit) -> int:
        """The tokens that the model reads of a hit's text; a budget is spent on these."""
        ...

    def bill(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Bill:
        """What an answer from these hits, at least one, takes at most, but for repairs and calls that are lost."""
        ...

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Reply:
        """Answer a question from its hits, at least one, best first; raises what ``ask`` raises."""
        ...


def context_tokens(hit: Hit) -> int:
    """The tokens of a hit's text: as the snapshot counts them, or one for every eight bytes where that is more."""
    return max(hit.tokens or 0, -(-len(hit.text.encode("utf-8")) // _BYTES_PER_TOKEN))


def text_tokens(text: str) -> int:
    """The tokens of a text for a language model that nobody has asked yet: one for every four bytes, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_OF_A_TOKEN)


def prompt_tokens(request: Request) -> int:
    """The tokens of a whole request by the same estimate, the schema of its answer included."""
    return sum(map(text_tokens, (request.instructions, request.content, canonical_json(request.schema).decode())))
