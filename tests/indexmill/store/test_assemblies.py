"""Assembled arrays and batches: kept whole, checked, made again where the cache has lost them, and never in the way."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from indexmill.errors import CorruptBlob
from indexmill.store import assemblies as module
from indexmill.store.arrow_file import ArrowFile
from indexmill.store.assemblies import Assemblies, Assembly
from indexmill.store.blob_cache import BlobCache
from indexmill.store.packs import Pack
from tests.paths import ROOT

MANIFEST = "ab" * 32


class Counted:
    """Makes the same arrays, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"rows": np.arange(7), "none": np.empty(0, np.float32)}


def assemblies(folder: Path, manifest: str = MANIFEST) -> Assemblies:
    return Assemblies(BlobCache(folder), manifest)


def test_what_one_process_made_another_maps(tmp_path: Path) -> None:
    make = Counted()
    for _ in range(2):
        found = assemblies(tmp_path).arrays("links.1", make)
        assert isinstance(found, Pack)
        assert {name: array.tolist() for name, array in found.items()} == {"rows": list(range(7)), "none": []}
    assert make.calls == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_each_name_and_each_snapshot_has_its_own(tmp_path: Path) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    assemblies(tmp_path).arrays("links.2", make)
    assemblies(tmp_path, "cd" * 32).arrays("links.1", make)
    assert make.calls == 3


@pytest.mark.parametrize("lost", ["blob", "bytes of the blob", "record", "end of the record", "meaning of the record"])
def test_what_is_lost_or_damaged_is_made_again(tmp_path: Path, lost: str) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    record = tmp_path / "assembled" / MANIFEST / "links.1.json"
    if lost == "blob":
        blob.unlink()
    elif lost == "bytes of the blob":
        blob.chmod(0o644)
        blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    elif lost == "record":
        record.unlink()
    elif lost == "end of the record":
        record.write_bytes(record.read_bytes()[:20])
    else:
        record.write_text('{"digest":"../../etc","bytes":1}')
    found = assemblies(tmp_path).arrays("links.1", make)
    assert found["rows"].tolist() == list(range(7))
    assert make.calls == 2
    assemblies(tmp_path).arrays("links.1", make)
    assert make.calls == 2


def test_a_record_that_others_can_write_does_not_count(tmp_path: Path) -> None:
    make = Counted()
    for mode, calls in ((0o600, 1), (0o644, 1), (0o664, 1), (0o602, 2)):
        assemblies(tmp_path).arrays("links.1", make)
        assert make.calls == calls
        (tmp_path / "assembled" / MANIFEST / "links.1.json").chmod(mode)
    assemblies(tmp_path).arrays("links.1", make)
    assert make.calls == 3


@pytest.mark.parametrize("what", ["assembled", "tmp", "blobs"])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, what: str) -> None:
    (tmp_path / what).touch()  # a file where a folder should be: nobody may write below it
    make = Counted()
    for calls in (1, 2):
        assert assemblies(tmp_path).arrays("links.1", make)["rows"].tolist() == list(range(7))
        assert make.calls == calls


def test_a_look_for_old_records_uses_none_of_their_arrays(tmp_path: Path) -> None:
    assemblies(tmp_path).arrays("links.1", Counted())
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    os.utime(blob, (1_000, blob.stat().st_mtime))
    assemblies(tmp_path, "cd" * 32).arrays("links.1", lambda: {"other": np.arange(3)})
    assert blob.stat().st_atime == 1_000
    assert len(list((tmp_path / "assembled").iterdir())) == 2


def test_records_go_with_the_last_arrays_of_their_snapshot(tmp_path: Path) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    blob.unlink()
    other = {"other": np.arange(3)}
    assemblies(tmp_path, "cd" * 32).arrays("links.1", lambda: other)
    assert [folder.name for folder in (tmp_path / "assembled").iterdir()] == ["cd" * 32]


def batch(*rows: str) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array(rows, pa.string()), "length": pa.array(map(len, rows), pa.int32())})


