"""What a reader sees of a store at one moment: whole versions, and the answers from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import indexmill
from indexmill.errors import SnapshotNotFound
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage.folder import FolderStore, open_folder
from storage.receipts import find

QUESTIONS = ("Who built the bridge of Vell with Esme Quill?", "What did Goran Stave survey in 1803?")

Answers = list[list[dict[str, Any]]]


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip_byte(path: Path) -> None:
    """Damage a file of a store by one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def answers(root: Path, version: int | None = None) -> Answers:
    """What every retrieval method answers to a few questions."""
    with indexmill.open(root, version=version) as snapshot:
        return [
            [hit.to_dict() for hit in hits]
            for method in snapshot.methods
            for hits in snapshot.retrieve_batch(QUESTIONS, method=method, k=3)
        ]


def whole_versions(root: Path, expected: dict[int, str], answered: dict[int, Answers] | None = None) -> int:
    """The newest version a reader sees, 0 for none, after a look at every one.

    Each must be an `expected` one (manifest digest by version), whole to the last byte, and answer as it always did.
    """
    try:
        reader = StoreReader(root)
    except SnapshotNotFound:
        return 0
    versions = reader.versions()
    assert versions == list(range(1, len(versions) + 1))
    for version in versions:
        assert reader.ref(version).manifest == expected[version]
        checked = verify(reader, version)
        assert checked.ok, checked.problems
        if answered is not None:
            assert answers(root, version) == answered[version]
    return len(versions)


def complete_parts(root: Path) -> dict[str, bytes]:
    """The receipts of a store by name. A receipt is the last thing that a part writes: its blobs are there."""
    try:
        store: FolderStore = open_folder(root)
    except SnapshotNotFound:
        return {}
    receipts = {}
    for name in store.list("work/"):
        _, stage, key = name.removesuffix(".json").split("/")
        found = find(store, stage, key)
        assert found is not None, name
        for digest in found.outputs.values():
            store.open_local(digest)  # verified
        receipts[name] = store.get(name)
    return receipts
