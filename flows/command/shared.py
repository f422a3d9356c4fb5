"""Shared parts of the pipeline's commands: options, configuration, progress and output."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.progress_lines import Lines, TerminalBars
from indexmill.command.options import Options
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from indexmill.text.durations import stamp, stamps_wanted
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from flows.build_run import PlanOptions
    from schemas.config import Configuration
    from storage.protocol import Store

FILE = click.Path(dir_okay=False, path_type=Path)
"""The type of a parameter that names a file."""

_PROGRESS = "indexmill.progress"
"""The key of a command's progress in its context."""

_PATHS = 3
"""The maximum number of corpus paths in a command's first line."""

_Command = Callable[..., Any]

workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: one for each core."
)

_CLUSTER_OPTIONS = (
    click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tls://HOST:PORT."),
    click.option(
        "--insecure-cluster",
        is_flag=True,
        help="Allow a cluster on other machines without TLS: anyone who reaches it can run code there.",
    ),
)

_BUILD_OPTIONS = (
    click.option("--cold", is_flag=True, help="Make every part again; only the ledger is reused."),
    click.option(
        "--full", is_flag=True, help="Read every file and row again, even if unchanged since the last version."
    ),
    click.option("--strict", is_flag=True, help="Exit with 2 and publish nothing if a row is refused."),
    click.option(
        "--allow-shrink",
        is_flag=True,
        help="Continue even if too many documents are missing: more than gates.max_shrink, all, or any "
        "while a source is empty or unreadable.",
    ),
    click.option(
        "--allow-rights-change",
        is_flag=True,
        help="Continue even if corpus.access was removed or changed, which changes who may read documents.",
    ),
    click.option(
        "--retry-refused", is_flag=True, help="Repeat calls to language models that were refused or answered badly."
    ),
    workers_option,
)

_RUN_OPTIONS = (
    *_CLUSTER_OPTIONS,
    click.option(
        "--budget-tokens",
        type=click.IntRange(min=0),
        help="Exit with 4 before language models use more tokens than this; overrides llm.budget.tokens.",
    ),
    click.option(
        "--budget-cost",
        type=click.FloatRange(min=0),
        help="Exit with 4 before language models cost more than this; overrides llm.budget.cost.",
    ),
    click.option("--note", default="", help="A remark that is stored with each published version."),
)


def build_options(command: _Command) -> _Command:
    """Add the options of commands that plan or build; the command receives `configuration` and `how` (PlanOptions)."""

    @functools.wraps(command)
    def with_configuration(
        *,
        cold: bool,
        full: bool,
        allow_shrink: bool,
        allow_rights_change: bool,
        retry_refused: bool,
        strict: bool,
        workers: int | None,
        wave_shards: int | None = None,
        dask: str | None = None,
        insecure_cluster: bool = False,
        budget_tokens: int | None = None,
        budget_cost: float | None = None,
        **remaining: Any,
    ) -> None:
        run = _without_none(strict=strict or None, workers=workers, wave_shards=wave_shards)
        run |= cluster_overrides(dask, insecure_cluster=insecure_cluster)
        budget = _without_none(tokens=budget_tokens, cost=budget_cost)
        overrides = {"run": run} | ({"llm": {"budget": budget}} if budget else {})
        configuration = configuration_of(click.get_current_context().ensure_object(Options), overrides)
        how: PlanOptions = {
            "cold": cold,
            "full": full,
            "allow_shrink": allow_shrink,
            "allow_rights_change": allow_rights_change,
            "retry_refused": retry_refused,
        }
        command(configuration=configuration, how=how, **remaining)

    return _with_options(with_configuration, _BUILD_OPTIONS)


def run_options(command: _Command) -> _Command:
    """Add the options of commands that build: `note`, and the cluster and budget options that `build_options` reads."""
    return _with_options(command, _RUN_OPTIONS)


def cluster_options(command: _Command) -> _Command:
    """Add the options that name a cluster, `dask` and `insecure_cluster`, for `cluster_overrides`."""
    return _with_options(command, _CLUSTER_OPTIONS)


