"""Collections and writers that stop at any call of the store for any time, while others do their work.

Each runs in a thread that goes on when a schedule says so, and stops before its next call. Between two of them the
clock moves on, so that a lease runs out; each has a clock of its own. Whatever the order: a version that is published
and not removed is whole, there is one, and two collections later nothing is left that nobody needs.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indexmill.errors import LeaseLost, StoreError
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Corpus, Manifest
from storage import gc, lease, lineage, receipts, refs
from storage.clock import timestamp
from storage.folder import FolderStore, init_folder
from storage.gc import Policy
from storage.lineage import Lineage, LineageEntry
from storage.processes import Process
from storage.publish import describe, publish
from storage.receipts import Receipt
from storage.table_blobs import put_table
from tests.deep import WHOLE, share
from tests.storage.quick import quick_folder

START = 1_800_000_000.0  # some time in 2027
HOUR = 3600.0
OUT = 140.0  # seconds after which another run may take a lease
POLICY = Policy(last=1, grace=0.0, wait=HOUR)


class Killed(BaseException):
    """Ends a thread at its next call."""


class Actor(threading.Thread):
    """A run that takes a step, up to its next call of the store, when it is told to."""

    def __init__(self, number: int, body: Callable[[Actor], None]) -> None:
        super().__init__(daemon=True)
        self.process = Process(host="model", space="model", pid=number, started="1")
        self.body, self.ended, self.killed = body, False, False
        self.error: Exception | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            self.body(self)
        except (LeaseLost, StoreError) as error:
            self.error = error
        except Killed:
            pass
        finally:
            self.ended = True
            self._stopped.release()

    def called(self) -> None:
        """Stop before a call, in the thread itself."""
        if threading.current_thread() is self:
            self._stopped.release()
            self._go.acquire()
            if self.killed:
                raise Killed

    def advance(self, steps: int | None = None) -> int:
        """Take so many steps, or all; returns how many it took."""
        for taken in itertools.count():
            if self.ended or taken == steps:
                return taken
            self._go.release()
            self._stopped.acquire()
        raise AssertionError

    def kill(self) -> None:
        self.killed = True
        self.advance()


class Stepped(FolderStore):
    """A store whose user stops before every call, and whose files have the time of a simulated clock."""

    def __init__(self, path: Path, world: World, actor: Actor | None) -> None:
        super().__init__(path)
        self._world, self._actor = world, actor

    def _stop(self) -> None:
        if self._actor is not None:
            self._actor.called()

    def put_blob(self, data: bytes | Path) -> str:
        self._stop()
        digest = super().put_blob(data)
        self._touch(blob_path(digest))
        return digest

    def create(self, name: str, data: bytes) -> bool:
        self._stop()
        made = super().create(name, data)
        if made:
            self._touch(name)
        return made

    def _touch(self, name: str) -> None:
        os.utime(self.root / name, (self._world.now, self._world.now))

    def blob_size(self, digest: str) -> int | None:
        self._stop()
        return super().blob_size(digest)

    def open_local(self, digest: str) -> Path:
        self._stop()
        return super().open_local(digest)

    def get_blob(self, digest: str) -> bytes:
        self._stop()
        return super().get_blob(digest)

    def get(self, name: str) -> bytes:
        self._stop()
        return super().get(name)

    def list(self, prefix: str) -> Any:
        self._stop()
        return super().list(prefix)

    def stat(self, name: str) -> Any:
        self._stop()
        return super().stat(name)

    def delete(self, name: str) -> None:
        self._stop()
        super().delete(name)


@dataclass
class World:
    """A store, its clock, and those at work in it."""

    root: Path
    now: float = START
    actors: list[Actor] = field(default_factory=list)

    def clock_of(self, actor: Actor | None) -> Callable[[], float]:
        """A clock of its own: those of two runs are some seconds apart."""
        ahead = 3.0 * (actor.process.pid % 4) if actor is not None else 0.0
        return lambda: self.now + ahead

    def actor(self, body: Callable[[World, Actor], None]) -> Actor:
        made = Actor(len(self.actors) + 1, lambda actor: body(self, actor))
        self.actors.append(made)
        return made

    def alive(self, process: Process) -> bool:
        return not self.actors[process.pid - 1].ended if process.host == "model" else False

    def store(self, actor: Actor | None = None) -> Stepped:
        return Stepped(self.root, self, actor)


def write(*contents: str) -> Callable[[World, Actor | None], None]:
    """A run that publishes a version of some contents, and uses what parts of them it finds."""

    def body(world: World, actor: Actor | None) -> None:
        store, clock = world.store(actor), world.clock_of(actor)
        run_id = f"writer-{'-'.join(contents)}"
        process = actor.process if actor is not None else None
        held = lease.acquire(store, run_id, clock=clock, process=process)
        try:
            newest = refs.newest(store)
            parts = [_part(store, content, run_id) for content in contents]
            candidate = Manifest(
                corpus=Corpus(fingerprint="-".join(contents), documents=len(parts), passages=len(parts)),
                artifacts=tuple(
                    describe(store, f"passages/{number}", "table", part.outputs["passages"])
                    for number, part in enumerate(parts)
                ),
                lineage=lineage.put(store, Lineage(entries=tuple(LineageEntry.of(part) for part in parts))),
            )
            number = newest.version if newest is not None else None
            publish(store, held, candidate, number, created=timestamp(clock()))
        finally:
            held.release()

    return body


def _part(store: FolderStore, content: str, run_id: str) -> Receipt:
    found = receipts.find(store, "split", f"key-{content}")
    if found is not None:
        return found
    digest, size = put_table(store, pa.table({"passage_id": [content]}))
    made = Receipt(
        stage="split",
        key=f"key-{content}",
        shard="p",
        outputs={"passages": digest},
        bytes={"passages": size},
        run_id=run_id,
    )
    return receipts.record(store, made)


def collect(world: World, actor: Actor | None = None, policy: Policy = POLICY) -> None:
    """A collection of all but the newest version."""
    store, clock = world.store(actor), world.clock_of(actor)
    process = actor.process if actor is not None else None
    held = lease.acquire(store, f"gc-{len(store.list('leases/'))}", clock=clock, process=process)
    try:
        gc.collect(store, held, gc.survey(store, policy, clock=clock), policy, clock=clock)
    finally:
        held.release()


@pytest.fixture(scope="module")
def start() -> Iterator[Path]:
    """A store of three versions, of which a collection has removed the first and set aside what only it had."""
    with quick_folder() as folder:
        world = World(folder / "store")
        init_folder(world.root)
        for contents in ("ab", "bc"):
            write(*contents)(world, None)
            world.now += HOUR
        collect(world)
        write("c", "d")(world, None)
        yield world.root


@pytest.fixture
def world(start: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    """Makes a world whose blobs that were set aside are due, with one that nothing ever needed."""
    made = itertools.count()
    current: list[World] = []
    monkeypatch.setattr(lease, "alive", lambda process: current[-1].alive(process))

    def make() -> World:
        for before in current[-1:]:
            shutil.rmtree(before.root)
        root = quick / str(next(made))
        shutil.copytree(start, root)
        current.append(World(root, START + 5 * HOUR))
        return current[-1]

    return make


def check(world: World) -> None:
    """What holds in every order of events, once all have ended."""
    for actor in world.actors:
        actor.advance()
    store = world.store()
    gone = refs.removals(store)
    there = [ref for ref in refs.history(store) if ref.version not in gone]
    blobs = {digest for digest, _ in gc.blobs_of(store)}
    assert there
    for ref in there:
        assert gc.reach(store, ref.manifest) <= blobs, f"version {ref.version} is not whole"
    for _ in range(2):
        world.now += 20 * HOUR  # later than any file says by a clock that went back since
        collect(world)
    assert refs.standing(store) == there[-1]
    assert {digest for digest, _ in gc.blobs_of(store)} == gc.reach(store, there[-1].manifest)
    assert store.list("aside/") == store.list("removing/") == []
    for name, receipt in gc.receipts_of(store):
        assert receipt is not None
        assert receipts.find(store, "split", receipt.key) is not None, name


def played(
    world: World, bodies: Sequence[Callable[..., None]], schedule: Sequence[tuple[int, int | None, float]]
) -> int:
    """Let actors take steps in turn: which, how many, seconds that pass then. Returns how many versions there were."""
    actors = [world.actor(body) for body in bodies]
    for which, steps, seconds in schedule:
        actors[which].advance(steps)
        world.now += seconds
    check(world)
    return refs.last_version(world.store())


def steps_of(world: World, body: Callable[..., None]) -> int:
    return world.actor(body).advance()


@pytest.mark.slow
def test_a_collection_that_stops_anywhere_while_another_run_publishes(world: Callable[[], World]) -> None:
    """The version needs what the collection is about to remove, and what it has just set aside."""
    total = steps_of(world(), collect)
    published = []
    for at in range(total):
        published.append(played(world(), [collect, write("a", "b", "c")], [(0, at, OUT), (1, None, OUT)]))
    assert published[0] == published[-1] == 4
    assert min(published) == 3  # while it removes, nothing that it may remove is published


@pytest.mark.slow
def test_a_writer_that_stops_anywhere_while_collections_remove_what_it_needs(world: Callable[[], World]) -> None:
    """The second collection removes what the first set aside: all of the writer's own blobs, and those it found."""
    writer = write("a", "e")
    total = steps_of(world(), writer)
    withdrawn = 0
    for at in range(total):
        now = world()
        played(now, [writer, collect, collect], [(0, at, OUT), (1, None, 2 * HOUR), (2, None, OUT)])
        withdrawn += any(one.reason == "incomplete" for one in refs.removals(now.store()).values())
    assert withdrawn == 1  # only where it had looked at the lease for the last time


