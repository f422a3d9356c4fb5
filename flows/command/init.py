"""``indexmill init``: a configuration file with every setting explained."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import click

from flows.command.shared import print_result
from indexmill.command.options import CONFIGURATION_FILE, Options, common
from indexmill.errors import BadInput, DiskFull, StoreNotWritable
from indexmill.text.counted import counted
from schemas.config.explained import explained_configuration
from schemas.corpus import CorpusSettings
from schemas.sources import is_url
from tasks.stages.ingest.corpus_languages import languages_of_files
from tasks.stages.ingest.lake_folders import format_at
from tasks.stages.ingest.source_files import SourceFiles, find

_SAMPLE = Path(__file__).resolve().parents[2] / "sample"


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common
def command(options: Options, folder: Path) -> None:
    """Write indexmill.yaml, with every setting explained, and a small sample corpus into FOLDER.

    With --corpus, no sample is written; a corpus that does not exist is refused, and the folder of a Delta or Iceberg
    table becomes an entry of corpus.sources. The paths of --corpus and --store are written relative to the file if they
    are below FOLDER. Some files are looked at: if they are not in English, a warning advises another encoder.
    """
    sample = not options.corpus
    formats = {path: format_at(str(Path(path).expanduser())) for path in options.corpus}
    tables = {path: table_format for path, table_format in formats.items() if table_format in ("delta", "iceberg")}
    paths = tuple(path for path in options.corpus if path not in tables)
    listing = _listing(tuple(path for path in paths if not is_url(path)))
    corpus = {
        "paths": ["corpus.jsonl"] if sample else [_from_file(path, folder) for path in paths],
        "sources": [
            {"kind": "table", "format": table_format, "url": _from_file(path, folder)}
            for path, table_format in tables.items()
        ],
    }
    store = _from_file(options.store_path(), folder) if options.store else "store"
    files = {CONFIGURATION_FILE: explained_configuration({"store": store, "corpus": corpus}).encode()}
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
            full := DiskFull.of(error, folder, "free some space there, remove the files written so far, and run again")
        ) is not None:
            raise full from error
        raise StoreNotWritable(f"{folder}: cannot be written: {error.strerror}") from error
    for path in listing.empty:
        click.echo(f"warning: there are no corpus files under {path} yet", err=True)
    if listing.summary:
        click.echo(f"warning: {listing.summary}", err=True)
    languages = languages_of_files(listing.files)
    if others := _others(languages):
        click.echo(
            f"warning: {others}, and the default encoder reads English: choose an encoder for these languages with "
            "embed.model, see docs/operations/encoders.md",
            err=True,
        )
    lines = [f"{path} is a table, and became an entry of corpus.sources" for path in tables]
    lines += [f"wrote {folder / name}" for name in sorted(files)]
    change_folder = "" if folder == Path() else f"cd {folder} && "
    lines.append(f"next: {change_folder}indexmill build" + (', then indexmill query "..."' if sample else ""))
    counts = {"files": len(listing.files), "files_passed_over": listing.files_passed_over}
    seen = {"languages": dict(languages.most_common())}
    print_result(options, {"folder": str(folder), "written": sorted(files), **counts, **seen}, lines)


def _others(languages: Counter[str]) -> str:
    """Describe the languages other than English that at least a tenth of the texts have; empty if there are none."""
    total = languages.total()
    others = [
        f"{number} in {code}" for code, number in languages.most_common() if code != "en" and number * 10 >= total
    ]
    return f"of {counted(total, 'text')}, {' and '.join(others)}" if others else ""


def _listing(paths: tuple[str, ...]) -> SourceFiles:
    """List the files under corpus paths; raises BadInput for a missing path, as a build would."""
    if not paths:
        return SourceFiles((), ())
    try:
        return find(CorpusSettings(paths=paths), allow_none=True)
    except BadInput as error:
        raise BadInput(f"{error}; nothing was written") from error


def _from_file(path: str, folder: Path) -> str:
    """Return a path from the command line in the form for the configuration file in ``folder``.

    An absolute path, or one that begins with ``~``, stays as it is. A relative path becomes relative to ``folder`` if
    it is below that, and absolute otherwise.
    """
    if path.startswith("~") or is_url(path) or os.path.isabs(path):  # noqa: PTH117 - a glob may be given, too
        return path
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    above = Path(os.path.abspath(folder))  # noqa: PTH100
    return whole.relative_to(above).as_posix() if whole.is_relative_to(above) else str(whole)
