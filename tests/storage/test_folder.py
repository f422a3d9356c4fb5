"""What a folder does beyond what every store promises (tests/contracts/test_stores.py): files, damage, left-overs."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from indexmill.errors import (
    ConfigurationError,
    CorruptBlob,
    DiskFull,
    IndexmillError,
    SnapshotNotFound,
    StoreError,
    StoreNotWritable,
    UnsupportedFormat,
)
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path
from storage import arrays, faults
from storage.folder import FolderStore, init_folder, open_folder
from storage.processes import this_process
from tests.storage import children


def blob_file(store: FolderStore, digest: str) -> Path:
    return store.root / blob_path(digest)


def raised(function: Callable[[int], object], argument: int) -> StoreError | None:
    try:
        function(argument)
    except StoreError as error:
        return error
    return None


def temporary(store: FolderStore) -> list[str]:
    folder = store.root / "tmp"
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


# Making and opening


def test_init_makes_a_store_and_is_harmless_the_second_time(tmp_path: Path) -> None:
    made = init_folder(tmp_path / "deep" / "er")
    digest = made.put_blob(b"kept")
    assert init_folder(tmp_path / "deep" / "er").get_blob(digest) == b"kept"
    assert (made.root / "store.json").read_bytes() == b'{"format_version":2}\n'


def test_init_refuses_a_folder_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"thesis\.doc"):
        init_folder(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.doc"]


def test_init_refuses_a_file_and_a_place_it_may_not_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match="is a file"):
        init_folder(tmp_path / "file")
    with pytest.raises(StoreNotWritable, match="below"):
        init_folder(tmp_path / "file" / "below")
    faults.arm(1, "erofs")
    with pytest.raises(StoreNotWritable, match="new"):
        init_folder(tmp_path / "new")


def test_init_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "0123.1.1.0").write_bytes(b"{")
    (tmp_path / ".DS_Store").write_bytes(b"")
    assert init_folder(tmp_path).list("") == ["store.json"]


def test_opening_what_is_no_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(SnapshotNotFound, match=f"no index yet in {tmp_path}: run `indexmill build`"):
        open_folder(tmp_path)
    (tmp_path / "other").write_text("")
    with pytest.raises(SnapshotNotFound, match=r"store\.json"):
        open_folder(tmp_path)
    with pytest.raises(SnapshotNotFound, match="nowhere"):
        open_folder(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="s3://"):
        open_folder("s3://bucket/prefix")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"format_version":"1"}', b'{"format_version":0}', b"\xff"]
)
def test_a_damaged_store_file_is_named(store: FolderStore, content: bytes) -> None:
    (store.root / "store.json").chmod(0o644)
    (store.root / "store.json").write_bytes(content)
    with pytest.raises(CorruptBlob, match=r"store\.json"):
        open_folder(store.url)


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_of_another_format_is_refused_and_not_touched(store: FolderStore, version: int) -> None:
    (store.root / "store.json").chmod(0o644)
    (store.root / "store.json").write_bytes(f'{{"format_version":{version}}}'.encode())
    for opened in (open_folder, init_folder):
        with pytest.raises(UnsupportedFormat, match=f"format {version}"):
            opened(store.url)
    assert sorted(entry.name for entry in store.root.iterdir()) == ["store.json", "tmp"]


def test_stores_of_one_folder_are_equal(store: FolderStore) -> None:
    assert len({store, open_folder(store.url), open_folder(store.root.as_uri())}) == 1


# Blobs


def test_a_blob_is_read_only_and_nothing_temporary_is_left(store: FolderStore) -> None:
    digest = store.put_blob(b"x")
    assert blob_file(store, digest).stat().st_mode & 0o777 == 0o444
    assert store.create("work/split/ab.json", b"first")
    assert not store.create("work/split/ab.json", b"second")
    assert temporary(store) == []


def test_a_file_in_the_scratch_folder_is_taken_over_without_a_copy(store: FolderStore) -> None:
    path = store.scratch("run") / "vectors"
    path.write_bytes(b"1" * 1000)
    digest = store.put_blob(path)
    assert path.stat().st_ino == blob_file(store, digest).stat().st_ino
    store.drop_scratch("run")
    assert store.get_blob(digest) == b"1" * 1000
    assert blob_file(store, digest).stat().st_mode & 0o222 == 0


def test_a_blob_found_again_gets_a_new_time(store: FolderStore) -> None:
    digest = store.put_blob(b"old")
    os.utime(blob_file(store, digest), (1000, 1000))
    inode = blob_file(store, digest).stat().st_ino
    store.put_blob(b"old")
    assert blob_file(store, digest).stat().st_mtime > 1_000_000
    assert blob_file(store, digest).stat().st_ino == inode


@pytest.mark.parametrize("damage", [b"", b"whole blob"[:-1], b"Whole blob", b"whole blob and more"])
def test_damage_is_noticed_and_putting_the_blob_again_heals_it(store: FolderStore, damage: bytes) -> None:
    digest = store.put_blob(b"whole blob")
    path = blob_file(store, digest)
    path.unlink()
    path.write_bytes(damage)
    for read in (store.open_local, store.get_blob):
        with pytest.raises(CorruptBlob, match=digest):
            read(digest)
    store.put_blob(b"whole blob")
    assert store.get_blob(digest) == b"whole blob"
    assert store.open_local(digest).read_bytes() == b"whole blob"
    assert temporary(store) == []


# Records


def test_names_that_a_network_file_system_leaves_are_not_listed(store: FolderStore) -> None:
    store.create("work/split/a.json", b"{}")
    (store.root / "work" / "split" / ".nfs000123").write_bytes(b"")
    assert store.list("work/split/") == ["work/split/a.json"]


# Repair


def test_only_a_damaged_blob_is_discarded(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_blob(b"some bytes")
    path = store.root / blob_path(digest)
    assert not store.discard_blob(digest)
    assert store.get_blob(digest) == b"some bytes"
    path.unlink()
    assert not store.discard_blob(digest)
    path.write_bytes(b"some byteS")
    with monkeypatch.context() as patched:
        patched.setattr("storage.folder.hash_file", refused)
        assert not store.discard_blob(digest)
    assert path.read_bytes() == b"some byteS"
    assert store.discard_blob(digest)
    assert not path.exists()
    assert temporary(store) == []


def refused(path: Path) -> tuple[str, int]:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_a_blob_that_another_restores_while_it_is_discarded_stays(store: FolderStore) -> None:
    digest = store.put_blob(b"some bytes")
    path = store.root / blob_path(digest)
    path.unlink()
    path.write_bytes(b"some byteS")

    def restore(name: str) -> None:
        if name == "discard":
            faults.install(None)
            store.put_blob(b"some bytes")

    faults.install(restore)
    assert store.discard_blob(digest)
    assert store.get_blob(digest) == b"some bytes"
    assert temporary(store) == []


# Failures of the system below


def test_a_disk_that_fills_up_under_a_pack_is_named(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(arrays, "write_pack", full)
    with pytest.raises(DiskFull, match=f"the disk of {store.scratch('r')} is full: free some space and run again"):
        arrays.put_pack(store, "r", {"large": np.zeros(1 << 21, np.uint8)})


@pytest.mark.parametrize(
    ("mode", "kind", "word"),
    [
        ("enospc", DiskFull, "is full: free some space and run again; nothing is lost"),
        ("erofs", StoreNotWritable, "may write"),
        ("eacces", StoreNotWritable, "may write"),
        ("short", DiskFull, "the next run continues"),
        ("eio", StoreError, "cannot be written"),
    ],
)
def test_every_failing_write_is_a_clear_error_and_leaves_nothing_half(
    store: FolderStore, mode: str, kind: type[IndexmillError], word: str
) -> None:

    def put(number: int) -> str:
        store.create(f"work/a/{number}.json", b"record")
        return store.put_blob(b"data %d" % number)

    faults.arm(0)
    put(0)
    total = faults.crossings()
    assert total > 10
    failed = 0
    for at in range(1, total + 1):
        faults.arm(at, mode)
        error = raised(put, at)
        if error is not None:
            failed += 1
            assert isinstance(error, kind), error
            assert word in str(error)
            assert str(store.root) in str(error)
            assert error.exit_code == kind.exit_code
        faults.arm(0)
        assert temporary(store) == []
        for name in store.list("work/"):
            assert store.get(name) == b"record"
        assert store.get_blob(put(at)) == b"data %d" % at
    assert failed >= (total // 2 if mode == "short" else total)  # a short write needs a write to come


def test_bytes_are_synced_before_they_get_their_name_and_the_name_after(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    link, fsync = os.link, os.fsync

    def noted_link(source: Path, target: Path) -> None:
        link(source, target)
        done.append(f"link {target.relative_to(store.root).parts[0]}")

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")

    store.create("work/a/first.json", b"")  # its folders are there from now on
    store.put_blob(b"x")
    digest = store.put_blob(b"y")
    (store.root / blob_path(digest)).unlink()
    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    store.create("work/a/second.json", b"")
    store.put_blob(b"y")
    assert done == ["sync file", "link work", "sync folder", "sync file", "link blobs", "sync folder"]
    done.clear()
    store.create("work/a/second.json", b"")
    store.put_blob(b"y")
    assert done == ["sync folder", "sync folder"]  # whoever was first may not have come to that
    done.clear()
    store.create("work/new/deep/a.json", b"")
    assert done == ["sync file", "sync folder", "sync folder", "link work", "sync folder"]


@pytest.mark.parametrize("name", ["EPERM", "ENOSYS", "EOPNOTSUPP", "ENOTSUP", "EXDEV", "EMLINK"])
def test_a_file_system_without_hard_links_is_named(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(os, "link", refuse)
    for write in (lambda: store.create("work/a/b.json", b""), lambda: store.put_blob(b"bytes")):
        with pytest.raises(StoreNotWritable, match=r"a file system with hard links; put it on another disk") as caught:
            write()
        assert str(store.root) in str(caught.value)


def test_a_user_without_permission_reads_everything_and_is_told_that_writing_is_refused(quick: Path) -> None:
    root = quick / "store"
    quick.chmod(0o755)
    children.build(root)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    before = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in root.rglob("*"))
    try:
        assert children.run(children.read_as_nobody, root) == 0
        assert children.run(children.write_as_nobody, root) == 2
        after = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in root.rglob("*"))
        assert before == after
    finally:
        for folder in folders:
            folder.chmod(0o755)


# Left-overs


def test_the_sweep_removes_what_the_dead_left_and_spares_the_living(store: FolderStore) -> None:
    folder = store.root / "tmp"
    me = this_process()
    mine = f"{digest_of(f'{me.host} {me.space}'.encode())[:16]}.{me.pid}.{me.started}.99999"
    dead = f"{digest_of(f'{me.host} {me.space}'.encode())[:16]}.{me.pid}.1.0"  # the same number, another start
    (folder / mine).write_bytes(b"being written")
    (folder / dead).write_bytes(b"half")
    (folder / "0123456789abcdef.5.5.0").write_bytes(b"from another machine, just now")
    (folder / "0123456789abcdef.5.5.1").write_bytes(b"from another machine, long ago")
    os.utime(folder / "0123456789abcdef.5.5.1", (1000, 1000))
    (store.scratch("old") / "x").write_bytes(b"")
    (store.scratch("new") / "x").write_bytes(b"")
    now = (folder / mine).stat().st_mtime
    assert store.sweep(now, keep="new") == 3
    assert temporary(store) == sorted([mine, "0123456789abcdef.5.5.0", "run-new"])


def test_a_record_is_replaced_in_one_step(store: FolderStore) -> None:
    store.create("runs/a/end.json", b"old")
    seen = []
    faults.install(lambda name: seen.append(store.get("runs/a/end.json")))
    store.replace("runs/a/end.json", b"new")
    assert set(seen) == {b"old", b"new"}
    assert store.get("runs/a/end.json") == b"new"
    faults.install(None)
    faults.arm(3, "enospc")
    with pytest.raises(StoreNotWritable):
        store.replace("runs/a/end.json", b"newer")
    assert store.get("runs/a/end.json") == b"new"
    assert list((store.root / "tmp").iterdir()) == []


def test_a_sweep_of_everything_spares_what_a_live_process_is_writing(store: FolderStore) -> None:
    (store.root / "tmp" / "0123456789abcdef.1.2.3").touch()
    swept = []
    faults.install(lambda name: swept.append(store.sweep(math.inf)) if name == "sync" else None)
    assert store.create("work/split/a.json", b"{}")
    assert swept == [1]
    assert store.get("work/split/a.json") == b"{}"
