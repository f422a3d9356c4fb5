"""``indexmill repair``: restore or remove damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from flows.command.shared import make_progress, print_result
from flows.repair import Repaired, repair
from indexmill.command.options import Options, common
from indexmill.store.bucket import place_of
from indexmill.store.layout import is_digest
from indexmill.store.location import store_location
from indexmill.text.counted import counted
from indexmill.text.printable import one_line
from storage.copies import open_copy
from storage.repair import Finding

_STILL_MISSING = 7
"""The exit code if a version still lacks a file, which a build or a copy must provide."""

_DAMAGE = {"missing": "is missing", "damaged": "is damaged", "unreadable": "cannot be read"}
_MEANING = {
    "rebuild": "the next build makes it again if corpus and settings are unchanged",
    "dropped": "no reader needs it, and a build that does makes it again",
    "lost": "only a copy can restore it: give one with --from",
    "unreadable": "left as it is: check the permissions and the disk, or give a copy with --from",
}


@click.command("repair")
@click.argument("version", metavar="[VERSION]", required=False)
@click.option(
    "--from",
    "sources",
    metavar="PLACE",
    multiple=True,
    help="The folder or URL of a copy of the store, or the folder of an exported snapshot; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@common
def command(options: Options, version: str | None, sources: tuple[str, ...], dry_run: bool) -> None:
    """Find damaged and missing files, restore them from copies, and remove the rest so that a build makes them again.

    Reads every blob that the versions need, or only those of VERSION (a number, an alias or `newest`). A damaged blob
    is replaced by the same bytes from any copy, for a bucket also from this machine's cache; damage in a copy does no
    harm. A damaged blob that no copy has is removed: `indexmill build` makes the blobs of the newest version again, to
    the same bytes. An undamaged blob is never removed. Damaged records of versions, aliases, holds and exports are
    restored only from a copy of the same store.

    Exit codes: 0 everything is intact, 5 a build is at work, 7 something is still missing or, with --dry-run, there is
    something to do; the output says whether a build can make it or only a copy can restore it.
    """
    copies = [open_copy(store_location(source)) for source in sources]
    store = place_of(options.store_path())
    done = repair(store, copies, version=version, dry_run=dry_run, progress=make_progress())
    print_result(options, done.to_json(), _lines(done))
    if not done.whole:
        click.get_current_context().exit(_STILL_MISSING)


def _lines(done: Repaired) -> Iterator[str]:
    for finding in done.findings:
        yield one_line(_line(finding, done.dry_run))
    summary = f"{counted(done.blobs, 'blob')} of {counted(len(done.versions), 'version')} read"
    summary += f" ({counted(done.bytes, 'byte')}): "
    if not done.findings:
        yield f"{summary}whole"
    else:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
        yield f"{summary}{counted(len(done.findings), 'problem')}, {counts}"


def _line(finding: Finding, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    if finding.source is not None:
        done = f"{would}restored from {finding.source}"
    else:
        removed = finding.damage == "damaged" and is_digest(Path(finding.name).name)
        done = f"{would}removed; " * removed + _MEANING[finding.outcome]
    versions = ", ".join(map(str, finding.versions))
    where = f"version{'s' if len(finding.versions) > 1 else ''} {versions}: " if versions else ""
    return f"{where}{finding.what}, {finding.name}, {_DAMAGE[finding.damage]}: {done}"
