"""``indexmill show``: show what a snapshot contains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from indexmill.command.options import Options, candidate, common, kept_argument, kept_option, together
from indexmill.command.same_as import listing, pairs
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput, NotFound
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from indexmill.text.counted import byte_size, counted
from indexmill.text.fact_lines import SHORT, by_language, facts, number, words_of
from indexmill.text.printable import one_line
from indexmill.text.terminal import TerminalStyle, style_of
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

_FAMILIES = METHODS.values()
_VIEWS = {
    family.view.option.removeprefix("--").replace("-", "_"): family.view
    for family in _FAMILIES
    if family.view is not None
}
"""The views of families, by the parameter of their option."""

_HELP = f"""Show a snapshot, the newest by default: its families with counts and parameters, and its artifacts.

VERSION is a number, an alias or `newest`. Zero counts and full digests are only in --json.

{" ".join(family.statistics.show_help for family in _FAMILIES if family.statistics is not None).strip()}

{" ".join(word for view in _VIEWS.values() for word in view.show_help.split())} With --same-as, the pairs of
entities with nearly the same names, the most similar first. With --sbom, the software bill of materials, if the
snapshot has one: `run.sbom` makes builds add it.
"""


@click.command("show", help=_HELP)
@kept_argument("version", metavar="[VERSION]", required=False)
@kept_option("--alias", metavar="NAME", help="Show the version that this alias points to.")
@together(*(click.option(view.option, is_flag=True, help=view.help) for view in _VIEWS.values()))
@click.option(
    "--depth",
    metavar="LAYERS",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many layers to draw, from the top.",
)
@click.option(
    "--width",
    metavar="NODES",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="How many roots, and how many children of a node, to draw; the others are counted.",
)
@click.option("--same-as", "same_as", is_flag=True, help="List the pairs of entities with nearly the same names.")
@click.option(
    "--sbom", is_flag=True, help="Print the software bill of materials of the snapshot's build, as CycloneDX JSON."
)
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
        raise BadInput(f"{' and '.join(chosen)} show different things: give only one")
    unnumbered = options.snapshot_name(None)
    with options.open_snapshot() as snapshot:
        if drawn:
            from indexmill.retrieve.artifacts import sound

            module = load(drawn[0].module)
            with sound(snapshot.path, "tree"):
                outline = module.outline(snapshot, depth, width)
            options.print_json(outline) if options.json else click.echo(module.drawing(outline, unnumbered))
            return
        if same_as:
            same_as_pairs = pairs(snapshot)
            options.print_json(same_as_pairs) if options.json else click.echo(listing(same_as_pairs, unnumbered))
            return
        if sbom:
            options.print_json(_software(snapshot))
            return
        with Waiting("reading the snapshot", only_terminals=True):
            shown = summary(snapshot)
    if options.json:
        options.print_json(shown)
        return
    click.echo(_text(shown, unnumbered, style_of(sys.stdout)))


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Summarise a snapshot as ``show --json`` prints it: fields of its ref and manifest, and families' statistics."""
    from indexmill.store.canonical import digest_of

    manifest, ref = snapshot.manifest, snapshot.ref
    record = manifest.model_dump(mode="json", by_alias=True)
    return {
        "version": snapshot.version,
        "manifest": digest_of(manifest.to_bytes()) if ref is None else ref.manifest,
        "published": None if ref is None else ref.model_dump(mode="json", exclude={"version", "manifest"}),
        "methods": list(snapshot.methods),
        **record,
        **{key: statistics for key, module in _statistics().values() if (statistics := module.statistics(snapshot))},
    }


def _software(snapshot: Snapshot) -> dict[str, Any]:
    """Read the software bill of materials; raises NotFound, with advice, if there is none."""
    from indexmill.store.sbom_reader import SBOM, read_sbom

    if snapshot.manifest.artifact(SBOM) is None:
        raise NotFound(
            f"{snapshot.path}: the snapshot has no software bill of materials ({SBOM}); set `run: {{sbom: true}}` in "
            "indexmill.yaml, build, and use the new version"
        )
    return read_sbom(snapshot.file(SBOM))


