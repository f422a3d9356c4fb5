"""An index that follows a store: whole versions only, at once for everyone, and none that does not hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import indexmill
from indexmill.errors import BadInput, CorruptBlob, GateRefused, SnapshotNotFound, StoreError
from indexmill.follower import Follower
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path, removal_name
from indexmill.store.manifest import Removal
from tests.indexmill.small_snapshot import WORLD, Text, point, writer_of

QUESTION = "Who built the Marrow Bridge?"


def publish(path: Path, version: int, text: str = "") -> None:
    """A version that says its number in its last shard."""
    world = {**WORLD, "p9": [Text("numbered", f"Version {version}", text or f"This is the version {version}.")]}
    writer = writer_of(path, world)
    writer.bm25()
    writer.publish(version)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    publish(tmp_path / "store", 1)
    return tmp_path / "store"


@pytest.fixture
def index(root: Path) -> Iterator[Follower]:
    with indexmill.follow(root, poll=None, methods=["bm25"]) as following:
        yield following


def said(index: Follower) -> tuple[int | None, str]:
    """The version that a hit names, and what its text says."""
    (hit,) = index.retrieve("which version is this", method="bm25", k=1)
    return hit.version, hit.text


def test_a_new_version_is_served_after_a_look(root: Path, index: Follower) -> None:
    assert said(index) == (1, "This is the version 1.")
    assert not index.look()
    publish(root, 2)
    assert said(index)[0] == 1
    assert index.look()
    assert (index.version, said(index)) == (2, (2, "This is the version 2."))
    assert index.refusal is None
    assert "bm25" in index.methods


def test_an_alias_is_followed_forth_and_back(root: Path) -> None:
    publish(root, 2)
    store = writer_of(root).store
    point(store, "prod", 1)
    with indexmill.follow(root, alias="prod", poll=None, methods=["bm25"]) as index:
        assert index.version == 1
        for number, version in ((2, 2), (3, 1)):
            point(store, "prod", version, number)
            assert index.look()
            assert said(index)[0] == version
    with pytest.raises(SnapshotNotFound, match="no alias 'staging'"):
        indexmill.follow(root, alias="staging")


def test_questions_under_way_finish_where_they_began_and_the_old_version_is_closed_after_them(
    root: Path, index: Follower
) -> None:
    publish(root, 2)
    with index.snapshot() as outer:
        with index.snapshot() as inner:
            assert index.look()
            assert inner is outer
            with index.snapshot() as fresh:
                assert fresh.version == 2
        assert outer.retrieve("which version is this", method="bm25", k=1)[0].version == 1
    with pytest.raises(StoreError):
        outer.retrieve(QUESTION, method="bm25")
    assert fresh.retrieve(QUESTION, method="bm25")


def test_a_version_with_a_damaged_file_is_not_taken_until_it_is_mended(
    root: Path, index: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    publish(root, 2)
    with indexmill.open(root, 2) as snapshot:
        path = root / blob_path(snapshot.artifact("documents/p9").digest)  # no question reads it before it has a hit
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-1] + b"x")
    for _ in range(2):
        assert not index.look()
        assert said(index)[0] == 1
    assert index.refusal is not None
    assert (index.refusal.version, "is damaged" in index.refusal.reason) == (2, True)
    assert [
        record.getMessage().count("version 2 is rejected, version 1 keeps serving") for record in caplog.records
    ] == [1]
    path.write_bytes(whole)
    assert index.look()
    assert (index.refusal, said(index)[0]) == (None, 2)


def test_a_version_that_finds_nothing_or_that_the_caller_refuses_is_not_taken(root: Path) -> None:
    refused: list[int | None] = []

    def check(snapshot: Snapshot) -> None:
        if snapshot.version == 3:
            refused.append(snapshot.version)
            raise RuntimeError("not on a Friday")

    asked = {"methods": ["bm25"], "smoke": ["quillon"], "check": check, "poll": None}
    with pytest.raises(GateRefused, match=r"version 1 of .*: bm25 has no hits for 'quillon'"):
        indexmill.follow(root, **asked)  # type: ignore[arg-type]  # the values of a test
    publish(root, 2, "Quillon is a tower.")
    with indexmill.follow(root, **asked) as index:  # type: ignore[arg-type]  # the same
        publish(root, 3, "Quillon is a bridge.")
        assert not index.look()
        assert (index.version, refused) == (2, [3])
        assert index.refusal is not None
        assert index.refusal.reason == "RuntimeError: not on a Friday"
        publish(root, 4)
        assert not index.look()
        assert index.refusal.version == 4
        publish(root, 5, "Quillon is a city.")
        assert index.look()
        assert (index.version, index.refusal) == (5, None)


def test_a_store_that_is_away_for_a_moment_changes_nothing(root: Path, index: Follower) -> None:
    away = root.rename(root.with_name("away"))
    assert not index.look()
    assert index.refusal is not None
    assert index.refusal.version is None
    away.rename(root)
    publish(root, 2)
    assert index.look()
    assert index.refusal is None


@pytest.mark.slow
def test_every_answer_is_of_one_version_while_versions_come(root: Path) -> None:
    mixed: list[object] = []
    asked = 0
    with indexmill.follow(root, poll=0.01, methods=["bm25"]) as index:
        over = threading.Event()

        def ask() -> int:
            count = 0
            while not over.is_set():
                for hits in index.retrieve_batch(["which version is this"] * 2, method="bm25", k=1):
                    version, text = hits[0].version, hits[0].text
                    if text != f"This is the version {version}.":
                        mixed.append((version, text))
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            for version in range(2, 8):
                publish(root, version)
                deadline = time.monotonic() + 60
                while index.version != version and time.monotonic() < deadline:
                    time.sleep(0.005)
                assert index.version == version
            over.set()
            asked = sum(one.result(60) for one in asking)
    assert mixed == []
    assert asked > 10


def test_a_closed_index_answers_nothing_and_looks_no_more(root: Path) -> None:
    index = indexmill.follow(root, poll=0.01, methods=["bm25"])
    with index.snapshot() as snapshot:
        index.close()
        assert snapshot.retrieve(QUESTION, method="bm25")
    with pytest.raises(StoreError):
        snapshot.retrieve(QUESTION, method="bm25")
    with pytest.raises(StoreError, match="was closed"):
        index.retrieve(QUESTION)
    publish(root, 2)
    assert not index.look()
    assert index.version == 1


def test_mistakes_are_told(root: Path) -> None:
    for options in ({"poll": 0}, {"poll": -1.0}, {"smoke": "a question"}, {"methods": "bm25"}):
        with pytest.raises(BadInput):
            indexmill.follow(root, **options)  # type: ignore[arg-type]  # mistakes
    with pytest.raises(SnapshotNotFound):
        indexmill.follow(root / "absent")


@pytest.mark.slow
def test_a_child_follows_on(root: Path) -> None:
    script = """
