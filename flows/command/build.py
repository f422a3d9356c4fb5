"""``indexmill build``: bring the index up to date with the corpus."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from flows.command.shared import configured, progress_of
from indexmill.command.options import Options, common

__all__ = ["command"]


@click.command("build")
@click.option("--cold", is_flag=True, help="Make every part again; the ledger alone is kept.")
@click.option("--strict", is_flag=True, help="Exit with 2, publishing nothing, when a row is refused.")
@click.option("--allow-shrink", is_flag=True, help="Publish although an unreadable file takes documents away.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: the cores.")
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@click.option("--note", default="", help="A remark kept with the version.")
@common
def command(
    options: Options, cold: bool, strict: bool, allow_shrink: bool, workers: int | None, dask: str | None, note: str
) -> None:
    """Bring the index up to date with the corpus and publish it as the next version.

    Only what the corpus changed is computed; a build that was interrupted goes on where it stopped. Exit codes: 0
    published or nothing to do, 1 an error of the program, 2 bad input or configuration, 3 refused by a gate, 4 budget
    reached, 5 another run holds the lease.
    """
    run: dict[str, Any] = {"strict": True} if strict else {}
    if workers is not None:
        run["workers"] = workers
    configuration = configured(options, {"run": run})

    from flows.run import build_under_prefect

    outcome = build_under_prefect(
        configuration, progress=progress_of(), cold=cold, allow_shrink=allow_shrink, dask=dask, note=note
    )
    if options.json:
        options.print_json(dataclasses.asdict(outcome))
        return
    if outcome.published:
        click.echo(f"published version {outcome.version}: {outcome.documents} documents, {outcome.passages} passages")
    else:
        click.echo(f"nothing to do: version {outcome.version} is up to date")
    click.echo(
        f"parts: {outcome.parts_made} made, {outcome.parts_reused} reused; vectors: {outcome.vectors_made} made, "
        f"{outcome.vectors_reused} reused; {outcome.seconds:.1f} s"
    )
    if outcome.quarantined:
        click.echo(f"{outcome.quarantined} rows were refused: see `indexmill quarantine`")
    if outcome.forgotten:
        click.echo(f"{outcome.forgotten} documents of the corpus are forgotten, and were left out")
