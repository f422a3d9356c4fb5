"""Export of the ledger to a file, and import of an exported file.

The file is JSON Lines: each line is a record of the ledger as stored, ordered by key; compressed if its name ends in
`.gz`. The same ledger gives the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from flows.export import arriving
from flows.operation import operation, recorded
from indexmill.errors import BadInput, CorruptBlob, UnsupportedFormat
from indexmill.store.layout import ledger_prefixes
from indexmill.text.counted import counted
from schemas.tables import QUARANTINE
from storage import exports, ledger, refusals, runs, tombstones
from storage.clock import Clock
from storage.ledger import LONGEST, LedgerEntry
from storage.protocol import Store
from storage.tombstones import Forgotten, document_digest
from storage.write_errors import writing
from tasks.core.report import Progress

_EXPORT = "ledger export"
_MIB = 1 << 20
_AT_ONCE = 256  # records written, eight at a time, between two reads of the file
_LISTED = 10_000  # rejected lines that are listed; the others are only counted

_DETAILS = {
    "broken-off": "the rest of the file cannot be read",
    "newer-format": "written by a newer indexmill",
    "not-a-record": "not a record of a ledger, or changed since it was exported",
    "too-large": f"longer than {LONGEST:,} bytes",
}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export, printed by `ledger export --json`."""

    path: str
    answers: int
    damaged: int
    """Unreadable records, which are left out."""
    bytes: int
    run: str
    record: int
    """The number of its record in the store."""


@dataclass
class ImportReport:
    """The result of an import, printed by `ledger import --json`."""

    dry_run: bool
    lines: int = 0
    added: int = 0
    there: int = 0
    """Answers that the store already has, which stay."""
    forgotten: int = 0
    """Answers derived from forgotten documents, which are left out."""
    quarantined: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    run: str | None = None


def export_ledger(store: Store, path: Path, *, progress: Progress, clock: Clock = time.time) -> ExportReport:
    """Write the ledger to a new file, which appears under its name once complete.

    Needs no lease: a build may be at work. Raises BadInput for a file that exists, or is in the store,
    StoreNotWritable if the file or the store's record of the export cannot be written.
    """
    path = path.absolute()
    if path.resolve().is_relative_to(store.folder.resolve()):
        raise BadInput(f"{path} is inside the store {store.url}: choose a file outside it")
    if path.exists():
        raise BadInput(f"{path} exists; nothing was exported: choose a new name")
    with recorded(store, _EXPORT, details={"path": str(path)}, clock=clock) as run:
        record = exports.record(
            store,
            clock,
            version=None,
            manifest=None,
            path=str(path),
            form="ledger",
            run_id=run.run_id,
        )
        answers = damaged = 0
        progress.begin("export", len(ledger_prefixes()))
        with (
            arriving(store, path, run.run_id, _EXPORT) as partial,
            _new_file(partial, compressed=path.name.endswith(".gz")) as file,
        ):
            for _, _, entry in ledger.scan(store, lambda: progress.advance("export")):
                if entry is None:
                    damaged += 1
                else:
                    answers += 1
                    file.write(entry.to_bytes())
        size = path.stat().st_size
        progress.end("export", f"{counted(answers, 'answer')}, {counted(size, 'byte')}")
        run.done = True
        run.report = {"ledger": {"answers": answers, "damaged": damaged}}
        return ExportReport(str(path), answers, damaged, size, run.run_id, record.number)


