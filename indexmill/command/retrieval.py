"""How a command retrieves: the options of ``query``, ``answer`` and ``evaluate``."""

from __future__ import annotations

from typing import NamedTuple

import click

from indexmill.command.options import Options, kept_option, pinned, together
from indexmill.errors import BadInput
from indexmill.models.reranker import Reranker, open_reranker
from indexmill.text.printable import one_line

__all__ = ["Reranking", "reranking_of", "retrieving"]

DEPTH = 50


class Reranking(NamedTuple):
    """The arguments ``rerank`` and ``rerank_depth`` of a retrieval."""

    rerank: Reranker | None = None
    rerank_depth: int = DEPTH


retrieving = together(
    kept_option(
        "--rerank",
        metavar="PATH|URL",
        help="Order the passages found by a cross-encoder: its folder, or the URL of an endpoint of the protocol "
        "/v1/rerank, whose key is in INDEXMILL_RERANK_API_KEY.",
    ),
    kept_option("--rerank-model", metavar="NAME", help="The model to ask for at the endpoint of --rerank."),
    kept_option(
        "--rerank-depth",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"Rerank the first N hits, {DEPTH} by default.",
    ),
    kept_option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="Retrieve with this setting of the method instead of the snapshot's, such as title=0.1, or of a method "
        "that fused combines, such as dense.title=0.1; may be repeated. An unknown name lists those that exist.",
    ),
    kept_option(
        "--where",
        metavar="CONDITION",
        multiple=True,
        help="Search only documents for which this holds, such as 'year>=2024', lang=en,de or 'author exists'; "
        "may be repeated, and then all conditions have to hold.",
    ),
    pinned,
)
"""Adds the options of reranking, ``--set``, ``--where``, and those that choose the snapshot."""


def reranking_of(options: Options) -> Reranking:
    """The reranker that the options name; warns on standard error of what is unwise about an endpoint's key."""
    if options.rerank is None:
        given = {"--rerank-model": options.rerank_model, "--rerank-depth": options.rerank_depth}
        if named := [name for name, value in given.items() if value is not None]:
            raise BadInput(f"{', '.join(named)}: without --rerank nothing is reranked")
        return Reranking()
    reranker = open_reranker(options.rerank, options.rerank_model)
    for caution in getattr(reranker, "cautions", list)():
        click.echo(one_line(f"caution: {caution}"), err=True)
    return Reranking(reranker, options.rerank_depth or DEPTH)
