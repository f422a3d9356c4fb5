"""``indexmill query``: passages, and what is told of many of them, that answer a question."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import click

from indexmill.command.options import (
    SHARED_GROUPS,
    GroupedCommand,
    Options,
    candidate,
    common,
    filtered,
    opened,
    parameters_by_method,
    pinned,
    settable,
)
from indexmill.command.reranker import reranking, reranking_of
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.text.printable import one_line, printable

__all__ = ["command", "few", "titled", "wrapped"]

WIDTH = 100

MOST_LISTED = 12
"""Documents or ids of one hit that are shown; ``--json`` has them all."""


_OF_HETEROGRAPH = {
    "entries": "the nearest units, attributes and high-level elements, at which the walk begins",
    "texts": "texts among the hits at most",
    "units": "units that the walk adds at most",
    "attributes": "attributes that the walk adds at most",
    "high_level": "high-level elements that the walk adds at most",
    "relations": "relations that the walk adds at most",
}

_TAKEN = {
    "lsh_tree": {"pattern", "ratio", "token_budget"},
    "community_tree": {"token_budget", "k_level", "levels", "passages"},
    "heterograph": {"token_budget", *_OF_HETEROGRAPH},
}
"""The options of one retrieval that a method takes."""

_OF_SEVERAL = set.intersection(*_TAKEN.values())

_GROUPS = {
    f"Of {', '.join(_TAKEN)}": _OF_SEVERAL,
    **{f"Of {method}": taken - _OF_SEVERAL for method, taken in _TAKEN.items()},
    **SHARED_GROUPS,
}


def _of_heterograph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of heterograph alone."""
    for name, said in reversed(_OF_HETEROGRAPH.items()):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, metavar="N", type=click.IntRange(min=0), help=f"{said[0].upper()}{said[1:]}.")(
            function
        )
    return function


@click.command("query", cls=GroupedCommand, groups=_GROUPS)
@click.argument("question")
@click.option("--method", "-m", metavar="NAME", help="How to retrieve; the best that the snapshot holds by default.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits.")
@click.option("--explain", is_flag=True, help="Show why each hit was found.")
@click.option(
    "--pattern",
    type=click.Choice(["collapsed", "detailed", "summarised"]),
    help="The nearest of all, or mostly passages, or mostly summaries.",
)
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1),
    help="The part of K that is of the favoured kind, under a pattern.",
)
@click.option(
    "--token-budget",
    metavar="T",
    type=click.IntRange(min=1),
    help="Hits of T tokens at most; what does not fit is left out.",
)
@click.option("--k-level", metavar="K", type=click.IntRange(1, 1000), help="Nodes found on every level.")
@click.option(
    "--levels",
    metavar="L",
    type=click.IntRange(min=0),
    help="Levels of communities that are searched, from the lowest up; 0 for entities alone.",
)
@click.option("--passages", metavar="P", type=click.IntRange(min=0), help="Passages among the hits at most.")
@_of_heterograph
@reranking
@settable
@filtered
@candidate
@pinned
@common
def command(
    options: Options,
    question: str,
    method: str | None,
    k: int,
    explain: bool,
    pattern: str | None,
    ratio: float | None,
    token_budget: int | None,
    k_level: int | None,
    levels: int | None,
    passages: int | None,
    rerank: str | None,
    rerank_model: str | None,
    rerank_depth: int | None,
    settings: tuple[str, ...],
    where: tuple[str, ...],
    version: str | None,
    alias: str | None,
    run: str | None,
    **of_heterograph: int | None,
) -> None:
    """Retrieve the passages that answer QUESTION.

    An empty question has no hits.

    --method lsh_tree finds summaries, too. `--pattern detailed --ratio 0.8 -k 5` gives the 4 nearest passages and the
    nearest summary, `--pattern summarised` 4 summaries and a passage.

    --method community_tree finds entities and communities of them, too: `--passages 0 -k 25` gives the 5 nearest of
    each of 5 levels.

    --method heterograph finds units, attributes, high-level elements and relations, too: `--texts 10 -k 60
    --token-budget 3000` gives what fits of the best ten of each kind, those nearest to the question first.

    Every setting that a method has may be tried with --set before it is published: `--method tri_graph --set
    damping=0.85`, and of what the default method combines `--set tri_graph.damping=0.85 --set bm25=0.5`.
    """
    given = {
        "pattern": pattern,
        "ratio": ratio,
        "token_budget": token_budget,
        "k_level": k_level,
        "levels": levels,
        "passages": passages,
        **of_heterograph,
    }
    parameters: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    by = reranking_of(rerank, rerank_model, rerank_depth)
    with opened(options, version, alias, run) as snapshot:
        method = method or snapshot.default_method
        if not set(parameters) <= _TAKEN.get(method, set()):
            raise BadInput(_refused(method, list(parameters)))
        others = parameters_by_method(settings, [method]).get(method, {})
        if twice := sorted(parameters.keys() & others):
            raise BadInput(f"--set and an option of its own both name {', '.join(twice)}: give one of them")
        parameters |= others
        hits = snapshot.retrieve(
            question, method=method, k=k, where=where or None, parameters=parameters, **by._asdict()
        )
        if options.json:
            options.print_json(
                {
                    "version": snapshot.version,
                    "question": question,
                    "method": method,
                    **({"parameters": parameters} if parameters else {}),
                    "hits": [hit.to_dict() for hit in hits],
                }
            )
            return
        if not hits:
            click.echo("nothing found")
            return
        for rank, hit in enumerate(hits, start=1):
            click.echo(_shown(rank, hit, explain))


