"""``indexmill snapshots``: the versions of the index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.text.page import SHORT
from indexmill.text.printable import printable
from indexmill.text.table import table
from indexmill.text.terminal import style_of

if TYPE_CHECKING:
    from indexmill.store.manifest import Removal
    from indexmill.store.reader import StoreReader


@click.command("snapshots")
@common
def command(options: Options) -> None:
    """List the versions of the index, the newest first, with their aliases, and the hold on builds, if there is one."""
    from indexmill.store.reader import StoreReader

    with Waiting("listing the versions", only_terminals=True):
        store = StoreReader(options.store_path())
        found = listed(store)
        aliases = store.aliases()
        hold = store.hold()
    if options.json:
        options.print_json(
            {
                "snapshots": found,
                "aliases": aliases,
                "hold": None if hold is None else hold.model_dump(mode="json", exclude={"held"}),
            }
        )
        return
    if not found:
        click.echo("no snapshots yet: `indexmill build` publishes the first", err=True)
        return
    rows = [
        [
            one["version"],
            (one["created"] or "-")[:19].replace("T", " "),
            "-" if one["documents"] is None else f"{one['documents']:,}",
            "-" if one["passages"] is None else f"{one['passages']:,}",
            ", ".join(one["aliases"]),
            (one["manifest"] or "-")[:SHORT],
            one["run"] or "-",
            _remark(one),
        ]
        for one in found
    ]
    header = ["version", "created (UTC)", "documents", "passages", "aliases", "manifest", "run", "note"]
    click.echo(table(header, rows, right=("documents", "passages"), style=style_of(sys.stdout)))
    if hold is not None:
        click.echo(printable(f"{hold}; `indexmill resume` lets builds go on"))


_REMOVED = {
    "gc": "removed by gc",
    "forgotten": "withdrawn: held a forgotten document",
    "incomplete": "withdrawn: was not whole",
}


def _remark(one: dict[str, Any]) -> str:
    if one["removed"] is not None:
        return f"({_REMOVED[one['removed']['reason']]}) {one['note']}".rstrip()
    return str(one["damaged"] or one["note"])


def listed(store: StoreReader) -> list[dict[str, Any]]:
    """Every version, the newest first, as ``snapshots --json`` prints it.

    A version whose ref or manifest cannot be read stands in the list with what is wrong with it under ``damaged``, one
    that is no longer there with when and why under ``removed``.
    """
    aliases, removals = store.aliases(), store.removals()
    return [
        _version(
            store, version, sorted(name for name, target in aliases.items() if target == version), removals.get(version)
        )
        for version in reversed(store.versions())
    ]


def _version(store: StoreReader, version: int, aliases: list[str], removal: Removal | None) -> dict[str, Any]:
    from indexmill.errors import StoreError

    shown: dict[str, Any] = {
        "version": version,
        "created": None,
        "documents": None,
        "passages": None,
        "families": None,
        "manifest": None,
        "parent": None,
        "run": None,
        "note": "",
        "cost": {},
        "aliases": aliases,
        "damaged": None,
        "removed": None,
    }
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
