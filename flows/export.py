"""Exporting a snapshot as a plain folder: as it is, or in a form that other tools read."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import JsonValue

import indexmill
from flows.operation import recorded
from indexmill.errors import BadInput, FamilyNotFound, SnapshotNotFound
from indexmill.export import graphml
from indexmill.export.entity_graph import check_extraction
from indexmill.retrieve.method_registry import METHODS, families_of
from indexmill.retrieve.reader_family import load
from indexmill.snapshot import Snapshot
from indexmill.store.exported import CARD_FILE
from indexmill.store.manifest import Manifest, Ref
from indexmill.store.sbom_reader import SBOM, read_sbom
from indexmill.store.signatures import SIGNATURES_FILE
from indexmill.text.counted import byte_size, counted
from storage import exports, refs, runs, signature_records
from storage.clock import Clock
from storage.faults import fault_point
from storage.folder import sync_folder
from storage.processes import alive
from storage.protocol import Store
from storage.publish import check_whole, read_manifest
from tasks.core.report import Progress
from tasks.export import vector_tables
from tasks.export.card import card

_PARTIAL = ".partial"
"""The suffix of unfinished exports."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export, printed by `export --json`."""

    version: int
    form: str
    manifest: str
    path: str
    files: int
    bytes: int
    run: str
    record: int
    """The number of its record in the store."""


def export_snapshot(
    store: Store,
    version: int,
    folder: Path,
    *,
    form: str = "snapshot",
    progress: Progress,
    clock: Clock = time.time,
) -> Exported:
    """Export a version as a plain folder, which appears under its name once it is complete; form: one of `FORMS`.

    Needs no lease: a build may be at work. Raises BadInput for a folder that is not empty, FamilyNotFound if the
    snapshot lacks artifacts that the form needs, CorruptBlob for an incomplete snapshot, StoreNotWritable if
    the folder or the store's record of the export cannot be written.
    """
    check, write = FORMS[form]
    folder = folder.absolute()
    _check_target(store, folder)
    details: dict[str, JsonValue] = {"version": version, "path": str(folder), "form": form}
    with recorded(store, "export", details=details, clock=clock) as run:
        ref = refs.read(store, version)
        refs.check_there(store, version)
        manifest = read_manifest(store, ref.manifest)
        check(manifest, f"version {version} of {store.url}")
        check_whole(store, manifest)
        record = exports.record(
            store,
            clock,
            version=version,
            manifest=ref.manifest,
            path=str(folder),
            form=form,
            run_id=run.run_id,
        )
        with arriving(store, folder, run.run_id, "export") as partial:
            with exports.writing_export(partial):
                partial.mkdir()
            size = write(store, ref, manifest, partial, progress)
            size += _write_card(store, ref, manifest, form, partial)
            files = sum(path.is_file() for path in partial.rglob("*"))
        run.done, run.version, run.manifest = True, version, ref.manifest
        return Exported(
            version=version,
            form=form,
            manifest=ref.manifest,
            path=str(folder),
            files=files,
            bytes=size,
            run=run.run_id,
            record=record.number,
        )


def _write_card(store: Store, ref: Ref, manifest: Manifest, form: str, folder: Path) -> int:
    bill = manifest.artifact(SBOM)
    text = card(
        manifest,
        ref.manifest,
        form=form,
        version=refs.first_with(store, ref.manifest),
        files=() if form == "snapshot" else [_described(path) for path in sorted(folder.iterdir())],
        sbom=None if bill is None else read_sbom(store.open_local(bill.digest)),
    ).encode()
    exports.write_file(folder / CARD_FILE, [text])
    sync_folder(folder)
    return len(text)


def _described(path: Path) -> tuple[str, str]:
    """Return the name of an exported file and a description of its content."""
    if path.suffix != ".parquet":
        return path.name, byte_size(path.stat().st_size)
    with pq.ParquetFile(path) as file:
        columns = ", ".join(f"`{name}`" for name in file.schema_arrow.names)
        return path.name, f"{counted(file.metadata.num_rows, 'row')}: {columns}"


def _as_it_is(store: Store, ref: Ref, manifest: Manifest, folder: Path, progress: Progress) -> int:
    progress.begin("export", len(manifest.artifacts))
    if envelopes := signature_records.envelopes(store, ref.version):
        exports.write_file(
            folder / SIGNATURES_FILE, [b"[" + b",".join(envelope.strip() for envelope in envelopes) + b"]\n"]
        )
    exports.lay_out(store, manifest, folder, lambda artifact: progress.advance("export"))
    size = sum(artifact.bytes for artifact in manifest.artifacts)
    progress.end("export", f"{counted(len(manifest.artifacts), 'artifact')}, {counted(size, 'byte')}")
    return size


