"""``indexmill snapshots``: list the versions of the index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.text.fact_lines import SHORT
from indexmill.text.printable import printable
from indexmill.text.terminal import style_of
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.store.manifest import Removal
    from indexmill.store.reader import StoreReader


@click.command("snapshots")
@common
def command(options: Options) -> None:
    """List the versions of the index, newest first, with their aliases, and the hold on builds, if there is one."""
    from indexmill.store.reader import StoreReader

    with Waiting("listing the versions", only_terminals=True):
        store = StoreReader(options.store_path())
        versions = listed(store)
        aliases = store.aliases()
        hold = store.hold()
    if options.json:
        options.print_json(
            {
                "snapshots": versions,
                "aliases": aliases,
                "hold": None if hold is None else hold.model_dump(mode="json", exclude={"held"}),
            }
        )
        return
    if not versions:
        click.echo("no snapshots yet: `indexmill build` publishes the first", err=True)
        return
    rows = [
        [
            version["version"],
            (version["created"] or "-")[:19].replace("T", " "),
            "-" if version["documents"] is None else f"{version['documents']:,}",
            "-" if version["passages"] is None else f"{version['passages']:,}",
            ", ".join(version["aliases"]),
            (version["manifest"] or "-")[:SHORT],
            version["run"] or "-",
            _remark(version),
        ]
        for version in versions
    ]
    header = ["version", "created (UTC)", "documents", "passages", "aliases", "manifest", "run", "note"]
    click.echo(table(header, rows, right=("documents", "passages"), style=style_of(sys.stdout)))
    if hold is not None:
        click.echo(printable(f"{hold}; `indexmill resume` allows builds again"))


_REMOVED = {
    "gc": "removed by gc",
    "forgotten": "withdrawn: contained a forgotten document",
    "incomplete": "withdrawn: was incomplete",
}


def _remark(version: dict[str, Any]) -> str:
    if version["removed"] is not None:
        return f"({_REMOVED[version['removed']['reason']]}) {version['note']}".rstrip()
    return str(version["damaged"] or version["note"])


def listed(store: StoreReader) -> list[dict[str, Any]]:
    """List every version, newest first, as ``snapshots --json`` prints it.

    If the ref or manifest of a version cannot be read, ``damaged`` contains the problem. For a removed version,
    ``removed`` contains the time and the reason.
    """
    aliases, removals = store.aliases(), store.removals()
    return [
        _version(
            store, version, sorted(name for name, target in aliases.items() if target == version), removals.get(version)
        )
        for version in reversed(store.versions())
    ]


_FIELDS = (
    *("version", "created", "documents", "passages", "families", "manifest", "parent", "run"),
    *("note", "cost", "aliases", "damaged", "removed"),
)
"""The fields of a version with ``--json``, in order."""


def _version(store: StoreReader, version: int, aliases: list[str], removal: Removal | None) -> dict[str, Any]:
    from indexmill.errors import StoreError

    shown: dict[str, Any] = dict.fromkeys(_FIELDS) | {"version": version, "note": "", "cost": {}, "aliases": aliases}
    try:
        ref = store.ref(version)
        shown.update(
            created=ref.created, manifest=ref.manifest, parent=ref.parent, run=ref.run_id, note=ref.note, cost=ref.cost
        )
        if removal is not None:
            shown["removed"] = {"reason": removal.reason, "created": removal.created, "run": removal.run_id}
            return shown
        manifest = store.manifest(ref.manifest)
        shown.update(
            documents=manifest.corpus.documents,
            passages=manifest.corpus.passages,
            families=sorted(manifest.families),
        )
    except StoreError as error:
        shown["damaged"] = str(error)
    return shown
