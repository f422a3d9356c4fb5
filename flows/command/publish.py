"""``indexmill publish``: publish a candidate that a gate refused."""

from __future__ import annotations

import click

from flows.candidates import publish_candidate
from flows.command.shared import print_result, store_of
from indexmill.command.options import Options, common
from indexmill.text.counted import counted


@click.command("publish")
@click.argument("run_id", metavar="RUN")
@click.option("--note", default="", help="The reason for publishing it; stored with the version.")
@common
def command(options: Options, run_id: str, note: str) -> None:
    """Publish the candidate of RUN, which a gate refused, as the next version.

    `indexmill runs` lists the runs that were refused; `query`, `show` and `evaluate` read a candidate with `--run`.
    Nothing is computed, and publishing a candidate again changes nothing. Exit codes: 0 published now or before, 2 the
    run has no candidate, 5 another run is at work, or has published a version since: build again.
    """
    outcome = publish_candidate(store_of(options), run_id, note=note)
    if outcome.published:
        size = f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}"
        line = f"published version {outcome.version}: {size}"
    else:
        line = f"nothing to do: version {outcome.version} is already the candidate of run {run_id}"
    print_result(options, outcome, [line])
