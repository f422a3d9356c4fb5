from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from indexmill.errors import SnapshotNotFound
from indexmill.store.artifact_listing import Artifact
from indexmill.store.layout import blob_path, ref_name
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.store.verify import Verification, verify
from storage.folder import FolderStore, init_folder
from storage.lease import acquire
from storage.publish import publish
from tests.indexmill.damage import flip, overwrite
from tests.storage import children


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    return two_versions


def check(store: FolderStore, version: int | None = None) -> Verification:
    return verify(StoreReader(store.root), version)


def manifest_of(store: FolderStore, version: int) -> Manifest:
    reader = StoreReader(store.root)
    return reader.manifest(reader.ref(version).manifest)


def republish(store: FolderStore, manifest: Manifest) -> None:
    """Publish a manifest that says something untrue, as a faulty writer would."""
    with acquire(store, "faulty") as lease:
        publish(store, lease, manifest, 2, created=children.CREATED)


def test_a_whole_version_has_no_problems(store: FolderStore) -> None:
    for version in (None, 1, 2):
        found = check(store, version)
        assert found.ok
        assert (found.version, found.artifacts, found.problems) == (version or 2, 2, ())
        assert found.bytes == sum(
            (store.root / blob_path(digest)).stat().st_size
            for digest in [
                found.manifest or "",
                manifest_of(store, found.version).lineage,
                *(artifact.digest for artifact in manifest_of(store, found.version).artifacts),
            ]
        )
    assert found.to_json()["ok"] is True


@pytest.mark.parametrize("at", [0, 7, 100, -1])
def test_a_flipped_byte_is_found_even_after_the_blob_was_used(store: FolderStore, at: int) -> None:
    artifact = manifest_of(store, 2).artifacts[1]
    store.open_local(artifact.digest)
    flip(store.root / blob_path(artifact.digest), at)
    found = check(store)
    assert [problem.what for problem in found.problems] == ["vectors/p"]
    assert artifact.digest in found.problems[0].detail
    assert found.artifacts == 1
    assert check(store, 1).ok


def test_a_byte_that_rots_without_a_trace_in_the_folder_is_found(store: FolderStore) -> None:
    artifact = manifest_of(store, 2).artifacts[1]
    path = store.root / blob_path(artifact.digest)
    assert check(store).ok
    status = path.stat()
    flip(path, -1)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [problem.what for problem in check(store).problems] == ["vectors/p"]


@pytest.mark.parametrize(
    ("pick", "what"),
    [
        (lambda store: blob_path(manifest_of(store, 2).artifacts[0].digest), "passages/p"),
        (lambda store: blob_path(manifest_of(store, 2).lineage), "lineage"),
        (lambda store: blob_path(StoreReader(store.root).ref(2).manifest), "manifest"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_every_blob_is_missed(store: FolderStore, pick: Callable[[FolderStore], str], what: str, damage: str) -> None:
    path = store.root / pick(store)
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-1] if damage == "cut" else b"")
    found = check(store)
    assert not found.ok
    assert [problem.what for problem in found.problems] == [what]
    assert path.name in str(found.problems[0])


def test_a_damaged_ref_is_reported(store: FolderStore) -> None:
    path = store.root / ref_name("main", 2)
    overwrite(path, b"{}")
    assert [problem.what for problem in check(store).problems] == ["ref"]
    path.unlink()
    assert check(store).version == 1


def test_a_missing_parent_is_reported(store: FolderStore) -> None:
    (store.root / ref_name("main", 1)).unlink()
    assert "follows version 1" in str(check(store).problems[0])


def test_a_manifest_that_disagrees_with_its_blobs_is_reported(store: FolderStore) -> None:
    manifest = manifest_of(store, 2)
    table, arrays = manifest.artifacts
    wrong = (
        Artifact(name="a", kind="table", digest=table.digest, bytes=table.bytes, rows=6, schema=table.schema_),
        Artifact(name="b", kind="table", digest=table.digest, bytes=table.bytes, rows=5, schema=[]),
        Artifact(name="c", kind="arrays", digest=arrays.digest, bytes=arrays.bytes, schema={"other": {}}),
        Artifact(name="d", kind="arrays", digest=table.digest, bytes=table.bytes),
        Artifact(name="e", kind="table", digest=arrays.digest, bytes=arrays.bytes),
        Artifact(name="f", kind="file", digest=arrays.digest, bytes=arrays.bytes),
        Artifact(name="g", kind="table", digest=table.digest, bytes=table.bytes, rows=4, schema=table.schema_),
    )
    republish(store, manifest.model_copy(update={"artifacts": wrong, "lineage": store.put_blob(b"{}")}))
    found = check(store, 3)
    assert [problem.what for problem in found.problems] == ["lineage", "a", "b", "c", "d", "e", "g"]
    assert "has 5 rows; the manifest says 6" in found.problems[1].detail
    assert "has 5 rows; the manifest says 4" in found.problems[6].detail


def test_a_manifest_that_is_not_canonical_is_reported(store: FolderStore) -> None:
    ref = StoreReader(store.root).ref(2)
    loose = store.get_blob(ref.manifest).replace(b'{"artifacts":', b'{ "artifacts":', 1)
    changed = ref.model_copy(update={"manifest": store.put_blob(loose)})
    overwrite(store.root / ref_name("main", 2), changed.to_bytes())
    assert [problem.detail for problem in check(store).problems] == ["is not canonical JSON"]


def test_a_version_that_does_not_exist_is_an_error(store: FolderStore, tmp_path: Path) -> None:
    with pytest.raises(SnapshotNotFound, match="version 9"):
        check(store, 9)
    with pytest.raises(SnapshotNotFound, match="no snapshot yet"):
        check(init_folder(tmp_path / "empty"))
