"""Runs: their start, their end, and the rows they rejected.

    runs/<run id>/start.json              created at the start, once the run holds the lease
    runs/<run id>/quarantine.<part>.json  the rows a part rejected, as a Parquet blob
    runs/<run id>/end.json                created at the end, whatever the outcome

Each is created once. A run without an end was killed, or is still at work: the lease shows which. The refs, never these
records, say whether a run published.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, JsonValue

from indexmill.errors import SnapshotNotFound, StoreError
from indexmill.store.canonical import digest_of
from indexmill.store.layout import run_name, run_prefix
from indexmill.store.manifest import Ref
from indexmill.store.record import Digest, Name, Record, Timestamp, Word
from schemas.tables import QUARANTINE
from storage import refs
from storage.clock import Clock, from_timestamp, timestamp
from storage.lease import holding, run_of
from storage.processes import Process, alive, this_process
from storage.protocol import Store
from storage.records import find_record, get_record
from storage.table_blobs import put_table, read_table

_MOST_LATER_RUNS = 32
_EARLIER_RUNS = 2
"""The maximum number of runs since a version was published, and the number of runs before its own, whose records are
read to check whether receipts were replaced. Each takes two sequential reads."""
_IDLE = ("unchanged", "done")  # the states of runs that made no parts

Ending = Literal["published", "unchanged", "done", "failed", "interrupted", "refused", "budget", "superseded"]
"""The outcomes of a run. Exit codes, in order: 0, 0 (nothing to do), 0 (publishes nothing), 1 or 2, 130, 3, 4, 5."""

State = Literal[Ending, "running", "killed"]
"""The state of a run: its ending, or, without one, `running` while it holds the lease and `killed` after that.

