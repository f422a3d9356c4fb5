from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indexmill.errors import CorruptBlob, SnapshotNotFound, UnsupportedFormat
from indexmill.store.canonical import canonical_json
from indexmill.store.folder_files import verified_blob
from indexmill.store.layout import (
    FORMAT_VERSION,
    alias_name,
    attempt_name,
    blob_path,
    check_name,
    lease_name,
    number_of,
    receipt_name,
    ref_name,
    removal_name,
    renewal_name,
    run_name,
)
from indexmill.store.manifest import Ref, Removal
from indexmill.store.reader import StoreReader
from storage.folder import FolderStore, init_folder
from storage.refs import promote
from tests.indexmill.damage import flip, overwrite
from tests.storage.children import CREATED


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    return two_versions


@pytest.fixture
def reader(store: FolderStore) -> StoreReader:
    return StoreReader(store.root)


def test_names_are_the_formats_own() -> None:
    assert blob_path("ab" * 32) == "blobs/sha256/ab/" + "ab" * 32
    assert ref_name("main", 7) == "refs/main/00000000000000000007.json"
    assert alias_name("prod", 3) == "refs/aliases/prod/00000000000000000003.json"
    assert lease_name(2) == "leases/00000000000000000002.json"
    assert renewal_name(2, 1) == "leases/00000000000000000002.00000000000000000001.json"
    assert receipt_name("split", "k") == "work/split/k.json"
    assert attempt_name("split", "k", "run1") == "work/split/k.run1.json"
    assert run_name("run1", "start") == "runs/run1/start.json"
    assert number_of(ref_name("main", 7)) == 7
    assert number_of("refs/main/7.json") is None
    assert check_name("a/b-c_d.e") == "a/b-c_d.e"
    with pytest.raises(ValueError, match="aliases"):
        ref_name("aliases", 1)


def test_versions_are_found_by_number_by_alias_and_as_the_newest(store: FolderStore, reader: StoreReader) -> None:
    promote(store, "prod", 1, CREATED)
    assert reader.versions() == [1, 2]
    assert [ref.version for ref in reader.history()] == [1, 2]
    assert reader.newest().version == 2
    assert reader.resolve().version == 2
    assert reader.resolve(version=1).version == 1
    assert reader.resolve(alias="prod").version == 1
    with pytest.raises(ValueError, match="not both"):
        reader.resolve(version=1, alias="prod")
    with pytest.raises(SnapshotNotFound, match="no alias 'test': it has prod;"):
        reader.resolve(alias="test")
    for version in (0, -1, 3):
        with pytest.raises(SnapshotNotFound, match=f"no version {version}: it has versions 1 to 2"):
            reader.ref(version)


def test_a_version_that_is_not_there_is_answered_with_those_that_can_be_opened(
    store: FolderStore, reader: StoreReader
) -> None:
    one = json.loads((store.root / ref_name("main", 1)).read_bytes())
    for version in (3, 4, 5, 7, 8):
        other = {"version": version, "parent": version - 1, **({"manifest": "0" * 64} if version == 8 else {})}
        (store.root / ref_name("main", version)).write_bytes(canonical_json(one | other))  # that of 8 is gone
    removal = Removal(version=4, reason="gc", run_id="r", created=CREATED)
    (store.root / removal_name(4)).parent.mkdir(exist_ok=True)
    (store.root / removal_name(4)).write_bytes(removal.to_bytes())
    with pytest.raises(SnapshotNotFound, match=r"no version 9: it has versions 1 to 3, 5, 7$"):
        reader.ref(9)
    missing = rf"no version 6 \(its record {ref_name('main', 6)} is missing: a copy of the store may have it\): it has"
    with pytest.raises(SnapshotNotFound, match=missing):
        reader.resolve(version=6)
    removed = r"version 4 was removed by gc .*; the store has versions 1 to 3, 5, 7 \("
    with pytest.raises(SnapshotNotFound, match=removed):
        reader.resolve(version=4)


def test_a_store_without_a_snapshot_says_what_to_do(tmp_path: Path) -> None:
    reader = StoreReader(init_folder(tmp_path / "empty").root)
    assert reader.versions() == []
    assert reader.aliases() == {}
    with pytest.raises(SnapshotNotFound, match=r"no index yet in .*run `indexmill build`"):
        reader.newest()
    with pytest.raises(SnapshotNotFound, match="no snapshot yet"):
        reader.ref(1)


@pytest.mark.parametrize("where", ["nowhere", "below/nowhere", "new"])
def test_before_the_first_build_there_is_no_index_yet(tmp_path: Path, where: str) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(SnapshotNotFound, match=rf"no index yet in {tmp_path / where}: run `indexmill build`"):
        StoreReader(tmp_path / where)


@pytest.mark.parametrize("where", [".", "file", "file/below"])
def test_what_is_no_store_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotNotFound, match="not an index store"):
        StoreReader(tmp_path / where)