def _refused(method: str, names: Sequence[str]) -> str:
    """That a method does not take some parameters, and which one would."""
    named = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    others = [other for other, taken in _TAKEN.items() if taken.issuperset(names)]
    instead = f"; add --method {' or '.join(others)}" if others else ", and no method takes all of them"
    return f"{named}: {method} does not take that{instead}"


def titled(hit: Hit) -> str:
    """What stands in the heading of a hit: its title, and its kind where it is no passage."""
    if hit.kind == "passage":
        return hit.title or "(no title)"
    return f"{hit.title} ({hit.kind})" if hit.title else f"({hit.kind})"


def _shown(rank: int, hit: Hit, explain: bool) -> str:
    heading = f"{rank:>2}. {hit.score:.4f}  {titled(hit)}  [{', '.join(few(hit.document_ids))}]"
    lines = [one_line(heading)]
    lines += wrapped(hit.text, "    ")
    if explain:
        for name, reasons in (hit.explanation or {}).items():
            lines += _reasons(name, reasons)
    return "\n".join([*lines, ""])


def _reasons(name: str, reasons: Any) -> list[str]:
    """One part of an explanation: a heading, and a line for every reason with what it says about itself."""
    if not reasons:
        return []
    if isinstance(reasons, dict):
        return [line for inner, those in reasons.items() for line in _reasons(f"{name}, {inner}", those)]
    if not isinstance(reasons, list):
        return wrapped(f"{name}: {reasons}", "      ")
    lines = [f"      {name}:"]
    for reason in few(reasons) if isinstance(reasons[0], str) else reasons:
        said = reason if isinstance(reason, dict) else {"name": reason}
        shown = (_value(key, value) for key, value in said.items() if key not in _UNSHOWN)
        lines += wrapped(one_line("- " + ", ".join(part for part in shown if part)), "        ")
        if said.get("sentence"):
            lines += wrapped(f"“{said['sentence']}”", "          ")
    return lines


def few(items: Sequence[Any]) -> list[Any]:
    """The first of some items, and how many more there are."""
    more = len(items) - MOST_LISTED
    return list(items) if more <= 0 else [*items[:MOST_LISTED], f"{more:,} more"]


_UNSHOWN = frozenset({"entity_id", "community_id", "node_id", "sentence"})
"""Ids are for scripts; a sentence gets a line of its own."""


def _value(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("surface", "name", "term", "text", "title", "description"):
        return str(value)
    return f"{key.replace('_', ' ')} {f'{value:.3f}' if isinstance(value, float) else value}"


def wrapped(text: str, indent: str) -> list[str]:
    """A text's lines as a terminal shows them."""
    paragraphs = [part for part in printable(text).splitlines() if part.strip()]
    return [
        line
        for part in paragraphs
        for line in textwrap.wrap(part, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    ]
