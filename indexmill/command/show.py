"""``indexmill show``: what a snapshot is made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.evaluate import communities_table
from indexmill.command.options import Options, candidate, common, opened, table
from indexmill.command.same_as import listing, pairs
from indexmill.errors import BadInput
from indexmill.families.community_tree import show as of_communities
from indexmill.families.lsh_tree import show as of_summaries
from indexmill.text.counted import byte_size, counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["command", "summary"]


@click.command("show")
@click.argument("version", metavar="[VERSION]", required=False)
@click.option("--alias", metavar="NAME", help="Show the version that this alias points to.")
@click.option("--tree", is_flag=True, help="Draw the summaries of lsh_tree, from the roots down.")
@click.option("--communities", is_flag=True, help="Draw the communities of community_tree, from the roots down.")
@click.option(
    "--depth", metavar="LAYERS", type=click.IntRange(min=1), default=2, show_default=True, help="How far down to draw."
)
@click.option(
    "--width",
    metavar="NODES",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="How many roots, and how many children of a node, to draw; the others are counted.",
)
@click.option("--same-as", "same_as", is_flag=True, help="List the entities whose names are nearly the same.")
@candidate
@common
def command(
    options: Options,
    version: str | None,
    alias: str | None,
    run: str | None,
    tree: bool,
    communities: bool,
    depth: int,
    width: int,
    same_as: bool,
) -> None:
    """Show a snapshot, the newest by default: its families with counts and parameters, its artifacts.

    VERSION is a number, an alias or `newest`.

    Of a heterograph, nodes and edges by kind, and the bytes that hold them.

    With --tree, the hierarchy of lsh_tree instead: every summary with the number of passages under it and its first
    words. With --communities, that of community_tree: every community with its title, its rating and the number of
    entities under it. With --same-as, the pairs of entities whose names are nearly the same, the most alike first.
    """
    chosen = [
        name for name, given in (("--tree", tree), ("--communities", communities), ("--same-as", same_as)) if given
    ]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(chosen)} show different things: give one of them")
    unnumbered = "exported snapshot" if run is None else f"candidate of run {run}, not published"
    with opened(options, version, alias, run) as snapshot:
        if tree or communities:
            drawn = of_summaries if tree else of_communities
            told = drawn.outline(snapshot, depth, width)
            options.print_json(told) if options.json else click.echo(drawn.drawing(told, unnumbered))
            return
        if same_as:
            found = pairs(snapshot)
            options.print_json(found) if options.json else click.echo(listing(found, unnumbered))
            return
        shown = summary(snapshot)
    if options.json:
        options.print_json(shown)
        return
    click.echo(_text(shown, unnumbered))


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as ``show --json`` prints it: the manifest's fields, under the ref that published it.

    ``communities`` has the levels of community_tree and how good they are, ``heterograph`` its nodes and edges by kind
    and the bytes that hold them, each where the snapshot holds the family.
    """
    from indexmill.families.community_tree.nodes import quality
    from indexmill.families.heterograph.show import statistics
    from indexmill.store.canonical import digest_of

    levels, graph = quality(snapshot), statistics(snapshot)
    manifest, ref = snapshot.manifest, snapshot.ref
    record = manifest.model_dump(mode="json", by_alias=True)
    return {
        "version": snapshot.version,
        "manifest": digest_of(manifest.to_bytes()) if ref is None else ref.manifest,
        "published": None if ref is None else ref.model_dump(mode="json", exclude={"version", "manifest"}),
        "methods": list(snapshot.methods),
        **record,
        **({"communities": levels} if levels else {}),
        **({"heterograph": graph} if graph else {}),
    }


def _text(shown: dict[str, Any], unnumbered: str) -> str:
    from indexmill.families.heterograph.show import listing

    version = unnumbered if shown["version"] is None else f"version {shown['version']}"
    lines = [f"{version}  manifest {shown['manifest'][:12]}"]
    published = shown["published"]
    if published is not None:
        lines.append(f"published {published['created']} by run {published['run_id']}")
        if published["note"]:
            lines.append(one_line(published["note"]))
    corpus = shown["corpus"]
    counts = {"documents": corpus["documents"], "passages": corpus["passages"], **corpus["counts"]}
    lines.append("corpus    " + _counted(counts))
    lines.append("methods   " + ", ".join(shown["methods"]))
    for name, model in sorted(shown["models"].items()):
        lines.append(f"{name:<9} {_value(model)}")
    for name, family in sorted(shown["families"].items()):
        length = sum(one["bytes"] for one in shown["artifacts"] if one["name"].partition("/")[0] == name)
        levels = shown.get("communities", {}) if name == "community_tree" else {}
        counts = {
            what: number for what, number in family["counts"].items() if what.removeprefix("level_") not in levels
        }
        if name == "heterograph" and name in shown:  # counted below
            counts = {what: number for what, number in counts.items() if what == "stand_ins"}
        told = [_counted(counts), byte_size(length) if length else ""]
        lines += ["", "  ".join([name, *(part for part in told if part)])]
        if family["history_dependent"]:
            lines.append("  depends on the snapshot before it")
        if levels:
            lines += [f"  {line}" for line in communities_table(levels).splitlines()]
        if name == "heterograph" and name in shown:
            lines += [f"  {line}" for line in listing(shown[name]).splitlines()]
        lines += [f"  {parameter} = {_value(value)}" for parameter, value in sorted(family["parameters"].items())]
    rows = [
        [
            one["name"],
            one["kind"],
            "-" if one["rows"] is None else f"{one['rows']:,}",
            byte_size(one["bytes"]),
            one["digest"][:12],
        ]
        for one in shown["artifacts"]
    ]
    total = sum(one["bytes"] for one in shown["artifacts"])
    lines += [
        "",
        table(["artifact", "kind", "rows", "size", "digest"], rows),
        "",
        f"{counted(len(rows), 'artifact')}, {byte_size(total)}",
    ]
    return "\n".join(lines)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())


def _value(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))