def cluster_overrides(dask: str | None, *, insecure_cluster: bool) -> dict[str, Any]:
    """Convert the cluster options to settings of `run`."""
    settings = _without_none(address=dask, insecure=insecure_cluster or None)
    return {"dask": settings} if settings else {}


def _with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def _without_none(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def configuration_of(options: Options, overrides: Mapping[str, Any] | None = None) -> Configuration:
    """Load the configuration file with the command line's overrides. overrides: settings, nested like the file."""
    from schemas.config import load_configuration

    overrides = dict(overrides or {})
    if options.corpus:
        overrides["corpus"] = {"paths": list(options.corpus), "sources": []}
    if options.store:
        overrides["store"] = options.store
    return load_configuration(options.configuration_path(), overrides)


def store_of(options: Options) -> Store:
    """Open the store that the options or the configuration file name; raises SnapshotNotFound if there is none."""
    from storage.stores import open_store

    return open_store(options.store_path())


def version_number(store: Store, word: str) -> int:
    """Resolve a number, an alias or `newest` to a version number; raises SnapshotNotFound."""
    from indexmill.command.versions import version_of
    from indexmill.store.reader import StoreReader

    return version_of(StoreReader(store.url), word)


def begin(command: str, configuration: Configuration) -> Lines:
    """Print a command's first line and return its progress; call it before anything that takes a second."""
    from schemas.sources import name_of_source

    progress = make_progress()
    corpus = configuration.corpus
    paths = () if corpus is None else (*corpus.paths, *map(name_of_source, corpus.sources))
    more = f" and {len(paths) - _PATHS:,} more" if len(paths) > _PATHS else ""
    named = f", corpus {', '.join(map(str, paths[:_PATHS]))}{more}" if paths else ""
    progress.note(redacted(f"indexmill {command}: store {configuration.store}{named}"))
    progress.doing("loading the pipeline")
    return progress


def make_progress() -> Lines:
    """Create the progress display: bars on a terminal, otherwise plain lines. It closes with the current command."""
    progress = TerminalBars() if sys.stderr.isatty() else Lines()
    if (context := click.get_current_context(silent=True)) is not None:
        context.call_on_close(progress.close)
        context.meta[_PROGRESS] = progress
    return progress


def print_result(options: Options, result: Any, lines: Iterable[str]) -> None:
    """Print a command's result: with --json, ``result`` (a mapping or dataclass) as one object; else ``lines``."""
    context = click.get_current_context(silent=True)
    if context is not None and (progress := context.meta.get(_PROGRESS)) is not None:
        progress.close()
    if options.json:
        options.print_json(result if isinstance(result, Mapping) else dataclasses.asdict(result))
        return
    before = f"{stamp()} " if stamps_wanted() else ""
    for line in lines:
        click.echo("\n".join(before + part for part in line.split("\n")))


def table_of(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format columns of rows as a table, each under its title; None becomes an empty cell."""
    return table(
        list(columns.values()), [["" if row.get(name) is None else row[name] for name in columns] for row in rows]
    )


def quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    """Describe the recall that a gate measured: a line for each method, and a line for skipped questions."""
    compared = quality["compared"] or {"before": {}, "now": {}, "version": None}
    for method, recall in quality["recall"].items():
        line = f"recall@{quality['k']} of {method}: {recall:.4f}"
        if method in compared["before"]:
            before, now = compared["before"][method], compared["now"][method]
            line += f"; version {compared['version']}: {before:.4f}"
            if now != recall:
                line += f", {now:.4f} now, on the gold documents of that version"
        yield line
    if quality["missing_gold"]:
        yield (
            f"{counted(quality['missing_gold'], 'gold document is', 'gold documents are')} not in the corpus; "
            f"{quality['unanswerable']} of {counted(quality['questions'], 'question')} "
            f"{'has no other and was' if quality['unanswerable'] == 1 else 'have no other and were'} left out"
        )
