"""Assembled arrays: kept whole, checked, made again where the cache has lost them, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from indexmill.store.assemblies import Assemblies
from indexmill.store.blob_cache import BlobCache
from indexmill.store.packs import Pack

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
