"""``indexmill schedule``: the nightly run on one machine."""

from __future__ import annotations

import sys

import click

from flows.command.shared import configured
from indexmill.command.options import Options, common
from indexmill.errors import BadInput

__all__ = ["command"]


@click.command("schedule")
@click.option("--cron", metavar="FIELDS", default="0 2 * * *", show_default=True, help="When to run, as cron says it.")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Whose clock the schedule means.")
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@common
def command(options: Options, cron: str, timezone: str, dask: str | None) -> None:
    """Run `indexmill build` whenever the schedule comes due, until this command is ended.

    One run at a time, each a process of its own with the Prefect server it needs (PREFECT_API_URL names another). A
    run that comes while another holds the lease is skipped; one that was missed is made up for at the next look at
    the clock. SIGTERM and Ctrl-C stop a run at work cleanly, and the next one goes on from there. `indexmill runs`
    and `indexmill status` say how the runs went; with --json each run prints its object on a line.
    """
    path = options.configuration_path()
    if path is None:
        raise BadInput("a schedule needs a configuration file: give --config, or write one with `indexmill init`")
    if options.corpus or options.store:
        raise BadInput("a schedule runs what its configuration file says: put --corpus and --store there")
    configured(options)

    from flows.schedule import serve

    build = [sys.executable, "-m", "indexmill", "build", "--config", str(path.resolve())]
    build += ["--dask", dask] if dask else []
    build += ["--json"] if options.json else []
    serve(build, cron, timezone, tell=lambda line: click.echo(line, err=True))
