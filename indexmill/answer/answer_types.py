"""The types of an answer and of an answering method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.retrieve.retrieval_method import check_count
from indexmill.retrieve.retrieval_options import RetrievalKeywords, RetrievalOptions
from indexmill.store.canonical import canonical_json

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask
    from indexmill.models.llm import LLM, Request
    from indexmill.models.llm_errors import LlmError

_BYTES_PER_TOKEN = 8
"""The maximum bytes that count as one token: an encoder may read a long run in an unknown script as one token."""

_BYTES_OF_A_TOKEN = 4
"""A language model's approximate bytes per token in English; tokens of most other languages have more."""


class AnswerKeywords(RetrievalKeywords, total=False):
    """The fields of ``AnswerOptions`` as keywords of a call."""

    llm: LLM | None
    token_budget: int | None
    concurrency: int
    max_output_tokens: int
    deadline_seconds: float
    answering: Mapping[str, object] | None
    prompts: str | Path | None


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerOptions(RetrievalOptions):
    """The options of an answer, and of the retrieval before it.

    llm: the result of ``indexmill.open_llm``, or any object with the protocol ``indexmill.models.llm.LLM``. With None
    the answer is a quotation, one sentence from the hits. token_budget: limits the context to the best hits that fit
    into this many tokens; no hit is cut. concurrency: the number of a batch's questions answered at a time.
    max_output_tokens: the limit of one answer, including its reasoning. deadline_seconds: no call is retried after this
    time. answering: settings of the method's answer mode, which the method's page lists. prompts: a folder whose files,
    such as ``answer.md``, replace the prompts.
    """

    llm: LLM | None = None
    token_budget: int | None = None
    concurrency: int = 8
    max_output_tokens: int = 1024
    deadline_seconds: float = 60.0
    answering: Mapping[str, object] | None = None
    prompts: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("concurrency", self.concurrency)
        check_count("max_output_tokens", self.max_output_tokens)
        if self.token_budget is not None:
            check_count("token_budget", self.token_budget)
        if self.llm is not None and not callable(getattr(self.llm, "complete", None)):
            raise BadInput(
                f"llm= is {type(self.llm).__name__}; expected the result of indexmill.open_llm, or None for a quotation"
            )

    @property
    def model(self) -> str | None:
        """The name of the language model; None without one."""
        return None if self.llm is None else str(self.llm.fingerprint.get("model", ""))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question, and its sources.

    text: the answer; empty in case of an error. found: True if the hits contain it, according to the model. hits: the
    hits that were read, uncut, best first. context_tokens: the tokens that were read (``Answering.tokens``).
    input_tokens, output_tokens: the tokens of all calls for this question, as counted by the endpoint; those of a call
    whose answer was lost are unknown. version: the snapshot's version, as in a hit. model: the model that was called;
    None if none was. reasoning: the model's steps to the answer. error: in a batch, the reason why there is no answer;
    a single answer raises it. calls: the number of calls to the model, including repairs and failures. cautions:
    sources that could not be read, with reasons, if the remaining sources were enough.
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
        """Return the answer as a JSON object; ``error`` and ``cautions`` only if there are any."""
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
    """The result of an answering method: see ``Answer``. read: the hits that were read, best first; None for all."""

    text: str
    found: bool
    reasoning: str = ""
    read: tuple[Hit, ...] | None = None
    cautions: tuple[str, ...] = ()


class Bill(NamedTuple):
    """The calls and tokens of answers: estimated beforehand (``prompt_tokens``), or as counted by the endpoint."""

    calls: int
    input_tokens: int
    output_tokens: int


class Answering(Protocol):
    """An answering method. Thread-safe; keeps no state between questions.

    The constructor takes ``settings``, a mapping that overrides defaults, and ``prompts``, a folder whose files replace
    the method's prompts, or None. It raises BadInput for an unknown setting, ConfigurationError for a folder or prompt
    that cannot be read. A family declares its own method in ``ReaderFamily.answering``.
    """

    @property
    def uses_explanations(self) -> bool:
        """True if the hits must carry explanations."""
        ...

    def retrieval(self, k: int, parameters: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """Return the number of hits to retrieve and the parameters to use, given the requested k and parameters."""
        ...

    def tokens(self, hit: Hit) -> int:
        """Return the number of tokens of a hit that the model reads; they count towards the budget."""
        ...

    def shown(self, hit: Hit) -> str:
        """Return the text of a hit that the model reads."""
        ...

    def bill(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Bill:
        """Return an upper bound of the cost of an answer from hits (at least one), without repairs and lost calls."""
        ...

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Reply:
        """Answer a question from its hits, at least one, best first; raises what ``ask`` raises."""
        ...


def context_tokens(hit: Hit) -> int:
    """Count the tokens of a hit's text: the larger of the snapshot's count and one for every eight bytes."""
    return max(hit.tokens or 0, -(-len(hit.text.encode("utf-8")) // _BYTES_PER_TOKEN))


def text_tokens(text: str) -> int:
    """Estimate a text's tokens for a language model: one for every four bytes, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_OF_A_TOKEN)


def prompt_tokens(request: Request) -> int:
    """Estimate the tokens of a complete request, with the schema of its answer, as ``text_tokens`` does."""
    return sum(map(text_tokens, (request.instructions, request.content, canonical_json(request.schema).decode())))
