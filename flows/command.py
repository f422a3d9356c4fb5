"""The pipeline's commands: `init`, `build`, `runs`, `quarantine`. The `indexmill` command loads them by name."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from indexmill.command.options import CONFIGURATION_FILE, Options, common, printable, table
from indexmill.errors import BadInput, StoreNotWritable
from schemas.config import Configuration, load_configuration
from storage.runs import Run

__all__ = ["commands"]

_SAMPLE = Path(__file__).resolve().parent.parent / "sample"


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@common
def init(options: Options, folder: Path) -> None:
    """Write indexmill.yaml with every setting explained, and a small sample corpus, into DIR."""
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


@click.command()
@click.option("--cold", is_flag=True, help="Make every part again; the ledger alone is kept.")
@click.option("--strict", is_flag=True, help="Exit with 2, publishing nothing, when a row is refused.")
@click.option("--allow-shrink", is_flag=True, help="Publish although an unreadable file takes documents away.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: the cores.")
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@click.option("--note", default="", help="A remark kept with the version.")
@common
def build(
    options: Options, cold: bool, strict: bool, allow_shrink: bool, workers: int | None, dask: str | None, note: str
) -> None:
    """Bring the index up to date with the corpus and publish it as the next version.

    Only what the corpus changed is computed; a build that was interrupted goes on where it stopped. Exit codes: 0
    published or nothing to do, 1 an error of the program, 2 bad input or configuration, 3 refused by a gate, 4 budget
    reached, 5 another run holds the lease.
    """
    run: dict[str, Any] = {"strict": True} if strict else {}
    if workers is not None:
        run["workers"] = workers
    configuration = _configuration(options, {"run": run})

    from flows.progress import Lines, TerminalBars
    from flows.run import build_under_prefect

    progress = TerminalBars() if sys.stderr.isatty() else Lines()
    outcome = build_under_prefect(
        configuration, progress=progress, cold=cold, allow_shrink=allow_shrink, dask=dask, note=note
    )
    if options.json:
        options.print_json(dataclasses.asdict(outcome))
        return
    if outcome.published:
        click.echo(f"published version {outcome.version}: {outcome.documents} documents, {outcome.passages} passages")
    else:
        click.echo(f"nothing to do: version {outcome.version} is up to date")
    click.echo(
        f"parts: {outcome.parts_made} made, {outcome.parts_reused} reused; vectors: {outcome.vectors_made} made, "
        f"{outcome.vectors_reused} reused; {outcome.seconds:.1f} s"
    )
    if outcome.quarantined:
        click.echo(f"{outcome.quarantined} rows were refused: see `indexmill quarantine`")


@click.command()
@click.argument("run_id", required=False)
@common
def runs(options: Options, run_id: str | None) -> None:
    """The runs of a store, or all about one of them: what each stage made and reused, and how it ended."""
    from storage import runs as records
    from storage.folder import open_store

    store = open_store(options.store_path())
    if run_id is not None:
        found = _shown(records.read_run(store, run_id))
        if options.json:
            options.print_json(found)
        else:
            _print_run(found)
        return
    listed = [_shown(run) for run in records.list_runs(store)]
    if options.json:
        options.print_json({"runs": listed})
        return
    names = ["run", "state", "exit_code", "version", "started", "quarantined"]
    click.echo(table(names, [[_blank(run[name]) for name in names] for run in listed]))


def _shown(run: Run) -> dict[str, Any]:
    """A run as people and scripts read it."""
    end = run.end
    return {
        "run": run.run_id,
        "command": run.start.command,
        "state": run.state,
        "exit_code": end.exit_code if end else None,
        "version": run.version,
        "parent": run.start.parent,
        "started": run.start.started,
        "ended": end.ended if end else None,
        "quarantined": run.quarantined,
        "error": end.error if end else None,
        "stages": dict(end.report) if end else {},
    }


def _print_run(run: dict[str, Any]) -> None:
    stages = run.pop("stages")
    for name, value in run.items():
        if value is not None:
            click.echo(f"{name}: {printable(str(value))}")
    if stages:
        names = ["parts_made", "parts_reused", "seconds", "vectors_made", "vectors_reused"]
        rows = [[stage, *(counts.get(name, "") for name in names)] for stage, counts in stages.items()]
        click.echo(table(["stage", "made", "reused", "seconds", "vectors made", "vectors reused"], rows))


@click.command()
@click.option("--run", "run_id", metavar="ID", help="The run to look at; the last one by default.")
@common
def quarantine(options: Options, run_id: str | None) -> None:
    """The rows that a run refused: file, line, document and the reason."""
    from storage import runs as records
    from storage.folder import open_store

    store = open_store(options.store_path())
    run_id, rows = records.quarantine_of(store, run_id)
    if options.json:
        options.print_json({"run": run_id, "quarantined": rows.num_rows, "rows": rows.to_pylist()})
        return
    if not rows.num_rows:
        click.echo(f"run {run_id} refused nothing" if run_id else "no run has read a corpus yet")
        return
    listed = [
        [_blank(row[name]) for name in ("file", "line", "document_id", "reason", "detail")] for row in rows.to_pylist()
    ]
    click.echo(table(["file", "line", "document", "reason", "detail"], listed))


def _blank(value: object) -> object:
    return "" if value is None else value


def _configuration(options: Options, overrides: dict[str, Any]) -> Configuration:
    """The configuration file with the command line laid over it."""
    overrides = dict(overrides)
    if options.corpus:
        overrides["corpus"] = {"paths": list(options.corpus)}
    if options.store:
        overrides["store"] = options.store
    return load_configuration(options.configuration_path(), overrides)


commands: dict[str, click.Command] = {"build": build, "init": init, "quarantine": quarantine, "runs": runs}
