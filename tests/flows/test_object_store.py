"""Builds on an object store: the versions of a folder, whatever the network loses and whenever a process dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import indexmill
from indexmill.store.reader import StoreReader
from storage import runs
from storage.stores import open_store
from tests.corpora import documents, write_corpus
from tests.flows.children import SMALL_TREE, Forks, build, settings
from tests.flows.readers import QUESTIONS, answers, whole_versions
from tests.storage.quick import quick_folder
from tests.storage.services import FAULTS, FaultProxy, bucket_of, s3_environment, s3_service


@dataclass(frozen=True)
class World:
    """Two corpora, their versions in a folder, and a service behind a bad network, through which `forks` build."""

    folder: Path
    service: str
    forks: Forks
    manifests: dict[int, str]
    parts: dict[int, int]
    answered: dict[int, list[Any]]

    def settings(self, store: str, version: int) -> dict[str, Any]:
        return {**settings(self.folder, self.folder / f"{version}.jsonl", families=SMALL_TREE), "store": store}

    def store(self) -> str:
        """A new place for a store."""
        return f"{bucket_of(self.service)}/index"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    rows = documents(8, words=110)
    with quick_folder() as folder, patch.dict(os.environ, {"INDEXMILL_CACHE": str(folder / "cache")}):
        write_corpus(folder / "1.jsonl", rows)
        title, text = rows["doc-0003"]
        write_corpus(folder / "2.jsonl", {**rows, "doc-0003": (title, f"{text} Falk left.")})
        made = [build(settings(folder / "store", folder / f"{n}.jsonl", families=SMALL_TREE)) for n in (1, 2)]
        with s3_service() as service, FaultProxy(service, FAULTS) as proxy:
            with s3_environment(proxy.url):
                forks = Forks()
            with forks:
                yield World(
                    folder=folder,
                    service=service,
                    forks=forks,
                    manifests={version: one.manifest for version, one in enumerate(made, 1)},
                    parts={version: one.parts_made for version, one in enumerate(made, 1)},
                    answered={version: answers(folder / "store", version) for version in (1, 2)},
                )


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


def test_workers_write_to_the_bucket_through_a_bad_network(world: World) -> None:
    url = world.store()
    ended = world.forks.build(world.settings(url, 1), workers=2)
    assert (ended.code, ended.message) == (0, "")
    assert whole_versions(url, world.manifests, world.answered) == 1  # type: ignore[arg-type]


def killed_and_finished(world: World, at: int) -> bool:
    """Kill a refresh at a boundary, look at what it left, and finish it; true if it had published."""
    url = world.store()
    build(world.settings(url, 1))
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
    url = world.store()
    build(world.settings(url, 1))
    ended = world.forks.build(world.settings(url, 2))
    assert ended.code == 0
    return ended.crossed


def test_a_refresh_killed_at_a_boundary_is_finished_by_the_next(world: World) -> None:
    crossed = boundaries(world)
    commit = [at for at, name in enumerate(crossed, 1) if "refs/" in name]
    assert killed_and_finished(world, commit[-1] + 1)


@pytest.mark.slow
def test_a_refresh_killed_at_every_boundary_is_finished_by_the_next(world: World) -> None:
    published = [killed_and_finished(world, at) for at in range(1, len(boundaries(world)) + 1)]
    assert 0 < sum(published) < len(published)


def test_a_warm_open_asks_for_one_listing_and_one_record(world: World) -> None:
    url = world.store()
    build(world.settings(url, 1))
    with (
        FaultProxy(world.service) as proxy,
        s3_environment(proxy.url),
        patch.dict("indexmill.store.bucket._clients", clear=True),
    ):
        for _ in range(2):
            proxy.requests.clear()
            with indexmill.open(url) as snapshot:
                snapshot.retrieve(QUESTIONS[0], k=3)
    assert [method for method, _ in proxy.requests] == ["GET", "GET"]
    assert "list-type" in proxy.requests[0][1]


def test_only_what_a_method_needs_is_fetched(world: World, tmp_path: Path) -> None:
    url = world.store()
    build(world.settings(url, 1))
    with patch.dict(os.environ, {"INDEXMILL_CACHE": str(tmp_path)}), indexmill.open(url) as snapshot:
        snapshot.retrieve(QUESTIONS[0], method="bm25", k=3)
        fetched = {path.name for path in tmp_path.glob("blobs/sha256/*/*")}
        names = {artifact.name for artifact in snapshot.manifest.artifacts if artifact.digest in fetched}
    assert any(name.startswith("bm25") for name in names)
    assert not any(name.startswith(("vectors", "tri_graph", "zoom_graph", "lsh")) for name in names)


def test_a_reader_of_no_store_says_so(world: World) -> None:
    with pytest.raises(indexmill.SnapshotNotFound, match="there is no index in s3://"):
        StoreReader(world.store()).versions()
