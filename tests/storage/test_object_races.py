"""Processes that race, die, stop and collect on an object store, behind a network that loses answers."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.errors import LeaseLost, SnapshotNotFound
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults, gc
from storage.lease import Lease, acquire
from storage.refs import commit
from storage.stores import init_store, open_store
from tests.deep import WHOLE
from tests.storage import children
from tests.storage.networks import NETWORKS, Network, bad_network

SERVICES = ("moto", *(pytest.param(kind, marks=pytest.mark.slow) for kind in NETWORKS[1:]))


@pytest.fixture(scope="module")
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with bad_network(request.param, tmp_path_factory.mktemp("network")) as network:
        yield network


def new_store(network: Network) -> str:
    """The URL of a new store."""
    return init_store(network.place()).url


def run(network: Network, function: object, *arguments: object) -> int:
    return run_all(network, [(function, *arguments)])[0]


def run_all(network: Network, calls: list[tuple[object, ...]]) -> list[int]:
    return children.run_all([(children.in_environment, network.environment, *call) for call in calls])


def check_contiguous(url: str, workers: int, each: int) -> None:
    """Every manifest of every worker is that of one version, and the versions are 1, 2, 3, ..."""
    refs = StoreReader(url).history()
    assert [ref.version for ref in refs] == list(range(1, workers * each + 1))
    assert [ref.parent for ref in refs] == [None, *range(1, workers * each)]
    made = sorted(digest_of(f"{worker} {number}".encode()) for worker in range(workers) for number in range(each))
    assert sorted(ref.manifest for ref in refs) == made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "workers", "each"),
    [("moto", 4, 3), *(pytest.param(kind, 8, 25 if WHOLE else 10, marks=pytest.mark.slow) for kind in NETWORKS)],
    indirect=["network"],
)
def test_processes_that_plan_again_from_the_head_lose_and_double_nothing(
    network: Network, tmp_path: Path, workers: int, each: int
) -> None:
    url = new_store(network)
    barrier = children.context.Barrier(workers)
    calls = [(children.commit_in_turn, url, worker, each, barrier, False, tmp_path) for worker in range(workers)]
    assert run_all(network, calls) == [0] * workers
    check_contiguous(url, workers, each)
    assert sum(int(path.read_text()) for path in tmp_path.glob("lost-*")) > 0  # they did meet


def newest(url: str, digests: dict[int, str]) -> int:
    """The newest version, 0 for none; each is whole, and the one that is expected."""
    reader = StoreReader(url)
    try:
        version = reader.newest().version
    except SnapshotNotFound:
        return 0
    assert reader.ref(version).manifest == digests[version]
    checked = verify(reader, version)
    assert checked.ok, checked.problems
    return version


def sampled(total: int, count: int) -> list[int]:
    return sorted({total * part // count + 1 for part in range(count)} | {total})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "count"),
    [("moto", 4), *(pytest.param(kind, 1_000, marks=pytest.mark.slow) for kind in NETWORKS)],
    indirect=["network"],
)
def test_a_run_killed_at_a_boundary_is_whole_or_absent_and_the_next_one_ends_it(network: Network, count: int) -> None:
    faults.arm(0)
    digest = children.build(new_store(network)).manifest
    total = faults.crossings()
    seen = set()
    for at in sampled(total, min(count, total)):
        url = new_store(network)
        assert run(network, children.build_with_fault, url, at, "kill") == -signal.SIGKILL
        version = newest(url, {1: digest})
        seen.add(version)
        if not version:
            assert children.build(url).manifest == digest
        assert newest(url, {1: digest}) == 1
        assert len(open_store(url).list("work/")) == 1
    assert seen == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "count"),
    [("moto", 3), *(pytest.param(kind, 1_000 if WHOLE else 12, marks=pytest.mark.slow) for kind in NETWORKS)],
    indirect=["network"],
)
def test_a_collection_killed_at_a_boundary_harms_nothing_and_the_next_one_ends_it(network: Network, count: int) -> None:
    def grown() -> tuple[str, dict[int, str]]:
        url = new_store(network)
        return url, {version: children.build(url, version).manifest for version in (1, 2, 3)}

    url, digests = grown()
    faults.arm(0)
    children.collect(url)
    total = faults.crossings()
    for at in sampled(total, min(count, total)):
        url, digests = grown()
        assert run(network, children.collect_with_fault, url, at) == -signal.SIGKILL
        assert newest(url, digests) == 3
        children.collect(url)
        assert newest(url, digests) == 3
        store = open_store(url)
        assert set(store.list("blobs/")) == set(map(blob_path, gc.reach(store, digests[3])))
        with pytest.raises(SnapshotNotFound, match="1"):
            StoreReader(url).resolve(version=1)


@pytest.mark.parametrize(("boundary", "commits"), [("blob durable", False), ("create refs/", True)])
@pytest.mark.parametrize("network", SERVICES, indirect=True)
def test_a_process_that_was_stopped_past_the_end_of_its_lease_never_publishes(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boundary: str, commits: bool
) -> None:
    """Before its last look at the lease, the next run need only hold it; after that, it has published."""
    monkeypatch.setattr("storage.lease.MARGIN", 0.0)
    url = new_store(network)
    store = open_store(url)
    manifest = store.put_blob(b"{}")
    told = tmp_path / "pid"
    arguments = (network.environment, children.stop_before_the_ref, url, manifest, boundary, told)
    stale = children.context.Process(target=children.in_environment, args=arguments)
    stale.start()
    while not told.exists() or not told.read_text():
        time.sleep(0.02)
    pid = int(told.read_text())
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.02)
    with waited_for(url) as lease:
        expected = []
        if commits:
            expected = [commit(store, manifest, None, lease.epoch, "next", children.CREATED, {}, "")]
        os.kill(pid, signal.SIGCONT)
        stale.join(60)
    assert stale.exitcode == 5
    assert StoreReader(url).history() == expected


def waited_for(url: str) -> Lease:
    """The lease of a store, as soon as that of a process which cannot renew it has run out."""
    for _ in range(300):
        with contextlib.suppress(LeaseLost):
            return acquire(open_store(url), "next")
        time.sleep(0.1)
    pytest.fail("the lease never ran out")