def _as_tables(form: Any, store: Store, ref: Ref, manifest: Manifest, folder: Path, progress: Progress) -> int:
    with indexmill.open(store.url, ref.version) as snapshot:
        tables = list(form.tables(snapshot))
        progress.begin("export", len(tables))
        for table in tables:
            exports.write_table(folder / f"{table.name}.parquet", table.schema, table.pieces)
            progress.advance("export")
    return _ended(folder, progress)


def _as_graphml(store: Store, ref: Ref, manifest: Manifest, folder: Path, progress: Progress) -> int:
    with indexmill.open(store.url, ref.version) as snapshot:
        graphs = _graphs(manifest, snapshot.path)
        progress.begin("export", len(graphs))
        for name, graph in graphs.items():
            exports.write_file(folder / f"{name}.graphml", graphml.document(*graph(snapshot)))
            progress.advance("export")
    return _ended(folder, progress)


def _graphs(manifest: Manifest, where: object) -> dict[str, _Graph]:
    """Return the graphs of a snapshot, by file name; raises FamilyNotFound if it has none."""
    graphs: dict[str, _Graph] = {
        name: load(place) for family in families_of(manifest) for name, place in family.graphs.items()
    }
    if not graphs:
        check_extraction(manifest, where)
        return {"graph": graphml.graph}
    with contextlib.suppress(FamilyNotFound):  # the snapshot may have no descriptions
        check_extraction(manifest, where)
        graphs = {"graph": graphml.graph, **graphs}
    return graphs


def _check_graphs(manifest: Manifest, where: object) -> None:
    _graphs(manifest, where)


def _ended(folder: Path, progress: Progress) -> int:
    """Sync a folder of finished files; returns their size in bytes."""
    sync_folder(folder)
    fault_point("exported")
    sizes = [path.stat().st_size for path in folder.iterdir()]
    progress.end("export", f"{counted(len(sizes), 'file')}, {counted(sum(sizes), 'byte')}")
    return sum(sizes)


_Graph = Callable[[Snapshot], tuple[graphml.Elements, graphml.Elements]]
_Check = Callable[[Manifest, object], None]
_Write = Callable[[Store, Ref, Manifest, Path, Progress], int]

_TABLES = {form: module for family in METHODS.values() for form, module in family.forms.items()}

FORMS: Mapping[str, tuple[_Check, _Write]] = {
    "snapshot": (lambda manifest, where: None, _as_it_is),
    **{form: (load(module).check, functools.partial(_as_tables, load(module))) for form, module in _TABLES.items()},
    "graphml": (_check_graphs, _as_graphml),
    "vectors": (vector_tables.check, functools.partial(_as_tables, vector_tables)),
}
"""The forms of an export: a check that the snapshot has the artifacts, and a writer that returns its size in bytes."""


def _check_target(store: Store, folder: Path) -> None:
    if folder.resolve().is_relative_to(store.folder.resolve()):
        raise BadInput(f"{folder} is inside the store {store.url}: choose a folder outside it")
    try:
        holds = next(folder.iterdir(), None)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise BadInput(f"{folder} is a file, or is below one; an export is a new folder: choose another name") from None
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be listed: {error.strerror}; choose a folder that you can read, or a new one"
        ) from error
    if holds is not None:
        raise _not_empty(folder, holds.name)


def _not_empty(folder: Path, name: str) -> BadInput:
    return BadInput(f"{folder} is not empty: it contains {name!r}; nothing was exported: choose a new folder")


@contextlib.contextmanager
def arriving(store: Store, target: Path, run_id: str, command: str) -> Iterator[Path]:
    """Yield a temporary path for a new file or folder beside the target; rename it to the target after the block.

    If the block raises, the temporary file or folder is removed. Leftovers of dead runs of the command are removed
    first. Raises BadInput if the target is a folder that is not empty by then, StoreNotWritable if the target cannot be
    written.
    """
    partial = target.with_name(f".{target.name}.{run_id}{_PARTIAL}")
    try:
        with exports.writing_export(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep_partial(store, target, command)
        yield partial
        with exports.writing_export(target):
            try:
                os.rename(partial, target)  # noqa: PTH104 - onto nothing, or an empty folder
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise _not_empty(target, next((entry.name for entry in target.iterdir()), "")) from error
                raise
            sync_folder(target.parent)
    finally:
        _remove(partial)


def _sweep_partial(store: Store, target: Path, command: str) -> None:
    """Remove leftovers beside a target from runs of a command whose processes are known to be dead."""
    prefix = f".{target.name}."
    for entry in sorted(target.parent.iterdir()):
        if entry.name.startswith(prefix) and entry.name.endswith(_PARTIAL):
            with contextlib.suppress(SnapshotNotFound):
                run = runs.read_run(store, entry.name.removeprefix(prefix).removesuffix(_PARTIAL))
                if run.start.command == command and alive(run.start.process) is False:
                    _remove(entry)


def _remove(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    with contextlib.suppress(OSError):
        partial.unlink(missing_ok=True)
