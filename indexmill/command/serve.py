"""``indexmill serve``: an index over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.mcp import served_index, wanted_of
from indexmill.command.model import asking, model_of, prompts_of
from indexmill.command.options import Decorator, GroupedCommand, Options, as_option, common, kept_option
from indexmill.command.retrieval import reranking_of
from indexmill.errors import BadInput, ConfigurationError
from indexmill.extras import not_installed
from indexmill.serve.callers import Tokens, add_token
from indexmill.serve.limits import Limits

if TYPE_CHECKING:
    from indexmill.serve.index import Wanted
    from indexmill.serve.run import Mount

_LIMITS = Limits()

_GROUPS = {
    "Who may ask": ("tokens", "new_token", "principals", "demand_rights", "insecure", "tls_cert", "tls_key"),
    "Limits": (
        "max_body",
        "max_question",
        "max_k",
        "max_batch",
        "at_once",
        "max_waiting",
        "answers",
        "seconds",
        "answer_seconds",
        "rate",
    ),
    "Models": ("model", "base_url", "api_key_env", "max_output_tokens", "quote", "rerank", "rerank_model"),
    "Which index": (
        "version",
        "alias",
        "manifest",
        "poll",
        "processes",
        "warm",
        "smoke",
        "trust",
        "store",
        "cache",
        "config",
        "corpus",
    ),
    "Output": ("json", "debug"),
}


def _limit(name: str, default: int, text: str) -> Decorator:
    return click.option(name, metavar="N", type=click.IntRange(min=1), default=default, show_default=True, help=text)


def _seconds(name: str, default: float, text: str) -> Decorator:
    kind = click.FloatRange(min=0, min_open=True)
    return click.option(name, metavar="S", type=kind, default=default, show_default=True, help=text)


@click.command("serve", cls=GroupedCommand, groups=_GROUPS)
@served_index
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 for any.")
@click.option(
    "--linger",
    metavar="S",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="After SIGTERM, say at /ready that no more should come, and answer as before for S seconds.",
)
@click.option("--no-mcp", is_flag=True, help="Leave out the Model Context Protocol at /mcp.")
@click.option("--tokens", metavar="FILE", type=click.Path(path_type=Path), help="Ask callers for a token of this file.")
@click.option(
    "--new-token",
    metavar="NAME",
    help="Add a token to the file of --tokens, print it, and serve nothing. Only its SHA-256 is kept.",
)
@as_option(
    "With --new-token: a group as which the token reads, where documents say who may read them; may be repeated."
)
@click.option("--insecure", is_flag=True, help="Serve other machines without asking for tokens.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="Serve HTTPS with this certificate.")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its private key.")
@_limit("--max-body", _LIMITS.body, "Bytes of a request.")
@_limit("--max-question", _LIMITS.question, "Characters of a question.")
@_limit("--max-k", _LIMITS.k, "Hits of an answer.")
@_limit("--max-batch", _LIMITS.batch, "Questions that are retrieved together.")
@_limit("--at-once", _LIMITS.at_once, "Batches that are retrieved at the same time.")
@_limit("--max-waiting", _LIMITS.waiting, "Questions that may wait; 503 for more.")
@_limit("--answers", _LIMITS.answers, "Answers that are made at the same time.")
@_seconds("--seconds", _LIMITS.seconds, "The deadline of a retrieval; 504 after it.")
@_seconds("--answer-seconds", _LIMITS.answer_seconds, "The deadline of an answer.")
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    help="Requests per second of a token, with bursts of twice as many; 429 for more. No limit by default.",
)
@asking
@click.option("--quote", is_flag=True, help="Ask no model for answers, whatever the configuration file says.")
@kept_option("--rerank", metavar="PATH|URL", help="The reranker for requests that want one: see `indexmill query`.")
@kept_option("--rerank-model", metavar="NAME", help="The model to ask for at the endpoint of --rerank.")
@click.option(
    "--warm",
    metavar="METHOD",
    multiple=True,
    help="Use this method before a version is served; by default the best one. May be repeated.",
)
@click.option(
    "--smoke",
    metavar="QUESTION",
    multiple=True,
    help="Take no version in which nothing is found for this question; may be repeated.",
)
@common
def command(
    options: Options, place: str | None, poll: float, processes: int, demand_rights: bool, **given: Any
) -> None:
    """Serve the index of STORE over HTTP: /retrieve, /answer, /explore, /versions, /metrics, and MCP at /mcp.

    Without --snapshot, the newest version is served, or what --alias points to, as that moves; each answer comes from
    one version, which it names. Questions that come at the same time are retrieved together.

        indexmill serve STORE --tokens tokens.json --new-token search-team
        indexmill serve STORE --alias prod --host 0.0.0.0 --tokens tokens.json

    /openapi.json describes requests and answers. The log, on standard error, is one JSON object a line.
    """
    tokens: Path | None = given["tokens"]
    if given["new_token"] is not None:
        if tokens is None:
            raise BadInput("--new-token: name the file of tokens with --tokens FILE")
        _print_token(options, tokens, given["new_token"])
        return
    if options.principals:
        raise BadInput("--as is for --new-token: the tokens of callers say in which groups they are")
    _check(tokens, given)
    wanted = wanted_of(options, place, poll, processes, demand_rights, methods=given["warm"], smoke=given["smoke"])
    _serve(options, wanted, None if tokens is None else Tokens(tokens), given)


def _print_token(options: Options, path: Path, name: str) -> None:
    token = add_token(path, name, options.principals)
    if options.json:
        options.print_json({"name": name, "token": token, "tokens": str(path)})
    else:
        click.echo(token)


def _check(tokens: Path | None, given: dict[str, Any]) -> None:
    from indexmill.serve.addresses import LOOPBACK

    if given["host"] not in LOOPBACK and tokens is None and not given["insecure"]:
        raise ConfigurationError(
            f"--host {given['host']} lets other machines ask: give --tokens FILE (--new-token makes one), or --insecure"
        )
    if (given["tls_cert"] is None) != (given["tls_key"] is None):
        raise BadInput("--tls-cert and --tls-key go together")


def _serve(options: Options, wanted: Wanted, tokens: Tokens | None, given: dict[str, Any]) -> None:
    try:
        from indexmill.serve.run import serve
        from indexmill.serve.server import Address
    except ImportError as error:
        raise not_installed("indexmill serve", "starlette", error) from error
    from indexmill.serve.engine import Models

    llm = None if given["quote"] else model_of(options)
    models = Models(llm, reranking_of(options).rerank, None if llm is None else prompts_of(options))
    if options.max_output_tokens is not None:
        models = Models(models.llm, models.reranker, models.prompts, options.max_output_tokens)
    limits = Limits(
        body=given["max_body"],
        question=given["max_question"],
        k=given["max_k"],
        batch=given["max_batch"],
        at_once=given["at_once"],
        waiting=given["max_waiting"],
        answers=given["answers"],
        seconds=given["seconds"],
        answer_seconds=given["answer_seconds"],
        rate=given["rate"],
    )
    address = Address(given["host"], given["port"], given["tls_cert"], given["tls_key"], given["linger"])
    serve(
        wanted, address, limits, models, tokens, mount=None if given["no_mcp"] else _mcp(), insecure=given["insecure"]
    )


def _mcp() -> Mount | None:
    """The tools of MCP; None where its package is not installed."""
    try:
        from indexmill.mcp.tools import mounted
    except ModuleNotFoundError:
        return None
    return mounted
