"""``indexmill status``: how fresh the index is, for people and monitors."""

from __future__ import annotations

import time

import click

from flows.status import EXIT_CODES, Status, duration_text, read_status
from indexmill.command.options import Duration, Options, common
from indexmill.text.printable import printable

__all__ = ["command"]


@click.command("status")
@click.option(
    "--max-age",
    type=Duration(),
    metavar="TIME",
    help="The age that is still fresh, such as 26h, 90m or 2d; any by default.",
)
@common
def command(options: Options, max_age: float | None) -> None:
    """How fresh the index is: its newest version, the last runs, and who is at work.

    Its age counts from the start of the last run that held what is served against the corpus, whether it published that
    or found nothing to do. Exit codes: 0 fresh, 1 older than --max-age or nothing published yet, 2 no store; and at any
    age 3 where the last build was refused, 7 where its candidate waits for `indexmill publish`, 8 on hold, 9 rolled
    back with no build since. What is wrong is also said on standard error.
    """
    from storage.folder import open_store

    found = read_status(open_store(options.store_path()), time.time(), max_age)
    if options.json:
        options.print_json(found.to_json())
    else:
        _print(found)
    for problem in found.problems:
        click.echo(printable(problem), err=True)
    if not found.fresh:
        click.get_current_context().exit(EXIT_CODES[found.state])


def _print(found: Status) -> None:
    newest, success, last = found.version, found.success, found.last
    click.echo(f"state: {found.state}")
    if newest is not None:
        click.echo(
            f"newest version: {newest.version}, published {duration_text(newest.age_seconds)} ago by run {newest.run}"
        )
    if success is not None and found.age_seconds is not None:
        claim = "up to date: with" if found.fresh else "not up to date: holds"
        click.echo(
            f"{claim} the corpus of {duration_text(found.age_seconds)} ago, by run {success.run} ({success.state})"
        )
    for stage, count in found.stand_ins.items():
        click.echo(f"no language model wrote {count['stand_ins']:,} of {count['texts']:,} texts of {stage}")
    if last is not None:
        code = "" if last.exit_code is None else f", exit code {last.exit_code}"
        click.echo(f"last run: {last.run} ({last.command}): {last.state}{code}")
        if last.error:
            click.echo(f"  {printable(last.error)}")
    at_work = found.running
    click.echo(
        "at work: nobody" if at_work is None else f"at work: run {at_work.run} ({at_work.holder}) since {at_work.since}"
    )
    for batch in found.batches:
        click.echo(f"batch {batch.id}: {batch.state}, for {duration_text(batch.age_seconds)}")
    for alias, version in found.aliases.items():
        click.echo(f"alias {alias}: version {version}")
