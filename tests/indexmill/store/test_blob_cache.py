"""The cache of blobs: whole or absent, verified, bounded, and shared by threads and processes."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, StoreNotWritable
from indexmill.store import blob_cache
from indexmill.store.blob_cache import BlobCache, cache_folder
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path


def filled(cache: BlobCache, data: bytes) -> Path:
    return cache.add(digest_of(data), len(data), lambda descriptor: os.write(descriptor, data) and None)


def test_a_blob_is_whole_or_absent(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path)
    digest = digest_of(b"data")
    assert cache.find(digest) is None
    with pytest.raises(CorruptBlob, match=digest):
        cache.add(digest, 4, lambda descriptor: os.write(descriptor, b"dada") and None)

    def interrupted(descriptor: int) -> None:
        os.write(descriptor, b"da")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.add(digest, 4, interrupted)
    assert cache.find(digest) is None
    path = filled(cache, b"data")
    assert path.read_bytes() == b"data"
    assert cache.find(digest, 4) == path
    assert cache.find(digest, 5) is None
    assert not any((tmp_path / "tmp").iterdir())


def test_bytes_of_another_digest_leave_what_is_there(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path)
    path = filled(cache, b"data")
    with pytest.raises(CorruptBlob, match="found 4 of"):
        cache.add(digest_of(b"data"), 4, lambda descriptor: os.write(descriptor, b"dada") and None)
    assert cache.find(digest_of(b"data"), 4, again=True) == path


def test_a_damaged_file_is_not_found(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path)
    path = filled(cache, b"data")
    path.chmod(0o644)
    path.write_bytes(b"dada")
    assert cache.find(digest_of(b"data")) is None
    assert filled(cache, b"data").read_bytes() == b"data"


def test_what_was_used_least_recently_goes_first_and_nothing_that_is_in_use(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, most=3_000)
    blobs = [bytes([number]) * 1_000 for number in range(3)]
    paths = [filled(cache, blob) for blob in blobs]
    old = time.time() - 10_000
    for number, path in enumerate(paths):
        os.utime(path, (old + number, path.stat().st_mtime))
    cache.find(digest_of(blobs[0]))  # used again
    filled(cache, b"x" * 1_500)
    assert [path.exists() for path in paths] == [True, False, False]
    filled(cache, b"y" * 2_500)  # over the bound, but all is in use
    assert len(list(tmp_path.glob("blobs/sha256/*/*"))) == 3


def test_abandoned_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for name, age in (("old", 100_000), ("new", 10)):
        (tmp_path / "tmp" / name).touch()
        os.utime(tmp_path / "tmp" / name, (time.time() - age,) * 2)
    filled(BlobCache(tmp_path), b"data")
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["new"]


def test_many_threads_fill_the_same_blob(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    ready = threading.Barrier(8)

    def fill(_: int) -> bytes:
        ready.wait()
        return filled(BlobCache(tmp_path), data).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fill, range(8))) == {data}
    assert len(list(tmp_path.glob("blobs/sha256/*/*"))) == 1


def test_a_file_becomes_a_blob_of_the_cache_unless_it_is_elsewhere(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    (tmp_path / "file").write_bytes(b"data")
    cache.adopt(digest_of(b"data"), tmp_path / "file")
    (tmp_path / "file").unlink()
    assert (tmp_path / "cache" / blob_path(digest_of(b"data"))).read_bytes() == b"data"
    cache.adopt(digest_of(b"data"), tmp_path / "cache" / blob_path(digest_of(b"data")))


def test_the_environment_names_the_folder_and_the_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INDEXMILL_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("INDEXMILL_CACHE_SIZE", "20 GB")
    assert cache_folder() == tmp_path / "here"
    assert blob_cache._bound() == 20_000_000_000
    monkeypatch.setenv("INDEXMILL_CACHE_SIZE", "much")
    with pytest.raises(ConfigurationError, match="INDEXMILL_CACHE_SIZE is 'much'"):
        BlobCache.default()
    monkeypatch.delenv("INDEXMILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "indexmill"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotWritable, match="INDEXMILL_CACHE"):
        filled(BlobCache(tmp_path / "file"), b"data")
