"""Setting aside, announcing and removing: each rule by itself; `test_interleavings` has them in any order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from indexmill.errors import CorruptBlob, LeaseLost, SnapshotNotFound, VersionWithdrawn
from indexmill.store.layout import blob_path, lease_name, receipt_name
from indexmill.store.manifest import Ref
from indexmill.store.reader import StoreReader
from storage import deletions, gc, refs
from storage.clock import timestamp
from storage.folder import FolderStore, init_folder
from storage.gc import DAY, Policy
from storage.lease import MARGIN, STALE, acquire
from storage.processes import Process
from storage.publish import publish
from tests.storage.test_gc import World

ELSEWHERE = Process(host="elsewhere", space="another boot", pid=7, started="7")
LAST = Policy(last=1, grace=0.0)


class Disturbed(FolderStore):
    """A store in which something happens just before a call."""

    def __init__(self, root: Path, before: Callable[[str, str], None]) -> None:
        super().__init__(root)
        self._before = before

    def create(self, name: str, data: bytes) -> bool:
        self._before("create", name)
        return super().create(name, data)

    def delete(self, name: str) -> None:
        self._before("delete", name)
        super().delete(name)


@pytest.fixture
def world(quick: Path) -> World:
    made = World(quick / "store")
    for content in "abc":
        made.run(content)
        made.later(DAY)
    return made


def records(world: World) -> dict[str, object]:
    """What is set aside, as the one record says it."""
    (name,) = world.store.list("aside/")
    found: dict[str, object] = json.loads(world.store.get(name))
    return found


def test_a_collection_sets_aside_and_one_an_hour_later_removes(world: World) -> None:
    before = world.blobs
    done = world.gc(LAST, wait=STALE)
    first = timestamp(world.now)
    assert (done.versions_removed, done.blobs_removed, done.blobs_set_aside) == ((1, 2), 0, 6)
    assert world.blobs == before
    record = records(world)
    assert (record["run_id"], record["created"]) == ("gc-4", first)
    (group,) = record["groups"]  # type: ignore[misc]
    assert (group["since"], group["run_id"], len(group["names"])) == (first, "gc-4", 6 + 2)
    world.later(STALE - 1)
    orphan = world.store.put_blob(b"nobody's")
    world.later(0.5)
    done = world.gc(LAST, wait=STALE)
    assert (done.blobs_removed, done.blobs_set_aside, done.blobs_waiting, done.waiting_since) == (0, 1, 6, (first,))
    assert [group["run_id"] for group in records(world)["groups"]] == ["gc-4", "gc-5"]  # type: ignore[attr-defined]
    world.later(0.5)
    done = world.gc(LAST, wait=STALE)
    assert (done.blobs_removed, done.receipts_removed, done.removed_were_set_aside) == (6, 2, (first,))
    assert world.store.list("work/") == [receipt_name("split", "key-c")]
    assert orphan in world.blobs
    world.later(STALE)
    assert world.gc(LAST, wait=STALE).blobs_removed == 1
    assert world.store.list("aside/") == world.store.list("removing/") == []
    assert world.whole(3)


def test_nights_of_collections_keep_one_record_of_what_is_there(world: World) -> None:
    sizes = []
    for night in range(12):
        world.run(f"night-{night}", "c")
        world.later(DAY)
        world.gc(Policy(last=2, grace=DAY / 2), wait=STALE)
        record = records(world)
        names = [name for group in record["groups"] for name in group["names"]]  # type: ignore[attr-defined]
        assert all(world.store.stat(name) for name in names)
        sizes.append(len(names))
    assert set(sizes[2:]) == {4}  # a version's table, lineage, manifest and receipt
    assert len(world.store.list("blobs/")) == 3 * 3 + 1


def test_what_is_used_again_is_set_aside_anew(world: World) -> None:
    world.gc(LAST, wait=STALE)
    world.later(DAY)
    world.run("a")
    world.run("d")
    world.later(DAY)
    done = world.gc(LAST, wait=STALE)  # version 4 has gone by now, and with it what was set aside before
    a = blob_path(gc.receipts_of(world.store).__next__()[1].outputs["passages"])  # type: ignore[union-attr]
    since = deletions.set_aside(world.store)
    assert done.blobs_removed > 0
    assert world.store.stat(a) is not None
    assert since[a].time == timestamp(world.now)
    world.later(STALE)
    world.gc(LAST, wait=STALE)
    assert world.store.stat(a) is None


def test_what_was_put_again_is_set_aside_anew(world: World) -> None:
    orphan = world.store.put_blob(b"nobody's")
    world.gc(LAST, wait=STALE)
    world.later(STALE)
    world.store.put_blob(b"nobody's")
    world.later(1)
    world.gc(LAST, wait=STALE)
    assert world.blobs > {orphan}
    assert deletions.set_aside(world.store)[blob_path(orphan)].time == timestamp(world.now)


def test_a_version_that_went_within_the_hour_keeps_its_blobs_though_they_were_set_aside_long_ago(world: World) -> None:
    world.gc(LAST, wait=STALE)
    world.later(DAY)
    set_aside = deletions.set_aside(world.store)
    world.run("a")
    world.run("d")
    for digest in world.blobs:  # found by receipts, and not put again
        os.utime(world.root / blob_path(digest), (0, 0))
    with acquire(world.store, "killed", clock=world.clock) as lease:  # after the records of removal
        found = gc.survey(world.store, LAST, clock=world.clock)
        monkeyed = Disturbed(world.root, _stop_at("removing/"))
        with pytest.raises(KeyboardInterrupt):
            gc.collect(monkeyed, lease, found, LAST, clock=world.clock)
    assert 4 in refs.removals(world.store)
    assert deletions.set_aside(world.store) == set_aside
    needed = gc.reach(world.store, refs.read(world.store, 4).manifest)
    world.later(STALE / 2)
    assert not {name.rpartition("/")[2] for name in gc.survey(world.store, LAST, clock=world.clock).due} & needed


def _stop_at(prefix: str) -> Callable[[str, str], None]:
    def before(call: str, name: str) -> None:
        if call == "create" and name.startswith(prefix):
            raise KeyboardInterrupt

    return before


def test_a_receipt_that_stays_keeps_its_blobs(world: World) -> None:
    orphan = world.store.put_blob(b"nobody's")
    world.gc(LAST, wait=STALE)
    world.later(STALE)
    late = {"key": "late", "outputs": {"passages": orphan}, "bytes": {}}
    made = world.part("e", "lost").model_copy(update=late)
    world.store.create(receipt_name("split", "late"), made.to_bytes())
    due = gc.survey(world.store, LAST, clock=world.clock).due
    assert due
    assert blob_path(orphan) not in due


@pytest.mark.parametrize("wrong", ["ahead", "damaged"])
def test_a_record_that_is_wrong_makes_no_more_than_a_delay(world: World, wrong: str) -> None:
    world.later(DAY * 400 if wrong == "ahead" else 0)
    world.gc(LAST, wait=STALE)
    (name,) = world.store.list("aside/")
    if wrong == "ahead":
        world.later(-DAY * 399)  # the clock of the first was wrong
    else:
        (world.root / name).chmod(0o644)
        (world.root / name).write_bytes(b"{")
        world.later(STALE)
    assert world.gc(LAST, wait=STALE).blobs_removed == 0
    world.later(STALE)
    assert world.gc(LAST, wait=STALE).blobs_removed == 6


def test_the_lease_is_looked_at_between_deletions(world: World) -> None:
    orphans = {world.store.put_blob(f"nobody's {number}".encode()) for number in range(200)}
    deleted = 0

    def take_over(call: str, name: str) -> None:
        nonlocal deleted
        if call == "delete" and name.startswith("blobs/"):
            deleted += 1
            if deleted == 10:
                world.store.create(lease_name(lease.epoch + 1), world.store.get(lease_name(lease.epoch)))

    policy = Policy(last=1, grace=0.0, wait=0.0)
    lease = acquire(world.store, "gc", clock=world.clock)
    found = gc.survey(world.store, policy, clock=world.clock)
    with pytest.raises(LeaseLost):
        gc.collect(Disturbed(world.root, take_over), lease, found, policy, clock=world.clock)
    assert deleted < 64 + 10
    assert len(orphans & world.blobs) > 120
    assert world.store.list("removing/") == []  # it removes nothing more


def test_a_remover_that_was_asleep_looks_again_before_it_deletes(world: World) -> None:
    for number in range(10):
        world.store.put_blob(f"orphan {number}".encode())
    deleted = 0

    def fall_asleep(call: str, name: str) -> None:
        nonlocal deleted
        deleted += call == "delete" and name.startswith("blobs/")
        if deleted == 3:
            world.later(120 + MARGIN)
            world.store.create(lease_name(lease.epoch + 1), world.store.get(lease_name(lease.epoch)))

    lease = acquire(world.store, "gc", clock=world.clock)
    names = world.store.list("blobs/")
    with pytest.raises(LeaseLost):
        deletions.remove(Disturbed(world.root, fall_asleep), lease, names, seen=3)
    assert deleted == 3


def test_nothing_is_removed_where_another_run_published_meanwhile(world: World) -> None:
    policy = Policy(last=1, grace=0.0, wait=0.0)
    lease = acquire(world.store, "gc", clock=world.clock)
    found = gc.survey(world.store, policy, clock=world.clock)
    before = world.blobs
    refs.commit(world.store, refs.read(world.store, 1).manifest, 3, lease.epoch, "asleep", timestamp(world.now), {}, "")
    with pytest.raises(LeaseLost, match="run asleep published version 4"):
        gc.collect(world.store, lease, found, policy, clock=world.clock)
    assert world.blobs == before


def announced(world: World, *names: str) -> int:
    """A run of another machine that took the lease, announced some names, and was heard of no more; its epoch."""
    lease = acquire(world.store, "remover", clock=world.clock, process=ELSEWHERE)

    def stop(call: str, name: str) -> None:
        if call == "delete":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deletions.remove(Disturbed(world.root, stop), lease, names, seen=3)
    return lease.epoch


def test_a_version_waits_for_the_end_of_a_run_that_may_remove_its_blobs(world: World) -> None:
    needed = gc.reach(world.store, refs.read(world.store, 1).manifest)
    announced(world, blob_path(min(needed)))
    world.later(120 + MARGIN)
    world.gc(Policy(), wait=STALE)
    with pytest.raises(LeaseLost, match=r"run remover \(process 7 on elsewhere\) may still be removing .*/blobs/"):
        world.run("a")
    assert refs.last_version(world.store) == 3
    assert world.run("e").version == 4  # type: ignore[union-attr]  # which needs nothing of it
    world.later(STALE)
    assert world.run("a").version == 5  # type: ignore[union-attr]
    world.gc(Policy())
    assert world.store.list("removing/") == []


def test_all_at_once_is_refused_where_a_run_before_may_still_write(world: World) -> None:
    lost = acquire(world.store, "lost", clock=world.clock, process=ELSEWHERE)
    world.later(120 + MARGIN)
    before = world.blobs
    with pytest.raises(
        LeaseLost, match=r"process 7 on elsewhere of run lost never released its lease .* run without --now"
    ):
        world.gc(LAST)
    assert world.blobs == before
    assert refs.removals(world.store) == {}
    world.gc(LAST, wait=STALE)
    lost.release()
    assert world.gc(LAST).blobs_removed == 6


def test_no_version_goes_while_the_newest_lacks_a_blob(world: World) -> None:
    ref = refs.read(world.store, 3)
    artifact = StoreReader(world.root).manifest(ref.manifest).artifacts[0]
    (world.root / blob_path(artifact.digest)).unlink()
    with pytest.raises(CorruptBlob, match="is missing, and the newest version, 3, needs it; no version was removed"):
        world.gc(LAST)
    assert refs.removals(world.store) == {}


def test_no_version_goes_while_the_run_of_the_next_one_may_withdraw_it(world: World) -> None:
    asleep = acquire(world.store, "asleep", clock=world.clock, process=ELSEWHERE)
    publish(world.store, asleep, world.manifest([world.part("d", "asleep")]), 3, created=timestamp(world.now))
    world.later(120 + MARGIN)
    assert world.gc(LAST, wait=STALE).versions_kept == (3, 4)
    world.later(STALE)
    assert world.gc(LAST, wait=STALE).versions_kept == (4,)


# The look after the commit


def asleep_before_the_ref(world: World, collections: int, *, policy: Policy = LAST) -> Ref:
    """A run of another machine that sleeps between its last look at the lease and its ref, while others collect."""
    slept = False

    def collect(call: str, name: str) -> None:
        nonlocal slept
        if name.startswith("refs/main/") and not slept:
            slept = True
            for _ in range(collections):
                world.later(2 * STALE)
                world.gc(policy, wait=STALE)

    store = Disturbed(world.root, collect)
    lease = acquire(store, "asleep", clock=world.clock, process=ELSEWHERE)
    candidate = world.manifest([world.part("c", "asleep"), world.part("d", "asleep")])
    return publish(store, lease, candidate, 3, created=timestamp(world.now))


def test_a_version_is_whole_where_its_blobs_were_only_set_aside(world: World) -> None:
    assert asleep_before_the_ref(world, 1).version == 4
    assert world.whole(4)
    world.later(2 * STALE)
    world.gc(LAST, wait=STALE)
    assert world.whole(4)


def test_a_version_that_lost_blobs_is_withdrawn_and_readers_have_the_one_before(world: World) -> None:
    reader = StoreReader(world.root)
    with pytest.raises(
        VersionWithdrawn, match=r"version 4 of .* was published, and withdrawn again: .*/blobs/.* is missing"
    ):
        asleep_before_the_ref(world, 2)
    assert reader.versions() == [1, 2, 3, 4]
    assert reader.resolve().version == 3
    assert reader.newest_version() == refs.standing(world.store).version == 3  # type: ignore[union-attr]
    with pytest.raises(
        SnapshotNotFound, match=r"version 4 was withdrawn at .*: it was incomplete when it was published"
    ):
        reader.resolve(4)
    done = world.gc(LAST)
    assert (done.versions_kept, done.versions_incomplete) == ((3,), (4,))
    assert world.run("e").version == 5  # type: ignore[union-attr]
    assert reader.resolve().version == 5


def test_a_manifest_that_was_removed_is_put_back(world: World) -> None:
    """As after a rollback: all but the manifest and the lineage is that of a version which stays."""
    removed = []

    def remove(call: str, name: str) -> None:
        if name.startswith("refs/main/") and not removed:
            world.later(200)
            with acquire(world.store, "gc", clock=world.clock) as lease:
                names = [blob_path(digest) for digest in world.blobs - before]
                removed.extend(deletions.remove(world.store, lease, names, seen=3))

    before = world.blobs
    store = Disturbed(world.root, remove)
    lease = acquire(store, "asleep", clock=world.clock, process=ELSEWHERE)
    candidate = world.manifest([world.part("b", "asleep"), world.part("c", "asleep")])
    publish(store, lease, candidate, 3, created=timestamp(world.now))
    assert len(removed) == 2
    assert world.whole(4)


def test_a_version_is_withdrawn_where_a_later_run_may_still_remove_its_blobs(world: World) -> None:
    def announce(call: str, name: str) -> None:
        if name == "refs/main/00000000000000000004.json":
            world.later(200)
            announced(world, *map(blob_path, sorted(world.blobs)))

    store = Disturbed(world.root, announce)
    lease = acquire(store, "asleep", clock=world.clock, process=ELSEWHERE)
    with pytest.raises(VersionWithdrawn, match=r"withdrawn again: run remover .* may still be removing"):
        publish(store, lease, world.manifest([world.part("c", "asleep")]), 3, created=timestamp(world.now))
    assert refs.removals(world.store)[4].reason == "incomplete"


def test_a_store_without_these_records_is_read_as_ever(quick: Path) -> None:
    store = init_folder(quick / "store")
    assert deletions.set_aside(store) == {}
    with acquire(store, "gc") as lease:
        deletions.replace_set_aside(store, lease, {})
        deletions.sweep(store, lease.clock)
        assert deletions.remove(store, lease, [], seen=0) == []
    assert store.list("aside/") == store.list("removing/") == []
