"""Copies of versions in other stores: the same answers, only what lacks, whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from flows.copy import Copied, copy_version
from flows.export import export_snapshot
from flows.rollback import roll_back
from indexmill.errors import BadInput, CorruptBlob, GateRefused, LeaseLost, SnapshotNotFound
from indexmill.store.layout import STORE_FILE, blob_path
from storage import exports, faults, refs, runs, tombstones
from storage.folder import FolderStore, init_folder, open_folder
from storage.lease import acquire
from storage.protocol import Store
from storage.publish import check_whole, read_manifest
from storage.stores import open_store
from tasks.core.report import Silent
from tests.flows.children import build
from tests.flows.commands import Command, Run
from tests.flows.disturbed import copy_and_die
from tests.flows.readers import answers, flip_byte
from tests.flows.versions import Versions, bare
from tests.storage import children
from tests.storage.quick import quick_folder
from tests.storage.services import FAULTS, FaultProxy, bucket_of, s3_environment, s3_service


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    return two_versions


@pytest.fixture
def target(store: FolderStore) -> Path:
    return store.root.parent / "target"


def copied(store: Store, version: int, target: Path | str, **how: float) -> Copied:
    return copy_version(store, version, str(target), progress=Silent(), **how)


def blobs_of(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_copy_answers_as_the_version_does_and_takes_the_next_number(
    versions: Versions, store: FolderStore, target: Path
) -> None:
    for number, version in enumerate((2, 1, 2), 1):
        made = copied(store, version, target)
        assert (made.published, made.version, made.source_version) == (True, number, version)
        assert made.manifest == versions.manifests[version - 1]
        assert bare(target) == versions.answered[version - 1]
    assert [ref.note for ref in refs.history(open_folder(target))] == [
        f"version {version} of {store.url}" for version in (2, 1, 2)
    ]


def test_only_what_the_other_store_lacks_is_copied(store: FolderStore, target: Path) -> None:
    first = copied(store, 1, target)
    manifests = [read_manifest(store, ref.manifest) for ref in refs.history(store)]
    of = [{one.digest: one.bytes for one in manifest.artifacts} for manifest in manifests]
    assert first.blobs == len(of[0]) + 2
    before = blobs_of(target)
    second = copied(store, 2, target)
    assert second.blobs == len(of[1].keys() - of[0].keys()) + 2
    new = sum(of[1][digest] for digest in of[1].keys() - of[0].keys())
    assert second.bytes == new + sum(store.blob_size(one) or 0 for one in (manifests[1].lineage, second.manifest))
    assert blobs_of(target) == before | of[1].keys() | {manifests[1].lineage, second.manifest}
    again = copied(store, 2, target)
    assert (again.published, again.version, again.blobs, again.bytes) == (False, 2, 0, 0)
    assert [run.state for run in runs.list_runs(open_folder(target))] == ["published", "published", "unchanged"]
    assert len(exports.exports(store)) == 2


def test_what_is_missing_or_cut_in_the_copy_is_restored(store: FolderStore, target: Path) -> None:
    copied(store, 2, target)
    lost, cut = sorted((target / "blobs").rglob("*"), key=lambda path: path.stat().st_size)[-2:]
    lost.unlink()
    cut.chmod(0o644)
    os.truncate(cut, 10)
    made = copied(store, 2, target)
    assert (made.published, made.blobs) == (False, 2)
    assert bare(target) == bare(store.root, 2)


def test_a_build_goes_on_from_a_copy(versions: Versions, store: FolderStore, target: Path) -> None:
    copied(store, 1, target)
    outcome = build(versions.settings(target))
    assert (outcome.version, outcome.manifest) == (2, versions.manifests[1])


def test_a_copy_is_on_record_before_its_first_byte_leaves(store: FolderStore, target: Path) -> None:
    flip_byte(store.root / blob_path(read_manifest(store, refs.read(store, 1).manifest).artifacts[0].digest))
    with pytest.raises(CorruptBlob):
        copied(store, 1, target)
    (recorded,) = exports.exports(store)
    assert (recorded.version, recorded.path, recorded.form) == (1, str(target), "copy")
    assert refs.newest(open_folder(target)) is None
    assert [run.state for run in runs.list_runs(open_folder(target))] == ["failed"]
    assert [run.state for run in runs.list_runs(store)][-1] == "failed"


def test_bytes_that_decay_after_their_check_are_not_published(
    store: FolderStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = FolderStore.open_local

    def decaying(self: FolderStore, digest: str) -> Path:
        path = check(self, digest)
        if self.root == store.root:
            flip_byte(path)
        return path

    monkeypatch.setattr(FolderStore, "open_local", decaying)
    with pytest.raises(CorruptBlob, match="changed while it was copied"):
        copied(store, 1, target)
    assert refs.newest(open_folder(target)) is None


@pytest.mark.slow
def test_a_copy_that_dies_leaves_no_version_and_the_next_one_goes_on(
    versions: Versions, store: FolderStore, target: Path
) -> None:
    crossed: list[str] = []
    faults.install(crossed.append)
    whole = copied(store, 1, target)
    faults.install(None)
    shutil.rmtree(target)
    for at in range(1, len(crossed) + 1, len(crossed) // 12):
        assert children.run(copy_and_die, store.root, 1, target, at, "kill") == -signal.SIGKILL
        left = open_folder(target) if (target / STORE_FILE).exists() else None
        published = left is not None and refs.newest(left) is not None
        if published:
            check_whole(open_folder(target), read_manifest(open_folder(target), whole.manifest))
        there = 0 if left is None else len(blobs_of(target))
        made = copied(store, 1, target)
        assert (made.version, made.published) == (1, not published)
        assert made.blobs == whole.blobs - there
        assert bare(target) == versions.answered[0]
        shutil.rmtree(target)


def test_a_store_on_hold_or_at_work_takes_no_copy(store: FolderStore, target: Path) -> None:
    copied(store, 1, target)
    roll_back(open_folder(target), 1)
    with pytest.raises(GateRefused, match="on hold"):
        copied(store, 2, target)
    other = target.with_name("other")
    with acquire(init_folder(other), "at-work"), pytest.raises(LeaseLost):
        copied(store, 2, other)
    assert exports.exports(store)[1:] == []


def test_a_document_that_was_forgotten_does_not_come_back(store: FolderStore, target: Path) -> None:
    init_folder(target)
    tombstones.put(open_folder(target), ["doc-0003"], run_id="r", created="2026-01-31T02:00:00Z")
    with pytest.raises(BadInput, match=r"contains 1 document that .* has forgotten"):
        copied(store, 1, target)
    assert exports.exports(store) == []


def test_the_source_itself_and_places_in_it_are_refused(store: FolderStore) -> None:
    link = store.root.parent / "link"
    link.symlink_to(store.root)
    for place in (store.root, store.root / "inside", link, f"{store.root.parent}/./{store.root.name}"):
        with pytest.raises(BadInput, match="choose another target"):
            copied(store, 1, place)
    assert not (store.root / "inside").exists()
    with pytest.raises(SnapshotNotFound, match="no version 9"):
        copied(store, 9, store.root.parent / "nowhere")
    assert not (store.root.parent / "nowhere").exists()


def test_a_limit_is_kept(store: FolderStore, target: Path) -> None:
    size = copied(store, 1, target).bytes
    began = time.monotonic()
    copied(store, 1, target.with_name("slow"), bytes_per_second=size)
    assert time.monotonic() - began > 0.5  # the last pieces begin in the second half


def test_the_command_names_a_version_and_prints_what_it_did(
    store: FolderStore, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys)
    assert run("copy", store.root, target, "--version", 1, "--bandwidth", "1 GB", "--note", "for the search team") == 0
    assert run.out.startswith(f"published version 1 of {target}, which is version 1 of {store.root}: ")
    assert "copy: " in run.err
    assert refs.read(open_folder(target), 1).note == "for the search team"
    assert run("promote", 1, "prod", "--store", store.root) == 0
    again = run.json("copy", store.root, target, "--alias", "prod")
    assert (again["published"], again["blobs"], again["source_version"]) == (False, 0, 1)
    newest = run.json("copy", store.root, target)
    assert (newest["published"], newest["version"], newest["source_version"]) == (True, 2, 2)
    assert run("copy", store.root, target, "--version", 1, "--alias", "prod") == 2
    assert run("copy", store.root, target, "--store", store.root) == 2
    for rate in ("0", "fast", "-1"):
        assert run("copy", store.root, target, "--bandwidth", rate) == 2
    assert run("copy", target.with_name("absent"), target) == 2


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with (
        quick_folder() as folder,
        patch.dict(os.environ, {"INDEXMILL_CACHE": str(folder / "cache")}),
        s3_service() as endpoint,
    ):
        yield endpoint


@pytest.mark.slow
def test_a_version_goes_into_a_bucket_through_a_bad_network_and_back(
    versions: Versions, store: FolderStore, target: Path, service: str
) -> None:
    with FaultProxy(service, FAULTS) as proxy, s3_environment(proxy.url):
        url, other = f"{bucket_of(service)}/index", f"{bucket_of(service)}/other"
        assert copied(store, 2, url).manifest == versions.manifests[1]
        assert copied(open_store(url), 1, other).manifest == versions.manifests[1]
        assert copied(open_store(other), 1, target, bytes_per_second=50e6).blobs
        assert bare(target) == versions.answered[1]
        assert [hit["version"] for hits in answers(Path(target)) for hit in hits][:1] == [1]
    assert sum(proxy.seen.values()) > 5


def test_an_export_is_no_store_to_copy_from(store: FolderStore, target: Path) -> None:
    export_snapshot(store, 1, target, progress=Silent())
    with pytest.raises(SnapshotNotFound):
        open_store(target)


@pytest.mark.slow
def test_an_interrupted_copy_ends_at_once_and_goes_on_later(
    versions: Versions, store: FolderStore, target: Path, tmp_path: Path
) -> None:
    copying = Command(tmp_path, "copy", store.root, target, "--bandwidth", "1KB")
    while not any((target / "blobs").glob("*/*/*")) and copying.running:
        time.sleep(0.05)
    copying.signal(signal.SIGTERM)
    assert copying.wait(60) == 130  # the copy itself would take minutes
    assert "interrupted" in copying.err
    assert refs.newest(open_folder(target)) is None
    assert [run.state for run in runs.list_runs(open_folder(target))] == ["interrupted"]
    assert copied(store, 1, target).manifest == versions.manifests[0]
