from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from indexmill.errors import CorruptBlob, DiskFull, LeaseLost, StoreError, VersionWithdrawn
from indexmill.store.artifact_listing import Artifact
from indexmill.store.layout import blob_path, lease_name
from indexmill.store.manifest import Corpus, Manifest, Removal
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults, folder, lineage, refs, reserve
from storage.arrays import put_pack
from storage.folder import FolderStore
from storage.lease import acquire
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe, publish
from storage.table_blobs import put_table, table_bytes
from tests.storage import children
from tests.storage.children import CREATED


def manifest_of(store: FolderStore) -> Manifest:
    table, _ = put_table(store, pa.table({"a": [1, 2]}))
    vectors, _ = put_pack(store, "run1", {"v": np.ones((2, 3), "<f4")})
    return Manifest(
        corpus=Corpus(fingerprint="ab", documents=2, passages=2),
        artifacts=(
            describe(store, "vectors/p", "arrays", vectors),
            describe(store, "documents/p", "table", table),
            describe(store, "encoder/tokenizer.json", "file", store.put_blob(b"{}")),
        ),
        lineage=lineage.put(store, Lineage()),
    )


def test_a_snapshot_is_published_whole(store: FolderStore) -> None:
    reader = StoreReader(store.root)
    with acquire(store, "run1") as lease:
        manifest = manifest_of(store)
        ref = publish(store, lease, manifest, None, created=CREATED, note="first")
    assert (ref.version, ref.epoch, ref.run_id, ref.note) == (1, 1, "run1", "first")
    assert reader.newest() == ref
    assert reader.manifest(ref.manifest) == manifest
    assert [artifact.name for artifact in manifest.artifacts] == ["documents/p", "encoder/tokenizer.json", "vectors/p"]
    assert manifest.artifacts[0].rows == 2
    assert verify(reader).ok


def test_the_ref_is_the_last_thing_written(store: FolderStore) -> None:
    crossed: list[str] = []
    with acquire(store, "run1") as lease:
        manifest = manifest_of(store)
        faults.install(crossed.append)
        publish(store, lease, manifest, None, created=CREATED)
        faults.install(None)
    linked = [
        name.partition(" ")[0] + " " + name.partition(" ")[2][:5]
        for name in crossed
        if "blob" in name or "refs" in name
    ]
    assert linked == ["blob ", "blob linke", "blob durab", "create refs/", "linked refs/", "durable refs/"]


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_missing_or_cut_blob_stops_the_publication(store: FolderStore, damage: str) -> None:
    with acquire(store, "run1") as lease:
        manifest = manifest_of(store)
        path = store.root / blob_path(manifest.artifacts[2].digest)
        data = path.read_bytes()
        path.unlink()
        if damage == "cut":
            path.write_bytes(data[:-1])
        with pytest.raises(CorruptBlob, match="vectors/p"):
            publish(store, lease, manifest, None, created=CREATED)
        with pytest.raises(CorruptBlob, match="lineage"):
            publish(
                store, lease, manifest.model_copy(update={"artifacts": (), "lineage": "0" * 64}), None, created=CREATED
            )
    assert store.list("refs/") == []


def test_a_run_that_lost_the_lease_publishes_nothing(store: FolderStore) -> None:
    lease = acquire(store, "run1")
    manifest = manifest_of(store)
    store.create(lease_name(2), store.get(lease_name(1)).replace(b'"epoch":1', b'"epoch":2'))
    before = store.list("blobs/")
    with pytest.raises(LeaseLost):
        publish(store, lease, manifest, None, created=CREATED)
    assert store.list("refs/") == []
    assert store.list("blobs/") == before  # the manifest is not kept either


def test_an_artifact_of_another_kind_is_refused(store: FolderStore) -> None:
    digest = store.put_blob(b"neither")
    with pytest.raises(CorruptBlob, match="not a pack"):
        describe(store, "a/p", "arrays", digest)
    with pytest.raises(StoreError, match="not a Parquet table"):
        describe(store, "a/p", "table", digest)
    assert describe(store, "a/p", "file", digest) == Artifact(name="a/p", kind="file", digest=digest, bytes=7)


def test_lineage_comes_back_ordered_and_knows_what_to_reuse(store: FolderStore) -> None:
    entries = [
        LineageEntry(stage=stage, shard=shard, key=key, outputs={"v": "0" * 64}, row_space=space)
        for stage, shard, key, space in [
            ("split", "p1", "b", ""),
            ("embed", "p01", "x", "m"),
            ("embed", "p0", "y", "m"),
            ("embed", "p1", "z", "m"),
            ("embed", "p011", "w", "other"),
        ]
    ]
    made = Lineage(entries=tuple(entries))
    assert made == Lineage(entries=tuple(reversed(entries)))
    assert lineage.read(store, lineage.put(store, made)) == made
    assert [entry.key for entry in made.candidates("embed", "m", "p01")] == ["x", "y"]
    data = made.to_bytes()
    for damaged in (
        b"[]",
        b"{}x",
        b"",
        data[:-9],
        data[:200] + data[300:],
        table_bytes(pa.table({"stage": ["embed"]})),
    ):
        with pytest.raises(CorruptBlob, match="lineage"):
            lineage.read(store, store.put_blob(damaged))


