"""``indexmill backfill``: build a large corpus in waves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flows.command.build import outcome_lines
from flows.command.shared import begin, build_options, print_result, run_options
from indexmill.command.options import Options, common

if TYPE_CHECKING:
    from flows.build_run import PlanOptions
    from schemas.config import Configuration


@click.command("backfill")
@click.option("--wave-shards", type=click.IntRange(min=1), help="Shards in a wave; default: about four million tokens.")
@click.option(
    "--publish-every", type=click.IntRange(min=1), metavar="N", help="Publish after every N waves, not just at the end."
)
@build_options
@run_options
@common
def command(
    options: Options,
    configuration: Configuration,
    how: PlanOptions,
    publish_every: int | None,
    note: str,
) -> None:
    """Do the work of `indexmill build` in waves: groups of shards, each finished before the next begins.

    The memory and disk space of a wave do not grow with the corpus; those of the last stages, which read it all, do.
    A backfill may stop at any time (Ctrl-C, SIGTERM, a crash): the next one continues where it stopped, and so does
    `indexmill build`; with --cold it starts again.

    Readers keep the last version until the end. With --publish-every, the finished shards are also published on the
    way, unless documents of the last version would be missing. The final version is the one `indexmill build` would
    publish. Exit codes are those of `indexmill build`.

    With llm.batch, language models are called through the endpoint's Batch API, which is cheaper and answers within a
    day; `indexmill batches` lists the open batches.
    """
    progress = begin("backfill", configuration)
    from flows import local  # takes seconds, so after the first line
    from tasks.pipeline.backfill import Waves

    waves = Waves(configuration.run.wave_shards, publish_every)
    outcome = local.build_under_prefect(configuration, progress=progress, note=note, waves=waves, **how)
    print_result(options, outcome, outcome_lines(outcome))
