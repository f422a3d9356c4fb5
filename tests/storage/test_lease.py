from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from indexmill.errors import CorruptBlob, LeaseLost
from indexmill.store.layout import lease_name, release_name
from storage import faults, lease, runs
from storage.folder import FolderStore
from storage.lease import DURATION, MARGIN, STALE, acquire, at_work, holding
from storage.processes import Process, alive, this_process
from storage.refs import commit
from tests.storage import children

ELSEWHERE = Process(host="another-machine", space="boot pid:[1]", pid=7, started="5")


class Time:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def fail(path: Path) -> None:
    path.write_bytes(b"")
    raise RuntimeError("the work is broken")


def files(store: FolderStore) -> list[str]:
    return store.list("leases/")


def test_a_run_takes_the_lease_and_gives_it_back(store: FolderStore) -> None:
    with acquire(store, "one") as held:
        assert held.epoch == 1
        held.check()
        current = holding(store)
        assert current is not None
        assert (current.run_id, current.released) == ("one", False)
    assert files(store) == [lease_name(1), release_name(1)]
    with acquire(store, "two") as held:
        assert held.epoch == 2


def test_a_second_run_is_told_who_holds_the_lease_and_until_when(store: FolderStore) -> None:
    clock = Time()
    with acquire(store, "one", clock=clock):
        with pytest.raises(LeaseLost) as caught:
            acquire(store, "two", clock=clock)
        assert caught.value.exit_code == 5
        for word in ("run one", str(this_process()), "1970-01-12T13:48:40.000Z", store.url):
            assert word in str(caught.value)


def test_a_run_that_fails_gives_the_lease_back(store: FolderStore) -> None:
    with pytest.raises(RuntimeError, match="broken"), acquire(store, "one"):
        fail(store.scratch("one") / "big")
    assert not (store.root / "tmp" / "run-one").exists()
    acquire(store, "two").release()


def test_the_lease_of_a_killed_run_is_taken_over_at_once(store: FolderStore) -> None:
    assert children.run(children.take_and_die, store.root, "dead") == -9
    current = holding(store)
    assert current is not None
    assert not current.released
    with acquire(store, "next") as held:
        assert held.epoch == 2


def test_a_later_process_with_the_same_number_is_not_the_holder(store: FolderStore) -> None:
    me = this_process()
    acquire(store, "dead", process=me.model_copy(update={"started": "1"}))
    with acquire(store, "next") as held:
        assert held.epoch == 2


def test_a_lease_from_another_machine_is_taken_over_only_after_it_ran_out(store: FolderStore) -> None:
    clock = Time()
    acquire(store, "far", clock=clock, duration=100, process=ELSEWHERE)
    for later in (0.0, 99.0, 100.0 + MARGIN - 0.01):
        clock.now = 1_000_000.0 + later
        with pytest.raises(LeaseLost, match="another-machine"):
            acquire(store, "near", clock=clock)
    clock.now = 1_000_000.0 + 100 + MARGIN
    with acquire(store, "near", clock=clock) as held:
        assert held.epoch == 2


def test_a_renewal_prolongs_the_lease_and_leaves_one_record(store: FolderStore) -> None:
    clock = Time()
    held = acquire(store, "far", clock=clock, duration=100, process=ELSEWHERE)
    for _ in range(12):
        clock.now += 90
        held.renew()
    assert len(files(store)) == 2
    clock.now += 100
    with pytest.raises(LeaseLost):
        acquire(store, "near", clock=clock)
    held.release()
    assert files(store) == [lease_name(1), release_name(1)]
    acquire(store, "near", clock=clock).release()


def test_a_thread_renews_the_lease(store: FolderStore) -> None:
    with acquire(store, "one", duration=0.2):
        before = holding(store)
        assert before is not None
        for _ in range(200):
            time.sleep(0.01)
            after = holding(store)
            if after is not None and after.expires > before.expires:
                break
        else:
            pytest.fail("the lease was never renewed")


def test_a_thread_that_cannot_renew_tries_again(store: FolderStore) -> None:
    renewed = threading.Event()
    failures = 0

    def hook(name: str) -> None:
        nonlocal failures
        if name.startswith("create leases/"):
            if failures < 2:
                failures += 1
                raise OSError(28, "No space left on device")
            renewed.set()

    with acquire(store, "one", duration=0.1) as held:
        faults.install(hook)
        assert renewed.wait(10)
        faults.install(None)
        held.check()
    assert failures == 2


def test_a_stale_holder_finds_out_and_never_commits(store: FolderStore) -> None:
    clock = Time()
    stale = acquire(store, "stale", clock=clock, duration=100, process=ELSEWHERE)
    clock.now += 1000
    with acquire(store, "next", clock=clock) as held:
        manifest = store.put_blob(b"{}")
        for attempt in (stale.check, stale.renew):
            with pytest.raises(LeaseLost, match="run next"):
                attempt()
        with pytest.raises(LeaseLost, match="epoch 2"):
            commit(store, manifest, None, stale.epoch, "stale", children.CREATED, {}, "")
        assert store.list("refs/") == []
        ref = commit(store, manifest, None, held.epoch, "next", children.CREATED, {}, "")
        assert ref.epoch == 2
        with pytest.raises(LeaseLost):
            commit(store, manifest, 1, stale.epoch, "stale", children.CREATED, {}, "")
        stale.release()
        held.check()
    assert release_name(1) in files(store)


