"""``indexmill answer``: an answer to a question, and what it was made from."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import Options, anchored, candidate, common, filtered, opened, pinned, printable
from indexmill.command.query import few, titled, wrapped
from indexmill.errors import BadInput
from indexmill.models.openai_llm import OpenAiLlm, open_llm

__all__ = ["command"]

_KEYS = ("api_key_env", "api_key_file", "token_provider")


@click.command("answer")
@click.argument("question")
@click.option("--model", metavar="NAME", help="The language model; that of the configuration file by default.")
@click.option("--base-url", metavar="URL", help="Its endpoint, such as http://localhost:8000/v1; OpenAI's by default.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the key; OPENAI_API_KEY.")
@click.option("--quote", is_flag=True, help="Ask no model, whatever the configuration file says.")
@click.option("--method", "-m", metavar="NAME", help="How to retrieve; the best that the snapshot holds by default.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits are read.")
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="Read hits of T tokens at most; what does not fit is left out.",
)
@click.option("--explain", is_flag=True, help="Show the model's reasoning, and the texts that were read.")
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
    quote: bool,
    method: str | None,
    k: int,
    token_budget: int | None,
    explain: bool,
    where: tuple[str, ...],
    version: int | None,
    alias: str | None,
    run: str | None,
) -> None:
    """Answer QUESTION from the K best hits.

    The language model is the one of the section `llm` of the configuration file, or --model. The question and the hits
    are sent to it. Where there is none, the answer is a sentence of the hits, quoted, and nothing leaves this machine.
    """
    named = {"model": model, "base_url": base_url, "api_key_env": api_key_env}
    given = {name: value for name, value in named.items() if value is not None}
    if quote and given:
        raise BadInput("--quote asks no model: leave --model, --base-url and --api-key-env out")
    llm = None if quote else _llm(options, given)
    if llm is not None:
        for caution in llm.keys.cautions(llm.base_url):
            click.echo(f"caution: {caution}", err=True)
    with opened(options, version, alias, run) as snapshot:
        found = snapshot.answer(question, method=method, k=k, llm=llm, token_budget=token_budget, where=where or None)
    if options.json:
        options.print_json({"question": question, **found.to_dict()})
        return
    click.echo("\n".join(wrapped(found.text, "")))
    if not found.hits:
        return
    which = "exported snapshot" if found.version is None else f"version {found.version}"
    which = which if run is None else f"candidate of run {run}"
    said = "quoted, no model was asked" if found.model is None else f"by {found.model}"
    tokens = f"{found.context_tokens:,} tokens of context"
    if found.model is not None:
        tokens += f", {found.input_tokens:,} read and {found.output_tokens:,} written"
    click.echo(printable(f"\n{said}; {which}, {found.method}; {tokens}"))
    if explain and found.reasoning:
        click.echo("\n".join(wrapped(found.reasoning, "    ")))
    for rank, hit in enumerate(found.hits, start=1):
        click.echo(printable(f"{rank:>2}. {titled(hit)}  [{', '.join(few(hit.document_ids))}]"))
        if explain:
            click.echo("\n".join(wrapped(hit.text, "    ")))


def _llm(options: Options, given: dict[str, str]) -> OpenAiLlm | None:
    """The model of the options, else of the configuration file; None where neither names one."""
    section, folder = options.section("llm")
    if "model" not in given and section.get("backend") != "openai":
        if given:
            raise BadInput("--base-url and --api-key-env are of a model: add --model")
        return None
    if "base_url" in given:  # the file's keys are of the file's endpoint
        section = {name: value for name, value in section.items() if name not in _KEYS}
    settings = {**section, **given}
    for name in ("api_key_file", "ca_file"):
        if isinstance(settings.get(name), str):
            settings[name] = Path(anchored(settings[name], folder))
    if "api_key_env" in given:
        settings |= {"api_key_file": None, "token_provider": None}
    from indexmill.models.endpoint import Endpoint

    return open_llm(Endpoint.of(settings))
