"""Death and failure at every boundary of a durable write: the store is whole before and after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indexmill.errors import SnapshotNotFound, StoreError
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults
from storage.folder import init_folder, open_folder
from tests.paths import ROOT
from tests.storage import children


def whole_or_absent(root: Path, digest: str) -> bool:
    """Whether version 1 is published; whatever a reader sees must be whole."""
    try:
        reader = StoreReader(root)
        ref = reader.newest()
    except SnapshotNotFound:
        return False
    assert (ref.version, ref.manifest) == (1, digest)
    checked = verify(reader)
    assert checked.ok, checked.problems
    return True


@pytest.fixture(scope="module")
def total(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """The number of crossings of a build, and the digest of the manifest it publishes."""
    faults.arm(0)
    ref = children.build(tmp_path_factory.mktemp("count") / "store")
    return faults.crossings(), ref.manifest


@pytest.mark.parametrize("mode", ["kill", "torn"])
def test_a_build_killed_at_any_boundary_is_whole_or_absent_and_the_next_one_ends_it(
    quick: Path, total: tuple[int, str], mode: str
) -> None:
    crossings, digest = total
    published = 0
    for at in range(1, crossings + 1, 1 if mode == "kill" else 3):
        root = quick / str(at)
        code = children.run(children.build_with_fault, root, at, mode)
        if code == 0:
            assert mode == "torn"  # after the last write nothing can be torn
        else:
            assert code == -signal.SIGKILL
        before = whole_or_absent(root, digest)
        published += before
        if before:
            continue
        ref = children.build(root)
        assert (ref.version, ref.manifest) == (1, digest)
        assert whole_or_absent(root, digest)
        assert list((root / "tmp").iterdir()) == []
        assert len(open_folder(root).list("work/")) == 1
    assert published >= 3  # killed after the ref, before the lease was given back


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["enospc", "eio", "short"])
def test_a_build_that_meets_a_failing_disk_anywhere_loses_nothing(
    quick: Path, total: tuple[int, str], mode: str
) -> None:
    crossings, digest = total
    for at in range(1, crossings + 1):
        root = quick / str(at)
        faults.arm(at, mode)
        try:
            ref = children.build(root)
        except StoreError:
            faults.arm(0)
            whole_or_absent(root, digest)
            if not whole_or_absent(root, digest):
                release(root)
                ref = children.build(root)
                assert (ref.version, ref.manifest) == (1, digest)
        else:
            assert (ref.version, ref.manifest) == (1, digest)
        faults.arm(0)
        assert whole_or_absent(root, digest)
        assert not [entry for entry in (root / "tmp").iterdir() if not entry.name.startswith("run-")]


def release(root: Path) -> None:
    """Give back a lease whose release failed, too: this process still lives, so it would have to run out."""
    from storage.lease import Lease, holding

    store = init_folder(root)
    current = holding(store)
    if current is not None and not current.released:
        Lease(store, current.epoch, current.run_id, lambda: 0.0, 1.0).release()


@pytest.mark.slow
def test_a_fault_is_asked_for_by_the_environment(tmp_path: Path) -> None:
    program = "import sys; from tests.storage.children import build; from pathlib import Path; build(Path(sys.argv[1]))"
    count = tmp_path / "count"

    def start(root: Path, **environment: str) -> int:
        command = [sys.executable, "-c", program, str(root)]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, check=False, stderr=subprocess.DEVNULL
        ).returncode

    assert start(tmp_path / "a", INDEXMILL_FAULT_COUNT=str(count)) == 0
    total = int(count.read_text())
    assert total > 50
    assert start(tmp_path / "b", INDEXMILL_FAULT=f"{total // 2}") == -signal.SIGKILL
    assert start(tmp_path / "b", INDEXMILL_FAULT=f"{total * 2}:kill") == 0
    assert start(tmp_path / "c", INDEXMILL_FAULT="5:enospc") == 1


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        faults.arm(1, "nonsense")
