"""``indexmill query``: retrieve the passages and summaries that answer a question."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import click

from indexmill.command.options import SHARED_GROUPS, GroupedCommand, Options, common, parameters_by_method, together
from indexmill.command.retrieval import retrieval_of, retrieval_options, warn_of_hidden_documents
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import Option
from indexmill.text.printable import escaped, isolated, one_line, printable

WIDTH = 100

MOST_LISTED = 12
"""The maximum number of documents or ids shown per hit; ``--json`` has them all."""


_ACCEPTED = {
    method.name: {option.parameter for option in method.options} for method in METHODS.values() if method.options
}
"""The options that a method accepts, by method."""

_OPTIONS = {option.parameter: option for method in METHODS.values() for option in method.options}

_COMMON = set.intersection(*_ACCEPTED.values())

_GROUPS = {
    f"For {', '.join(_ACCEPTED)}": _COMMON,
    **{f"For {method}": accepted - _COMMON for method, accepted in _ACCEPTED.items()},
    **SHARED_GROUPS,
}

_PARAGRAPHS = "\n\n".join(" ".join(method.query_help.split()) for method in METHODS.values() if method.query_help)

_HELP = f"""Retrieve the passages that answer QUESTION.

An empty question has no hits.

{_PARAGRAPHS}

Try a setting with --set before you publish it: `--method dense --set title=0.1`, or, for the methods that the default
method combines, `--set dense.title=0.1 --set dense=0.5`.
"""


def _option_of(option: Option) -> Callable[[Any], Any]:
    kind: click.ParamType[Any]
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.whole:
        kind = click.IntRange(option.least, option.most)
    else:
        kind = click.FloatRange(option.least, option.most)
    name = f"--{option.parameter.replace('_', '-')}"
    return click.option(name, metavar=option.metavar, type=kind, help=option.help)


_ILLEGIBLE = (
    "the encoder hardly reads the language of this question: the default method answers it by its words, methods that "
    "begin at vectors are unreliable; see docs/operations/encoders.md"
)


@click.command("query", cls=GroupedCommand, groups=_GROUPS, help=_HELP)
@click.argument("question")
@click.option("--method", "-m", metavar="NAME", help="The retrieval method; by default the best in the snapshot.")
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="How many hits to return.")
@click.option("--explain", is_flag=True, help="Show why each hit was found.")
@together(*map(_option_of, _OPTIONS.values()))
@retrieval_options
@common
def command(
    options: Options,
    question: str,
    method: str | None,
    k: int,
    explain: bool,
    **option_values: object,
) -> None:
    """See ``_HELP``."""
    from indexmill.retrieve.legibility import HARDLY

    parameters = {name: option_values[name] for name in _OPTIONS if option_values[name] is not None}
    retrieval = retrieval_of(options)
    with options.open_snapshot() as snapshot:
        method = method or snapshot.default_method
        if not set(parameters) <= _ACCEPTED.get(method, set()):
            raise BadInput(_not_accepted(method, list(parameters)))
        settings = parameters_by_method(options.settings, [method]).get(method, {})
        if duplicates := sorted(parameters.keys() & settings):
            raise BadInput(f"--set and an option of the method both set {', '.join(duplicates)}: give one of them")
        parameters |= settings
        tip = "" if snapshot.has_cache else " (faster the next time with --cache DIR)"
        with Waiting(f"retrieving by {method}{tip}", only_terminals=True):
            hits = snapshot.retrieve(question, options=retrieval, method=method, k=k, parameters=parameters)
        warn_of_hidden_documents(snapshot, retrieval.principals)
        if snapshot.retriever(method).uses_vectors and snapshot.legibility(question, options=retrieval) < HARDLY:
            click.echo(_ILLEGIBLE, err=True)
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
            click.echo("no hits")
            return
        for rank, hit in enumerate(hits, start=1):
            click.echo(_shown(rank, hit, explain))


def _not_accepted(method: str, names: Sequence[str]) -> str:
    """Return the message that a method does not accept some options; it names the methods that do."""
    named = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    methods = [method_name for method_name, accepted in _ACCEPTED.items() if accepted.issuperset(names)]
    instead = f"; add --method {' or '.join(methods)}" if methods else ", and no method accepts all of them"
    return f"{named}: {method} does not accept that{instead}"


def titled(hit: Hit) -> str:
    """Format the heading of a hit for a line: title, section and page, its kind if it is no passage, and documents."""
    title = isolated(one_line(hit.title))
    section = f" § {' > '.join(isolated(one_line(name)) for name in hit.section)}" if hit.section else ""
    section += f", {hit.place}" if hit.pages else ""
    if hit.kind == "passage":
        title = (title or "(no title)") + section
    else:
        title = f"{title}{section} ({hit.kind})" if title else f"({hit.kind}){section}"
    return f"{title}  [{', '.join(few([isolated(escaped(document_id)) for document_id in hit.document_ids]))}]"


def cited(hit: Hit) -> list[str]:
    """Format the source of a hit's document as a line; return no line if the corpus has no source."""
    place = hit.url or hit.source
    return [one_line(f"    {place}")] if place else []


def _shown(rank: int, hit: Hit, explain: bool) -> str:
    lines = [f"{rank:>2}. {hit.score:.4f}  {titled(hit)}", *cited(hit), *wrapped(hit.text, "    ")]
    if explain:
        for name, reasons in (hit.explanation or {}).items():
            lines += _reasons(name, reasons)
    return "\n".join([*lines, ""])


def _reasons(name: str, reasons: Any) -> list[str]:
    """Format a part of an explanation: a heading, and a line per reason with its fields."""
    if not reasons:
        return []
    if isinstance(reasons, dict):
        return [
            line for inner, inner_reasons in reasons.items() for line in _reasons(f"{name}, {inner}", inner_reasons)
        ]
    if not isinstance(reasons, list):
        return wrapped(f"{name}: {reasons}", "      ")
    lines = [f"      {name}:"]
    for reason in few(reasons) if isinstance(reasons[0], str) else reasons:
        fields = reason if isinstance(reason, dict) else {"name": reason}
        shown = (_value(key, value) for key, value in fields.items() if key not in _UNSHOWN)
        lines += wrapped(one_line("- " + ", ".join(part for part in shown if part)), "        ")
        if fields.get("sentence"):
            lines += wrapped(f"“{fields['sentence']}”", "          ")
    return lines


def few(items: Sequence[Any]) -> list[Any]:
    """Return the first items; if there are more, the last item is a text with the number of the others."""
    more = len(items) - MOST_LISTED
    return list(items) if more <= 0 else [*items[:MOST_LISTED], f"{more:,} more"]


_UNSHOWN = frozenset({"entity_id", "community_id", "node_id", "sentence"})
"""Fields that a reason's line omits: ids are for scripts, and a sentence has its own line."""


def _value(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("surface", "name", "term", "text", "title", "description"):
        return str(value)
    return f"{key.replace('_', ' ')} {f'{value:.3f}' if isinstance(value, float) else value}"


def wrapped(text: str, indent: str) -> list[str]:
    """Wrap a text into lines for a terminal."""
    paragraphs = [part for part in printable(text).splitlines() if part.strip()]
    return [
        line
        for part in paragraphs
        for line in textwrap.wrap(part, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    ]
