"""How a command retrieves: the options of ``query``, ``answer`` and ``evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from indexmill.command.options import Options, as_option, kept_option, pinned, together
from indexmill.errors import BadInput
from indexmill.models.reranker import Reranker, open_reranker
from indexmill.retrieve.rights import UNRESTRICTED, Principals
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

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
    as_option("Read as a member of this group, where documents say who may read them; may be repeated."),
    kept_option("--unrestricted", is_flag=True, help="Read all documents, whoever may read them."),
    pinned,
)
"""Adds the options of reranking, ``--set``, ``--where``, those of rights, and those that choose the snapshot."""


def principals_of(options: Options, default: Principals = None) -> Principals:
    """As whom the options say to read; ``default`` where they say nothing."""
    if options.principals and options.unrestricted:
        raise BadInput("--as and --unrestricted exclude each other: give one of them")
    return UNRESTRICTED if options.unrestricted else options.principals or default


def say_what_is_hidden(snapshot: Snapshot, principals: Principals) -> None:
    """Say on standard error that documents say who may read them, to somebody who has not said who asks."""
    if snapshot.access is not None and not principals:
        click.echo("this index says who may read its documents: name your groups with --as GROUP", err=True)


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
