"""``indexmill answer``: an answer to a question, and what it was made from."""

from __future__ import annotations

from typing import Any

import click

from indexmill.command.model import asking, filtering, filtering_of, model_of, prompts_of
from indexmill.command.options import (
    Options,
    candidate,
    common,
    filtered,
    opened,
    parameters_by_method,
    pinned,
    settable,
)
from indexmill.command.query import few, titled, wrapped
from indexmill.command.reranker import reranking, reranking_of
from indexmill.command.waiting import Waiting, WatchedLlm
from indexmill.errors import BadInput
from indexmill.text.counted import counted
from indexmill.text.printable import one_line, printable

__all__ = ["command"]


@click.command("answer")
@click.argument("question")
@asking
@click.option("--quote", is_flag=True, help="Ask no model, whatever the configuration file says.")
@click.option("--method", "-m", metavar="NAME", help="How to retrieve; the best that the snapshot holds by default.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits are read.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="Read hits of T tokens at most; what does not fit is left out.",
)
@filtering
@reranking
@click.option("--explain", is_flag=True, help="Show the model's reasoning, and the texts that were read.")
@settable
@filtered
@candidate
@pinned
@common
def command(
    options: Options,
    question: str,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    max_output_tokens: int | None,
    quote: bool,
    method: str | None,
    k: int,
    token_budget: int | None,
    rerank: str | None,
    rerank_model: str | None,
    rerank_depth: int | None,
    explain: bool,
    settings: tuple[str, ...],
    where: tuple[str, ...],
    version: str | None,
    alias: str | None,
    run: str | None,
    **answering: object,
) -> None:
    """Answer QUESTION from the K best hits; of a method with levels, from the K best of each level.

    The language model is the one of the section `llm` of the configuration file, or --model. The question and the hits
    are sent to it. Where there is none, the answer is a sentence of the hits, quoted, and nothing leaves this machine.

    What is waited for longer than a second is said on standard error.
    """
    if quote and (model, base_url, api_key_env, max_output_tokens) != (None, None, None, None):
        raise BadInput("--quote asks no model: leave --model, --base-url, --api-key-env and --max-output-tokens out")
    llm = None if quote else model_of(options, model, base_url, api_key_env)
    prompts = None if llm is None else prompts_of(options)
    by = reranking_of(rerank, rerank_model, rerank_depth)
    limit: dict[str, Any] = {} if max_output_tokens is None else {"max_output_tokens": max_output_tokens}
    with Waiting("retrieving") as waiting, opened(options, version, alias, run) as snapshot:
        method = method or snapshot.default_method
        found = snapshot.answer(
            question,
            method=method,
            k=k,
            llm=None if llm is None else WatchedLlm(llm, waiting),
            token_budget=token_budget,
            where=where or None,
            parameters=parameters_by_method(settings, [method]).get(method),
            answering=filtering_of([method], answering).get(method),
            prompts=prompts,
            **limit,
            **by._asdict(),
        )
    for caution in found.cautions:
        click.echo(one_line(f"caution: {caution}"), err=True)
    if options.json:
        options.print_json({"question": question, **found.to_dict()})
        return
    click.echo("\n".join(wrapped(found.text, "")))
    if not found.hits:
        return
    which = "exported snapshot" if found.version is None else f"version {found.version}"
    which = which if run is None else f"candidate of run {run}"
    said = "quoted, no model was asked" if found.model is None else f"by {found.model}"
    tokens = f"{counted(found.context_tokens, 'token')} of context"
    if found.model is not None:
        calls = f" in {counted(found.calls, 'call')}" if found.calls > 1 else ""
        tokens += f", {found.input_tokens:,} read and {found.output_tokens:,} written{calls}"
    click.echo(printable(f"\n{said}; {which}, {found.method}; {tokens}"))
    if explain and found.reasoning:
        click.echo("\n".join(wrapped(found.reasoning, "    ")))
    for rank, hit in enumerate(found.hits, start=1):
        click.echo(one_line(f"{rank:>2}. {titled(hit)}  [{', '.join(few(hit.document_ids))}]"))
        if explain:
            click.echo("\n".join(wrapped(hit.text, "    ")))
