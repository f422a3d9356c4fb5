"""Records of a store by name, and the numbers that their names end in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from indexmill.store.layout import blob_path, number_of
from indexmill.store.manifest import Record
from storage.protocol import Store

__all__ = ["get_record", "get_record_blob", "last_number", "numbered"]

_R = TypeVar("_R", bound=Record)


def get_record(store: Store, name: str, kind: type[_R]) -> _R:
    """The record of a name; NotFound if there is none, CorruptBlob if it is damaged."""
    return kind.from_bytes(store.get(name), f"{store.url}/{name}")


def get_record_blob(store: Store, digest: str, kind: type[_R]) -> _R:
    """The record that is kept as a blob; CorruptBlob if it is missing or damaged."""
    return kind.from_bytes(store.get_blob(digest), f"{store.url}/{blob_path(digest)}")


def numbered(names: Iterable[str]) -> dict[int, str]:
    """Those of some names that end in a number, by their numbers; sorted names in the order of the numbers."""
    return {number: name for name in names if (number := number_of(name)) is not None}


def last_number(store: Store, prefix: str) -> int:
    """The highest number that a name below a prefix ends in; 0 if there is none."""
    return max(numbered(store.list(prefix)), default=0)
