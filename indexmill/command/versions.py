"""Naming a version on the command line: by its number, by an alias, or as ``newest``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.folder import FolderReader

__all__ = ["version_of"]


def version_of(store: FolderReader, word: str) -> int:
    """The version that a word on the command line means at this moment; raises SnapshotNotFound."""
    if word == "newest":
        return store.newest().version
    if word.isdecimal():
        return store.resolve(version=int(word)).version
    return store.resolve(alias=word).version
