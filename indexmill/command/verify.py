"""``indexmill verify``: every byte of a snapshot against its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from indexmill.command.options import Options, common, trust_option
from indexmill.store.bucket import place_of
from indexmill.text.counted import counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from indexmill.store.signatures import Trust
    from indexmill.store.verify import Verification

__all__ = ["command"]


@click.command("verify")
@click.argument("version", metavar="[VERSION]", required=False)
@trust_option
@common
def command(options: Options, version: str | None) -> None:
    """Check every byte of a snapshot, the newest by default, against the digests of its manifest.

    VERSION is a number, an alias or `newest`. With --trust it must first be signed as the file demands: exit code 3
    otherwise. Exits with 1 if something is damaged or missing, and names it.
    """
    report = _checked(place_of(options.store_path()), version, options.trust)
    if options.json:
        options.print_json(report.to_json())
    else:
        for problem in report.problems:
            click.echo(one_line(f"damaged: {problem}"))
        state = "whole" if report.ok else counted(len(report.problems), "problem")
        checked = f"{counted(report.artifacts, 'artifact')}, {counted(report.bytes, 'byte')}"
        click.echo(f"{options.snapshot_name(report.version)}: {state}; {checked} checked")
    if not report.ok:
        click.get_current_context().exit(1)


def _checked(path: Path | str, version: str | None, trust: Trust | None) -> Verification:
    """The report of a store's version, or of an exported folder."""
    from indexmill.command.versions import selection
    from indexmill.errors import SnapshotNotFound
    from indexmill.store.exported import ExportedFolder, is_exported
    from indexmill.store.reader import StoreReader
    from indexmill.store.verify import Verification, check_artifacts, verify

    if isinstance(path, str) or not is_exported(path):
        store = StoreReader(path)
        number, alias = selection(version)
        if trust is not None:
            ref = store.resolve(version=number, alias=alias)
            trust.check(ref.manifest, store.signatures(ref.version), f"version {ref.version} of {path}")
        return verify(store, number if alias is None else store.resolve(alias=alias).version)
    if version is not None:
        raise SnapshotNotFound(f"{path}: is an exported folder, which holds one snapshot and no other versions")
    folder = ExportedFolder(path, trust=trust)
    checked, problems = check_artifacts(folder.manifest, folder.open_local)
    length = sum(artifact.bytes for artifact in checked)
    return Verification(None, folder.digest, len(checked), length, tuple(problems))