A run that needs no lease is `running` while its process is known to run."""


_run_counter = itertools.count()


class RunStart(Record):
    """The command and options of a run, and its process."""

    run_id: Word
    command: str
    started: Timestamp
    process: Process
    parent: Annotated[int, Field(ge=1)] | None = None
    leased: bool = True
    details: dict[str, JsonValue] = Field(default_factory=dict)


class RunEnd(Record):
    """The end of a run. The report contains its stages, counts and cost."""

    run_id: Word
    state: Ending
    exit_code: Annotated[int, Field(ge=0)]
    ended: Timestamp
    version: Annotated[int, Field(ge=1)] | None = None
    manifest: Digest | None = None
    error: str | None = None
    report: dict[str, JsonValue] = Field(default_factory=dict)
    plan: dict[str, JsonValue] | None = None
    """The figures of the approved plan and of the run, as {name: {planned, actual}}."""


class QuarantineRecord(Record):
    """The rows that a part of a run rejected, stored as a blob (schema QUARANTINE)."""

    part: Name
    digest: Digest
    rows: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class StoredRun:
    """A run, combined from its records, the refs and the lease."""

    start: RunStart
    end: RunEnd | None
    state: State
    version: int | None
    quarantined: int

    @property
    def run_id(self) -> str:
        return self.start.run_id

    @property
    def started(self) -> str:
        """The time of its start, ISO 8601."""
        return self.start.started

    @property
    def exit_code(self) -> int | None:
        """The exit code of its process; None without an end record."""
        return None if self.end is None else self.end.exit_code

    @property
    def seconds(self) -> float | None:
        """The duration from its start record to its end record, at least 0; None without an end record."""
        if self.end is None:
            return None
        return max(0.0, round(from_timestamp(self.end.ended) - from_timestamp(self.started), 3))

    @property
    def candidate(self) -> str | None:
        """The manifest that a gate refused to publish."""
        return self.end.manifest if self.end is not None and self.end.state == "refused" else None


def make_run_id(clock: Clock = time.time, process: Process | None = None) -> str:
    """Make a run id from the time and a hash that keeps the id unique even if a clock jumps back."""
    process = process or this_process()
    now = timestamp(clock())
    word = digest_of(
        f"{process.host} {process.space} {process.pid} {process.started} {now} {next(_run_counter)}".encode()
    )[:8]
    moment = now[:23].replace("-", "").replace(":", "").replace(".", "")  # to the millisecond: names sort by time
    return f"{moment}Z-{word}"


def start(
    store: Store,
    run_id: str,
    command: str,
    *,
    clock: Clock = time.time,
    parent: int | None = None,
    leased: bool = True,
    details: Mapping[str, JsonValue] | None = None,
) -> RunStart:
    """Record that a run begins; StoreError if its id is taken."""
    record = RunStart(
        run_id=run_id,
        command=command,
        started=timestamp(clock()),
        process=this_process(),
        parent=parent,
        leased=leased,
        details=dict(details or {}),
    )
    if not store.create(run_name(run_id, "start"), record.to_bytes()):
        raise StoreError(f"{store.url} already has a run {run_id}; start the run again")
    return record


def end(store: Store, record: RunEnd) -> RunEnd:
    """Record the end of a run; returns the record that stands (the first one)."""
    name = run_name(record.run_id, "end")
    if store.create(name, record.to_bytes()):
        return record
    return get_record(store, name, RunEnd)


def add_quarantine(store: Store, run_id: str, part: str, table: pa.Table, *, anew: bool = False) -> str:
    """Store the rows that a part of a run rejected (schema QUARANTINE); returns the blob's digest.

    An empty table is recorded too, as proof that the run checked. The first record of a part stands, so that a retried
    task does not count its rows twice; `anew` replaces it.
    """
    digest, _ = put_table(store, table, QUARANTINE)
    name = run_name(run_id, f"quarantine.{part.replace('/', '.')}")
    if anew:
        store.delete(name)
    record = QuarantineRecord(part=part, digest=digest, rows=table.num_rows)
    if not store.create(name, record.to_bytes()):
        return get_record(store, name, QuarantineRecord).digest
    return digest


def quarantine_of(store: Store, run_id: str | None = None) -> tuple[str | None, pa.Table]:
    """Return a run's id and the rows it rejected (schema QUARANTINE), even if it was killed, ordered by part name.

    Without a run id: the rows of the last run with a quarantine; (None, no rows) if there is none. Raises
    SnapshotNotFound if there is no such run.
    """
    if run_id is None:
        for name in reversed(_by_run(store)):
            if any("/quarantine." in record for record in store.list(run_prefix(name))):
                return quarantine_of(store, name)
        return None, QUARANTINE.empty_table()
    names = _by_run(store).get(run_id)
    if names is None:
        raise SnapshotNotFound(f"{store.url} has no run {run_id}; `indexmill runs` lists them")
    tables = [read_table(store, record.digest, QUARANTINE) for record in _quarantined(store, run_id, names)]
    return run_id, pa.concat_tables([QUARANTINE.empty_table(), *tables]).combine_chunks()


def read_run(store: Store, run_id: str, *, clock: Clock = time.time) -> StoredRun:
    """Return the current state of a run; SnapshotNotFound if there is no such run."""
    for run in list_runs(store, clock=clock, only=run_id):
        return run
    raise SnapshotNotFound(f"{store.url} has no run {run_id}; `indexmill runs` lists them")


def start_of(store: Store, run_id: str) -> RunStart | None:
    """Return the record of a run's start; None if it is missing or damaged."""
    try:
        return get_record(store, run_name(run_id, "start"), RunStart)
    except StoreError:
        return None


def list_runs(
    store: Store, *, clock: Clock = time.time, only: str | None = None, history: Sequence[Ref] | None = None
) -> list[StoredRun]:
    """Return every run's current state, oldest first. history: the result of `refs.history`, if known."""
    current = holding(store)
    working = current.run_id if current is not None and not current.free(clock()) else None
    published = {ref.run_id: ref.version for ref in (refs.history(store) if history is None else history)}
    runs = []
    for run_id, names in _by_run(store).items():
        if only not in (None, run_id):
            continue
        began = get_record(store, run_name(run_id, "start"), RunStart)
        ended = get_record(store, run_name(run_id, "end"), RunEnd) if run_name(run_id, "end") in names else None
        state: State = "killed"
        if ended is not None:
            state = ended.state
        elif working == run_id or (not began.leased and alive(began.process)):
            state = "running"
        elif run_id in published:
            state = "published"
        version = published.get(run_id, None if ended is None else ended.version)
        quarantined = sum(record.rows for record in _quarantined(store, run_id, names))
        runs.append(StoredRun(start=began, end=ended, state=state, version=version, quarantined=quarantined))
    return sorted(runs, key=lambda run: (run.started, run.run_id))