def _statistics() -> dict[str, tuple[str, Any]]:
    """Return the key of each family's statistics, and the module that computes them."""
    return {
        family.name: (family.statistics.key, load(family.statistics.module))
        for family in _FAMILIES
        if family.statistics is not None
    }


def _text(shown: dict[str, Any], unnumbered: str, style: TerminalStyle) -> str:
    """Format the snapshot as paragraphs about its origin, corpus, models, families and artifacts."""
    corpus = shown["corpus"]
    sizes = {name: corpus[name] for name in ("documents", "passages")}
    languages = [("languages", by_language(corpus["languages"]))] if corpus.get("languages") else []
    paragraphs = [
        _origin(shown, unnumbered, style),
        [style.bold("corpus"), *facts(_counts(sizes | corpus["counts"]) + languages)],
        *_models(shown["models"], style),
        *_families(shown, style),
        _artifacts(shown["artifacts"], style),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs)


def _origin(shown: dict[str, Any], unnumbered: str, style: TerminalStyle) -> list[str]:
    title = unnumbered if shown["version"] is None else f"version {shown['version']}"
    origin, published = [("manifest", shown["manifest"][:SHORT])], shown["published"]
    if published is not None:
        origin.append(("published", f"{published['created'][:19].replace('T', ' ')} UTC by run {published['run_id']}"))
        origin += [("note", published["note"])] if published["note"] else []
    origin.append(("methods", ", ".join(shown["methods"])))
    if access := shown["configuration"].get("corpus", {}).get("access"):
        readers = "nobody" if access["required"] else "everyone"
        origin.append(("rights", f"by the field {access['field']}; a document without it is for {readers}"))
    return [style.bold(title), *facts(origin)]


def _models(models: dict[str, Any], style: TerminalStyle) -> Iterator[list[str]]:
    for name, model in sorted(models.items()):
        fields = model if isinstance(model, dict) else {name: model}
        yield [
            style.bold(one_line(name)),
            *facts([(key.replace("_", " "), words_of(value)) for key, value in sorted(fields.items())]),
        ]


def _families(shown: dict[str, Any], style: TerminalStyle) -> Iterator[list[str]]:
    statistics = _statistics()
    for name, family in sorted(shown["families"].items()):
        length = sum(artifact["bytes"] for artifact in shown["artifacts"] if artifact["name"].partition("/")[0] == name)
        counts, listed = family["counts"], ""
        if name in statistics:
            key, module = statistics[name]
            if statistics_json := shown.get(key):
                counts, listed = module.other_counts(counts, statistics_json), module.listing(statistics_json)
        heading = style.bold(name) + (f"  {byte_size(length)}" if length else "")
        if family["history_dependent"]:
            heading += "  depends on the previous snapshot"
        parameters = [
            (parameter.replace("_", " "), words_of(value)) for parameter, value in sorted(family["parameters"].items())
        ]
        yield [
            heading,
            *facts(_counts({count: total for count, total in counts.items() if total})),
            *(f"  {line}" for line in listed.splitlines()),
            *(["  with", *facts(parameters, indent=4)] if parameters else []),
        ]


def _artifacts(artifacts: list[dict[str, Any]], style: TerminalStyle) -> list[str]:
    rows = [
        [
            artifact["name"],
            artifact["kind"],
            "" if artifact["rows"] is None else f"{artifact['rows']:,}",
            byte_size(artifact["bytes"]),
            artifact["digest"][:SHORT],
        ]
        for artifact in artifacts
    ]
    total = sum(artifact["bytes"] for artifact in artifacts)
    return [
        table(["artifact", "kind", "rows", "size", "digest"], rows, right=("rows", "size"), style=style),
        "",
        f"{counted(len(rows), 'artifact')}, {byte_size(total)}",
    ]


def _counts(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), number(count)) for name, count in counts.items()]
