from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from indexmill.errors import SnapshotNotFound, StoreError
from schemas.tables import QUARANTINE
from storage import refs, runs
from storage.clock import from_timestamp
from storage.folder import FolderStore
from storage.lease import acquire
from storage.refs import Ref, commit
from storage.runs import RunEnd
from tests.storage.children import CREATED


def clock() -> float:
    return 1_769_824_800.0


def refused(*reasons: str) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"file": "a.jsonl", "line": n, "document_id": None, "reason": reason, "detail": "…"}
            for n, reason in enumerate(reasons, 1)
        ],
        schema=QUARANTINE,
    )


def test_a_run_from_start_to_end(store: FolderStore) -> None:
    runs.start(store, "run1", "build", clock=clock, parent=3, details={"corpus": "texts"})
    runs.add_quarantine(store, "run1", "ingest", refused("no-text", "nul"))
    ended = RunEnd(
        run_id="run1",
        state="published",
        exit_code=0,
        ended=CREATED,
        version=4,
        report={"stages": {"split": {"parts_made": 2}}},
    )
    assert runs.end(store, ended) == ended
    assert runs.end(store, ended.model_copy(update={"state": "failed"})) == ended
    run = runs.read_run(store, "run1")
    assert (run.run_id, run.state, run.version, run.quarantined, run.exit_code) == ("run1", "published", 4, 2, 0)
    assert run.end is not None
    assert run.end.report["stages"] == {"split": {"parts_made": 2}}
    assert run.seconds == from_timestamp(CREATED) - from_timestamp(run.started)
    assert (run.start.command, run.started, run.start.parent) == ("build", "2026-01-31T02:00:00.000Z", 3)


def test_a_killed_run_is_listed_with_what_it_refused(store: FolderStore) -> None:
    runs.start(store, "run1", "build", clock=clock)
    runs.add_quarantine(store, "run1", "ingest", refused("no-id"))
    (run,) = runs.list_runs(store)
    assert (run.state, run.exit_code, run.end, run.quarantined) == ("killed", None, None, 1)
    assert run.seconds is None
    run_id, rows = runs.quarantine_of(store)
    assert run_id == "run1"
    assert rows.schema == QUARANTINE
    assert rows.column("reason").to_pylist() == ["no-id"]


def test_a_run_that_found_nothing_to_do_has_made_no_parts(store: FolderStore) -> None:
    states: list[runs.Ending] = ["unchanged", "done", "failed", "budget"]
    for number, state in enumerate(states):
        runs.start(store, f"run{number}", "build", clock=clock)
        runs.end(store, RunEnd(run_id=f"run{number}", state=state, exit_code=0, ended=CREATED))
    runs.start(store, "killed", "build", clock=clock)
    assert runs.unpublished_runs(store) == {"run2", "run3", "killed"}


def test_a_run_that_died_after_its_commit_has_published(store: FolderStore) -> None:
    runs.start(store, "run1", "build")
    runs.start(store, "run2", "build")
    commit(store, "1" * 64, None, 0, "run1", CREATED, {}, "")
    assert [(run.run_id, run.state, run.version) for run in runs.list_runs(store)] == [
        ("run1", "published", 1),
        ("run2", "killed", None),
    ]
    assert runs.unpublished_runs(store) == {"run2"}


