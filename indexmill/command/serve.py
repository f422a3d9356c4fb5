"""``indexmill serve``: serve an index over HTTP."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.mcp import served_index, wanted_of
from indexmill.command.model import model_of, model_options, prompts_of
from indexmill.command.options import (
    SHARED_GROUPS,
    Decorator,
    GroupedCommand,
    Options,
    as_option,
    common,
    kept_option,
)
from indexmill.command.retrieval import reranker_of
from indexmill.errors import BadInput, ConfigurationError
from indexmill.extras import not_installed
from indexmill.serve.callers import CallerTokens, add_token
from indexmill.serve.limits import ServerLimits

if TYPE_CHECKING:
    from indexmill.serve.served_index import IndexChoice
    from indexmill.serve.serving import Mount

_LIMITS = ServerLimits()

_GROUPS = {
    "Who may ask": ("tokens", "new_token", "principals", "demand_rights", "insecure", "tls_cert", "tls_key"),
    "Limits": tuple(limit.name for limit in fields(ServerLimits)),
    "Models": ("model", "base_url", "api_key_env", "max_output_tokens", "quote", "rerank", "rerank_model"),
    "Which index": (*SHARED_GROUPS["Which index"], "poll", "processes", "warm", "smoke"),
    "Output": SHARED_GROUPS["Output"],
}


def _limit(name: str, limit: str, text: str) -> Decorator:
    default = getattr(_LIMITS, limit)
    metavar, kind = ("N", click.IntRange(1)) if isinstance(default, int) else ("S", click.FloatRange(0, min_open=True))
    return click.option(name, limit, metavar=metavar, type=kind, default=default, show_default=True, help=text)


@click.command("serve", cls=GroupedCommand, groups=_GROUPS)
@served_index
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 for any.")
@click.option(
    "--linger",
    metavar="S",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="After SIGTERM, report not ready at /ready, and keep answering for S seconds.",
)
@click.option("--no-mcp", is_flag=True, help="Do not serve the Model Context Protocol at /mcp.")
@click.option(
    "--tokens", metavar="FILE", type=click.Path(path_type=Path), help="Require callers to send a token from this file."
)
@click.option(
    "--new-token",
    metavar="NAME",
    help="Add a token to the file of --tokens, print it, and exit. Only its SHA-256 is stored.",
)
@as_option(
    "With --new-token: a group to which callers with the token belong. Documents that none of its groups may read are "
    "excluded. May be repeated."
)
@click.option("--insecure", is_flag=True, help="Serve other machines without tokens.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="Serve HTTPS with this certificate.")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="The private key of the certificate.")
@_limit("--max-body", "body", "Maximum size of a request, in bytes.")
@_limit("--max-question", "question", "Maximum length of a question, in characters.")
@_limit("--max-k", "k", "Maximum number of hits in a response.")
@_limit("--max-batch", "batch", "Maximum number of questions retrieved in one batch.")
@_limit("--at-once", "at_once", "Maximum number of batches retrieved at the same time.")
@_limit("--max-waiting", "waiting", "Maximum number of waiting questions; 503 for more.")
@_limit("--answers", "answers", "Maximum number of answers generated at the same time.")
@_limit("--seconds", "seconds", "Deadline for a retrieval; 504 after it.")
@_limit("--answer-seconds", "answer_seconds", "Deadline for an answer.")
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    help="Maximum requests per second of a token, with bursts of twice as many; 429 for more. No limit by default.",
)
@model_options
@click.option(
    "--quote", is_flag=True, help="Answer without a language model, even if the configuration file names one."
)
@kept_option("--rerank", metavar="PATH|URL", help="The reranker for requests with rerank: see `indexmill query`.")
@kept_option("--rerank-model", metavar="NAME", help="The model's name at the endpoint of --rerank.")
@click.option(
    "--warm",
    metavar="METHOD",
    multiple=True,
    help="Warm up this method before a version is served; by default the best one. May be repeated.",
)
@click.option(
    "--smoke",
    metavar="QUESTION",
    multiple=True,
    help="Reject versions that have no hits for this question; may be repeated.",
)
@common
def command(
    options: Options, place: str | None, poll: float, processes: int, demand_rights: bool, **option_values: Any
) -> None:
    """Serve the index of STORE over HTTP: /retrieve, /answer, /explore, /versions, /metrics, and MCP at /mcp.

    Without --snapshot, it follows the newest version or --alias. Each response comes from one version, which it names.
    Concurrent questions are retrieved in batches.

        indexmill serve STORE --tokens tokens.json --new-token search-team
        indexmill serve STORE --alias prod --host 0.0.0.0 --tokens tokens.json

    /openapi.json describes requests and responses. The log, on standard error, is one JSON object per line.
    """
    tokens: Path | None = option_values["tokens"]
    if option_values["new_token"] is not None:
        if tokens is None:
            raise BadInput("--new-token: name the file of tokens with --tokens FILE")
        _print_token(options, tokens, option_values["new_token"])
        return
    if options.principals:
        raise BadInput("--as applies only with --new-token: the groups of a caller belong to its token")
    _check(tokens, option_values)
    choice = wanted_of(
        options, place, poll, processes, demand_rights, methods=option_values["warm"], smoke=option_values["smoke"]
    )
    _serve(options, choice, None if tokens is None else CallerTokens(tokens), option_values)


def _print_token(options: Options, path: Path, name: str) -> None:
    token = add_token(path, name, options.principals)
    if options.json:
        options.print_json({"name": name, "token": token, "tokens": str(path)})
    else:
        click.echo(token)


def _check(tokens: Path | None, option_values: dict[str, Any]) -> None:
    from indexmill.serve.addresses import LOOPBACK

    if option_values["host"] not in LOOPBACK and tokens is None and not option_values["insecure"]:
        raise ConfigurationError(
            f"--host {option_values['host']} lets other machines connect: give --tokens FILE (--new-token adds a "
            "token), or --insecure"
        )
    if (option_values["tls_cert"] is None) != (option_values["tls_key"] is None):
        raise BadInput("--tls-cert and --tls-key must be given together")


def _serve(options: Options, choice: IndexChoice, tokens: CallerTokens | None, option_values: dict[str, Any]) -> None:
    try:
        from indexmill.serve.server import Address
        from indexmill.serve.serving import serve
    except ImportError as error:
        raise not_installed("indexmill serve", "starlette", error) from error
    from indexmill.serve.engine import ServerModels

    llm = None if option_values["quote"] else model_of(options)
    models = ServerModels(llm, reranker_of(options), None if llm is None else prompts_of(options))
    if options.max_output_tokens is not None:
        models = ServerModels(models.llm, models.reranker, models.prompts, options.max_output_tokens)
    limits = ServerLimits(**{limit.name: option_values[limit.name] for limit in fields(ServerLimits)})
    address = Address(*(option_values[name] for name in ("host", "port", "tls_cert", "tls_key", "linger")))
    mount = None if option_values["no_mcp"] else _mcp()
    serve(choice, address, limits, models, tokens, mount=mount, insecure=option_values["insecure"])


def _mcp() -> Mount | None:
    """Return the route of the MCP tools; None if the package for MCP is not installed."""
    try:
        from indexmill.mcp.tools import mounted
    except ModuleNotFoundError:
        return None
    return mounted
