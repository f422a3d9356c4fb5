"""``indexmill backfill``: build a large corpus in waves."""

from __future__ import annotations

from typing import Any

import click

from flows.command.build import tell
from flows.command.shared import budget_of, budgeted, configured, progress_of
from indexmill.command.options import Options, common

__all__ = ["command"]


@click.command("backfill")
@click.option("--wave-shards", type=click.IntRange(min=1), help="Shards in a wave; default: about four million tokens.")
@click.option("--publish-every", type=click.IntRange(min=1), metavar="N", help="Publish after every N waves too.")
@click.option("--cold", is_flag=True, help="Make every part again; an interrupted backfill starts from the beginning.")
@click.option("--strict", is_flag=True, help="Exit with 2, publishing nothing, when a row is refused.")
@click.option("--allow-shrink", is_flag=True, help="Publish although documents have gone: see `build`.")
@budgeted
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: the cores.")
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@click.option("--note", default="", help="A remark kept with the versions.")
@common
def command(
    options: Options,
    wave_shards: int | None,
    publish_every: int | None,
    cold: bool,
    strict: bool,
    allow_shrink: bool,
    retry_refused: bool,
    budget_tokens: int | None,
    budget_cost: float | None,
    workers: int | None,
    dask: str | None,
    note: str,
) -> None:
    """Do the work of `indexmill build` in waves: groups of shards, each finished before the next begins.

    What a wave takes does not grow with the corpus; the stages at the end, which see all of it, do. Stop it as you
    like (Ctrl-C, SIGTERM, a crash): started again it goes on where it was, and so would `indexmill build`. Readers
    keep the last version until the end. With --publish-every the shards so far are published on the way, unless that
    takes documents away. The last version is the one that `indexmill build` publishes. Exit codes are those of
    `indexmill build`.

    With llm.batch, language models are asked by the endpoint's Batch API: for less money, and within a day. `indexmill
    batches` shows what is under way there.
    """
    run: dict[str, Any] = {"strict": True} if strict else {}
    if workers is not None:
        run["workers"] = workers
    if wave_shards is not None:
        run["wave_shards"] = wave_shards
    configuration = configured(options, {"run": run, **budget_of(budget_tokens, budget_cost)})
    progress = progress_of()
    progress.doing("starting")

    from flows.local import build_under_prefect
    from tasks.pipeline.backfill import Waves

    outcome = build_under_prefect(
        configuration,
        progress=progress,
        cold=cold,
        allow_shrink=allow_shrink,
        retry_refused=retry_refused,
        dask=dask,
        note=note,
        waves=Waves(configuration.run.wave_shards, publish_every),
    )
    tell(options, outcome)