def test_a_store_of_a_newer_format_is_refused(store: FolderStore) -> None:
    overwrite(store.root / "store.json", b'{"format_version":99,"new":true}')
    with pytest.raises(UnsupportedFormat, match="format 99"):
        StoreReader(store.root)
    overwrite(store.root / "store.json", canonical_json({"format_version": FORMAT_VERSION + 1}))
    with pytest.raises(UnsupportedFormat, match=f"format {FORMAT_VERSION + 1}"):
        StoreReader(store.root)


def test_a_store_from_before_the_first_release_says_what_to_do(store: FolderStore) -> None:
    overwrite(store.root / "store.json", canonical_json({"format_version": 1}))
    with pytest.raises(UnsupportedFormat, match=r"a store of format 1, was written before .*build a new store"):
        StoreReader(store.root)


def test_foreign_files_among_the_refs_are_ignored(store: FolderStore, reader: StoreReader) -> None:
    for name in ("refs/main/.nfs0001", "refs/main/00000000000000000009.json.tmp", "refs/main/9.json"):
        (store.root / name).write_bytes(b"")
    (store.root / "refs" / "aliases" / ".hidden").mkdir(parents=True)
    (store.root / "refs" / "aliases" / "empty").mkdir()
    assert reader.newest().version == 2
    assert reader.aliases() == {}


@pytest.mark.parametrize("data", [b"", b"{", b"null", b'{"version":2}'])
def test_a_garbled_ref_is_an_error_and_the_others_still_open(
    store: FolderStore, reader: StoreReader, data: bytes
) -> None:
    overwrite(store.root / ref_name("main", 2), data)
    with pytest.raises(CorruptBlob, match="00000000000000000002"):
        reader.newest()
    assert reader.resolve(version=1).version == 1


def test_a_ref_under_another_number_is_refused(store: FolderStore, reader: StoreReader) -> None:
    overwrite(store.root / ref_name("main", 2), store.get(ref_name("main", 1)))
    with pytest.raises(CorruptBlob, match="says that it is version 1; expected 2"):
        reader.newest()


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "empty"])
def test_a_damaged_manifest_is_named(store: FolderStore, reader: StoreReader, damage: str) -> None:
    digest = reader.newest().manifest
    path = store.root / blob_path(digest)
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        flipped = bytes([data[0] ^ 1]) + data[1:]
        path.write_bytes({"cut": data[:-9], "flipped": flipped, "empty": b""}[damage])
    with pytest.raises(CorruptBlob, match=digest):
        reader.manifest(digest)


def test_a_blob_is_checked_before_it_is_used(store: FolderStore, reader: StoreReader) -> None:
    artifact = reader.manifest(reader.newest().manifest).artifacts[0]
    path = store.root / blob_path(artifact.digest)
    flip(path, artifact.bytes // 2)
    with pytest.raises(CorruptBlob, match=r"damaged: its SHA-256 is"):
        reader.blob(artifact.digest)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptBlob, match=f"expected {artifact.bytes}"):
        reader.blob(artifact.digest, artifact.bytes)
    path.unlink()
    with pytest.raises(CorruptBlob, match="missing"):
        reader.blob(artifact.digest)
    os.mkdir(path)  # noqa: PTH102
    with pytest.raises(CorruptBlob, match="cannot be read"):
        reader.blob(artifact.digest)


def test_a_blob_is_hashed_once_and_again_when_asked(
    store: FolderStore, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    import indexmill.store.folder_files

    hashed: list[Path] = []
    original = indexmill.store.folder_files.hash_file

    def counting(path: Path) -> tuple[str, int]:
        hashed.append(path)
        return original(path)

    monkeypatch.setattr(indexmill.store.folder_files, "hash_file", counting)
    digest = store.put_blob(b"once")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            pool.submit(reader.blob, digest).result()
    assert len(hashed) == 1
    verified_blob(store.root, digest, again=True)
    assert len(hashed) == 2
    data = (store.root / blob_path(digest)).read_bytes()
    (store.root / blob_path(digest)).unlink()
    store.put_blob(data)
    reader.blob(digest)
    assert len(hashed) == 3


def test_reading_leaves_no_trace(store: FolderStore) -> None:
    before = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in store.root.rglob("*"))
    reader = StoreReader(store.root)
    for version in reader.versions():
        for artifact in reader.manifest(reader.ref(version).manifest).artifacts:
            reader.blob(artifact.digest, artifact.bytes)
    after = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in store.root.rglob("*"))
    assert before == after


def test_a_record_of_a_newer_writer_is_read(store: FolderStore, reader: StoreReader) -> None:
    data = reader.newest().to_bytes().replace(b'"note":""', b'"mood":"good","note":""')
    overwrite(store.root / ref_name("main", 2), data)
    assert reader.newest() == Ref.from_bytes(data, "")
