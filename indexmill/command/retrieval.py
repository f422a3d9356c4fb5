"""The retrieval options of ``query``, ``answer`` and ``evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from indexmill.command.options import Options, as_option, kept_option, pinned, print_cautions, together
from indexmill.errors import BadInput
from indexmill.models.reranker import Reranker, open_reranker
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.retrieve.rights import UNRESTRICTED, Principals

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

retrieval_options = together(
    kept_option(
        "--rerank",
        metavar="PATH|URL",
        help="Rerank the passages with a cross-encoder, given as a folder, or as the URL of an endpoint with the "
        "protocol /v1/rerank, whose key is in INDEXMILL_RERANK_API_KEY.",
    ),
    kept_option("--rerank-model", metavar="NAME", help="The model's name at the endpoint of --rerank."),
    kept_option(
        "--rerank-depth",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"Rerank the first N hits, {RetrievalOptions.rerank_depth} by default.",
    ),
    kept_option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="Override a setting of the method, such as title=0.1, or of a method that fused combines, such as "
        "dense.title=0.1; may be repeated. The error for an unknown name lists the settings.",
    ),
    kept_option(
        "--where",
        metavar="CONDITION",
        multiple=True,
        help="Search only documents that satisfy this condition, such as 'year>=2024', lang=en,de or 'author exists'; "
        "may be repeated, and all conditions must hold.",
    ),
    as_option("Read as a member of this group; documents it may not read are excluded. May be repeated."),
    kept_option("--unrestricted", is_flag=True, help="Read all documents, regardless of access rights."),
    pinned,
)
"""Adds the options for reranking, settings, filters and access rights, and those that choose the snapshot."""


def principals_of(options: Options, default: Principals = None) -> Principals:
    """Return the principals that the options name; ``default`` if they name none."""
    if options.principals and options.unrestricted:
        raise BadInput("--as and --unrestricted are mutually exclusive: give only one")
    return UNRESTRICTED if options.unrestricted else options.principals or default


def warn_of_hidden_documents(snapshot: Snapshot, principals: Principals) -> None:
    """Print a warning on standard error if restricted documents are excluded because no groups are named."""
    if snapshot.access is not None and not principals:
        click.echo("this index has access control; pass --as GROUP to include restricted documents", err=True)


def reranker_of(options: Options) -> Reranker | None:
    """Open the reranker that the options name, if any; prints warnings about unsafe handling of its key."""
    if options.rerank is None:
        return None
    reranker = open_reranker(options.rerank, options.rerank_model)
    print_cautions(getattr(reranker, "cautions", list)())
    return reranker


def retrieval_of(options: Options, default: Principals = None) -> RetrievalOptions:
    """Return the reranker, filter and principals of the options. default: the principals if the options name none."""
    reranking = {"--rerank-model": options.rerank_model, "--rerank-depth": options.rerank_depth}
    if options.rerank is None and (named := [name for name, value in reranking.items() if value is not None]):
        raise BadInput(f"{', '.join(named)}: needs --rerank")
    return RetrievalOptions(
        rerank=reranker_of(options),
        rerank_depth=options.rerank_depth or RetrievalOptions.rerank_depth,
        where=options.where or None,
        principals=principals_of(options, default),
    )