@pytest.mark.slow
def test_a_collection_that_stops_anywhere_while_a_writer_that_was_asleep_publishes(world: Callable[[], World]) -> None:
    """An earlier collection has set aside what the writer made; this one has begun when the writer wakes up."""
    writer = write("e", "f")
    now = world()
    asleep, last = now.actor(writer), refs.last_version(now.store())
    before_the_ref = -1
    while refs.last_version(now.store()) == last:
        asleep.advance(1)
        before_the_ref += 1
    total = steps_of(world(), collect)
    kept = withdrawn = 0
    for at in range(0, total, 2):
        now = world()
        played(
            now, [writer, collect, collect], [(0, before_the_ref, OUT), (1, None, 2 * HOUR), (2, at, OUT), (0, None, 0)]
        )
        whole = 4 not in refs.removals(now.store())
        kept, withdrawn = kept + whole, withdrawn + (not whole)
    assert kept
    assert withdrawn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [(collect, write("a", "e")), (write("a", "e"), collect), (collect, collect)],
    ids=["collection first", "writer first", "two collections"],
)
@pytest.mark.parametrize("every", [pytest.param(3 if WHOLE else 5, marks=pytest.mark.slow), 12])
def test_two_that_stop_anywhere(
    world: Callable[[], World], first: Callable[..., None], second: Callable[..., None], every: int
) -> None:
    one, other = steps_of(world(), first), steps_of(world(), second)
    chance = random.Random(7)  # noqa: S311
    for at, then in itertools.product(range(one), range(other)):
        if chance.random() < 1 / every**2:
            played(world(), [first, second], [(0, at, OUT), (1, then, OUT), (0, None, OUT)])


def anyhow(world: World, seed: int) -> None:
    """Writers and collections in any order, some of which are killed, with leaps of the clock in both directions."""
    chance = random.Random(seed)  # noqa: S311
    words = [chance.sample("abcdef", chance.randint(1, 3)) for _ in range(2)]
    actors = [world.actor(body) for body in (write(*words[0]), write(*words[1]), collect, collect, collect)]
    for _ in range(12):
        actor = chance.choice(actors)
        actor.advance(chance.choice((1, 3, 10, 30, None)))
        world.now += chance.choice((0.0, OUT, OUT, HOUR, 30 * HOUR, -HOUR))
        if chance.random() < 0.1 and actor.body in [one.body for one in actors[2:]]:
            actor.kill()
    check(world)


@pytest.mark.slow
def test_any_order_of_events(world: Callable[[], World]) -> None:
    for seed in range(60):
        anyhow(world(), seed)


@pytest.mark.slow
def test_a_thousand_orders_of_events(world: Callable[[], World]) -> None:
    for seed in share(range(1000, 2000), 3):
        anyhow(world(), seed)
