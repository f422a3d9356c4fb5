"""Answers to questions: retrieval, the context within its budget, and concurrent calls to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from indexmill.answer.asking import Ask
from indexmill.answer.base import Answer, Answering, Reply, context_tokens
from indexmill.answer.quotation import Quotation
from indexmill.answer.turns import Turns, all_of
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.llm import LLM
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.models.patience import Patience
from indexmill.retrieve.base import check_count
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.family import load
from indexmill.retrieve.registry import METHODS
from indexmill.telemetry import span

NOTHING_FOUND = "Nothing was found."
"""The answer to a question without hits."""

_T = TypeVar("_T")


class Searched(Protocol):
    """The source of answers: a snapshot."""

    @property
    def version(self) -> int | None:
        """The version stated in answers."""
        ...

    @property
    def default_method(self) -> str:
        """The method used if none is named."""
        ...

    @property
    def retrieve_batch(self) -> Callable[..., list[list[Hit]]]:
        """See ``Snapshot.retrieve_batch``."""
        ...


def answers(
    snapshot: Searched,
    questions: Sequence[str],
    *,
    method: str | None,
    k: int,
    llm: LLM | None,
    token_budget: int | None,
    parameters: Mapping[str, object] | None,
    concurrency: int,
    max_output_tokens: int,
    deadline_seconds: float,
    settings: Mapping[str, object] | None = None,
    prompts: str | Path | None = None,
    **retrieval: object,
) -> list[Answer]:
    """See ``Snapshot.answer_batch``; settings is its ``answering``, retrieval the arguments of ``retrieve_batch``."""
    for name, number in (("concurrency", concurrency), ("max_output_tokens", max_output_tokens)):
        _check(name, number)
    if token_budget is not None:
        _check("token_budget", token_budget)
    if llm is not None and not callable(getattr(llm, "complete", None)):
        raise BadInput(
            f"llm= is {type(llm).__name__}; expected the result of indexmill.open_llm, or None for a quotation"
        )
    method = method or snapshot.default_method
    about: dict[str, str | int] = {"indexmill.method": method, "indexmill.retrieve.questions": len(questions)}
    if snapshot.version is not None:
        about["indexmill.version"] = snapshot.version
    answering: Answering | None = None
    if llm is not None:
        answering = answering_of(method, settings, None if prompts is None else Path(prompts))
    model = None if llm is None else str(llm.fingerprint.get("model", ""))
    patience = Patience(deadline_seconds=deadline_seconds)

    async def answer_one(question: str, hits: list[Hit], turns: Turns) -> Answer:
        ask = None if llm is None else Ask(llm, turns, max_output_tokens, patience)
        error = None
        try:
            if not hits:
                reply = Reply(NOTHING_FOUND, False)
            elif ask is None or answering is None:
                reply = await Quotation().answer(question, hits)
            else:
                reply = await answering.answer(question, hits, ask)
        except LlmForbidden:
            raise
        except LlmError as caught:
            reply, error = Reply("", False), caught.with_traceback(None)
        read = tuple(hits) if reply.read is None else reply.read
        return Answer(
            text=reply.text,
            found=reply.found,
            hits=read,
            context_tokens=sum(map(context_tokens if answering is None else answering.tokens, read)),
            input_tokens=0 if ask is None else ask.input_tokens,
            output_tokens=0 if ask is None else ask.output_tokens,
            version=snapshot.version,
            method=method,
            model=model if hits else None,
            reasoning=reply.reasoning,
            error=error,
            calls=0 if ask is None else ask.calls,
            cautions=reply.cautions,
        )

    async def answer_all() -> list[Answer]:
        turns = Turns(concurrency)
        pairs = zip(questions, contexts, strict=True)
        return await all_of(answer_one(question.strip(), hits, turns) for question, hits in pairs)

    with span("indexmill.answer", about) as answer_span:
        contexts = contexts_of(snapshot, questions, answering, method, k, token_budget, parameters, **retrieval)
        results = run_coroutine(answer_all())
        answer_span.set(
            {
                "indexmill.answers.found": sum(answer.found for answer in results),
                "indexmill.llm_calls": sum(answer.calls for answer in results),
                "gen_ai.usage.input_tokens": sum(answer.input_tokens for answer in results),
                "gen_ai.usage.output_tokens": sum(answer.output_tokens for answer in results),
            }
        )
    return results


def answering_of(method: str, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> Answering:
    """The ``Answering`` of a method; raises BadInput for an unknown name."""
    if method not in METHODS:
        raise BadInput(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    answering: Answering = load(METHODS[method].answering)(settings, prompts)
    return answering


def contexts_of(
    snapshot: Searched,
    questions: Sequence[str],
    answering: Answering | None,
    method: str,
    k: int,
    token_budget: int | None = None,
    parameters: Mapping[str, object] | None = None,
    **retrieval: object,
) -> list[list[Hit]]:
    """The hits that each question is answered from, best first.

    answering: None for a quotation. retrieval: further arguments of ``Snapshot.retrieve_batch``. Raises what that
    raises, and BadInput for a budget into which no hit fits.
    """
    if answering is not None:
        k, parameters = answering.retrieval(check_count("k", k), parameters or {})
    explain = answering is not None and answering.uses_explanations
    hit_lists = snapshot.retrieve_batch(
        questions, method=method, k=k, explain=explain, parameters=parameters, **retrieval
    )
    tokens = context_tokens if answering is None else answering.tokens
    return [fit_to_budget(hits, token_budget, tokens) for hits in hit_lists]


def fit_to_budget(
    hits: Sequence[Hit], token_budget: int | None, count: Callable[[Hit], int] = context_tokens
) -> list[Hit]:
    """The hits that fit into the budget, the best first; a hit that does not fit is skipped.

    count: returns the tokens that are read of a hit. Raises BadInput if there are hits and none fits.
    """
    tokens = [count(hit) for hit in hits]
    chosen = fitting(tokens, token_budget)
    if hits and not chosen:
        raise BadInput(f"token_budget is {token_budget}, and the shortest of {len(hits)} hits has {min(tokens)} tokens")
    return [hits[position] for position in chosen]


def _check(name: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise BadInput(f"{name} is {number!r}; expected a whole number of at least 1")


def run_coroutine(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine and return its result, even if this thread already runs an event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
