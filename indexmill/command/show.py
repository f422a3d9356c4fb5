"""``indexmill show``: what a snapshot is made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.options import Options, candidate, common, kept_argument, kept_option, together
from indexmill.command.same_as import listing, pairs
from indexmill.errors import BadInput, NotFound
from indexmill.retrieve.family import load
from indexmill.retrieve.registry import METHODS
from indexmill.text.counted import byte_size, counted
from indexmill.text.printable import one_line
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["command", "summary"]

_FAMILIES = METHODS.values()
_VIEWS = {one.view.option.removeprefix("--").replace("-", "_"): one.view for one in _FAMILIES if one.view is not None}
"""What families draw, by the parameter of their option."""

_HELP = f"""Show a snapshot, the newest by default: its families with counts and parameters, its artifacts.

VERSION is a number, an alias or `newest`.

{" ".join(one.statistics.show_help for one in _FAMILIES if one.statistics is not None).strip()}

{" ".join(word for view in _VIEWS.values() for word in view.show_help.split())} With --same-as, the pairs of
entities whose names are nearly the same, the most alike first. With --sbom, the software bill of materials, if the
snapshot has one: `run.sbom` makes builds add it.
"""


@click.command("show", help=_HELP)
@kept_argument("version", metavar="[VERSION]", required=False)
@kept_option("--alias", metavar="NAME", help="Show the version that this alias points to.")
@together(*(click.option(view.option, is_flag=True, help=view.help) for view in _VIEWS.values()))
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
@click.option("--sbom", is_flag=True, help="Print the list of the software that built it, as CycloneDX's JSON.")
@candidate
@common
def command(
    options: Options,
    depth: int,
    width: int,
    same_as: bool,
    sbom: bool,
    **views: bool,
) -> None:
    """See ``_HELP``."""
    drawn = [view for name, view in _VIEWS.items() if views[name]]
    chosen = [*(view.option for view in drawn), *["--same-as"] * same_as, *["--sbom"] * sbom]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(chosen)} show different things: give one of them")
    unnumbered = options.snapshot_name(None)
    with options.open_snapshot() as snapshot:
        if drawn:
            from indexmill.snapshot import sound

            module = load(drawn[0].module)
            with sound(snapshot.path, "tree"):
                told = module.outline(snapshot, depth, width)
            options.print_json(told) if options.json else click.echo(module.drawing(told, unnumbered))
            return
        if same_as:
            found = pairs(snapshot)
            options.print_json(found) if options.json else click.echo(listing(found, unnumbered))
            return
        if sbom:
            options.print_json(_software(snapshot))
            return
        shown = summary(snapshot)
    if options.json:
        options.print_json(shown)
        return
    click.echo(_text(shown, unnumbered))


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as ``show --json`` prints it: the manifest's fields, under the ref that published it.

    Families that the snapshot holds add statistics under keys of their own (``indexmill.retrieve.family.Statistics``).
    """
    from indexmill.store.canonical import digest_of

    manifest, ref = snapshot.manifest, snapshot.ref
    record = manifest.model_dump(mode="json", by_alias=True)
    return {
        "version": snapshot.version,
        "manifest": digest_of(manifest.to_bytes()) if ref is None else ref.manifest,
        "published": None if ref is None else ref.model_dump(mode="json", exclude={"version", "manifest"}),
        "methods": list(snapshot.methods),
        **record,
        **{key: told for key, module in _statistics().values() if (told := module.statistics(snapshot))},
    }


def _software(snapshot: Snapshot) -> dict[str, Any]:
    """The software bill of materials; raises NotFound, which says how to have one."""
    from indexmill.store.sbom import SBOM, read_sbom

    if snapshot.manifest.artifact(SBOM) is None:
        raise NotFound(
            f"{snapshot.path}: the snapshot has no software bill of materials ({SBOM}); set `run: {{sbom: true}}` in "
            "indexmill.yaml, build, and take the new version"
        )
    return read_sbom(snapshot.file(SBOM))


def _statistics() -> dict[str, tuple[str, Any]]:
    """By family, the key of its statistics, and the module that tells them."""
    return {
        one.name: (one.statistics.key, load(one.statistics.module)) for one in _FAMILIES if one.statistics is not None
    }


def _text(shown: dict[str, Any], unnumbered: str) -> str:
    statistics = _statistics()
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
    if access := shown["configuration"].get("corpus", {}).get("access"):
        others = "nobody" if access["required"] else "everyone"
        lines.append(one_line(f"rights    by the field {access['field']}; a document without it is for {others}"))
    for name, model in sorted(shown["models"].items()):
        lines.append(f"{name:<9} {_value(model)}")
    for name, family in sorted(shown["families"].items()):
        length = sum(one["bytes"] for one in shown["artifacts"] if one["name"].partition("/")[0] == name)
        counts, listed = family["counts"], ""
        if name in statistics:
            key, module = statistics[name]
            if own := shown.get(key):
                counts, listed = module.other_counts(counts, own), module.listing(own)
        told = [_counted(counts), byte_size(length) if length else ""]
        lines += ["", "  ".join([name, *(part for part in told if part)])]
        if family["history_dependent"]:
            lines.append("  depends on the snapshot before it")
        lines += [f"  {line}" for line in listed.splitlines()]
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
