"""``indexmill gc``: remove files that no kept version needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import click

from flows.command.shared import print_result, store_of
from flows.operation import operation
from indexmill.command.options import Duration, Options, common
from indexmill.command.waiting import Waiting
from storage import gc, lease
from storage.clock import clock_of
from storage.gc import CollectionResult


@click.command("gc")
@click.option("--keep-last", metavar="N", type=click.IntRange(min=1), help="Keep the N newest versions.")
@click.option("--keep-within", metavar="SPAN", type=Duration(), help="Keep versions younger than this, such as 30d.")
@click.option(
    "--grace",
    metavar="SPAN",
    type=Duration(),
    default="24h",
    show_default=True,
    help="Keep files younger than this.",
)
@click.option(
    "--records",
    metavar="SPAN",
    type=Duration(),
    default="90d",
    show_default=True,
    help="Remove records of runs, leases and closed batches older than this.",
)
@click.option(
    "--now",
    is_flag=True,
    help="Remove files at once instead of setting them aside; refused while an earlier run may still be writing.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed and set aside, and change nothing.")
@common
def command(
    options: Options,
    keep_last: int | None,
    keep_within: float | None,
    grace: float,
    records: float,
    now: bool,
    dry_run: bool,
) -> None:
    """Remove blobs, receipts and records of old runs that no kept version needs.

    Blobs and receipts are removed in two steps: unneeded files are set aside, and a gc at least an hour later removes
    those that are still unneeded. --now does both steps immediately.

    Without --keep-last and --keep-within, every version is kept, and only files that none of them needs are removed.
    With either, the versions that neither keeps are removed, but never the newest version or one that an alias points
    to. The number of a removed version is not used again, and its readers get an error that says so. gc is safe while
    readers are at work. The next gc finishes an interrupted one.
    """
    store = store_of(options)
    wait = 0.0 if now else lease.STALE
    policy = gc.Policy(last=keep_last, within=keep_within, grace=grace, wait=wait, records=records)
    searching = "looking for files that no version needs"
    if dry_run:
        with Waiting(searching, only_terminals=True):
            done = gc.CollectionResult.of(gc.survey(store, policy, clock=clock_of(store)))
    else:
        with (
            Waiting(searching, only_terminals=True) as waiting,
            operation(store, "gc", details=dataclasses.asdict(policy)) as run,
        ):
            clock = run.lease.clock
            survey = gc.survey(store, policy, clock=clock)
            waiting.say("removing or setting aside files that no version needs")
            done = gc.collect(store, run.lease, survey, policy, clock=clock)
            run.done = True
            counts = dataclasses.asdict(done).items()
            run.report = {"gc": {name: value for name, value in counts if not isinstance(value, tuple)}}
    result = {"dry_run": dry_run, **dataclasses.asdict(done)}
    print_result(options, result, _lines(done, "would be " if dry_run else ""))


def _lines(done: CollectionResult, would: str) -> Iterator[str]:
    withdrawn = f", {_counted(done.versions_withdrawn)} withdrawn by forget" if done.versions_withdrawn else ""
    if done.versions_incomplete:
        withdrawn += f", {_counted(done.versions_incomplete)} withdrawn because they were incomplete"
    yield f"versions: {_counted(done.versions_removed)} {would}removed, {_counted(done.versions_kept)} kept{withdrawn}"
    for what in ("blobs", "bytes", "receipts"):
        removed, set_aside, waiting, retained = (
            getattr(done, f"{what}_{fate}") for fate in ("removed", "set_aside", "waiting", "kept")
        )
        new = f", {set_aside:,} {would}set aside" if set_aside else ""
        before = f", {waiting:,} set aside before" if waiting else ""
        yield f"{what}: {removed:,} {would}removed{new}{before}, {retained:,} kept"
    yield f"records of runs, leases and batches: {done.records_removed:,} {would}removed"
    if done.removed_were_set_aside:
        yield f"what {would or 'was '}removed was set aside at {', '.join(done.removed_were_set_aside)}"
    if done.blobs_set_aside or done.receipts_set_aside or done.waiting_since:
        yield "files set aside are removed by a gc at least an hour later, or by `indexmill gc --now`"


def _counted(versions: tuple[int, ...]) -> str:
    """Format the count of versions, and their numbers: `2 (3, 4)`."""
    return f"{len(versions):,} ({', '.join(map(str, versions))})" if versions else "none"
