"""``indexmill answer``: an answer to a question, and what it was made from."""

from __future__ import annotations

from typing import Any

import click

from indexmill.command.model import answering_options, answering_settings, asking, model_of, prompts_of
from indexmill.command.options import Options, common, parameters_by_method
from indexmill.command.query import cited, few, shown_ids, titled, wrapped
from indexmill.command.retrieval import principals_of, reranking_of, retrieving, say_what_is_hidden
from indexmill.command.waiting import Waiting
from indexmill.command.watched_llm import WatchedLlm
from indexmill.errors import BadInput
from indexmill.text.counted import counted
from indexmill.text.printable import one_line, printable


@click.command("answer")
@click.argument("question")
@asking
@click.option("--quote", is_flag=True, help="Ask no model, whatever the configuration file says.")
@click.option("--method", "-m", metavar="NAME", help="The retrieval method; by default the best in the snapshot.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits to read.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="Let the model read hits of T tokens at most, and leave out what does not fit.",
)
@answering_options
@click.option("--explain", is_flag=True, help="Show the model's reasoning, and the texts that it read.")
@retrieving
@common
def command(
    options: Options,
    question: str,
    quote: bool,
    method: str | None,
    k: int,
    token_budget: int | None,
    explain: bool,
    **answering: object,
) -> None:
    """Answer QUESTION from the K best hits, or from the K best of each level for a method with levels.

    The language model is that of the section `llm` of the configuration file, or --model. It is sent the question and
    the hits. Without a model, the answer is a sentence quoted from the hits, and nothing leaves this machine.

    A wait of more than a second is explained on standard error.
    """
    limit: dict[str, Any] = {}
    if options.max_output_tokens is not None:
        limit = {"max_output_tokens": options.max_output_tokens}
    if quote and (limit or options.model or options.base_url or options.api_key_env):
        raise BadInput("--quote asks no model: leave --model, --base-url, --api-key-env and --max-output-tokens out")
    llm = None if quote else model_of(options)
    prompts = None if llm is None else prompts_of(options)
    by, principals = reranking_of(options), principals_of(options)
    with Waiting("retrieving") as waiting, options.open_snapshot() as snapshot:
        method = method or snapshot.default_method
        found = snapshot.answer(
            question,
            method=method,
            k=k,
            llm=None if llm is None else WatchedLlm(llm, waiting),
            token_budget=token_budget,
            where=options.where or None,
            parameters=parameters_by_method(options.settings, [method]).get(method),
            answering=answering_settings([method], answering).get(method),
            prompts=prompts,
            principals=principals,
            **limit,
            **by._asdict(),
        )
        say_what_is_hidden(snapshot, principals)
    for caution in found.cautions:
        click.echo(one_line(f"caution: {caution}"), err=True)
    if options.json:
        options.print_json({"question": question, **found.to_dict()})
        return
    click.echo("\n".join(wrapped(found.text, "")))
    if not found.hits:
        return
    said = "quoted, no model was asked" if found.model is None else f"by {found.model}"
    tokens = f"{counted(found.context_tokens, 'token')} of context"
    if found.model is not None:
        calls = f" in {counted(found.calls, 'call')}" if found.calls > 1 else ""
        tokens += f", {found.input_tokens:,} read and {found.output_tokens:,} written{calls}"
    click.echo(printable(f"\n{said}; {options.snapshot_name(found.version)}, {found.method}; {tokens}"))
    if explain and found.reasoning:
        click.echo("\n".join(wrapped(found.reasoning, "    ")))
    for rank, hit in enumerate(found.hits, start=1):
        click.echo(one_line(f"{rank:>2}. {titled(hit)}  [{', '.join(few(shown_ids(hit)))}]"))
        click.echo("".join(f"{line}\n" for line in cited(hit)), nl=False)
        if explain:
            click.echo("\n".join(wrapped(hit.text, "    ")))
