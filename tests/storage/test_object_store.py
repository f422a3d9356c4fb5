"""What only a store in an object store does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexmill.errors import CorruptBlob, SnapshotNotFound, VersionWithdrawn
from indexmill.store.artifact_listing import Artifact
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Corpus, Manifest
from storage import faults, lineage, refs
from storage.lease import acquire
from storage.lineage import Lineage
from storage.object_store import ObjectStore, init_object_store
from storage.publish import publish
from storage.stores import open_store


@pytest.fixture
def store(quick: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A store in the memory of this process."""
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick / "cache"))
    return init_object_store(f"memory://{quick.name}/index")


def test_who_asks_for_many_blobs_is_answered_from_one_listing(store: ObjectStore) -> None:
    digests = [store.put_blob(f"blob {number}".encode()) for number in range(150)]
    before = dict(store.requests())
    assert {store.blob_size(digest) for digest in digests} == {6, 7, 8}
    sent = {kind: number - before[kind] for kind, number in store.requests().items()}
    assert (sent["reads"], sent["lists"]) == (99, 1)
    store.delete(blob_path(digests[0]))
    assert store.blob_size(digests[0]) is None
    late = store.put_blob(b"after the listing")
    assert store.blob_size(late) == 17


def test_a_version_is_withdrawn_whose_blob_is_lost_after_a_listing_had_it(store: ObjectStore) -> None:
    digests = [store.put_blob(f"blob {number}".encode()) for number in range(150)]
    assert all(store.blob_size(digest) for digest in digests)
    lineage_digest = lineage.put(store, Lineage())
    lost = Artifact(name="lost", kind="file", digest=digests[0], bytes=6)
    manifest = Manifest(
        corpus=Corpus(fingerprint="", documents=0, passages=0), artifacts=(lost,), lineage=lineage_digest
    )

    def collected(name: str) -> None:
        if name.startswith("durable refs/"):
            open_store(store.url).delete(blob_path(digests[0]))

    with acquire(store, "writer") as lease:
        faults.install(collected)
        try:
            with pytest.raises(VersionWithdrawn):
                publish(store, lease, manifest, None, created="2026-01-31T02:00:00Z")
        finally:
            faults.install(None)
    assert refs.standing(store) is None


def test_the_first_scratch_folder_of_a_run_removes_those_that_were_left_a_day_ago(store: ObjectStore) -> None:
    old, young = store.scratch("old"), store.scratch("young")
    (old / "vectors").write_bytes(b"1")
    os.utime(old, (0, 0))
    mine = store.scratch("mine")
    assert (old.exists(), young.exists(), mine.exists()) == (False, True, True)
    os.utime(young, (0, 0))
    assert store.scratch("mine") == mine
    assert young.exists()  # it was looked for once
    assert store.sweep(0.0, keep="mine") == 1
    assert (young.exists(), mine.exists()) == (False, True)


def test_a_blob_is_read_once_and_again_if_the_cache_has_lost_or_damaged_it(store: ObjectStore) -> None:
    digest, before = store.put_blob(b"data"), store.requests()["bytes_read"]
    paths = {store.open_local(digest), open_store(store.url).open_local(digest)}
    assert store.requests()["bytes_read"] == before + 4
    (path,) = paths
    path.chmod(0o644)
    path.write_bytes(b"dada")
    assert store.open_local(digest).read_bytes() == b"data"
    path.unlink()
    assert store.get_blob(digest) == b"data"
    assert store.requests()["bytes_read"] == before + 12


def test_damage_in_the_bucket_is_found_and_mended_by_the_next_put(store: ObjectStore) -> None:
    digest = store.put_blob(b"data")
    store.replace(blob_path(digest), b"dada")
    with pytest.raises(CorruptBlob, match=f"{store.url}/{blob_path(digest)} is damaged"):
        store.open_local(digest)
    store.put_blob(b"data")
    assert store.open_local(digest).read_bytes() == b"data"


def test_a_file_of_the_scratch_folder_is_not_fetched_again(store: ObjectStore) -> None:
    path = store.scratch("run") / "vectors"
    path.write_bytes(b"1" * 1000)
    digest, before = store.put_blob(path), store.requests()["bytes_read"]
    store.drop_scratch("run")
    assert store.open_local(digest).read_bytes() == b"1" * 1000
    assert store.requests()["bytes_read"] == before


def test_scratch_folders_of_earlier_runs_of_this_store_are_swept(store: ObjectStore) -> None:
    other = init_object_store(f"{store.url}/of/others")
    folders = [store.scratch("old"), store.scratch("new"), other.scratch("old")]
    assert store.sweep(0.0, keep="new") == 1
    assert [folder.exists() for folder in folders] == [False, True, True]


def test_a_prefix_without_a_store_is_none(store: ObjectStore) -> None:
    with pytest.raises(SnapshotNotFound, match=f"there is no index in {store.url}/none"):
        open_store(f"{store.url}/none")
