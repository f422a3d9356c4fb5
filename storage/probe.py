"""Check whether a service keeps the promises that a store relies on.

"S3-compatible" proves nothing: some services accept the header `If-None-Match: *` and overwrite anyway, so two runs
would publish the same version. So each promise is tested.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.errors import NotFound, StoreError
from indexmill.store.bucket import Bucket
from indexmill.text.counted import counted

_FOLDER = "tmp"
_RACERS = 20
_BLOB = 20 << 20
"""The size of a blob that is uploaded in parts, in bytes."""


@dataclass(frozen=True)
class Probe:
    """A promise that was tested, and the problem found, if any."""

    promise: str
    problem: str
    """Empty if the promise was kept."""

    def __str__(self) -> str:
        return f"{self.promise}: {self.problem}" if self.problem else self.promise

    def to_json(self) -> dict[str, Any]:
        return {"promise": self.promise, "ok": not self.problem, "problem": self.problem}


def check_quickly(bucket: Bucket) -> None:
    """Raise StoreError if a second create of a name succeeds, or a new record cannot immediately be read and listed."""
    with _folder(bucket) as folder:
        for promise, attempt in (("create only", _create_only), ("read after write", _read_after_write)):
            problem = attempt(bucket, folder)
            if problem:
                raise StoreError(
                    f"{bucket.url} cannot hold a store: {promise}: {problem}; `indexmill store check {bucket.url}` "
                    "tries everything that a store relies on"
                )


def probe(bucket: Bucket) -> Iterator[Probe]:
    """Test every promise, then remove the test objects."""
    with _folder(bucket) as folder:
        for promise, attempt in PROMISES.items():
            try:
                yield Probe(promise, attempt(bucket, f"{folder}/{promise.replace(' ', '-')}"))
            except StoreError as error:
                yield Probe(promise, str(error))


@contextlib.contextmanager
def _folder(bucket: Bucket) -> Iterator[str]:
    """Yield a new prefix, whose objects are removed at the end."""
    folder = f"{_FOLDER}/probe-{secrets.token_hex(8)}"
    try:
        yield folder
    finally:
        with contextlib.suppress(StoreError):
            for entry in bucket.entries(f"{folder}/"):
                bucket.delete(entry.name)


def _create_only(bucket: Bucket, folder: str) -> str:
    if not bucket.create(f"{folder}/one", b"first"):
        return "a new name is refused as taken"
    if bucket.create(f"{folder}/one", b"second"):
        return "a second create of a name is not refused: two runs could publish the same version"
    return "" if bucket.read(f"{folder}/one") == b"first" else "a refused create has overwritten the record"


def _race(bucket: Bucket, folder: str) -> str:
    ready = threading.Barrier(_RACERS)

    def create(number: int) -> bool:
        ready.wait()
        return bucket.create(f"{folder}/one", f"{number:04d}".encode())

    with ThreadPoolExecutor(_RACERS) as pool:
        won = [number for number, made in enumerate(pool.map(create, range(_RACERS))) if made]
    if len(won) != 1:
        return f"{counted(len(won), 'writer')} of {_RACERS} created the same name at the same time; expected 1"
    return "" if int(bucket.read(f"{folder}/one")) == won[0] else "the record is not the winner's"


def _read_after_write(bucket: Bucket, folder: str, times: int = 1) -> str:
    for number in range(times):
        name = f"{folder}/read/{number}"
        bucket.put(name, b"old")
        bucket.put(name, b"new")
        if bucket.read(name) != b"new":
            return "a record that was just replaced still has its old content"
        if name not in [entry.name for entry in bucket.entries(f"{folder}/read/")]:
            return "a record that was just written is not listed"
        bucket.delete(name)
        if bucket.stat(name) is not None:
            return "a record that was just removed still exists"
        with contextlib.suppress(NotFound):
            bucket.read(name)
            return "a record that was just removed can be read"
    return ""


def _listing(bucket: Bucket, folder: str) -> str:
    names = sorted(f"{folder}/{number % 7}/{number:04d}" for number in range(60))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(name, b"x"), names))
    if [entry.name for entry in bucket.entries(f"{folder}/")] != names:
        return "a listing omits names or contains extra ones"
    below = [name for name in names if name.startswith(f"{folder}/3/")]
    return "" if [entry.name for entry in bucket.entries(f"{folder}/3/")] == below else "a prefix is not respected"


def _parts_and_ranges(bucket: Bucket, folder: str) -> str:
    with tempfile.TemporaryDirectory() as local:
        source, target = Path(local) / "source", Path(local) / "target"
        source.write_bytes(os.urandom(_BLOB))
        bucket.put(f"{folder}/blob", source)
        with target.open("wb") as file:
            bucket.fetch(f"{folder}/blob", file.fileno(), _BLOB)
        return "" if source.read_bytes() == target.read_bytes() else "a blob uploaded in parts reads differently"


PROMISES: dict[str, Callable[[Bucket, str], str]] = {
    "create only": _create_only,
    "one winner of a race": _race,
    "read after write": partial(_read_after_write, times=10),
    "complete listing": _listing,
    "parts and ranges": _parts_and_ranges,
}
"""The promises by name, each with a test that returns the problem, or an empty string."""
