"""``indexmill gc``: remove what no kept version needs."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.options import Options, common

if TYPE_CHECKING:
    from storage.gc import Collected

__all__ = ["SPAN", "command"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class _Span(click.ParamType[float]):
    """A length of time such as 90m, 24h, 30d or 4w, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        matched = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", str(value))
        if matched is None:
            self.fail(f"{value!r} is no length of time; write a number and s, m, h, d or w, such as 30d", param, ctx)
        return float(matched[1]) * _UNITS[matched[2]]


SPAN = _Span()


@click.command("gc")
@click.option("--keep-last", metavar="N", type=click.IntRange(min=1), help="Keep the N newest versions.")
@click.option("--keep-within", metavar="SPAN", type=SPAN, help="Keep the versions made within this time, such as 30d.")
@click.option(
    "--grace", metavar="SPAN", type=SPAN, default="24h", show_default=True, help="Spare whatever is younger than this."
)
@click.option(
    "--records",
    metavar="SPAN",
    type=SPAN,
    default="90d",
    show_default=True,
    help="Remove records of runs, leases and closed batches older than this.",
)
@click.option(
    "--now",
    is_flag=True,
    help="Remove at once what would be set aside; refused where a run before may still be writing.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed and set aside, and touch nothing.")
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
    """Remove what no kept version needs: blobs, receipts, and records of old runs.

    Blobs and receipts go in two steps: what nothing needs is set aside, and a later gc, an hour after that at the
    earliest, removes what still nothing needs. --now does both at once.

    Without --keep-last and --keep-within every version is kept, and only what none of them needs goes. With either,
    versions that neither keeps are removed; never the newest, one that an alias points to, or its number. Readers of a
    removed version are told so. Safe at any time beside readers; a run that is interrupted is finished by the next.
    """
    from flows.operation import operation
    from storage import gc, lease
    from storage.folder import open_store

    store = open_store(options.store_path())
    wait = 0.0 if now else lease.STALE
    policy = gc.Policy(last=keep_last, within=keep_within, grace=grace, wait=wait, records=records)
    if dry_run:
        done = gc.Collected.of(gc.survey(store, policy, clock=time.time))
    else:
        with operation(store, "gc", details=dataclasses.asdict(policy)) as run:
            found = gc.survey(store, policy, clock=time.time)
            done = gc.collect(store, run.lease, found, policy, clock=time.time)
            told = dataclasses.asdict(done)
            run.done = True
            run.report = {"gc": {name: value for name, value in told.items() if not isinstance(value, tuple)}}
    if options.json:
        options.print_json({"dry_run": dry_run, **dataclasses.asdict(done)})
    else:
        click.echo(_text(done, "would be " if dry_run else ""))


def _text(done: Collected, would: str) -> str:
    withdrawn = f", {_counted(done.versions_withdrawn)} withdrawn by forget" if done.versions_withdrawn else ""
    if done.versions_incomplete:
        withdrawn += f", {_counted(done.versions_incomplete)} withdrawn because they were incomplete"
    lines = [
        f"versions: {_counted(done.versions_removed)} {would}removed, {_counted(done.versions_kept)} kept{withdrawn}",
        _line("blobs", would, done.blobs_removed, done.blobs_set_aside, done.blobs_waiting, done.blobs_kept),
        _line("bytes", would, done.bytes_removed, done.bytes_set_aside, done.bytes_waiting, done.bytes_kept),
        _line(
            "receipts", would, done.receipts_removed, done.receipts_set_aside, done.receipts_waiting, done.receipts_kept
        ),
        f"records of runs, leases and batches: {done.records_removed:,} {would}removed",
    ]
    if done.removed_were_set_aside:
        lines.append(f"what {would or 'was '}removed was set aside at {', '.join(done.removed_were_set_aside)}")
    if done.blobs_set_aside or done.receipts_set_aside or done.waiting_since:
        lines.append("what is set aside is removed by a gc an hour later or after that, or by `indexmill gc --now`")
    return "\n".join(lines)


def _line(what: str, would: str, removed: int, set_aside: int, waiting: int, kept: int) -> str:
    new = f", {set_aside:,} {would}set aside" if set_aside else ""
    before = f", {waiting:,} set aside before" if waiting else ""
    return f"{what}: {removed:,} {would}removed{new}{before}, {kept:,} kept"


def _counted(versions: tuple[int, ...]) -> str:
    """How many versions, and which: `2 (3, 4)`."""
    return f"{len(versions):,} ({', '.join(map(str, versions))})" if versions else "none"
