"""``indexmill diff``: what changed between two versions."""

from __future__ import annotations

import json
from typing import Any

import click

from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.retrieve.method_registry import METHODS
from indexmill.text.printable import escaped, one_line
from indexmill.text.text_table import table


@click.command("diff")
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.option(
    "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="How many ids of each kind to list."
)
@common
def command(options: Options, a: str | None, b: str | None, limit: int) -> None:
    """Show what changed from version A to version B.

    By default, B is the newest version and A its parent. Both may be numbers, aliases or `newest`: `indexmill diff
    prod` shows what changes for readers of prod when it moves to the newest version.

    Each document counts once: as added, removed, changed (same id, other content) or moved (same title, text and
    metadata under another id, such as a renamed file). The output also has passages, entities, summaries, communities,
    attributes, high-level elements and extracted relations; the counts of every index family; the size of the files of
    B that A does not share; the cost of the runs from A to B; and the settings, models and library versions that
    differ. Only shards that differ are read.

    The exit code is 0 whether or not anything differs; see `"equal"` in --json.
    """
    from indexmill.command.versions import version_of
    from indexmill.diff import diff
    from indexmill.store.reader import StoreReader

    store = StoreReader(options.store_path())
    with Waiting("comparing the versions", only_terminals=True):
        older, newer = (None if word is None else version_of(store, word) for word in (a, b))
        difference = diff(store.url, older, newer, names=limit).to_json(limit)
    if options.json:
        options.print_json(difference)
    else:
        click.echo("\n".join(map(one_line, _lines(difference))))


def _lines(changes: dict[str, Any]) -> list[str]:
    from indexmill.text.counted import byte_size

    a, b = changes["a"], changes["b"]
    lines = [f"version {a['version']}, {a['created'][:19]}  ->  version {b['version']}, {b['created'][:19]}"]
    if changes["equal"]:
        return [*lines, f"equal: both have the manifest {b['manifest'][:12]}"]
    documents = changes["documents"]
    lines.append("documents  " + ", ".join(f"{number:,} {kind}" for kind, number in documents.items()))
    for kind, ids in changes["document_ids"].items():
        shown = [f"{escaped(one['from'])} -> {escaped(one['to'])}" if kind == "moved" else escaped(one) for one in ids]
        lines += _listed(kind, shown, documents[kind])
    tables = (name for family in METHODS.values() for name in family.tables)
    perhaps = (name for name in tables if any(changes[name].values()))
    for what in ("passages", "entities", *perhaps):
        lines.append(f"{what:<9}  " + ", ".join(f"{number:,} {kind}" for kind, number in changes[what].items()))
    for kind, names in changes["entity_names"].items():
        lines += _listed(kind, list(map(escaped, names)), changes["entities"][kind])
    sizes = changes["bytes"]
    lines.append(f"size       {byte_size(sizes['a'])} -> {byte_size(sizes['b'])}, {byte_size(sizes['new'])} of it new")
    spent = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in changes["cost"].items())
    lines += [f"cost       {spent}"] if spent else []
    lines += _families(changes["families"], a["version"], b["version"])
    for what in ("settings", "models", "environment"):
        lines += [f"{what}: {path} is {_shown(new)}, was {_shown(old)}" for path, (old, new) in changes[what].items()]
    return lines


def _listed(kind: str, ids: list[str], of: int) -> list[str]:
    """Format ids as one line, with the number of omitted ids; return no line if there are no ids."""
    if not ids:
        return []
    more = f" and {of - len(ids):,} more" if of > len(ids) else ""
    return [f"  {kind + ':':<9}{', '.join(ids)}{more}"]


def _families(families: dict[str, Any], a: int, b: int) -> list[str]:
    """Format a table of the counts that differ, and a line for each parameter that differs."""
    rows, lines = [], []
    for name, family in families.items():
        old, new = family["a"], family["b"]
        if old is None or new is None:
            lines.append(f"{name}: {'new' if old is None else 'gone'}")
            continue
        rows += [
            [name, count.replace("_", " "), old.get(count, 0), new.get(count, 0)]
            for count in sorted({*old, *new})
            if old.get(count, 0) != new.get(count, 0)
        ]
        lines += [
            f"{name}: {path} is {_shown(after)}, was {_shown(before)}"
            for path, (before, after) in family["parameters"].items()
        ]
    shown = table(["family", "count", f"version {a}", f"version {b}"], rows).splitlines() if rows else []
    return [*shown, *lines]


def _shown(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)
