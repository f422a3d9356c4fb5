"""Folders from which a store can be repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.errors import CorruptBlob
from indexmill.store.canonical import digest_of
from indexmill.store.regular_files import MANIFEST_BYTES
from storage.copies import open_copy


def test_an_export_has_the_blobs_of_its_manifest_and_the_manifest(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {path: digest_of(path.read_bytes()) for path in exported.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", None)  # which has no bound
        copy = open_copy(exported)
    assert digests
    for path, digest in digests.items():
        held = copy.blob(digest)
        assert held is not None
        assert held == path or held.read_bytes() == path.read_bytes()
    assert copy.blob("0" * 64) is None


def test_the_manifest_of_an_export_has_a_bound(exported: Path) -> None:
    with (exported / "manifest.json").open("r+b") as file:
        file.truncate(MANIFEST_BYTES + 1)
    with pytest.raises(CorruptBlob, match="the maximum is"):
        open_copy(exported)
