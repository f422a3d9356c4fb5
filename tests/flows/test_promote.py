"""Moving aliases: a name that a serving team opens, and that somebody moves on purpose."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import indexmill
from flows.promote import promote, remove_alias
from indexmill.errors import BadInput, CorruptBlob, LeaseLost, SnapshotNotFound
from indexmill.store.layout import alias_name, blob_path
from indexmill.store.reader import StoreReader
from storage import faults, refs, runs
from storage.folder import FolderStore
from storage.lease import acquire
from tests.flows.versions import Jumping, Versions


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    return two_versions


def test_an_alias_is_opened_where_it_was_moved_to(store: FolderStore) -> None:
    assert promote(store, 1, "prod").before is None
    with indexmill.open(store.root, alias="prod") as snapshot:
        moved = promote(store, 2, "prod", note="measured")
        assert (moved.before, moved.version, moved.moved) == (1, 2, True)
        assert snapshot.version == 1  # what is open stays as it is
    with indexmill.open(store.root, alias="prod") as snapshot:
        assert snapshot.version == 2
    run = runs.read_run(store, moved.run)
    assert (run.start.command, run.state, run.version) == ("promote", "done", 2)


def test_moving_an_alias_to_where_it_is_writes_no_record(store: FolderStore) -> None:
    promote(store, 1, "prod")
    before = store.list("refs/")
    again = promote(store, 1, "prod")
    assert not again.moved
    assert store.list("refs/") == before
    assert runs.read_run(store, again.run).state == "unchanged"


def test_an_alias_that_is_removed_is_gone_and_the_others_are_named(store: FolderStore) -> None:
    promote(store, 1, "prod")
    promote(store, 2, "staging")
    assert remove_alias(store, "prod").before == 1
    for attempt in (lambda: indexmill.open(store.root, alias="prod"), lambda: remove_alias(store, "prod")):
        with pytest.raises(SnapshotNotFound, match="no alias 'prod': it has staging"):
            attempt()
    assert promote(store, 2, "prod").before is None
    assert StoreReader(store.root).aliases() == {"prod": 2, "staging": 2}


@pytest.mark.parametrize("alias", ["7", "newest", "", "../main", "a b", "-x", "pröd", "x" * 201])
def test_a_name_that_is_no_alias_is_refused(store: FolderStore, alias: str) -> None:
    for attempt in (lambda: promote(store, 1, alias), lambda: remove_alias(store, alias)):
        with pytest.raises(BadInput, match="cannot be an alias"):
            attempt()
    with pytest.raises(SnapshotNotFound, match="no alias"):
        indexmill.open(store.root, alias=alias)


def test_a_version_that_is_absent_or_not_whole_is_not_promoted(versions: Versions, store: FolderStore) -> None:
    with pytest.raises(SnapshotNotFound, match="version 9"):
        promote(store, 9, "prod")
    with indexmill.open(store.root, 2) as snapshot:
        digest = snapshot.shards("mention_links")[0].digest
    (store.root / blob_path(digest)).unlink()
    with pytest.raises(CorruptBlob, match=digest):
        promote(store, 2, "prod")
    assert StoreReader(store.root).aliases() == {}


def test_a_damaged_alias_does_not_hide_the_others(store: FolderStore) -> None:
    promote(store, 1, "prod")
    store.create(alias_name("staging", 1), b"{")
    with indexmill.open(store.root, alias="prod") as snapshot:
        assert snapshot.version == 1
    with pytest.raises(CorruptBlob, match="staging"):
        indexmill.open(store.root, alias="staging")


def test_an_alias_moves_while_a_build_holds_the_lease(store: FolderStore) -> None:
    with acquire(store, "at-work"):
        assert promote(store, 1, "prod").moved


def test_of_many_moves_at_once_each_is_told_or_refused(store: FolderStore) -> None:
    def move(number: int) -> bool:
        try:
            refs.promote(store, "prod", number % 2 + 1, "2026-01-01T00:00:00Z", note=str(number))
        except LeaseLost:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        moved = list(pool.map(move, range(40)))
    records = store.list("refs/aliases/prod/")
    assert [alias_name("prod", number) for number in range(1, len(records) + 1)] == records
    assert 0 < len(records) <= sum(moved)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_does_not_move_an_alias_back(store: FolderStore, jump: float) -> None:
    now = 1_800_000_000.0
    promote(store, 1, "prod", clock=Jumping(now))
    promote(store, 2, "prod", clock=Jumping(now + jump))
    assert StoreReader(store.root).aliases() == {"prod": 2} == {"prod": refs.pointed(store, "prod")}
    remove_alias(store, "prod", clock=Jumping(now, now - jump))
    assert StoreReader(store.root).aliases() == {}


def test_a_run_whose_clock_jumps_ahead_does_not_sweep_a_move_away(store: FolderStore) -> None:
    """Taking the lease sweeps old temporary files; those of a live process stay, however old they look."""

    def sweep(name: str) -> None:
        if name.startswith("create refs/aliases/"):
            faults.install(None)
            acquire(store, "ahead", clock=lambda: time.time() + 1e9).release()

    faults.install(sweep)
    try:
        assert promote(store, 1, "prod").moved
    finally:
        faults.install(None)
    assert StoreReader(store.root).aliases() == {"prod": 1}


def test_a_run_without_a_lease_is_at_work_while_its_process_lives(store: FolderStore) -> None:
    from storage.processes import this_process

    started = runs.start(store, "one", "export", leased=False)
    assert runs.read_run(store, "one").state == "running"
    dead = started.model_copy(update={"run_id": "two", "process": this_process().model_copy(update={"started": "1"})})
    store.create("runs/two/start.json", dead.to_bytes())
    assert runs.read_run(store, "two").state == "killed"
