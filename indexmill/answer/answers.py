"""Answers to questions: retrieval, the context within its budget, and concurrent calls to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from indexmill.answer.answer_types import Answer, Answering, AnswerOptions, Reply, context_tokens
from indexmill.answer.asking import Ask
from indexmill.answer.quotation import Quotation
from indexmill.answer.turns import Turns, all_of
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.models.retries import RetryLimits, run_coroutine
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.telemetry import span

NOTHING_FOUND = "Nothing was found."


class Searched(Protocol):
    """The part of a ``Snapshot`` that answering uses."""

    @property
    def version(self) -> int | None:
        """The snapshot's version, which every answer names."""
        ...

    @property
    def default_method(self) -> str:
        """The method used if none is named."""
        ...

    def retrieve_batch(self, questions: Sequence[str], *, options: RetrievalOptions | None = None) -> list[list[Hit]]:
        """See ``Snapshot.retrieve_batch``."""
        ...


def answers(
    snapshot: Searched,
    questions: Sequence[str],
    options: AnswerOptions,
    show: Callable[[list[list[Hit]]], None] = lambda rankings: None,
) -> list[Answer]:
    """Answer as ``Snapshot.answer_batch`` does. show: called with all hits before the answers are generated."""
    method, llm = options.method or snapshot.default_method, options.llm
    options = replace(options, method=method)
    about: dict[str, str | int] = {"indexmill.method": method, "indexmill.retrieve.questions": len(questions)}
    if snapshot.version is not None:
        about["indexmill.version"] = snapshot.version
    answering = None if llm is None else answering_of(options)
    limits = RetryLimits(deadline_seconds=options.deadline_seconds)

    async def answer_one(question: str, hits: list[Hit], turns: Turns) -> Answer:
        ask = None if llm is None else Ask(llm, turns, options.max_output_tokens, limits)
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
            model=options.model if hits else None,
            reasoning=reply.reasoning,
            error=error,
            calls=0 if ask is None else ask.calls,
            cautions=reply.cautions,
        )

    async def answer_all() -> list[Answer]:
        turns = Turns(options.concurrency)
        pairs = zip(questions, contexts, strict=True)
        return await all_of(answer_one(question.strip(), hits, turns) for question, hits in pairs)

    with span("indexmill.answer", about) as answer_span:
        contexts = contexts_of(snapshot, questions, answering, options, show)
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


def answering_of(options: AnswerOptions) -> Answering:
    """Return the ``Answering`` of the method that the options name; raises BadInput for an unknown name."""
    if options.method not in METHODS:
        raise BadInput(f"there is no method {options.method!r}; there are {', '.join(METHODS)}")
    prompts = None if options.prompts is None else Path(options.prompts)
    answering: Answering = load(METHODS[options.method].answering)(options.answering, prompts)
    return answering


def contexts_of(
    snapshot: Searched,
    questions: Sequence[str],
    answering: Answering | None,
    options: AnswerOptions,
    show: Callable[[list[list[Hit]]], None] = lambda rankings: None,
) -> list[list[Hit]]:
    """Return the hits that each question is answered from, best first.

    answering: None for a quotation. show: called with all hits that were retrieved. Raises as ``Snapshot.retrieve``
    does, and BadInput for a budget into which no hit fits.
    """
    tokens = context_tokens
    retrieval = replace(options, explain=False)
    if answering is not None:
        tokens = answering.tokens
        k, parameters = answering.retrieval(options.k, options.parameters)
        retrieval = replace(options, explain=answering.uses_explanations, k=k, parameters=parameters)
    rankings = snapshot.retrieve_batch(questions, options=retrieval)
    show(rankings)
    return [fit_to_budget(hits, options.token_budget, tokens) for hits in rankings]


def fit_to_budget(
    hits: Sequence[Hit], token_budget: int | None, count: Callable[[Hit], int] = context_tokens
) -> list[Hit]:
    """Return the hits that fit into the budget, the best first; a hit that does not fit is skipped.

    count: returns the number of a hit's tokens that are read. Raises BadInput if there are hits and none fits.
    """
    tokens = [count(hit) for hit in hits]
    chosen = fitting(tokens, token_budget)
    if hits and not chosen:
        raise BadInput(f"token_budget is {token_budget}, but the shortest of {len(hits)} hits has {min(tokens)} tokens")
    return [hits[position] for position in chosen]
