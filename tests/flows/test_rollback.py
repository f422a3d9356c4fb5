"""Going back: the old answers to the byte, under a new number, and no build until a person says so."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.rollback import resume, roll_back
from indexmill.errors import CorruptBlob, GateRefused, LeaseLost, SnapshotNotFound
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults, holds, refs, runs
from storage.folder import FolderStore, open_folder
from storage.lease import acquire
from tests.deep import share
from tests.flows.children import build
from tests.flows.disturbed import roll_back_and_die
from tests.flows.versions import Jumping, Versions, bare
from tests.storage import children
from tests.storage.quick import quick_folder

YEAR = 366 * 24 * 3600.0


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    return two_versions


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(0)
    faults.install(None)


def test_a_rollback_gives_the_answers_of_that_version_to_the_byte(versions: Versions, store: FolderStore) -> None:
    assert versions.answered[0] != versions.answered[1]
    made = roll_back(store, 1, note="names were wrong")
    assert (made.published, made.version, made.target, made.manifest) == (True, 3, 1, versions.manifests[0])
    assert bare(store.root) == bare(store.root, 3) == versions.answered[0]
    assert bare(store.root, 2) == versions.answered[1]
    assert verify(StoreReader(store.root)).ok
    ref = refs.read(store, 3)
    assert (ref.parent, ref.run_id, ref.note) == (2, made.run, "back to version 1: names were wrong")
    run = runs.read_run(store, made.run)
    assert (run.start.command, run.state, run.version) == ("rollback", "published", 3)


def test_a_store_on_hold_refuses_builds_until_it_is_resumed(versions: Versions, store: FolderStore) -> None:
    made = roll_back(store, 1, note="names were wrong")
    with pytest.raises(GateRefused) as caught:
        build(versions.settings(store.root))
    assert caught.value.exit_code == 3
    for word in (made.hold.by, made.hold.created, made.run, "names were wrong", "version 1", "indexmill resume"):
        assert word in str(caught.value)
    assert runs.list_runs(store)[-1].state == "refused"
    ended = resume(store, note="mended")
    assert (ended.released, ended.version) == (True, 3)
    assert StoreReader(store.root).hold() is None
    again = build(versions.settings(store.root))
    assert (again.published, again.version, again.manifest) == (True, 4, versions.manifests[1])
    assert again.parts_made == 0  # all that was made before the rollback is found again
    assert not resume(store).released
    assert [run.state for run in runs.list_runs(store)][-4:] == ["refused", "done", "published", "unchanged"]


def test_going_back_to_the_newest_publishes_nothing_and_still_holds(versions: Versions, store: FolderStore) -> None:
    made = roll_back(store, 2)
    assert (made.published, made.version, made.target) == (False, 2, 2)
    assert refs.newest(store) == refs.read(store, 2)
    with pytest.raises(GateRefused):
        holds.check(store)
    back = roll_back(store, 1)
    again = roll_back(store, 1)
    assert (back.version, again.version, again.published) == (3, 3, False)
    assert again.hold == back.hold  # it tells who was first
    assert StoreReader(store.root).hold() == back.hold
    assert roll_back(store, 3).version == 3  # version 3 has the manifest of version 1


@pytest.mark.parametrize("damage", ["missing", "cut", "no manifest", "no lineage"])
def test_a_version_that_is_not_whole_is_refused_before_anything_is_written(
    versions: Versions, store: FolderStore, damage: str
) -> None:
    manifest = Manifest.from_bytes(store.get_blob(versions.manifests[0]))
    digest = {"no manifest": versions.manifests[0], "no lineage": manifest.lineage}.get(
        damage, next(one.digest for one in manifest.artifacts if one.name.startswith("mention_links/"))
    )
    path = store.root / blob_path(digest)
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    with pytest.raises(CorruptBlob, match=digest):
        roll_back(store, 1)
    assert StoreReader(store.root).versions() == [1, 2]
    assert holds.standing(store) is None
    run = runs.list_runs(store)[-1]
    assert (run.start.command, run.state) == ("rollback", "failed")


def test_a_version_that_does_not_exist_is_refused(store: FolderStore) -> None:
    with pytest.raises(SnapshotNotFound, match="version 9"):
        roll_back(store, 9)
    assert holds.standing(store) is None


def test_while_a_build_is_at_work_nothing_is_rolled_back_or_resumed(store: FolderStore) -> None:
    roll_back(store, 1)
    with acquire(store, "at-work"):
        for attempt in (lambda: roll_back(store, 2), lambda: resume(store)):
            with pytest.raises(LeaseLost, match="at-work"):
                attempt()
    assert StoreReader(store.root).versions() == [1, 2, 3]
    assert StoreReader(store.root).hold() is not None


# Death


def crossed(versions: Versions) -> tuple[str, ...]:
    """The boundaries of a rollback that nobody disturbs."""
    names: list[str] = []
    with quick_folder() as folder:
        store = open_folder(shutil.copytree(versions.root, folder / "store"))
        faults.install(names.append)
        roll_back(store, 1, note="a test")
        faults.install(None)
    return tuple(names)


def states(root: Path) -> tuple[int, bool]:
    """The newest version, and whether the store is on hold, after a look at all that readers rely on."""
    reader = StoreReader(root)
    assert reader.versions() == list(range(1, len(reader.versions()) + 1))
    for version in reader.versions():
        checked = verify(reader, version)
        assert checked.ok, checked.problems
    return reader.newest().version, reader.hold() is not None


def ends_well(versions: Versions, root: Path) -> tuple[int, bool]:
    """Hold a store against the promises after a disturbed rollback, then roll back again; what the first had left."""
    left = states(root)
    assert left in ((2, False), (2, True), (3, True))  # never version 3 without the hold
    if left[1]:
        with pytest.raises(GateRefused, match="interrupted" if left[0] == 2 else "on hold"):
            build(versions.settings(root))
    made = roll_back(open_folder(root), 1, note="a test")
    assert (made.version, made.published) == (3, left[0] == 2)
    assert states(root) == (3, True)
    assert StoreReader(root).newest().manifest == versions.manifests[0]
    assert open_folder(root).list("holds/") == ["holds/00000000000000000001.json"]
    assert list((root / "tmp").iterdir()) == []
    return left


@pytest.mark.parametrize("mode", ["kill", pytest.param("torn", marks=pytest.mark.slow)])
def test_a_rollback_that_dies_leaves_nothing_or_a_store_on_hold(versions: Versions, mode: str) -> None:
    boundaries = crossed(versions)
    assert len(boundaries) > 40
    commit = [at for at, name in enumerate(boundaries, 1) if "holds/" in name or "refs/" in name]
    assert ["holds" in boundaries[at - 1] for at in commit] == [True] * 3 + [False] * 3  # the hold comes first
    sample = {*range(1, len(boundaries) + 1, 8), *commit, commit[2] + 1, commit[-1] + 1}
    writes = [at for at, name in enumerate(boundaries, 1) if name == "write"]
    seen = set()
    with quick_folder() as folder:
        for at in sorted(sample) if mode == "kill" else writes:
            root = Path(shutil.copytree(versions.root, folder / str(at)))
            code = children.run(roll_back_and_die, root, 1, at, mode)
            assert code == -signal.SIGKILL
            seen.add(ends_well(versions, root))
            shutil.rmtree(root)
    assert seen == {(2, False), (2, True), (3, True)}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "mode"), list(enumerate(["kill", "enospc", "eio", "short", "torn"])))
def test_a_rollback_disturbed_at_many_boundaries(versions: Versions, mode: str, first: int) -> None:
    with quick_folder() as folder:
        for at in share(range(1, len(crossed(versions)) + 1), 4, first):
            root = Path(shutil.copytree(versions.root, folder / str(at)))
            children.run(roll_back_and_die, root, 1, at, mode)
            ends_well(versions, root)
            shutil.rmtree(root)


# Clocks


@pytest.mark.parametrize("jump", [-30 * YEAR, -3600.0, 3600.0, 30 * YEAR])
def test_a_clock_that_jumps_changes_neither_the_order_of_versions_nor_the_hold(
    versions: Versions, store: FolderStore, jump: float
) -> None:
    now = 1_800_000_000.0
    clocks = [Jumping(now, now + jump), Jumping(now + jump), Jumping(now + jump, now), Jumping(now)]
    assert roll_back(store, 1, clock=clocks[0]).version == 3
    assert roll_back(store, 2, clock=clocks[1]).version == 4
    assert resume(store, clock=clocks[2]).released
    assert StoreReader(store.root).hold() is None
    assert roll_back(store, 1, clock=clocks[3]).version == 5
    assert StoreReader(store.root).hold() == holds.standing(store)
    with pytest.raises(GateRefused, match="version 1"):
        build(versions.settings(store.root))
    assert [ref.parent for ref in refs.history(store)] == [None, 1, 2, 3, 4]
    assert bare(store.root) == versions.answered[0]


def test_a_rollback_whose_lease_runs_out_by_a_jump_never_commits_over_another(
    versions: Versions, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time() + YEAR

    def jump(name: str) -> None:
        """As the first rollback is about to commit, the store's clock jumps, and another one comes first."""
        if name.startswith("create refs/"):
            faults.install(None)
            monkeypatch.setattr("storage.lease.clock_of", lambda _: lambda: later)
            assert roll_back(store, 1, note="second").version == 3

    faults.install(jump)
    with pytest.raises(LeaseLost, match="took over the lease"):
        roll_back(store, 1, note="first")
    assert StoreReader(store.root).versions() == [1, 2, 3]
    assert refs.read(store, 3).note == "back to version 1: second"
    hold = StoreReader(store.root).hold()
    assert hold is not None
    assert hold.note == "second"
