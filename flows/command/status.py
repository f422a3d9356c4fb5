"""``indexmill status``: the freshness of the index, for operators and monitors."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import click

from flows.command.coverage import coverage_lines
from flows.command.shared import print_result, store_of
from flows.status import EXIT_CODES, Status, duration_text, read_status
from indexmill.command.options import Duration, Options, common
from indexmill.command.waiting import Waiting
from indexmill.text.counted import counted
from indexmill.text.fact_lines import by_language
from indexmill.text.printable import printable


@click.command("status")
@click.option(
    "--max-age",
    type=Duration(),
    metavar="TIME",
    help="Exit with 1 if the index is older than this, such as 26h, 90m or 2d; by default, any age is accepted.",
)
@click.option("--coverage", is_flag=True, help="Also show what became of the files of the corpus; see `coverage`.")
@common
def command(options: Options, max_age: float | None, *, coverage: bool) -> None:
    """Show how fresh the index is: its newest version, the last runs, and the run at work.

    The age counts from the start of the last run that compared the published index with the corpus, whether it
    published a version or found nothing to do. Problems are also printed on standard error.

    Exit codes: 0 fresh, 1 older than --max-age or nothing published yet, 2 no store. At any age: 3 the last build was
    refused, 7 its candidate waits for `indexmill publish`, 8 on hold, 9 rolled back with no build since.
    """
    with Waiting("reading the records of the runs", only_terminals=True):
        status = read_status(store_of(options), time.time(), max_age)
    shown = dataclasses.asdict(status)
    lines = list(_lines(status))
    if coverage:
        lines += coverage_lines(status.coverage) if status.coverage else ["no run has recorded the files of the corpus"]
    else:
        del shown["coverage"]
    print_result(options, shown, lines)
    for problem in status.problems:
        click.echo(printable(problem), err=True)
    if not status.fresh:
        click.get_current_context().exit(EXIT_CODES[status.state])


def _lines(status: Status) -> Iterator[str]:
    newest, success, last, running = status.version, status.success, status.last, status.running
    yield f"state: {status.state}"
    if newest is not None:
        yield f"newest version: {newest.version}, published {duration_text(newest.age_seconds)} ago by run {newest.run}"
    if success is not None and status.age_seconds is not None:
        claim = "up to date: with" if status.fresh else "not up to date: holds"
        yield f"{claim} the corpus of {duration_text(status.age_seconds)} ago, by run {success.run} ({success.state})"
    if status.languages:
        yield f"documents by language: {by_language(status.languages)}"
    if status.encoder_warning:
        yield printable(status.encoder_warning)
    for stage, count in status.stand_ins.items():
        yield f"fallbacks: {count['stand_ins']:,} of {counted(count['texts'], 'text')} of {stage}"
    if last is not None:
        code = "" if last.exit_code is None else f", exit code {last.exit_code}"
        yield f"last run: {last.run} ({last.command}): {last.state}{code}"
        if last.error:
            yield f"  {printable(last.error)}"
    yield (
        "at work: none" if running is None else f"at work: run {running.run} ({running.holder}) since {running.since}"
    )
    for batch in status.batches:
        yield f"batch {batch.id}: {batch.state}, for {duration_text(batch.age_seconds)}"
    for alias, version in status.aliases.items():
        yield f"alias {alias}: version {version}"
