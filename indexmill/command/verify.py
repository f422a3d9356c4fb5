"""``indexmill verify``: check every byte of a snapshot against its digests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from indexmill.command.options import Options, common, trust_option
from indexmill.command.waiting import Waiting
from indexmill.store.bucket import place_of
from indexmill.text.counted import counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from indexmill.store.signatures import Statement, Trust
    from indexmill.store.verify import Verification


@click.command("verify")
@click.argument("version", metavar="[VERSION]", required=False)
@trust_option
@common
def command(options: Options, version: str | None) -> None:
    """Check every byte of a snapshot, the newest by default, against the digests of its manifest.

    VERSION is a number, an alias or `newest`. With --trust, the version must have the signatures that the file
    requires (exit code 3 otherwise), and their provenance is printed. If files are damaged or missing, the command
    lists them and exits with 1.
    """
    with Waiting(f"reading every byte of {version or 'the newest version'}", only_terminals=True):
        report, statements = _checked(place_of(options.store_path()), version, options.trust)
    if options.json:
        signatures = [
            {"signers": names, "version": one.version, "signed": one.signed, "provenance": dict(one.provenance)}
            for one, names in statements
        ]
        options.print_json(report.to_json() | ({} if options.trust is None else {"signatures": signatures}))
    else:
        for problem in report.problems:
            click.echo(one_line(f"damaged: {problem}"))
        state = "whole" if report.ok else counted(len(report.problems), "problem")
        checked = f"{counted(report.artifacts, 'artifact')}, {counted(report.bytes, 'byte')}"
        click.echo(f"{options.snapshot_name(report.version)}: {state}; {checked} checked")
        for statement, names in statements:
            click.echo(one_line(_signature_line(statement, names)))
    if not report.ok:
        click.get_current_context().exit(1)


def _signature_line(statement: Statement, names: list[str]) -> str:
    provenance = statement.provenance
    code = provenance.get("code")
    origin = [
        f"run {provenance['run']}" if "run" in provenance else "",
        f"indexmill {code.get('version')} ({str(code.get('digest'))[:12]})" if isinstance(code, dict) else "",
        f"after version {provenance['parent']}" if provenance.get("parent") is not None else "",
    ]
    origin_text = ", ".join(filter(None, origin))
    return f"signed by {' and '.join(names)} as version {statement.version} at {statement.signed}" + (
        f": {origin_text}" if origin_text else ""
    )


def _checked(
    path: Path | str, version: str | None, trust: Trust | None
) -> tuple[Verification, list[tuple[Statement, list[str]]]]:
    from indexmill.command.versions import selection
    from indexmill.errors import SnapshotNotFound
    from indexmill.store.exported import ExportedFolder, is_exported
    from indexmill.store.reader import StoreReader
    from indexmill.store.verify import Verification, check_artifacts, verify

    if isinstance(path, str) or not is_exported(path):
        store = StoreReader(path)
        number, alias = selection(version)
        statements: list[tuple[Statement, list[str]]] = []
        if trust is not None:
            ref = store.resolve(version=number, alias=alias)
            envelopes = store.signatures(ref.version)
            trust.check(ref.manifest, envelopes, f"version {ref.version} of {path}")
            statements = trust.statements(ref.manifest, envelopes)
        return verify(store, number if alias is None else store.resolve(alias=alias).version), statements
    if version is not None:
        raise SnapshotNotFound(f"{path}: is an exported folder, which contains one snapshot and no other versions")
    folder = ExportedFolder(path, trust=trust)
    checked, problems = check_artifacts(folder.manifest, folder.open_local)
    length = sum(artifact.bytes for artifact in checked)
    return Verification(None, folder.digest, len(checked), length, tuple(problems)), folder.statements