class Nights:
    """Runs that take the lease of a store one after another."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._count = 0

    def run(self, command: str = "build", *, cold: bool = False, exit_code: int | None = 0) -> Ref:
        """The ref that a run commits. command: '' for a run without a record. exit_code: None if it is killed then."""
        self._count += 1
        run_id = f"run{self._count}"
        with acquire(self._store, run_id) as lease:
            if command:
                runs.start(self._store, run_id, command, details={"cold": cold})
            parent = refs.newest(self._store)
            digest = f"{self._count:064}"
            ref = commit(
                self._store, digest, None if parent is None else parent.version, lease.epoch, run_id, CREATED, {}, ""
            )
            if exit_code is not None:
                runs.end(self._store, RunEnd(run_id=run_id, state="failed", exit_code=exit_code, ended=CREATED))
        return ref


@pytest.fixture
def nights(store: FolderStore) -> Nights:
    return Nights(store)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("command", ["build", "backfill"])
def test_receipts_stay_those_of_a_build_that_ended_well(
    nights: Nights, store: FolderStore, command: str, *, cold: bool
) -> None:
    ref = nights.run(command, cold=cold)
    assert not runs.may_have_replaced(store, ref)
    nights.run()
    nights.run("gc")
    assert not runs.may_have_replaced(store, ref)


def test_receipts_may_be_replaced_where_no_build_made_the_version(nights: Nights, store: FolderStore) -> None:
    ref = nights.run("rollback")
    assert runs.may_have_replaced(store, ref)
    assert runs.may_have_replaced(store, ref.model_copy(update={"run_id": "run-of-a-copied-store"}))


@pytest.mark.parametrize("exit_code", [None, 1])
def test_a_cold_build_that_did_not_end_well_may_have_replaced_receipts_after_it_published(
    nights: Nights, store: FolderStore, exit_code: int | None
) -> None:
    assert runs.may_have_replaced(store, nights.run(cold=True, exit_code=exit_code))


def test_a_damaged_record_of_a_cold_builds_end_is_none_of_a_good_one(nights: Nights, store: FolderStore) -> None:
    ref = nights.run(cold=True)
    (store.root / runs.run_name(ref.run_id, "end")).write_bytes(b"")
    assert runs.may_have_replaced(store, ref)


@pytest.mark.parametrize("exit_code", [0, 1, None])
def test_a_later_cold_run_may_have_replaced_receipts(nights: Nights, store: FolderStore, exit_code: int | None) -> None:
    ref = nights.run()
    nights.run(cold=True, exit_code=exit_code)
    assert runs.may_have_replaced(store, ref)
    assert runs.may_have_replaced(store, nights.run()) == (exit_code != 0)


def test_workers_of_a_killed_cold_run_may_outlive_two_later_ones(nights: Nights, store: FolderStore) -> None:
    nights.run(cold=True, exit_code=None)
    assert runs.may_have_replaced(store, nights.run())
    assert runs.may_have_replaced(store, nights.run())
    assert not runs.may_have_replaced(store, nights.run())


@pytest.mark.parametrize("later", [32, 33])
def test_the_records_of_32_later_runs_are_read_at_most(nights: Nights, store: FolderStore, later: int) -> None:
    ref = nights.run()
    for _ in range(later):
        nights.run()
    assert runs.may_have_replaced(store, ref) == (later > 32)


def test_a_later_run_without_a_record_may_have_been_cold(nights: Nights, store: FolderStore) -> None:
    ref = nights.run()
    nights.run("")
    assert runs.may_have_replaced(store, ref)
    shutil.rmtree(store.root / "leases")
    assert runs.may_have_replaced(store, ref)


def test_the_refused_rows_of_all_parts_are_one_table_and_a_retry_counts_once(store: FolderStore) -> None:
    runs.start(store, "run1", "build")
    runs.add_quarantine(store, "run1", "ingest", refused("no-text"))
    runs.add_quarantine(store, "run1", "extract/p01", refused("bad-answer"))
    runs.add_quarantine(store, "run1", "extract/p01", refused("bad-answer", "again"))
    _, rows = runs.quarantine_of(store, "run1")
    assert rows.column("reason").to_pylist() == ["bad-answer", "no-text"]
    assert runs.read_run(store, "run1").quarantined == 2


def test_the_last_run_that_looked_is_shown_also_if_it_refused_nothing(store: FolderStore) -> None:
    assert runs.quarantine_of(store)[0] is None
    for run_id in ("run1", "run2", "run3"):
        runs.start(store, run_id, "build")
    runs.add_quarantine(store, "run1", "ingest", refused("no-text"))
    runs.add_quarantine(store, "run2", "ingest", refused())
    found, rows = runs.quarantine_of(store)
    assert (found, rows.num_rows, rows.schema) == ("run2", 0, QUARANTINE)


def test_unknown_runs_and_taken_ids_are_errors(store: FolderStore) -> None:
    for call in (runs.read_run, runs.quarantine_of):
        with pytest.raises(SnapshotNotFound, match="no run run9"):
            call(store, "run9")
    runs.start(store, "run1", "build")
    with pytest.raises(StoreError, match="run1"):
        runs.start(store, "run1", "build")


def test_a_run_id_begins_with_the_time_and_tells_processes_apart() -> None:
    from storage.processes import this_process

    one = runs.make_run_id(clock)
    other = runs.make_run_id(clock, this_process().model_copy(update={"pid": 1}))
    assert one.startswith("20260131T020000000Z-")
    assert one != runs.make_run_id(clock)  # a clock may stand still
    assert one != other


def test_the_last_report_is_that_of_the_newest_run_that_ended_well(store: FolderStore) -> None:
    assert runs.last_report(store) == {}
    for number, state in enumerate(["published", "unchanged", "failed", "done"]):
        runs.start(store, f"run{number}", "build", clock=clock)
        ended = RunEnd(run_id=f"run{number}", state=state, exit_code=0, ended=CREATED, report={"number": number})
        runs.end(store, ended)
    runs.start(store, "run9", "build", clock=clock)
    assert runs.last_report(store) == {"number": 1}
    store.replace("runs/run1/end.json", b"{")
    assert runs.last_report(store) == {"number": 0}
