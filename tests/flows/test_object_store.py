"""Builds on an object store: the versions of a folder, whatever the network loses and whenever a process dies."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import indexmill
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import refs, runs
from storage.stores import open_store
from tests.corpora import documents, write_corpus
from tests.deep import share
from tests.flows.children import SMALL_TREE, Forks, build, collect, settings
from tests.flows.readers import QUESTIONS, answers, whole_versions
from tests.storage.networks import Network, bad_network, copy_of
from tests.storage.quick import quick_folder
from tests.storage.services import FaultProxy


@dataclass(frozen=True)
class World:
    """Two corpora, their versions in a folder, and a service behind a bad network, through which `forks` build."""

    folder: Path
    network: Network
    forks: Forks
    manifests: dict[int, str]
    parts: dict[int, int]
    answered: dict[int, list[Any]]
    built: dict[int, str] = field(default_factory=dict)

    def settings(self, store: str, version: int) -> dict[str, Any]:
        return {**settings(self.folder, self.folder / f"{version}.jsonl", families=SMALL_TREE), "store": store}

    def store(self) -> str:
        """A new place for a store."""
        return self.network.place()

    def holding(self, version: int) -> str:
        """A new store with the versions up to one, a copy of what was built once."""
        if version not in self.built:
            self.built[version] = self.store()
            for number in range(1, version + 1):
                build(self.settings(self.built[version], number))
        return copy_of(self.built[version])


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """In moto, or in the service that a test's parameter names."""
    rows = documents(8, words=110)
    with quick_folder() as folder, bad_network(getattr(request, "param", "moto"), folder) as network:
        write_corpus(folder / "1.jsonl", rows)
        title, text = rows["doc-0003"]
        write_corpus(folder / "2.jsonl", {**rows, "doc-0003": (title, f"{text} Falk left.")})
        made = [build(settings(folder / "store", folder / f"{n}.jsonl", families=SMALL_TREE)) for n in (1, 2)]
        with patch.dict(os.environ, network.environment):
            forks = Forks()
        with forks:
            yield World(
                folder=folder,
                network=network,
                forks=forks,
                manifests={version: one.manifest for version, one in enumerate(made, 1)},
                parts={version: one.parts_made for version, one in enumerate(made, 1)},
                answered={version: answers(folder / "store", version) for version in (1, 2)},
            )


@pytest.mark.slow
def test_a_store_in_a_bucket_holds_what_a_folder_holds(world: World) -> None:
    url = world.store()
    for version in (1, 2):
        outcome = build(world.settings(url, version))
        assert (outcome.version, outcome.manifest) == (version, world.manifests[version])
        assert outcome.parts_made == world.parts[version]
    again = build(world.settings(url, 2))
    assert (again.published, again.parts_made) == (False, 0)
    assert whole_versions(url, world.manifests, world.answered) == 2  # type: ignore[arg-type]
    report = runs.list_runs(open_store(url))[-1].end
    assert report is not None
    sent = report.report["requests"]  # type: ignore[index]
    assert sent["bytes_written"] < 100_000  # records alone


@pytest.mark.slow
def test_workers_write_to_the_bucket_through_a_bad_network(world: World) -> None:
    url = world.store()
    ended = world.forks.build(world.settings(url, 1), workers=2)
    assert (ended.code, ended.message) == (0, "")
    assert whole_versions(url, world.manifests, world.answered) == 1  # type: ignore[arg-type]


def killed_and_finished(world: World, at: int) -> bool:
    """Kill a refresh at a boundary, look at what it left, and finish it; true if it had published."""
    url = world.holding(1)
    ended = world.forks.build(world.settings(url, 2), at)
    assert ended.code == -signal.SIGKILL
    newest = whole_versions(url, world.manifests)  # type: ignore[arg-type]
    assert newest in (1, 2)
    outcome = build(world.settings(url, 2))
    assert (outcome.version, outcome.manifest) == (2, world.manifests[2])
    assert outcome.published == (newest == 1)
    assert whole_versions(url, world.manifests, world.answered) == 2  # type: ignore[arg-type]
    return newest == 2


