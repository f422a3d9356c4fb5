"""Questions in, answers out: retrieval, the context within its budget, and calls to a model, several at a time."""

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
    """See ``Snapshot.answer_batch``; settings is its ``answering``, retrieval what ``retrieve_batch`` takes, too."""
    for name, number in (("concurrency", concurrency), ("max_output_tokens", max_output_tokens)):
        _check(name, number)
    if token_budget is not None:
        _check("token_budget", token_budget)
    if llm is not None and not callable(getattr(llm, "complete", None)):
        raise BadInput(
            f"llm= is {type(llm).__name__}; expected what indexmill.open_llm returns, or None for a quotation"
        )
    method = method or snapshot.default_method
    about: dict[str, str | int] = {"indexmill.method": method, "indexmill.retrieve.questions": len(questions)}
    if snapshot.version is not None:
        about["indexmill.version"] = snapshot.version
    way: Answering | None = None
    if llm is not None:
        way = answering_of(method, settings, None if prompts is None else Path(prompts))
    model = None if llm is None else str(llm.fingerprint.get("model", ""))
    patience = Patience(deadline_seconds=deadline_seconds)

    async def one(question: str, hits: list[Hit], turns: Turns) -> Answer:
        ask = None if llm is None else Ask(llm, turns, max_output_tokens, patience)
        error = None
        try:
            if not hits:
                said = Reply(NOTHING_FOUND, False)
            elif ask is None or way is None:
                said = await Quotation().answer(question, hits)
            else:
                said = await way.answer(question, hits, ask)
        except LlmForbidden:
            raise
        except LlmError as caught:
            said, error = Reply("", False), caught.with_traceback(None)
        read = tuple(hits) if said.read is None else said.read
        return Answer(
            text=said.text,
            found=said.found,
            hits=read,
            context_tokens=sum(map(context_tokens if way is None else way.tokens, read)),
            input_tokens=0 if ask is None else ask.input_tokens,
            output_tokens=0 if ask is None else ask.output_tokens,
            version=snapshot.version,
            method=method,
            model=model if hits else None,
            reasoning=said.reasoning,
            error=error,
            calls=0 if ask is None else ask.calls,
            cautions=said.cautions,
        )

    async def all_of_them() -> list[Answer]:
        turns = Turns(concurrency)
        pairs = zip(questions, found, strict=True)
        return await all_of(one(question.strip(), hits, turns) for question, hits in pairs)

    with span("indexmill.answer", about) as told:
        found = contexts_of(snapshot, questions, way, method, k, token_budget, parameters, **retrieval)
        made = run_coroutine(all_of_them())
        told.set(
            {
                "indexmill.answers.found": sum(one.found for one in made),
                "indexmill.llm_calls": sum(one.calls for one in made),
                "gen_ai.usage.input_tokens": sum(one.input_tokens for one in made),
                "gen_ai.usage.output_tokens": sum(one.output_tokens for one in made),
            }
        )
    return made


def answering_of(method: str, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> Answering:
    """The ``Answering`` of a method; raises BadInput for an unknown name."""
    if method not in METHODS:
        raise BadInput(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    way: Answering = load(METHODS[method].answering)(settings, prompts)
    return way


def contexts_of(
    snapshot: Searched,
    questions: Sequence[str],
    way: Answering | None,
    method: str,
    k: int,
    token_budget: int | None = None,
    parameters: Mapping[str, object] | None = None,
    **retrieval: object,
) -> list[list[Hit]]:
    """The hits that each question is answered from, best first.

    way: the way of answering, None for a quotation. retrieval: further arguments of ``Snapshot.retrieve_batch``.
    Raises as that does, and BadInput for a budget into which no hit fits.
    """
    if way is not None:
        k, parameters = way.retrieval(check_count("k", k), parameters or {})
    explain = way is not None and way.uses_explanations
    found = snapshot.retrieve_batch(questions, method=method, k=k, explain=explain, parameters=parameters, **retrieval)
    tokens = context_tokens if way is None else way.tokens
    return [fit_to_budget(hits, token_budget, tokens) for hits in found]


def fit_to_budget(
    hits: Sequence[Hit], token_budget: int | None, count: Callable[[Hit], int] = context_tokens
) -> list[Hit]:
    """The hits that fit into the budget, the best first; a hit that does not fit is skipped.

    count: returns the tokens read of a hit. Raises BadInput if there are hits and none fits.
    """
    tokens = [count(hit) for hit in hits]
    chosen = fitting(tokens, token_budget)
    if hits and not chosen:
        raise BadInput(f"token_budget is {token_budget}, and the shortest of {len(hits)} hits has {min(tokens)} tokens")
    return [hits[place] for place in chosen]


def _check(name: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise BadInput(f"{name} is {number!r}; expected a whole number of at least 1")


def run_coroutine(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine and return its result, even if this thread runs an event loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
