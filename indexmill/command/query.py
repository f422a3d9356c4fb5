"""``indexmill query``: passages that answer a question."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from indexmill.command.options import Options, candidate, common, filtered, opened, pinned, printable
from indexmill.hits import Hit

__all__ = ["command"]

WIDTH = 100


@click.command("query")
@click.argument("question")
@click.option("--method", "-m", metavar="NAME", help="How to retrieve; the best that the snapshot holds by default.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits.")
@click.option("--explain", is_flag=True, help="Show why each hit was found.")
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
    where: tuple[str, ...],
    version: int | None,
    alias: str | None,
    run: str | None,
) -> None:
    """Retrieve the passages that answer QUESTION.

    An empty question has no hits.
    """
    with opened(options, version, alias, run) as snapshot:
        method = method or snapshot.default_method
        hits = snapshot.retrieve(question, method=method, k=k, where=where or None)
        if options.json:
            options.print_json(
                {
                    "version": snapshot.version,
                    "question": question,
                    "method": method,
                    "hits": [hit.to_dict() for hit in hits],
                }
            )
            return
        if not hits:
            click.echo("nothing found")
            return
        for rank, hit in enumerate(hits, start=1):
            click.echo(_shown(rank, hit, explain))


def _shown(rank: int, hit: Hit, explain: bool) -> str:
    heading = f"{rank:>2}. {hit.score:.4f}  {hit.title or '(no title)'}  [{', '.join(hit.document_ids)}]"
    lines = [printable(heading)]
    lines += _wrapped(hit.text, "    ")
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
        return _wrapped(f"{name}: {reasons}", "      ")
    lines = [f"      {name}:"]
    for reason in reasons:
        said = reason if isinstance(reason, dict) else {"name": reason}
        shown = (_value(key, value) for key, value in said.items() if key not in _UNSHOWN)
        lines += _wrapped("- " + ", ".join(part for part in shown if part), "        ")
        if said.get("sentence"):
            lines += _wrapped(f"“{said['sentence']}”", "          ")
    return lines


_UNSHOWN = frozenset({"entity_id", "sentence"})  # ids are for scripts; a sentence gets a line of its own


def _value(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("surface", "name", "term", "text"):
        return str(value)
    return f"{key.replace('_', ' ')} {f'{value:.3f}' if isinstance(value, float) else value}"


def _wrapped(text: str, indent: str) -> list[str]:
    paragraphs = [part for part in printable(text).splitlines() if part.strip()]
    return [
        line
        for part in paragraphs
        for line in textwrap.wrap(part, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    ]
