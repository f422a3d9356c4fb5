"""What the pipeline's commands have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from indexmill.command.options import Options
from indexmill.text.counted import counted
from schemas.config import Configuration, load_configuration

if TYPE_CHECKING:
    from flows.progress import Lines

__all__ = ["blank", "budget_of", "budgeted", "configured", "progress_of", "quality_lines"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def budgeted(command: _Command) -> _Command:
    """The options of commands that may ask language models."""
    for option in (
        click.option(
            "--budget-cost",
            type=click.FloatRange(min=0),
            help="Exit with 4 before language models cost more than this; overrides llm.budget.cost.",
        ),
        click.option(
            "--budget-tokens",
            type=click.IntRange(min=0),
            help="Exit with 4 before language models take more tokens than this; overrides llm.budget.tokens.",
        ),
        click.option(
            "--retry-refused", is_flag=True, help="Ask language models again what they refused or answered badly."
        ),
    ):
        command = option(command)
    return command


def budget_of(tokens: int | None, cost: float | None) -> dict[str, Any]:
    """The settings that the options of a budget override."""
    given = {name: most for name, most in (("tokens", tokens), ("cost", cost)) if most is not None}
    return {"llm": {"budget": given}} if given else {}


def configured(options: Options, overrides: dict[str, Any] | None = None) -> Configuration:
    """The configuration file with the command line laid over it."""
    overrides = dict(overrides or {})
    if options.corpus:
        overrides["corpus"] = {"paths": list(options.corpus)}
    if options.store:
        overrides["store"] = options.store
    return load_configuration(options.configuration_path(), overrides)


def progress_of() -> Lines:
    """Bars on a terminal, plain lines elsewhere; they end with the command at work, before it says how it ended."""
    from flows.progress import Lines, TerminalBars

    progress = TerminalBars() if sys.stderr.isatty() else Lines()
    if (context := click.get_current_context(silent=True)) is not None:
        context.call_on_close(progress.close)
    return progress


def quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    """What a gate measured, for people: a line for each method, and what was left out."""
    compared = quality["compared"] or {"before": {}, "now": {}, "version": None}
    for method, recall in quality["recall"].items():
        line = f"recall@{quality['k']} of {method}: {recall:.4f}"
        if method in compared["before"]:
            before, now = compared["before"][method], compared["now"][method]
            line += f"; version {compared['version']}: {before:.4f}"
            if now != recall:
                line += f" where this has {now:.4f}, of the gold documents that version had"
        yield line
    if quality["missing_gold"]:
        yield (
            f"{counted(quality['missing_gold'], 'gold document is', 'gold documents are')} not in the corpus; "
            f"{quality['unanswerable']} of {counted(quality['questions'], 'question')} "
            f"{'has no other and was' if quality['unanswerable'] == 1 else 'have no other and were'} left out"
        )


def blank(value: object) -> object:
    """A value as a table shows it: nothing for None."""
    return "" if value is None else value
