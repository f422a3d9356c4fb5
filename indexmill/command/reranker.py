"""The reranker that a command uses: its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from indexmill.errors import BadInput
from indexmill.models.reranker import Reranker, open_reranker
from indexmill.text.printable import one_line

__all__ = ["Reranking", "reranking", "reranking_of"]

DEPTH = 50


class Reranking(NamedTuple):
    """The arguments ``rerank`` and ``rerank_depth`` of a retrieval."""

    rerank: Reranker | None = None
    rerank_depth: int = DEPTH


def reranking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--rerank``, ``--rerank-model`` and ``--rerank-depth``, which ``reranking_of`` takes."""
    for option in (
        click.option(
            "--rerank-depth",
            metavar="N",
            type=click.IntRange(min=1),
            help=f"The first N hits are reranked, {DEPTH} by default.",
        ),
        click.option("--rerank-model", metavar="NAME", help="The model that the endpoint of --rerank is asked for."),
        click.option(
            "--rerank",
            metavar="PATH|URL",
            help="Order the passages found by a cross-encoder: its folder, or the URL of an endpoint of the protocol "
            "/v1/rerank, whose key is in INDEXMILL_RERANK_API_KEY.",
        ),
    ):
        function = option(function)
    return function


def reranking_of(rerank: str | None, rerank_model: str | None, rerank_depth: int | None) -> Reranking:
    """What the options name; tells on standard error what is unwise about an endpoint's key."""
    if rerank is None:
        given = {"--rerank-model": rerank_model, "--rerank-depth": rerank_depth}
        if named := [name for name, value in given.items() if value is not None]:
            raise BadInput(f"{', '.join(named)}: without --rerank nothing is reranked")
        return Reranking()
    reranker = open_reranker(rerank, rerank_model)
    for caution in getattr(reranker, "cautions", list)():
        click.echo(one_line(f"caution: {caution}"), err=True)
    return Reranking(reranker, rerank_depth or DEPTH)
