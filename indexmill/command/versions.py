"""Parsing a version on the command line: a number, an alias, or ``newest``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.store.reader import StoreReader


def selection(word: str | None) -> tuple[int | None, str | None]:
    """Parse a word into a version number or an alias; both are None for ``newest`` and None."""
    if word is None or word == "newest":
        return None, None
    return (int(word), None) if word.isdecimal() else (None, word)


def version_of(store: StoreReader, word: str) -> int:
    """Return the number of the version that a word currently names; raises SnapshotNotFound."""
    return store.resolve(*selection(word)).version