class CountedBatches:
    """Makes the same batches, and counts them."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.calls, self.batches = 0, batches

    @property
    def keys(self) -> list[str]:
        return [f"key {number}" for number in range(len(self.batches))]

    def __call__(self, number: int) -> pa.RecordBatch:
        self.calls += 1
        return self.batches[number]


def test_batches_that_one_process_made_another_maps(tmp_path: Path) -> None:
    make = CountedBatches(batch("one", "", "drei"), batch(), batch("ж"))
    for _ in range(2):
        found = assemblies(tmp_path).batches("rows.1", 100, make.keys, make)
        assert found is not None
        assert [one.equals(made) for one, made in zip(found, make.batches, strict=True)] == [True] * 3
        assert found[1:][1].equals(make.batches[2])
    assert make.calls == 3


def test_batches_that_another_snapshot_has_are_copied(tmp_path: Path) -> None:
    before = CountedBatches(batch("one", ""), batch("two"), batch("three"))
    assemblies(tmp_path).batches("rows.1", 100, before.keys, before)
    after = CountedBatches(batch("three"), batch("four"), batch("one", ""))
    keys = ["key 2", "key 4", "key 0"]
    made = assemblies(tmp_path, "cd" * 32).batches("rows.1", 100, keys, after)
    assert made is not None
    assert [one.equals(other) for one, other in zip(made, after.batches, strict=True)] == [True] * 3
    assert after.calls == 1
    (assembled, *_) = made
    assert assembled.column_names == ["text", "length"]
    assemblies(tmp_path, "ef" * 32).batches("rows.2", 100, keys, after)
    assert after.calls == 4  # of another layout


def test_batches_that_would_be_fetched_are_none_until_another_snapshot_has_them(tmp_path: Path) -> None:
    make = CountedBatches(batch("one"), batch("two"))

    def batches(manifest: str, *here: int) -> object:
        return assemblies(tmp_path, manifest).batches("rows.1", 100, make.keys, make, here.__contains__)

    assert batches(MANIFEST, 1) is None
    assert make.calls == 0
    assert batches(MANIFEST, 0, 1) is not None
    assert batches("cd" * 32) is not None
    assert make.calls == 2


def test_files_that_lack_what_would_be_fetched_are_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = CountedBatches(batch("one"), batch("two"))
    assemblies(tmp_path).batches("rows.1", 100, before.keys, before)
    found: list[str] = []
    find = BlobCache.find

    def counted(cache: BlobCache, digest: str, size: int) -> Path | None:
        found.append(digest)
        return find(cache, digest, size)

    monkeypatch.setattr(BlobCache, "find", counted)
    make = CountedBatches(batch("one"), batch("two"), batch("three"))
    assert assemblies(tmp_path, "cd" * 32).batches("rows.1", 100, make.keys, make, lambda _: False) is None
    assert found == []
    assert (
        assemblies(tmp_path, "cd" * 32).batches("rows.1", 100, make.keys, make, lambda number: number > 1) is not None
    )
    assert found
    assert make.calls == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "a key in another encoding", "lost"])
def test_a_file_of_another_snapshot_that_cannot_be_read_has_no_batches(tmp_path: Path, damage: str) -> None:
    make = CountedBatches(batch("one"), batch("two"))
    assemblies(tmp_path).batches("rows.1", 100, make.keys, make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    whole = blob.read_bytes()
    blob.unlink()
    if damage != "lost":
        left = {"empty": b"", "cut": whole[:200]}.get(damage, whole.replace(b"key 0", b"key \xff"))
        blob.write_bytes(left)
        blob.chmod(0o444)
    assert assemblies(tmp_path, "cd" * 32).batches("rows.1", 100, make.keys, make, lambda _: False) is None
    assert make.calls == 2


def test_batches_that_would_be_fetched_are_taken_from_several_snapshots(tmp_path: Path) -> None:
    for number, names in enumerate(["d", "abc"]):
        make = CountedBatches(*map(batch, names))
        assemblies(tmp_path, f"{number:064}").batches("rows.1", 100, [*names], make)
        os.utime(tmp_path / "assembled" / f"{number:064}" / "rows.1.json", (1_000 + number, 1_000 + number))
    make = CountedBatches(*map(batch, "abcd"))
    made = assemblies(tmp_path).batches("rows.1", 100, [*"abcd"], make, lambda _: False)
    assert made is not None
    assert [one["text"].to_pylist() for one in made] == [["a"], ["b"], ["c"], ["d"]]
    assert make.calls == 0


def test_a_file_that_others_can_write_is_copied_once_it_is_verified(tmp_path: Path) -> None:
    make = CountedBatches(batch("one"), batch("two"))
    assemblies(tmp_path).batches("rows.1", 100, make.keys, make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    blob.chmod(0o664)
    assert assemblies(tmp_path, "cd" * 32).batches("rows.1", 100, make.keys, make, lambda _: False) is not None
    assert make.calls == 2


def test_snapshots_that_have_little_in_common_are_passed_over(tmp_path: Path) -> None:
    for number, names in enumerate((["a", "b", "c"], ["c", "x", "y"])):
        make = CountedBatches(*map(batch, names))
        assemblies(tmp_path, f"{number:064}").batches("rows.1", 100, names, make)
        os.utime(tmp_path / "assembled" / f"{number:064}" / "rows.1.json", (1_000 + number, 1_000 + number))
    after = CountedBatches(*map(batch, "abcd"))
    made = assemblies(tmp_path).batches("rows.1", 100, [*"abcd"], after)
    assert made is not None
    assert [one["text"].to_pylist() for one in made] == [["a"], ["b"], ["c"], ["d"]]
    assert after.calls == 1


@pytest.mark.slow
def test_a_damaged_file_of_another_snapshot_is_not_copied(tmp_path: Path) -> None:
    make = CountedBatches(batch("one"), batch("two"))
    assemblies(tmp_path).batches("rows.1", 100, make.keys, make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    status = blob.stat()
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes().replace(b"two", b"owt"))
    blob.chmod(0o444)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a disk changes bytes
    code = (
        "from tests.indexmill.store.test_assemblies import CountedBatches, Path, assemblies, batch\n"
        "make = CountedBatches(batch('one'), batch('two'))\n"
        f"made = assemblies(Path({str(tmp_path)!r}), 'cd' * 32).batches('rows.1', 100, make.keys, make)\n"
        "assert [one['text'].to_pylist() for one in made] == [['one'], ['two']]\n"
        "assert make.calls == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def refuse(number: int) -> pa.RecordBatch:
    raise CorruptBlob(f"shard {number} is damaged")


@pytest.mark.parametrize(
    ("make", "count"),
    [(CountedBatches(), 0), (CountedBatches(batch("one"), pa.record_batch({"other": [1]})), 2), (refuse, 1)],
    ids=["none", "of different columns", "from a damaged shard"],
)
def test_batches_that_cannot_be_kept_are_none(
    tmp_path: Path, make: Callable[[int], pa.RecordBatch], count: int
) -> None:
    assert assemblies(tmp_path).batches("rows.1", 100, ["key"] * count, make) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("packed", "calls"), [(100, 2), (40_000, 0)])
def test_batches_take_a_quarter_of_the_cache_at_most(tmp_path: Path, packed: int, calls: int) -> None:
    make = CountedBatches(batch("x" * 150_000), batch("y" * 150_000))
    kept = Assemblies(BlobCache(tmp_path, 1_000_000), MANIFEST)
    assert kept.batches("rows.1", packed, make.keys, make) is None
    assert make.calls == calls
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert Assemblies(BlobCache(tmp_path, 2_000_000), MANIFEST).batches("rows.1", packed, make.keys, make) is not None


@pytest.mark.slow
def test_the_next_process_trusts_the_file_that_was_verified_and_no_other(tmp_path: Path) -> None:
    def script(expected: int) -> str:
        return (
            "from indexmill.store import folder_files\n"
            "from tests.indexmill.store.test_assemblies import Counted, Path, assemblies\n"
            f"hashed, make, place = [], Counted(), Path({str(tmp_path)!r})\n"
            "whole = folder_files.hash_file\n"
            "folder_files.hash_file = lambda path: hashed.append(path) or whole(path)\n"
            "assert assemblies(place).arrays('links.1', make)['rows'].tolist() == list(range(7))\n"
            f"assert (len(hashed), make.calls) == ({expected}, 0), (hashed, make.calls)\n"
        )

    assemblies(tmp_path).arrays("links.1", Counted())
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    for expected in (0, 1):
        subprocess.run([sys.executable, "-c", script(expected)], check=True, cwd=ROOT)
        other = blob.with_name("other")
        other.write_bytes(blob.read_bytes())
        other.replace(blob)


def test_a_file_that_others_can_write_is_read_before_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    trusted: list[str] = []
    monkeypatch.setattr(module, "trust_blob", lambda _, digest, __: trusted.append(digest))
    assemblies(tmp_path).arrays("links.1", make)
    assert len(trusted) == 1
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    blob.chmod(0o666)
    assert assemblies(tmp_path).arrays("links.1", make)["rows"].tolist() == list(range(7))
    assert (len(trusted), make.calls) == (1, 1)


def test_a_file_that_is_another_one_is_trusted_once_it_was_read(tmp_path: Path) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    other = blob.with_name("other")
    other.write_bytes(blob.read_bytes())
    other.chmod(0o444)
    other.replace(blob)
    record = tmp_path / "assembled" / MANIFEST / "links.1.json"
    assemblies(tmp_path).arrays("links.1", make)
    assert Assembly.from_bytes(record.read_bytes(), "").file[0] == blob.stat().st_ino
    assert make.calls == 1


def test_a_cache_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Counted()
    assemblies(tmp_path).arrays("links.1", make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    blob.chmod(0o666)  # so that it is verified, and its record written again

    def refuse_draft(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.tempfile, "NamedTemporaryFile", refuse_draft)
    assert assemblies(tmp_path).arrays("links.1", make)["rows"].tolist() == list(range(7))
    assert make.calls == 1


def test_batches_of_a_damaged_file_are_corrupt(tmp_path: Path) -> None:
    make = CountedBatches(batch("one"), batch("two", "three"))
    assemblies(tmp_path).batches("rows.1", 100, make.keys, make)
    (blob,) = tmp_path.glob("blobs/sha256/*/*")
    data = blob.read_bytes()
    for place in range(8, len(data) - 200, 8):
        damaged = tmp_path / "damaged"
        damaged.write_bytes(data[:place] + b"\xff" * 8 + data[place + 8 :])
        with contextlib.suppress(CorruptBlob):
            for one in ArrowFile(damaged):
                assert one.num_columns == 2
