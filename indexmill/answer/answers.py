"""Questions in, answers out: retrieval, the context within its budget, and calls to a model, several at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from indexmill.answer.asking import Ask, Patience
from indexmill.answer.base import Answer, Answering, Said, answering, context_tokens
from indexmill.answer.quotation import Quotation
from indexmill.answer.turns import Turns, all_of
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.llm import LLM
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.retrieve.base import check_k
from indexmill.retrieve.budget import fitting

__all__ = ["NOTHING_FOUND", "Searched", "answers", "contexts_of", "run_to_its_end", "within"]

NOTHING_FOUND = "Nothing was found."
"""The answer to a question that no hit was found for."""

_T = TypeVar("_T")


class Searched(Protocol):
    """What questions are answered from: a snapshot."""

    @property
    def version(self) -> int | None:
        """The version that answers name."""
        ...

    @property
    def default_method(self) -> str:
        """The method of a retrieval that names none."""
        ...

    @property
    def retrieve_batch(self) -> Callable[..., list[list[Hit]]]:
        """As ``Snapshot.retrieve_batch``."""
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
    way: Answering | None = None
    if llm is not None:
        way = answering(method, settings, None if prompts is None else Path(prompts))
    contexts = contexts_of(snapshot, questions, way, method, k, token_budget, parameters, **retrieval)
    model = None if llm is None else str(llm.fingerprint.get("model", ""))
    patience = Patience(deadline_seconds=deadline_seconds)

    async def one(question: str, hits: list[Hit], turns: Turns) -> Answer:
        ask = None if llm is None else Ask(llm, turns, max_output_tokens, patience)
        error = None
        try:
            if not hits:
                said = Said(NOTHING_FOUND, False)
            elif ask is None or way is None:
                said = await Quotation().answer(question, hits)
            else:
                said = await way.answer(question, hits, ask)
        except LlmForbidden:
            raise
        except LlmError as caught:
            said, error = Said("", False), caught.with_traceback(None)
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
        pairs = zip(questions, contexts, strict=True)
        return await all_of(one(question.strip(), hits, turns) for question, hits in pairs)

    return run_to_its_end(all_of_them())


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

    way: of answering, None for a quotation. retrieval: what else ``Snapshot.retrieve_batch`` takes. Raises as that
    does, and BadInput for a budget into which no hit fits.
    """
    if way is not None:
        k, parameters = way.retrieval(check_k(k), parameters or {})
    explain = way is not None and way.uses_explanations
    found = snapshot.retrieve_batch(questions, method=method, k=k, explain=explain, parameters=parameters, **retrieval)
    tokens = context_tokens if way is None else way.tokens
    return [within(hits, token_budget, tokens) for hits in found]


def within(hits: Sequence[Hit], token_budget: int | None, count: Callable[[Hit], int] = context_tokens) -> list[Hit]:
    """The hits that fit into the budget, the best first; one that does not is passed over for the next.

    count: the tokens that are read of a hit. Raises BadInput where there are hits and none fits.
    """
    tokens = [count(hit) for hit in hits]
    chosen = fitting(tokens, token_budget)
    if hits and not chosen:
        raise BadInput(f"token_budget is {token_budget}, and the shortest of {len(hits)} hits has {min(tokens)} tokens")
    return [hits[place] for place in chosen]


def _check(name: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise BadInput(f"{name} is {number!r}; expected a whole number of at least 1")


def run_to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine brings, also where this thread has an event loop at work, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    came: list[_T | BaseException] = []

    def apart() -> None:
        try:
            came.append(asyncio.run(work))
        except BaseException as error:
            came.append(error)

    thread = threading.Thread(target=apart)
    thread.start()
    thread.join()
    if isinstance(came[0], BaseException):
        raise came[0]
    return came[0]
