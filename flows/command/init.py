"""``indexmill init``: a configuration file with every setting explained."""

from __future__ import annotations

import os
from pathlib import Path

import click

from indexmill.command.options import CONFIGURATION_FILE, Options, common
from indexmill.errors import BadInput, DiskFull, StoreNotWritable

__all__ = ["command"]

_SAMPLE = Path(__file__).resolve().parents[2] / "sample"


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common
def command(options: Options, folder: Path) -> None:
    """Write indexmill.yaml with every setting explained into FOLDER, and a small sample corpus.

    With --corpus there is no sample. What --corpus and --store name is written relative to the file where it lies
    below FOLDER; a corpus that is not there is refused.
    """
    from schemas.config.explained import explained_configuration

    sample = not options.corpus
    empty = _look_at(options.corpus)
    corpus = ["corpus.jsonl"] if sample else [_from_file(path, folder) for path in options.corpus]
    store = _from_file(options.store_path(), folder) if options.store else "store"
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
        if (
            full := DiskFull.of(error, folder, "free some space there, remove what was written, and run again")
        ) is not None:
            raise full from error
        raise StoreNotWritable(f"{folder}: cannot be written: {error.strerror}") from error
    for path in empty:
        click.echo(f"warning: no file of a corpus lies under {path} yet", err=True)
    if options.json:
        options.print_json({"folder": str(folder), "written": sorted(files)})
        return
    for name in sorted(files):
        click.echo(f"wrote {folder / name}")
    at = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"next: {at}indexmill build" + (', then indexmill query "..."' if sample else ""))


def _look_at(corpus: tuple[str, ...]) -> tuple[str, ...]:
    """The paths under which no file of a corpus lies; raises BadInput for one that is not there, as a build would."""
    if not corpus:
        return ()
    from schemas.corpus import CorpusSettings
    from tasks.stages.ingest.sources import find

    try:
        return find(CorpusSettings(paths=corpus), allow_none=True).empty
    except BadInput as error:
        raise BadInput(f"{error}; nothing was written") from error


def _from_file(path: str, folder: Path) -> str:
    """A path of the command line as the configuration file in ``folder`` has it.

    An absolute path, and one that begins at home, stays as it is. A relative one starts at the file where it lies below
    the file's folder, and becomes absolute elsewhere.
    """
    if path.startswith("~") or os.path.isabs(path):  # noqa: PTH117 - a glob may be given, too
        return path
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    above = Path(os.path.abspath(folder))  # noqa: PTH100
    return whole.relative_to(above).as_posix() if whole.is_relative_to(above) else str(whole)
