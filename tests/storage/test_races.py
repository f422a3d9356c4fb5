"""Real processes that want the same name at the same moment."""

from __future__ import annotations

import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from indexmill.store.canonical import digest_of
from indexmill.store.reader import StoreReader
from storage import faults
from storage.folder import FolderStore, init_folder
from storage.lease import acquire, holding
from storage.refs import commit
from tests.storage import children


def test_one_of_many_processes_creates_a_name_and_readers_see_whole_records(store: FolderStore, tmp_path: Path) -> None:
    names = [f"work/race/{number:03d}.json" for number in range(25)]
    barrier = children.context.Barrier(5)
    won = tmp_path / "won"
    writers = [(children.create_many, store.root, names, word, barrier, won) for word in "abcd"]
    assert children.run_all([*writers, (children.watch, store.root, names, barrier)]) == [0] * 5
    winners = [line.split() for line in won.read_text().splitlines()]
    assert sorted(name for name, _ in winners) == names  # each exactly once
    for name, word in winners:
        assert store.get(name) == word.encode() * 100_000


def test_who_comes_second_between_the_look_and_the_link_has_made_nothing(store: FolderStore) -> None:
    def hook(name: str) -> None:
        if name == "create work/name":
            faults.install(None)
            assert store.create("work/name", b"theirs")

    faults.install(hook)
    assert not store.create("work/name", b"ours")
    assert store.get("work/name") == b"theirs"


def test_processes_put_the_same_blobs_at_once(store: FolderStore) -> None:
    barrier = children.context.Barrier(4)
    assert children.run_all([(children.put_many, store.root, barrier)] * 4) == [0] * 4
    blobs = store.list("blobs/")
    assert len(blobs) == 30
    for name in blobs:
        store.get_blob(name.rpartition("/")[2])
    assert store.sweep(0.0) == 0


def test_one_of_many_processes_commits_a_version(store: FolderStore) -> None:
    manifest = store.put_blob(b"{}")
    barrier = children.context.Barrier(4)
    codes = children.run_all([(children.commit_one, store.root, manifest, f"run{n}", barrier) for n in range(4)])
    assert sorted(codes) == [0, 5, 5, 5]
    assert StoreReader(store.root).newest().run_id == f"run{codes.index(0)}"


def test_one_of_many_processes_takes_the_lease(store: FolderStore) -> None:
    barrier = children.context.Barrier(4)
    processes = [
        children.context.Process(target=children.hold, args=(store.root, f"run{n}", barrier, 60.0)) for n in range(4)
    ]
    for process in processes:
        process.start()
    losers: list[BaseProcess] = []
    while len(losers) < 3:
        losers = [process for process in processes if process.exitcode is not None]
        for process in processes:
            process.join(0.02)
    assert [process.exitcode for process in losers] == [5, 5, 5]
    current = holding(store)
    assert current is not None
    assert (store.root / "held").read_text(encoding="utf-8") == f"{current.run_id} 1"
    barrier.abort()
    for process in processes:
        process.join(30)


def test_many_processes_init_the_same_folder(tmp_path: Path) -> None:
    assert children.run_all([(init_folder, tmp_path / "new" / "store")] * 5) == [0] * 5
    assert init_folder(tmp_path / "new" / "store").list("") == ["store.json"]


def contiguous(root: Path, workers: int, each: int) -> None:
    """Every manifest of every worker is the manifest of one version, and the versions are 1, 2, 3, ..."""
    refs = StoreReader(root).history()
    assert [ref.version for ref in refs] == list(range(1, workers * each + 1))
    assert [ref.parent for ref in refs] == [None, *range(1, workers * each)]
    made = sorted(digest_of(f"{worker} {number}".encode()) for worker in range(workers) for number in range(each))
    assert sorted(ref.manifest for ref in refs) == made
    assert len({ref.run_id for ref in refs}) == workers * each


def test_eight_processes_that_plan_again_from_the_head_lose_and_double_nothing(store: FolderStore) -> None:
    """By the refs alone, as if every lease had run out at once."""
    barrier = children.context.Barrier(8)
    calls = [(children.commit_in_turn, store.root, worker, 6, barrier, False) for worker in range(8)]
    assert children.run_all(calls) == [0] * 8
    contiguous(store.root, 8, 6)
    lost = sum(int(path.read_text()) for path in store.root.parent.glob("lost-*"))
    assert lost > 0  # they did meet


def test_eight_processes_that_wait_for_the_lease_lose_and_double_nothing(store: FolderStore) -> None:
    barrier = children.context.Barrier(8)
    calls = [(children.commit_in_turn, store.root, worker, 3, barrier, True) for worker in range(8)]
    assert children.run_all(calls) == [0] * 8
    contiguous(store.root, 8, 3)
    epochs = [ref.epoch for ref in StoreReader(store.root).history()]
    assert epochs == sorted(set(epochs))


def test_a_process_that_slept_through_the_end_of_its_lease_never_commits(store: FolderStore) -> None:
    """It is stopped between its last look at the lease and the ref, and wakes up when another has published."""
    manifest = store.put_blob(b"{}")
    barrier = children.context.Barrier(2)
    stale = children.context.Process(target=children.sleep_before_the_ref, args=(store.root, manifest, barrier))
    stale.start()
    barrier.wait(30)  # it is at the ref
    later = time.time() + 10_000.0
    with acquire(store, "next", clock=lambda: later) as lease:
        ref = commit(store, manifest, None, lease.epoch, "next", children.CREATED, {}, "")
        barrier.wait(30)  # it wakes up
        stale.join(30)
    assert stale.exitcode == 5
    assert StoreReader(store.root).history() == [ref]
    assert (ref.run_id, ref.epoch) == ("next", 2)