def test_the_thread_of_a_stale_holder_says_so_and_stops(store: FolderStore) -> None:
    lost = threading.Event()
    stale = acquire(store, "stale", duration=0.2, process=ELSEWHERE)
    store.create(lease_name(2), store.get(lease_name(1)).replace(b'"epoch":1', b'"epoch":2'))
    stale.start(on_lost=lost.set)
    assert lost.wait(10)
    with pytest.raises(LeaseLost):
        stale.check()
    stale.release()


def test_a_holder_that_slept_past_its_end_goes_on_if_nobody_came(store: FolderStore) -> None:
    clock = Time()
    held = acquire(store, "one", clock=clock, duration=100, process=ELSEWHERE)
    clock.now += 10_000
    held.renew()
    held.check()
    with pytest.raises(LeaseLost):
        acquire(store, "two", clock=clock)


@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e9])
def test_a_holder_whose_clock_jumps_keeps_the_lease_or_finds_out(store: FolderStore, jump: float) -> None:
    """Another machine, whose clock is right, takes over at the latest when the lease it saw has run out."""
    clock, right = Time(), Time()
    held = acquire(store, "far", clock=clock, duration=100, process=ELSEWHERE)
    for step in (jump, 0.0, -jump):
        clock.now += step
        held.renew()
        held.check()
        with pytest.raises(LeaseLost, match="run far"):
            acquire(store, "near", clock=right)
    right.now += 100 + MARGIN
    with acquire(store, "near", clock=right) as next_:
        with pytest.raises(LeaseLost, match="run near"):
            held.check()
        next_.check()


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_lease_that_was_given_back_is_free_by_any_clock(store: FolderStore, jump: float) -> None:
    clock = Time()
    for _ in range(3):
        with acquire(store, "one", clock=clock) as held:
            clock.now += jump / 4
            held.renew()
    assert held.epoch == 3


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_lease_of_a_dead_process_of_this_machine_is_free_by_any_clock(store: FolderStore, jump: float) -> None:
    clock = Time()
    acquire(store, "dead", clock=clock, process=this_process().model_copy(update={"started": "1"}))
    clock.now += jump
    with acquire(store, "next", clock=clock) as held:
        assert held.epoch == 2


def test_a_lease_that_a_wrong_clock_made_too_long_ends_when_its_release_is_put_there(store: FolderStore) -> None:
    clock = Time(4e9)
    acquire(store, "far", clock=clock, process=ELSEWHERE)
    clock.now = 1e9
    with pytest.raises(LeaseLost, match="until 2096"):
        acquire(store, "near", clock=clock)
    (store.root / release_name(1)).write_bytes(b"")
    acquire(store, "near", clock=clock).release()


def test_a_damaged_lease_is_named(store: FolderStore) -> None:
    store.create(lease_name(4), b'{"epoch":4,"ru')
    with pytest.raises(CorruptBlob, match=lease_name(4)):
        acquire(store, "one")


def test_taking_the_lease_sweeps_what_dead_runs_left(store: FolderStore) -> None:
    (store.scratch("dead") / "big").write_bytes(b"")
    store.scratch("one")
    with acquire(store, "one"):
        assert not (store.root / "tmp" / "run-dead").exists()
        assert (store.root / "tmp" / "run-one").exists()


def test_a_run_shows_as_running_only_while_it_holds_the_lease(store: FolderStore) -> None:
    with acquire(store, "one"):
        runs.start(store, "one", "build")
        assert runs.read_run(store, "one").state == "running"
    assert runs.read_run(store, "one").state == "killed"


def test_a_process_is_told_from_the_dead_and_the_distant() -> None:
    me = this_process()
    assert alive(me) is True
    assert alive(me.model_copy(update={"started": "1"})) is False
    assert alive(me.model_copy(update={"pid": 2**22 + 1})) is False
    assert alive(me.model_copy(update={"space": "another boot"})) is None
    assert alive(ELSEWHERE) is None


def test_renewals_are_frequent_enough_to_survive_a_missed_one() -> None:
    assert lease.DURATION / 4 < lease.DURATION - MARGIN


def test_nobody_holds_the_lease_of_a_new_store(store: FolderStore) -> None:
    assert holding(store) is None


def test_who_may_still_be_at_work(store: FolderStore) -> None:
    clock, here = Time(), this_process()
    lost = acquire(store, "lost", clock=clock, process=ELSEWHERE)
    ends = clock.now + DURATION
    clock.now = ends + MARGIN
    acquire(store, "released", clock=clock, process=ELSEWHERE).release()
    dead = Process(host=here.host, space=here.space, pid=2**22 + 1, started="1")
    acquire(store, "dead", clock=clock, process=dead)
    acquire(store, "here", clock=clock)
    assert [one.run_id for one in at_work(store, ends + STALE - 1)] == ["lost", "here"]
    assert [one.run_id for one in at_work(store, ends + STALE - 1, {1, 2})] == ["lost"]
    assert [one.run_id for one in at_work(store, ends + STALE)] == ["here"]
    assert [one.run_id for one in at_work(store, ends + 1000 * STALE)] == ["here"]  # its process lives
    (store.root / lease_name(lost.epoch)).chmod(0o644)
    (store.root / lease_name(lost.epoch)).write_bytes(b"{")
    assert [one.run_id for one in at_work(store, ends)] == ["here"]


def test_whether_old_leases_were_given_back_is_not_looked_for_in_the_whole_list(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    class Names(list[str]):
        def __contains__(self, name: object) -> bool:
            looked.append(name)
            return super().__contains__(name)

    for number in range(20):
        acquire(store, f"run{number}").release()
    listed = Names(store.list("leases/"))
    monkeypatch.setattr(store, "list", lambda _: listed)
    assert at_work(store, time.time()) == []
    assert looked == []