def boundaries(world: World) -> tuple[str, ...]:
    """The boundaries that a refresh crosses."""
    url = world.holding(1)
    ended = world.forks.build(world.settings(url, 2))
    assert ended.code == 0
    return ended.crossed


@pytest.mark.slow
def test_a_refresh_killed_at_a_boundary_is_finished_by_the_next(world: World) -> None:
    crossed = boundaries(world)
    commit = [at for at, name in enumerate(crossed, 1) if "refs/" in name]
    assert killed_and_finished(world, commit[-1] + 1)


SLICES = share(list(itertools.product(["moto", "azurite"], range(20))), 21)
"""A service, and the first boundary at which a process dies, then every twentieth."""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("world", "first"), SLICES, indirect=["world"])
def test_a_refresh_killed_at_every_boundary_is_finished_by_the_next(world: World, first: int) -> None:
    published = [killed_and_finished(world, at) for at in range(1 + first, len(boundaries(world)) + 1, 20)]
    assert published == sorted(published)  # only the last are after the commit


def grown(world: World) -> str:
    """A store with both versions; its blobs are old enough for a gc without a grace period."""
    url = world.holding(2)
    time.sleep(1.1)  # times of blobs are whole seconds
    return url


def left(world: World, url: str) -> list[str]:
    """The names of receipts and blobs; version 2 is whole, version 1 was removed."""
    store = open_store(url)
    assert sorted(refs.removals(store)) == [1]
    assert StoreReader(url).newest().manifest == world.manifests[2]
    checked = verify(StoreReader(url), 2)
    assert checked.ok, checked.problems
    return store.list("work/") + store.list("blobs/")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("world", "first"), SLICES, indirect=["world"])
def test_a_gc_killed_at_every_boundary_is_finished_by_the_next(world: World, first: int) -> None:
    url = grown(world)
    crossed = world.forks.call("tests.flows.children:collect", url).crossed
    expected = left(world, url)
    for at in range(1 + first, len(crossed) + 1, 20):
        url = grown(world)
        assert world.forks.call("tests.flows.children:collect", url, at=at).code == -signal.SIGKILL
        reader = StoreReader(url)
        checked = verify(reader, 2)
        assert checked.ok, checked.problems
        assert reader.newest().manifest == world.manifests[2]
        collect(url)
        assert left(world, url) == expected
        again = build(world.settings(url, 2))
        assert (again.published, again.version, again.parts_made) == (False, 2, 0)


@pytest.mark.slow
def test_a_warm_open_asks_for_one_listing_and_one_record(world: World) -> None:
    url = world.holding(1)
    with (
        FaultProxy(world.network.service) as proxy,
        world.network.at(proxy.url),
        patch.dict("indexmill.store.bucket._clients", clear=True),
    ):
        for _ in range(2):
            proxy.requests.clear()
            with indexmill.open(url) as snapshot:
                snapshot.retrieve(QUESTIONS[0], k=3)
    assert [method for method, _ in proxy.requests] == ["GET", "GET"]
    assert "list-type" in proxy.requests[0][1]


@pytest.mark.slow
def test_only_what_a_method_needs_is_fetched(world: World, tmp_path: Path) -> None:
    url = world.holding(1)
    with patch.dict(os.environ, {"INDEXMILL_CACHE": str(tmp_path)}), indexmill.open(url) as snapshot:
        snapshot.retrieve(QUESTIONS[0], method="bm25", k=3)
        fetched = {path.name for path in tmp_path.glob("blobs/sha256/*/*")}
        names = {artifact.name for artifact in snapshot.manifest.artifacts if artifact.digest in fetched}
    assert any(name.startswith("bm25") for name in names)
    assert not any(name.startswith(("vectors", "mention_links", "zoom_graph", "lsh")) for name in names)


@pytest.mark.slow
def test_a_reader_of_no_store_says_so(world: World) -> None:
    with pytest.raises(indexmill.SnapshotNotFound, match="there is no index in s3://"):
        StoreReader(world.store()).versions()
