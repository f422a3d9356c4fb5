"""``indexmill export``: a snapshot as a plain folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from flows.command.shared import progress_of
from indexmill.command.options import Options, common
from indexmill.text.counted import counted

__all__ = ["command"]


@click.command("export")
@click.argument("arguments", metavar="[VERSION] DIR", nargs=-1, required=True)
@click.option("--alias", metavar="NAME", help="Export the version that this alias points to.")
@click.option(
    "--tables",
    type=click.Choice(["graphrag"]),
    help="Write the six Parquet tables of GraphRAG 3 instead; needs the community tree.",
)
@click.option(
    "--graphml", is_flag=True, help="Write the entities and their relations, and the heterograph, as GraphML instead."
)
@common
def command(options: Options, arguments: tuple[str, ...], alias: str | None, tables: str | None, graphml: bool) -> None:
    """Copy a snapshot, the newest by default, into the new folder DIR. VERSION is a number, an alias or `newest`.

    DIR holds `tables/**/*.parquet`, `families/<name>/*`, the vectors and `manifest.json`: any tool can read it, and
    indexmill opens it like a store (`indexmill query "..." --store DIR`), with the same answers. It holds no history,
    so that a snapshot that is exported twice has the same bytes.

    Every byte is checked against its digest while it is copied, and DIR appears under its name once it is whole. A
    folder that holds anything is refused. The store keeps a record of every export, so that it can be told which copies
    a later removal does not reach: a store that cannot be written to cannot be exported. A build may be at work.

    `--tables graphrag` writes what tools made for GraphRAG read: documents, text_units, entities, relationships,
    communities and community_reports, in its columns. `--graphml` writes files for Gephi and the like: `graph.graphml`
    where entities are described, with their communities where there are any, `heterograph.graphml` where the snapshot
    holds that family. indexmill opens none of these.
    """
    from flows.export import export_snapshot
    from indexmill.command.versions import version_of
    from indexmill.store.folder import FolderReader
    from storage.folder import open_store

    if len(arguments) > 2 or (alias is not None and len(arguments) > 1):
        raise click.UsageError("give a version and a folder, `indexmill export 7 DIR`, or --alias and a folder")
    if tables is not None and graphml:
        raise click.UsageError("--tables and --graphml are two exports: give one of them")
    *word, folder = arguments
    store = open_store(options.store_path())
    reader = FolderReader(store.root)
    version = reader.resolve(alias=alias).version if alias is not None else version_of(reader, *word or ["newest"])
    form = "graphml" if graphml else tables or "snapshot"
    made = export_snapshot(store, version, Path(folder), form=form, progress=progress_of())
    if options.json:
        options.print_json(dataclasses.asdict(made))
    else:
        what = "" if made.form == "snapshot" else f" as {made.form}"
        held = f"{counted(made.files, 'file')}, {counted(made.bytes, 'byte')}"
        click.echo(f"exported version {made.version}{what} to {made.path}: {held}")
