"""``indexmill init``: a configuration file with every setting explained."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import CONFIGURATION_FILE, Options, common
from indexmill.errors import BadInput, StoreNotWritable

__all__ = ["command"]

_SAMPLE = Path(__file__).resolve().parents[2] / "sample"


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common
def command(options: Options, folder: Path) -> None:
    """Write indexmill.yaml with every setting explained, and a small sample corpus, into FOLDER."""
    from schemas.explained import explained_configuration

    sample = not options.corpus
    corpus = ["corpus.jsonl"] if sample else [str(Path(path).resolve()) for path in options.corpus]
    store = str(Path(options.store_path()).resolve()) if options.store else "store"
    files = {CONFIGURATION_FILE: explained_configuration({"store": store, "corpus": {"paths": corpus}}).encode()}
    if sample:
        files |= {name: (_SAMPLE / name).read_bytes() for name in ("corpus.jsonl", "questions.jsonl")}
    there = [str(folder / name) for name in files if (folder / name).exists()]
    if there:
        raise BadInput(
            f"{', '.join(there)}: already there; nothing was written. Choose another folder, or move them away"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise StoreNotWritable(f"{folder}: cannot be written: {error.strerror}") from error
    if options.json:
        options.print_json({"folder": str(folder), "written": sorted(files)})
        return
    for name in sorted(files):
        click.echo(f"wrote {folder / name}")
    at = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"next: {at}indexmill build" + (', then indexmill query "..."' if sample else ""))