import os, sys, time
from pathlib import Path
import indexmill
from tests.indexmill.test_follower import publish, said
root = Path(sys.argv[1])
index = indexmill.follow(root, poll=0.05, methods=["bm25"])
assert said(index)[0] == 1
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("done")
else:
    publish(root, 2)
    deadline = time.monotonic() + 60
    while said(index)[0] != 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os._exit(0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.stdout.strip() == "done", done.stderr


def test_the_versions_that_can_be_opened_are_listed(root: Path) -> None:
    publish(root, 2)
    publish(root, 3)
    store = writer_of(root).store
    removal = Removal(version=2, reason="gc", run_id="r", created="2026-01-31T02:00:00Z")
    assert store.create(removal_name(2), removal.to_bytes())
    assert [ref.version for ref in indexmill.versions(root)] == [1, 3]
    newest = indexmill.newest(root)
    assert (newest.version, newest.created) == (3, "2026-01-03T02:00:00Z")
    with pytest.raises(SnapshotNotFound):
        indexmill.versions(root / "absent")
    assert indexmill.__version__
    assert isinstance(newest, indexmill.Ref)


def test_the_damage_of_a_first_version_is_raised(root: Path) -> None:
    with indexmill.open(root) as snapshot:
        path = root / blob_path(snapshot.artifact("documents/p9").digest)
    path.unlink()
    with pytest.raises(CorruptBlob, match="is missing"):
        indexmill.follow(root)
