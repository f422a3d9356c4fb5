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
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and touch nothing.")
@common
def command(
    options: Options,
    keep_last: int | None,
    keep_within: float | None,
    grace: float,
    records: float,
    dry_run: bool,
) -> None:
    """Remove what no kept version needs: blobs, receipts, and records of old runs.

    Without --keep-last and --keep-within every version is kept, and only what none of them needs goes. With either,
    versions that neither keeps are removed; never the newest, one that an alias points to, or its number. Readers of a
    removed version are told so. Safe at any time beside readers; a run that is interrupted is finished by the next.
    """
    from flows.operation import operation
    from storage import gc
    from storage.folder import open_store

    store = open_store(options.store_path())
    policy = gc.Policy(last=keep_last, within=keep_within, grace=grace, records=records)
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
        click.echo(_text(done, "would be removed" if dry_run else "removed"))


def _text(done: Collected, removed: str) -> str:
    withdrawn = f", {_counted(done.versions_withdrawn)} withdrawn by forget" if done.versions_withdrawn else ""
    lines = [
        f"versions: {_counted(done.versions_removed)} {removed}, {_counted(done.versions_kept)} kept{withdrawn}",
        f"blobs: {done.blobs_removed:,} {removed}, {done.blobs_kept:,} kept",
        f"bytes: {done.bytes_removed:,} {removed}, {done.bytes_kept:,} kept",
        f"receipts: {done.receipts_removed:,} {removed}, {done.receipts_kept:,} kept",
        f"records of runs, leases and batches: {done.records_removed:,} {removed}",
    ]
    return "\n".join(lines)


def _counted(versions: tuple[int, ...]) -> str:
    """How many versions, and which: `2 (3, 4)`."""
    return f"{len(versions):,} ({', '.join(map(str, versions))})" if versions else "none"
