"""Garbage collection: what it keeps, what it removes, and that no order of events makes it remove what is needed."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from indexmill.errors import CorruptBlob, LeaseLost, SnapshotNotFound
from indexmill.store.layout import blob_path, receipt_name, run_name
from indexmill.store.manifest import Corpus, Manifest, Ref, Removal
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from schemas.tables import QUARANTINE
from storage import faults, gc, lineage, receipts, refs, runs
from storage.clock import timestamp
from storage.folder import FolderStore, init_folder, open_folder
from storage.gc import DAY, CollectionResult, Policy
from storage.lease import Lease, acquire
from storage.lineage import Lineage, LineageEntry
from storage.processes import Process
from storage.publish import describe, publish
from storage.receipts import Receipt
from storage.table_blobs import put_table
from tests.deep import share
from tests.storage import children
from tests.storage.quick import quick_folder

START = 1_800_000_000.0  # some time in 2027
NOTHING = Policy(last=1, grace=0.0, wait=0.0)


class Clocked(FolderStore):
    """A store whose files have the time of a simulated clock."""

    def __init__(self, path: Path, world: World) -> None:
        super().__init__(path)
        self._world = world

    def put_blob(self, data: bytes | Path) -> str:
        digest = super().put_blob(data)
        os.utime(self.root / blob_path(digest), (self._world.now, self._world.now))
        return digest

    def create(self, name: str, data: bytes) -> bool:
        made = super().create(name, data)
        if made:
            os.utime(self.root / name, (self._world.now, self._world.now))
        return made


@dataclass
class World:
    """A store, its clock, and what a test does to both."""

    root: Path
    now: float = START
    made: int = 0
    store: Clocked = field(init=False)

    def __post_init__(self) -> None:
        init_folder(self.root)
        self.store = Clocked(self.root, self)

    def clock(self) -> float:
        return self.now

    def part(self, content: str, run_id: str, shard: str = "p") -> Receipt:
        """A part of one small table, made by a run."""
        digest, size = put_table(self.store, pa.table({"passage_id": [content]}))
        made = Receipt(
            stage="split",
            key=f"key-{content}",
            shard=shard,
            outputs={"passages": digest},
            rows={"passages": 1},
            bytes={"passages": size},
            run_id=run_id,
        )
        return receipts.record(self.store, made)

    def run(self, *contents: str, ends: str = "published", manifest: bool = True) -> Ref | None:
        """A run that makes or finds parts and, if it ends so, publishes them."""
        self.made += 1
        run_id = f"run-{self.made}"
        with acquire(self.store, run_id, clock=self.clock) as lease:
            runs.start(self.store, run_id, "build", clock=self.clock)
            parts = [self.part(content, run_id) for content in contents]
            if ends == "killed":
                return None
            newest = refs.newest(self.store)
            candidate = self.manifest(parts) if ends in ("published", "refused") and manifest else None
            ref = None
            if ends == "published" and candidate is not None:
                created = timestamp(self.now)
                ref = publish(self.store, lease, candidate, newest.version if newest else None, created=created)
            runs.end(
                self.store,
                runs.RunEnd.model_validate(
                    {
                        "run_id": run_id,
                        "state": ends,
                        "exit_code": 0,
                        "ended": timestamp(self.now),
                        "manifest": self.store.put_blob(candidate.to_bytes()) if candidate else None,
                    }
                ),
            )
            return ref

    def manifest(self, parts: list[Receipt]) -> Manifest:
        entries = tuple(LineageEntry.of(part) for part in parts)
        return Manifest(
            corpus=Corpus(fingerprint="ab", documents=len(parts), passages=len(parts)),
            artifacts=tuple(
                describe(self.store, f"passages/{number}", "table", part.outputs["passages"])
                for number, part in enumerate(sorted(parts, key=lambda part: part.key))
            ),
            lineage=lineage.put(self.store, Lineage(entries=entries)),
        )

    def gc(self, policy: Policy = NOTHING, *, wait: float = 0.0) -> CollectionResult:
        self.made += 1
        with acquire(self.store, f"gc-{self.made}", clock=self.clock) as lease:
            return self.collect(lease, policy, wait=wait)

    def collect(self, lease: Lease, policy: Policy, *, wait: float = 0.0) -> CollectionResult:
        """Collect; what is set aside goes at once, but for a test that waits."""
        policy = dataclasses.replace(policy, wait=wait)
        found = gc.survey(self.store, policy, clock=self.clock)
        return gc.collect(self.store, lease, found, policy, clock=self.clock)

    def later(self, seconds: float) -> None:
        self.now += seconds

    @property
    def blobs(self) -> set[str]:
        return {digest for digest, _ in gc.blobs_of(self.store)}

    def whole(self, version: int) -> bool:
        return verify(StoreReader(self.root), version).ok


@pytest.fixture
def world(quick: Path) -> World:
    return World(quick / "store")


def test_without_a_policy_every_version_is_kept(world: World) -> None:
    for content in "abc":
        world.run(content)
    world.later(DAY * 2)
    orphan = world.store.put_blob(b"nobody's")
    world.later(DAY * 2)
    done = world.gc(Policy())
    assert (done.versions_kept, done.versions_removed) == ((1, 2, 3), ())
    assert (done.blobs_removed, done.bytes_removed) == (1, len(b"nobody's"))
    assert orphan not in world.blobs
    assert all(world.whole(version) for version in (1, 2, 3))


def test_a_withdrawn_version_is_neither_kept_nor_removed(world: World) -> None:
    for content in "abc":
        world.run(content)
        world.later(DAY * 2)
    withdrawn = Removal(version=1, reason="forgotten", run_id="forgets", created="2026-01-01T00:00:00Z")
    refs.remove(world.store, withdrawn)
    done = world.gc(Policy(last=1))
    assert (done.versions_kept, done.versions_removed, done.versions_withdrawn) == ((3,), (2,), (1,))
    assert world.gc(Policy(last=1)).versions_withdrawn == (1,)


def test_the_last_versions_stay_and_the_others_say_that_they_are_gone(world: World) -> None:
    for content in ("a shared", "b shared", "c shared", "d shared"):
        world.run(*content.split())
        world.later(DAY * 2)
    before = world.blobs
    done = world.gc(Policy(last=2))
    assert (done.versions_kept, done.versions_removed) == ((3, 4), (1, 2))
    assert done.blobs_removed == len(before - world.blobs) == 2 * 3  # its own table, lineage and manifest
    assert done.blobs_kept == len(world.blobs)
    assert done.receipts_removed == 2
    assert world.store.list("work/") == [receipt_name("split", f"key-{one}") for one in ("c", "d", "shared")]
    reader = StoreReader(world.root)
    assert reader.versions() == [1, 2, 3, 4]  # a number is never used again
    for version in (1, 2):
        with pytest.raises(SnapshotNotFound, match=f"version {version} was removed by gc at 2027-"):
            reader.resolve(version=version)
        with pytest.raises(SnapshotNotFound, match="removed by gc"):
            refs.promote(world.store, "prod", version, timestamp(world.now))
    assert world.whole(3)
    assert world.whole(4)
    assert world.run("e").version == 5  # type: ignore[union-attr]
    assert world.gc(Policy(last=2)).versions_removed == (3,)


def test_versions_are_kept_by_their_age(world: World) -> None:
    for content in "abc":
        world.run(content)
        world.later(DAY * 10)
    assert world.gc(Policy(within=DAY * 15)).versions_kept == (3,)
    assert world.run("d").version == 4  # type: ignore[union-attr]
    world.later(DAY * 40)
    assert world.gc(Policy(within=DAY * 15)).versions_kept == (4,)  # the newest, always


def test_an_alias_keeps_its_version_and_so_does_a_kept_version_with_the_same_manifest(world: World) -> None:
    for content in "abca":
        world.run(content)
    refs.promote(world.store, "prod", 2, timestamp(world.now))
    refs.promote(world.store, "test", 3, timestamp(world.now))
    refs.promote(world.store, "test", None, timestamp(world.now))
    world.later(DAY * 2)
    done = world.gc(Policy(last=1))
    assert (done.versions_kept, done.versions_removed) == ((1, 2, 4), (3,))
    assert all(world.whole(version) for version in (1, 2, 4))


def test_what_is_young_stays_and_putting_a_blob_again_makes_it_young(world: World) -> None:
    world.run("a")
    old, again = world.store.put_blob(b"old"), world.store.put_blob(b"again")
    world.later(DAY * 2)
    world.store.put_blob(b"again")
    young = world.part("young", "gone-run")
    world.later(DAY / 2)
    done = world.gc(Policy(last=1))
    assert done.blobs_removed == 1
    assert old not in world.blobs
    assert again in world.blobs
    assert receipts.find(world.store, "split", young.key) == young


def test_what_may_be_taken_up_again_stays(world: World) -> None:
    world.run("before", ends="failed")
    world.run("dead", ends="killed")
    world.run("paused", ends="budget")
    world.later(DAY)
    world.run("a")
    world.later(DAY)
    world.run("since", ends="failed")
    world.later(DAY * 10)
    world.gc(Policy(last=1))
    kept = {
        name for name in ("before", "dead", "paused", "since") if receipts.find(world.store, "split", f"key-{name}")
    }
    assert kept == {"dead", "paused", "since"}
    world.later(DAY * 100)
    world.gc(Policy(last=1))
    assert receipts.find(world.store, "split", "key-dead") is None  # the records of its run have gone
    assert receipts.find(world.store, "split", "key-since") is not None
    world.run("b")
    world.later(DAY * 2)
    world.gc(Policy(last=1))
    assert world.store.list("work/") == [receipt_name("split", "key-b")]


def test_a_candidate_that_a_person_may_publish_stays_until_there_is_a_newer_version(world: World) -> None:
    world.run("a")
    world.later(DAY)
    world.run("refused", ends="refused")
    world.later(DAY * 2)
    end = runs.read_run(world.store, "run-2").end
    assert end is not None
    assert end.manifest is not None
    world.gc()
    assert gc.reach(world.store, end.manifest) <= world.blobs
    world.run("b")
    world.later(DAY * 2)
    world.gc()
    assert not gc.reach(world.store, refs.read(world.store, 2).manifest) - world.blobs
    assert end.manifest not in world.blobs
    assert receipts.find(world.store, "split", "key-refused") is None


def test_the_rows_that_a_run_refused_stay_as_long_as_its_record(world: World) -> None:
    world.run("a")
    rows = pa.Table.from_pylist(
        [{"file": "f", "line": 1, "document_id": None, "reason": "no-id", "detail": ""}], schema=QUARANTINE
    )
    digest = runs.add_quarantine(world.store, "run-1", "ingest", rows)
    world.later(DAY * 100)
    world.run("b")
    world.gc(Policy())
    assert digest in world.blobs  # the run made a version that is kept
    world.gc(Policy(last=1, grace=0.0))
    assert world.store.list("runs/run-1/") == []
    assert digest not in world.blobs
    assert [run.run_id for run in runs.list_runs(world.store, clock=world.clock)] == ["run-2"]


def test_a_record_of_another_kind_keeps_the_blobs_that_it_names(world: World) -> None:
    world.run("a")
    digest = world.store.put_blob(b"answers")
    world.store.create("others/2027.json", f'{{"answers":"{digest}"}}'.encode())
    (world.root / "lost+found").mkdir(mode=0)
    world.later(DAY * 300)
    world.gc()
    assert digest in world.blobs


def test_an_error_that_names_a_blob_does_not_keep_it(world: World) -> None:
    world.run("a")
    digest = world.store.put_blob(b"half")
    error = f'"{world.root}/{blob_path(digest)}" cannot be written: {digest}'
    runs.start(world.store, "broken", "build", clock=world.clock)
    runs.end(
        world.store,
        runs.RunEnd(run_id="broken", state="failed", exit_code=1, ended=timestamp(world.now), error=error),
    )
    assert digest not in gc.digests_in(world.store)
    world.later(DAY * 2)
    world.gc()
    assert digest not in world.blobs


def test_old_records_of_runs_and_leases_go(world: World) -> None:
    for _ in range(5):
        world.run("same", ends="unchanged")
        world.later(DAY * 30 + 1)
    world.run("a")
    epochs = len(world.store.list("leases/"))
    done = world.gc(Policy())
    left = world.store.list("leases/")
    assert len(left) < epochs
    assert refs.highest_epoch(world.store) == 7
    assert done.records_removed == 3 * 2 + 3 * 2
    assert [run.run_id for run in runs.list_runs(world.store, clock=world.clock)] == ["run-4", "run-5", "run-6"]
    world.run("b")
    assert refs.newest(world.store).epoch == 8  # type: ignore[union-attr]


def test_a_run_whose_record_was_half_removed_is_not_known_and_goes(world: World) -> None:
    world.run("x", ends="unchanged")
    world.later(DAY * 100)
    world.run("a")
    world.store.delete(run_name("run-1", "start"))
    world.gc(Policy())
    assert world.store.list("runs/run-1/") == []


@pytest.mark.parametrize("what", ["manifest", "lineage", "ref"])
def test_nothing_is_removed_while_it_is_not_known_what_a_kept_version_needs(world: World, what: str) -> None:
    for content in "ab":
        ref = world.run(content)
    assert ref is not None
    manifest = Manifest.from_bytes(world.store.get_blob(ref.manifest))
    damaged = {
        "manifest": blob_path(ref.manifest),
        "lineage": blob_path(manifest.lineage),
        "ref": "refs/main/00000000000000000002.json",
    }[what]
    (world.root / damaged).chmod(0o644)
    (world.root / damaged).write_bytes(b"damaged")
    world.later(DAY * 2)
    before = world.blobs
    with pytest.raises(CorruptBlob):
        world.gc()
    assert world.blobs == before
    assert refs.removals(world.store) == {}


def test_a_lost_lease_stops_it_and_what_another_run_puts_meanwhile_stays(world: World) -> None:
    for content in "ab":
        world.run(content)
    orphan = world.store.put_blob(b"nobody's")
    world.later(DAY * 2)
    with acquire(world.store, "gc", clock=world.clock) as lease:
        found = gc.survey(world.store, NOTHING, clock=world.clock)
        assert orphan in found.blobs
        world.later(1)
        world.store.put_blob(b"nobody's")  # a run that lost its lease and does not know it yet
        done = gc.collect(world.store, lease, found, Policy(last=1, grace=0.5), clock=world.clock)
        assert orphan in world.blobs
        assert (done.blobs_removed, done.blobs_kept) == (len(found.blobs) - 1, len(world.blobs))
    world.run("c")
    world.later(DAY * 2)
    with acquire(world.store, "gc2", clock=world.clock) as lease:
        found = gc.survey(world.store, NOTHING, clock=world.clock)
        world.later(1000)
        with acquire(FolderStore(world.root), "other", clock=lambda: world.now + 1000, process=_stranger()):
            before = world.blobs
            with pytest.raises(LeaseLost):
                gc.collect(world.store, lease, found, NOTHING, clock=world.clock)
            assert world.blobs == before
            assert 2 not in refs.removals(world.store)


def _stranger() -> Process:
    return Process(host="elsewhere", space="", pid=1, started="")


def test_an_alias_that_is_moved_while_a_version_goes_keeps_it(world: World) -> None:
    for content in "abc":
        world.run(content)
    world.later(DAY * 2)
    promoted = []

    def promote(name: str) -> None:
        if name == "durable refs/removed/00000000000000000002.json" and not promoted:
            promoted.append(name)
            with pytest.raises(SnapshotNotFound):
                refs.promote(world.store, "late", 2, timestamp(world.now))
            moved = refs.Alias(alias="prod", number=1, version=1, created=timestamp(world.now))
            world.store.create("refs/aliases/prod/00000000000000000001.json", moved.to_bytes())

    faults.install(promote)
    done = world.gc()
    faults.install(None)
    assert promoted
    assert (done.versions_kept, done.versions_removed) == ((1, 3), (2,))
    assert world.whole(1)
    assert set(refs.removals(world.store)) == {2}


# Interleavings


def interleaved(root: Path, seed: int, steps: int = 12) -> tuple[int, int]:
    """Random puts, runs, moves of aliases, waits and collections; returns how many versions and blobs were removed.

    After each: what is published and not removed is whole, and so is what is young, aliased or may be taken up again.
    """
    chance = random.Random(seed)  # noqa: S311
    world = World(root)
    put: dict[str, float] = {}
    removed = 0
    resumable: set[str] = set()
    with acquire(world.store, "all", clock=world.clock, duration=DAY * 10_000) as lease:
        for _ in range(steps):
            step = chance.choice(("put", "publish", "publish", "killed", "alias", "wait", "gc", "gc"))
            grace = chance.choice((0.0, DAY))
            if step == "put":
                put[world.store.put_blob(chance.choice("uvwxyz").encode())] = world.now
            elif step in ("publish", "killed"):
                world.made += 1
                run_id = f"run-{world.made}"
                runs.start(world.store, run_id, "build", clock=world.clock)
                parts = [world.part(one, run_id) for one in chance.sample("abcdef", chance.randint(1, 4))]
                put |= {part.outputs["passages"]: world.now for part in parts if part.run_id == run_id}
                if step == "killed":
                    resumable |= {part.key for part in parts if part.run_id == run_id}
                    continue
                newest = refs.newest(world.store)
                manifest = world.manifest(parts)
                ref = publish(
                    world.store,
                    lease,
                    manifest,
                    newest.version if newest else None,
                    created=timestamp(world.now),
                )
                runs.end(
                    world.store,
                    runs.RunEnd(run_id=run_id, state="published", exit_code=0, ended=timestamp(world.now)),
                )
                assert ref.version == (newest.version if newest else 0) + 1
            elif step == "alias" and (there := _there(world)):
                refs.promote(world.store, "prod", chance.choice(there).version, timestamp(world.now))
            elif step == "wait":
                world.later(chance.choice((1.0, DAY / 2, DAY * 2)))
            elif step == "gc":
                before = world.blobs
                policy = Policy(last=chance.choice((None, 1, 2)), within=chance.choice((None, DAY)), grace=grace)
                done = world.collect(lease, policy)
                assert done.blobs_removed == len(before - world.blobs)
                removed += done.blobs_removed
                young = {digest for digest, at in put.items() if at > world.now - grace and digest in before}
                assert young <= world.blobs
            _check(world, resumable)
    return len(refs.removals(world.store)), removed


def _there(world: World) -> list[Ref]:
    gone = refs.removals(world.store)
    return [ref for ref in refs.history(world.store) if ref.version not in gone]


def _check(world: World, resumable: set[str]) -> None:
    there, blobs = _there(world), world.blobs
    newest = refs.newest(world.store)
    assert newest is None or newest in there
    assert set(refs.aliases(world.store).values()) <= {ref.version for ref in there}
    for ref in there:
        assert gc.reach(world.store, ref.manifest) <= blobs
    for name in world.store.list("work/"):
        key = name.split("/")[-1].removesuffix(".json")
        assert receipts.find(world.store, "split", key) is not None  # no receipt promises what is not there
    for key in resumable:
        assert receipts.find(world.store, "split", key) is not None


def many(seeds: Sequence[int]) -> tuple[int, int]:
    versions = blobs = 0
    with quick_folder() as folder:
        for seed in seeds:
            gone, removed = interleaved(folder / str(seed), seed)
            versions, blobs = versions + gone, blobs + removed
            shutil.rmtree(folder / str(seed))
    return versions, blobs


@pytest.mark.slow
def test_no_order_of_events_removes_what_is_needed() -> None:
    versions, blobs = many(range(40))
    assert versions > 10
    assert blobs > 30


@pytest.mark.slow
def test_a_thousand_orders_of_events_remove_nothing_that_is_needed() -> None:
    seeds = share(range(1000, 2000), 3)
    versions, blobs = many(seeds)
    assert versions > len(seeds) / 4
    assert blobs > len(seeds) * 3 / 4


# Death and failing disks


def collected(root: Path, at: int, mode: str) -> None:
    faults.arm(at, mode)
    collect(root)


def collect(root: Path) -> None:
    """Collect all but the newest of three versions, two days after they were made."""
    store = open_folder(root)
    with acquire(store, f"gc-{os.getpid()}") as lease:
        found = gc.survey(store, NOTHING, clock=_later)
        gc.collect(store, lease, found, NOTHING, clock=_later)


def _later() -> float:
    return START


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Path, int, list[str]]]:
    """A store of three versions, the crossings of a collection, and the names that it leaves."""
    with quick_folder() as folder:
        for version in (1, 2, 3):
            children.build(folder / "store", version)
        shutil.copytree(folder / "store", folder / "done")
        faults.arm(0)
        collect(folder / "done")
        yield folder / "store", faults.crossings(), names(folder / "done")


def names(root: Path) -> list[str]:
    return [name for name in open_folder(root).list("") if not name.startswith("leases/")]


@pytest.mark.parametrize("mode", ["kill", "torn", "enospc", "eio", "short"])
def test_a_collection_that_ends_early_harms_nothing_and_is_finished_by_the_next(
    three: tuple[Path, int, list[str]], quick: Path, mode: str
) -> None:
    count = 12 if mode == "kill" else 3
    ended(three, quick, [three[1] * part // count + 1 for part in range(count)], mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "torn", "enospc", "eio", "short"])
def test_a_collection_that_ends_at_any_boundary(three: tuple[Path, int, list[str]], quick: Path, mode: str) -> None:
    ended(three, quick, list(range(1, three[1] + 1)), mode)


def ended(three: tuple[Path, int, list[str]], folder: Path, boundaries: list[int], mode: str) -> None:
    start, _, left = three
    finished = 0
    for at in boundaries:
        root = folder / str(at)
        shutil.copytree(start, root)
        code = children.run(collected, root, at, mode)
        if mode == "kill":
            assert code == -signal.SIGKILL
        store = open_folder(root)
        for version in (1, 2, 3):
            if version not in refs.removals(store):
                assert verify(StoreReader(root), version).ok
        for name in store.list("work/"):
            assert receipts.find(store, "split", name.split("/")[-1].removesuffix(".json")) is not None
        finished += names(root) == left
        collect(root)
        assert names(root) == left
        assert verify(StoreReader(root)).ok
        assert list((root / "tmp").iterdir()) == []
        shutil.rmtree(root)
    assert len([name for name in left if name.startswith("refs/removed/")]) == 2
    assert finished < len(boundaries)


def test_a_reader_sees_a_whole_version_or_is_told_that_it_is_gone(
    three: tuple[Path, int, list[str]], quick: Path
) -> None:
    root = quick / "store"
    shutil.copytree(three[0], root)
    seen = []

    def read(name: str) -> None:
        reader = StoreReader(root)
        try:
            checked = verify(reader, reader.resolve(version=1).version)
            seen.append("whole" if checked.ok else f"damaged at {name}: {checked.problems}")
        except SnapshotNotFound as error:
            seen.append("gone" if "removed by gc" in str(error) else str(error))

    faults.install(read)
    collect(root)
    faults.install(None)
    assert set(seen) == {"whole", "gone"}
    assert seen == sorted(seen, reverse=True)  # once gone, it stays so
