"""Naming a version on the command line: by its number, by an alias, or as ``newest``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.store.reader import StoreReader


def selection(word: str | None) -> tuple[int | None, str | None]:
    """The version, or else the alias, that a word on the command line names; neither for ``newest`` and no word."""
    if word is None or word == "newest":
        return None, None
    return (int(word), None) if word.isdecimal() else (None, word)


def version_of(store: StoreReader, word: str) -> int:
    """The version that a word on the command line means at this moment; raises SnapshotNotFound."""
    return store.resolve(*selection(word)).version
