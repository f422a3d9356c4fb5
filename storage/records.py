"""Records of a store by name, and the numbers at the end of their names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.layout import blob_path, number_of
from indexmill.store.record import Record
from storage.protocol import Store

_KINDS = re.compile(
    r"(aside|batches|blobs|exports|forgotten|holds|leases|ledger/[0-9a-f]{2}|refs|refusals|removing|runs|tombstones|work)/"
)

_R = TypeVar("_R", bound=Record)


def needs_search(name: str) -> bool:
    """Return True if only a search of a record shows which blobs or documents it names: poison and unknown kinds."""
    return _KINDS.match(name) is None


def get_record(store: Store, name: str, kind: type[_R]) -> _R:
    """Read the record with this name; NotFound if there is none, CorruptBlob if it is damaged."""
    return kind.from_bytes(store.get(name), f"{store.url}/{name}")


def find_record(store: Store, name: str, kind: type[_R]) -> _R | None:
    """Return the record with this name; None if it is missing or cannot be read."""
    with contextlib.suppress(NotFound, CorruptBlob):
        return get_record(store, name, kind)
    return None


def create_next(store: Store, prefix: str, name: Callable[[int], str], record: Callable[[int], _R]) -> _R:
    """Create the record of the next number below a prefix, and return it; safe for concurrent processes.

    name, record: called with the number.
    """
    while True:
        number = last_number(store, prefix) + 1
        created = record(number)
        if store.create(name(number), created.to_bytes()):
            return created


def get_record_blob(store: Store, digest: str, kind: type[_R]) -> _R:
    """Read the record stored as a blob; CorruptBlob if it is missing or damaged."""
    return kind.from_bytes(store.get_blob(digest), f"{store.url}/{blob_path(digest)}")


def numbered(names: Iterable[str]) -> dict[int, str]:
    """Return the names that end in a number, by number; if the names are sorted, so are the numbers."""
    return {number: name for name in names if (number := number_of(name)) is not None}


def last_number(store: Store, prefix: str) -> int:
    """Return the highest number at the end of a name below a prefix; 0 if there is none."""
    return max(numbered(store.list(prefix)), default=0)