@contextlib.contextmanager
def _new_file(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    """Yield a new file, synced at the end of the block."""
    with (
        writing(path, full="free some space, or choose another file", forbidden="choose one that this user may write"),
        path.open("xb") as raw,
    ):
        if compressed:
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                yield file  # type: ignore[misc] # a GzipFile is written to like any other
        else:
            yield raw
        raw.flush()
        os.fsync(raw.fileno())


def import_ledger(
    store: Store, path: Path, *, progress: Progress, dry_run: bool = False, clock: Clock = time.time
) -> ImportReport:
    """Import the answers of an exported ledger; answers already in the store stay.

    A line that differs from its exported form is rejected. An answer from a forgotten document is left out, as far
    as tombstones name its passages. Holds the lease, so that no document is forgotten meanwhile. A dry run counts and
    changes nothing. Raises BadInput if the file does not exist or none of its lines is a record.
    """
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; `indexmill ledger export FILE` writes one")
    if dry_run:
        return _import(store, path, ImportReport(dry_run=True), [], progress)
    with operation(store, "ledger import", details={"path": str(path.absolute())}, clock=clock) as run:
        done, refused = ImportReport(dry_run=False, run=run.run_id), list[dict[str, Any]]()
        try:
            _import(store, path, done, refused, progress)
        finally:
            if refused:
                table = pa.Table.from_pylist(refused, schema=QUARANTINE)
                runs.add_quarantine(store, run.run_id, "ledger-import", table)
        run.done = True
        counts = ("lines", "added", "there", "forgotten", "quarantined")
        run.report = {"ledger": {name: getattr(done, name) for name in counts}}
        return done


def _import(
    store: Store, path: Path, done: ImportReport, refused: list[dict[str, Any]], progress: Progress
) -> ImportReport:
    forgotten = tombstones.forgotten(store)
    derived = _derived_from_forgotten(path, forgotten)
    progress.begin("import", path.stat().st_size // _MIB + 1)
    with ThreadPoolExecutor(8) as pool:
        numbered = _lines(path, lambda: progress.advance("import"))
        while lines := list(islice(numbered, _AT_ONCE)):
            entries = []
            for number, read in lines:
                done.lines += 1
                if isinstance(read, str):
                    done.quarantined += 1
                    done.reasons[read] += 1
                    if len(refused) < _LISTED:
                        location = {"file": str(path), "line": number, "document_id": None}
                        refused.append({**location, "reason": read, "detail": _DETAILS[read]})
                elif _is_forgotten(read, forgotten, derived):
                    done.forgotten += 1
                else:
                    entries.append(read)
            added = sum(pool.map(lambda entry: _add(store, entry, done.dry_run), entries))
            done.added, done.there = done.added + added, done.there + len(entries) - added
    progress.end("import", f"{counted(done.added, 'answer')} added, {done.there:,} there, {done.quarantined:,} refused")
    if done.lines and done.quarantined == done.lines:
        raise BadInput(f"{path}: none of its {done.lines:,} lines is a record of a ledger as `ledger export` writes it")
    return done


def _add(store: Store, entry: LedgerEntry, dry_run: bool) -> bool:
    """Store an answer unless the ledger has one for its key; return True if it is new. A dry run stores nothing."""
    if ledger.find(store, entry.key) is not None:
        return False
    if not dry_run:
        ledger.record(store, entry)
        refusals.remove(store, entry.key)
    return True


def _derived_from_forgotten(path: Path, forgotten: Forgotten) -> frozenset[str]:
    """Return the digests of the ids of texts that derive from forgotten documents, directly or through other texts."""
    derived: set[str] = set()
    while forgotten.tombstones:
        before = len(derived)
        for _, read in _lines(path):
            if isinstance(read, LedgerEntry) and read.makes and _is_forgotten(read, forgotten, derived):
                derived.add(document_digest(read.makes))
        if len(derived) == before:
            break
    return frozenset(derived)


def _is_forgotten(entry: LedgerEntry, forgotten: Forgotten, derived: AbstractSet[str]) -> bool:
    ids = (*entry.about, entry.makes)
    return forgotten.names(ids) or (bool(derived) and any(document_digest(name) in derived for name in ids if name))


def _lines(path: Path, advanced: Callable[[], object] = lambda: None) -> Iterator[tuple[int, LedgerEntry | str]]:
    """Read the lines of a file: yields the number of each, and its record or the reason of its rejection.

    advanced: called for every MiB of the file. Blank lines are left out.
    """
    number = passed = 0
    with path.open("rb") as raw:
        file: IO[bytes] = gzip.GzipFile("", "rb", fileobj=raw) if path.name.endswith(".gz") else raw  # type: ignore[assignment]
        while True:
            number += 1
            try:
                line = file.readline(LONGEST + 1)
                long = len(line) > LONGEST
                while long and line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST)
            except (OSError, EOFError, zlib.error):
                yield number, "broken-off"
                return
            if not line and not long:
                return
            while raw.tell() >= (passed + 1) * _MIB:
                passed += 1
                advanced()
            if long:
                yield number, "too-large"
            elif line.strip():
                yield number, _read(line)


def _read(line: bytes) -> LedgerEntry | str:
    try:
        return LedgerEntry.from_bytes(line, "the line")
    except CorruptBlob:
        return "not-a-record"
    except UnsupportedFormat:
        return "newer-format"
