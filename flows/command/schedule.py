"""``indexmill schedule``: the nightly run on one machine."""

from __future__ import annotations

import sys

import click

from flows.command.shared import cluster_options, cluster_overrides, configuration_of
from flows.schedule import serve
from indexmill.command.options import Options, common
from indexmill.errors import BadInput


@click.command("schedule")
@click.option("--cron", metavar="FIELDS", default="0 2 * * *", show_default=True, help="When to run, as in crontab.")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="The time zone of the schedule.")
@cluster_options
@common
def command(options: Options, cron: str, timezone: str, dask: str | None, insecure_cluster: bool) -> None:
    """Run `indexmill build` on a schedule, until this command is stopped.

    Runs never overlap. Each is a separate process with its own Prefect server, unless PREFECT_API_URL names one. A run
    is skipped if another command holds the lease, or if it comes due while one is at work. After the machine slept, one
    run makes up for all missed ones.

    SIGTERM and Ctrl-C stop a run at work cleanly, and the next one continues from there. `indexmill runs` and
    `indexmill status` show how the runs ended; with --json, each run prints one object on one line. Every other
    line begins with the time, in UTC.
    """
    path = options.configuration_path()
    if path is None:
        raise BadInput("a schedule needs a configuration file: give --config, or write one with `indexmill init`")
    if options.corpus or options.store:
        raise BadInput("a schedule takes corpus and store from its configuration file: put --corpus and --store there")
    # Raises for a wrong configuration.
    configuration_of(options, {"run": cluster_overrides(dask, insecure_cluster=insecure_cluster)})
    build = [sys.executable, "-m", "indexmill", "build", "--config", str(path.resolve())]
    build += ["--dask", dask] if dask else []
    build += ["--insecure-cluster"] if insecure_cluster else []
    build += ["--json"] if options.json else []
    serve(build, cron, timezone, tell=lambda line: click.echo(line, err=True))