def unpublished_runs(store: Store) -> frozenset[str]:
    """Return the runs that did not publish and may have made parts, except runs with nothing to do."""
    published = {ref.run_id for ref in refs.history(store)}
    return frozenset(
        run_id
        for run_id, names in _by_run(store).items()
        if run_id not in published
        and not ((end := run_name(run_id, "end")) in names and get_record(store, end, RunEnd).state in _IDLE)
    )


def ended_well(store: Store, run_id: str) -> bool:
    """Return True if a run ended with exit code 0; also False if the record of its end is missing or damaged."""
    ended = find_record(store, run_name(run_id, "end"), RunEnd)
    return ended is not None and ended.exit_code == 0


def last_build(store: Store, before: str) -> RunStart | None:
    """Return the start of the newest build or backfill before the run `before`; None if it did not end well."""
    for run_id in reversed(_by_run(store)):
        if run_id < before:
            began = start_of(store, run_id)
            if began is None or began.command in ("build", "backfill"):
                return began if ended_well(store, run_id) else None
    return None


def may_have_replaced(store: Store, ref: Ref) -> bool:
    """Return True if receipts of a version's parts may have other outputs than the version's lineage.

    A cold run replaces receipts, and its lineage lists the new outputs only if it publishes. Its workers on other
    machines may continue after it was killed, so a few runs before the version's run are checked as well. Also True if
    the answer is unknown, such as for a version from a rollback or a copy, or would take many reads.
    """
    run_start, highest = start_of(store, ref.run_id), refs.highest_epoch(store)
    if run_start is None or run_start.command not in ("build", "backfill") or highest < ref.epoch:
        return True
    if highest - ref.epoch > _MOST_LATER_RUNS:
        return True
    if any(_is_cold(store, run_of(store, epoch)) is not False for epoch in range(ref.epoch + 1, highest + 1)):
        return True
    before = (run_of(store, epoch) for epoch in range(max(1, ref.epoch - _EARLIER_RUNS), ref.epoch))
    return any(_is_cold(store, run_id) and not ended_well(store, run_id) for run_id in (ref.run_id, *before) if run_id)


def _is_cold(store: Store, run_id: str | None) -> bool | None:
    """Return True if a run is cold; None if there is no record of its start."""
    start = None if run_id is None else start_of(store, run_id)
    return None if start is None else bool(start.details.get("cold"))


def last_report(store: Store) -> Mapping[str, JsonValue]:
    """Return the report of the newest run that updated the index or found it up to date; empty if there is none."""
    for run_id, names in reversed(_by_run(store).items()):
        if (name := run_name(run_id, "end")) in names:
            ended = find_record(store, name, RunEnd)
            if ended is not None and ended.state in ("published", "unchanged"):
                return ended.report
    return {}


def saw_other_files(store: Store, files: str | None) -> bool:
    """Return True unless the run of `last_report` read a corpus whose files have this digest; always True for None."""
    return files is None or files != last_report(store).get("corpus_files")


def _by_run(store: Store) -> dict[str, list[str]]:
    """Return the names of the records of every started run, in the order of the run ids."""
    names_by_run: dict[str, list[str]] = {}
    for name in store.list(run_prefix()):
        if name.count("/") == 2:
            names_by_run.setdefault(name.split("/")[1], []).append(name)
    return {run_id: names for run_id, names in names_by_run.items() if run_name(run_id, "start") in names}


def _quarantined(store: Store, run_id: str, names: list[str]) -> list[QuarantineRecord]:
    stem = run_prefix(run_id) + "quarantine."
    return [get_record(store, name, QuarantineRecord) for name in names if name.startswith(stem)]
