"""Real processes that want the same name at the same moment."""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from pathlib import Path

from indexmill.folder import FolderReader
from storage.folder import FolderStore, init_store
from storage.lease import holding
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
    assert FolderReader(store.root).newest().run_id == f"run{codes.index(0)}"


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
    assert children.run_all([(init_store, tmp_path / "new" / "store")] * 5) == [0] * 5
    assert init_store(tmp_path / "new" / "store").list("") == ["store.json"]
