"""``indexmill repair``: restore or remove what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.command.shared import progress_of
from indexmill.command.options import Options, common, store_folder
from indexmill.store.layout import is_digest
from indexmill.text.counted import counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from flows.repair import Repaired
    from storage.repair import Finding

__all__ = ["STILL_MISSING", "command"]

STILL_MISSING = 7
"""The exit code where something that a version needs is still to come: from a build, or from a copy."""

_DAMAGE = {"missing": "is missing", "damaged": "is damaged", "unreadable": "cannot be read"}
_MEANING = {
    "rebuild": "the next build makes it again if corpus and settings are as they were",
    "dropped": "no reader needs it, and a build that does makes it again",
    "lost": "only a copy has it: give one with --from",
    "unreadable": "left as it is: look at the permissions and at the disk, or give a copy with --from",
}


@click.command("repair")
@click.argument("version", metavar="[VERSION]", required=False)
@click.option(
    "--from",
    "sources",
    metavar="FOLDER",
    multiple=True,
    help="A copy of the store, or an exported snapshot, to restore from; may be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and touch nothing.")
@common
def command(options: Options, version: str | None, sources: tuple[str, ...], dry_run: bool) -> None:
    """Find what is damaged or missing, restore it from copies, and remove the rest for a build to make again.

    Reads every blob that the versions need, or that VERSION does (a number, an alias or `newest`). A blob is taken from
    whichever copy has its very bytes; damage in a copy is passed over. What no copy has is removed, so that `indexmill
    build` makes again what the newest version needs, to the same bytes; a blob that is whole is never removed. Damaged
    records of versions, aliases, holds and exports are restored from a copy of this very store.

    Exit code 0: everything is whole. 7: something is still missing, or, with --dry-run, there is something to do; the
    lines say whether a build makes it or only a copy has it. 5: a build is at work.
    """
    from flows.repair import repair
    from storage.copies import open_copy

    copies = [open_copy(Path(store_folder(source))) for source in sources]
    root = Path(options.store_path()).absolute()
    done = repair(root, copies, version=version, dry_run=dry_run, progress=progress_of())
    if options.json:
        options.print_json(done.to_json())
    else:
        for finding in done.findings:
            click.echo(one_line(_line(finding, dry_run)))
        click.echo(_summary(done))
    if not done.whole:
        click.get_current_context().exit(STILL_MISSING)


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


def _summary(done: Repaired) -> str:
    blobs, versions = counted(done.blobs, "blob"), counted(len(done.versions), "version")
    read = f"{blobs} of {versions} read ({counted(done.bytes, 'byte')})"
    if not done.findings:
        return f"{read}: whole"
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
    return f"{read}: {counted(len(done.findings), 'problem')}, {counts}"