def test_two_versions_share_their_blobs(store: FolderStore) -> None:
    first = children.build(store.root)
    again = children.build(store.root)
    assert (again.version, again.parent, again.manifest) == (2, 1, first.manifest)
    assert len(store.list("blobs/")) == 4  # table, vectors, lineage, manifest


class Disturbed(FolderStore):
    """A store that fails once its first version is there, as often as it is told, and where a blob goes meanwhile."""

    def __init__(self, root: Path, looks: list[Exception], puts: list[Exception], loses: str = "") -> None:
        super().__init__(root)
        self.looks, self.puts, self.loses = looks, puts, loses
        self.published = False
        self.after_put: list[Exception] = []

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        if name.startswith("refs/main/"):
            self.published = True
            if self.loses:
                digest = json.loads(data)["manifest"]
                if self.loses == "table":
                    digest = StoreReader(self.root).manifest(digest).artifacts[0].digest
                (self.root / blob_path(digest)).unlink()
        return created

    def blob_size(self, digest: str) -> int | None:
        if self.published and self.looks:
            raise self.looks.pop()
        return super().blob_size(digest)

    def put_blob(self, data: bytes | Path) -> str:
        if self.published and self.puts:
            self.looks += self.after_put
            raise self.puts.pop()
        return super().put_blob(data)


STALE, FULL = StoreError("stale file handle"), DiskFull("no space")


@pytest.mark.parametrize(("looks", "puts", "loses"), [([STALE], [], ""), ([], [FULL], "manifest")], ids=["look", "put"])
def test_a_store_that_fails_once_after_the_ref_withdraws_nothing(
    store: FolderStore, looks: list[Exception], puts: list[Exception], loses: str
) -> None:
    disturbed = Disturbed(store.root, list(looks), list(puts), loses)
    with acquire(disturbed, "run1") as lease:
        assert publish(disturbed, lease, manifest_of(disturbed), None, created=CREATED).version == 1
    assert (disturbed.looks, disturbed.puts) == ([], [])
    assert verify(StoreReader(store.root)).ok


@pytest.mark.parametrize("error", [STALE, FULL])
def test_a_version_that_cannot_be_looked_at_again_stays(store: FolderStore, error: StoreError) -> None:
    disturbed = Disturbed(store.root, [error] * 2, [])
    with acquire(disturbed, "run1") as lease, pytest.raises(type(error), match=r"version 1 of .* is published") as said:
        publish(disturbed, lease, manifest_of(disturbed), None, created=CREATED)
    assert type(said.value) is type(error)
    assert str(error) in str(said.value)
    assert "indexmill verify" in str(said.value)
    assert refs.removals(store) == {}
    assert StoreReader(store.root).resolve().version == 1


@pytest.mark.parametrize(
    ("puts", "loses", "expected", "code"),
    [
        ([FULL] * 2, "manifest", DiskFull, 6),
        ([STALE] * 2, "manifest", VersionWithdrawn, 5),
        ([], "table", VersionWithdrawn, 5),
    ],
)
def test_a_version_that_cannot_be_made_whole_is_withdrawn(
    store: FolderStore, puts: list[Exception], loses: str, expected: type[StoreError], code: int
) -> None:
    disturbed = Disturbed(store.root, [], list(puts), loses)
    with acquire(disturbed, "run1") as lease, pytest.raises(expected, match="published, and withdrawn again") as said:
        publish(disturbed, lease, manifest_of(disturbed), None, created=CREATED)
    assert said.value.exit_code == code
    assert refs.removals(store)[1].reason == "incomplete"


def test_what_is_missing_is_known_although_the_second_look_fails(store: FolderStore) -> None:
    disturbed = Disturbed(store.root, [], [FULL], "manifest")
    disturbed.after_put = [STALE]
    with acquire(disturbed, "run1") as lease, pytest.raises(VersionWithdrawn, match="stale file handle"):
        publish(disturbed, lease, manifest_of(disturbed), None, created=CREATED)


def test_a_version_that_cannot_be_withdrawn_is_told(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(refs, "remove", fails)
    disturbed = Disturbed(store.root, [], [], "table")
    with acquire(disturbed, "run1") as lease, pytest.raises(DiskFull, match=r"is incomplete .* could not be withdrawn"):
        publish(disturbed, lease, manifest_of(disturbed), None, created=CREATED)


def test_a_version_is_withdrawn_from_a_full_disk(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve.keep(store.root)

    def no_space(path: Path, *_: object) -> bool:
        if (store.root / ".reserve").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *_)

    real = folder._create
    monkeypatch.setattr(folder, "_create", no_space)
    with pytest.raises(DiskFull):
        store.create("holds/00000000000000000001.json", b"{}")
    refs.remove(store, Removal(version=1, reason="incomplete", run_id="run1", created=CREATED))
    assert list(refs.removals(store)) == [1]
