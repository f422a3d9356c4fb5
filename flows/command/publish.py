"""``indexmill publish``: publish by hand what a gate refused."""

from __future__ import annotations

import dataclasses

import click

from indexmill.command.options import Options, common
from indexmill.text.counted import counted

__all__ = ["command"]


@click.command("publish")
@click.argument("run_id", metavar="RUN")
@click.option("--note", default="", help="A remark kept with the version: why it was published all the same.")
@common
def command(options: Options, run_id: str, note: str) -> None:
    """Publish the candidate of RUN, which a gate refused, as the next version.

    `indexmill runs` lists the runs that were refused; `query`, `show` and `evaluate` read a candidate with `--run`.
    Nothing is computed. Publishing it again changes nothing. Exit codes: 0 published, now or before, 2 the run holds no
    candidate, 5 another run is at work, or published a version since: build again.
    """
    from flows.candidates import publish_candidate
    from storage.folder import open_store

    outcome = publish_candidate(open_store(options.store_path()), run_id, note=note)
    if options.json:
        options.print_json(dataclasses.asdict(outcome))
        return
    if outcome.published:
        held = f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}"
        click.echo(f"published version {outcome.version}: {held}")
    else:
        click.echo(f"nothing to do: version {outcome.version} is the candidate of run {run_id} already")
