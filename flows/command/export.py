"""``indexmill export``: a snapshot as a plain folder."""

from __future__ import annotations

from pathlib import Path

import click

from flows.command.shared import make_progress, print_result, store_of, version_number
from flows.export import export_snapshot
from indexmill.command.options import Options, common
from indexmill.store.reader import StoreReader
from indexmill.text.counted import counted


@click.command("export")
@click.argument("arguments", metavar="[VERSION] DIR", nargs=-1, required=True)
@click.option("--alias", metavar="NAME", help="Export the version that this alias points to.")
@click.option(
    "--tables",
    type=click.Choice(["graphrag"]),
    help="Write the six Parquet tables of GraphRAG 3 instead; needs the community tree.",
)
@click.option(
    "--graphml",
    is_flag=True,
    help="Write GraphML instead: the entities with their relations, and the families' graphs.",
)
@click.option("--vectors", is_flag=True, help="Write texts and vectors as Parquet for vector databases instead.")
@common
def command(
    options: Options,
    arguments: tuple[str, ...],
    alias: str | None,
    tables: str | None,
    graphml: bool,
    vectors: bool,
) -> None:
    """Copy a snapshot, by default the newest, into the new folder DIR. VERSION is a number, an alias or `newest`.

    DIR contains `tables/**/*.parquet`, `families/<name>/*`, the vectors, `manifest.json`, and `README.md`, a data card.
    Any tool can read it, and indexmill opens it like a store (`indexmill query "..." --store DIR`), with the same
    answers. It contains no history: two exports of a snapshot have the same bytes.

    Every file is checked against its digest while it is copied, and DIR appears under its name once complete. A
    folder that is not empty is refused. The store keeps a record of every export, to list the copies that a later
    `forget` cannot reach; so a read-only store cannot be exported. A build may be at work.

    `--tables graphrag` writes the tables that GraphRAG's tools read, with their columns: documents, text_units,
    entities, relationships, communities and community_reports. `--graphml` writes files for Gephi and similar tools:
    `graph.graphml` if entities are described, with any communities, and a file for each family that has its own graph.
    `--vectors` writes passages, entities and texts of families, each as a table with vectors that LanceDB, Qdrant
    and pgvector load; the data card has the commands. indexmill itself opens none of these.
    """
    if len(arguments) > 2 or (alias is not None and len(arguments) > 1):
        raise click.UsageError("give a version and a folder, `indexmill export 7 DIR`, or --alias and a folder")
    forms = [*([tables] if tables else []), *(["graphml"] if graphml else []), *(["vectors"] if vectors else [])]
    if len(forms) > 1:
        raise click.UsageError("--tables, --graphml and --vectors are separate exports: give one of them")
    *word, folder = arguments
    store = store_of(options)
    if alias is not None:
        version = StoreReader(store.url).resolve(alias=alias).version
    else:
        version = version_number(store, *word or ["newest"])
    form = forms[0] if forms else "snapshot"
    exported = export_snapshot(store, version, Path(folder), form=form, progress=make_progress())
    what = "" if form == "snapshot" else f" as {form}"
    size = f"{counted(exported.files, 'file')}, {counted(exported.bytes, 'byte')}"
    print_result(options, exported, [f"exported version {version}{what} to {exported.path}: {size}"])
