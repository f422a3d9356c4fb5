"""The space that is set aside for what makes space."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage import reserve
from storage.folder import FolderStore
from storage.lease import acquire


def test_the_reserve_is_written_where_space_cannot_be_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    written = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: written.append(len(data)) or real(descriptor, data))
    reserve.keep(tmp_path)
    assert (tmp_path / ".reserve").stat().st_blocks * 512 >= reserve.RESERVE
    assert sum(written) >= reserve.RESERVE
    written.clear()
    reserve.keep(tmp_path)
    assert written == []
    assert reserve.give_up(tmp_path)
    assert not reserve.give_up(tmp_path)


def test_runs_that_free_space_need_no_allocation(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    with store.freeing_space(), acquire(store, "run1"):
        pass
    assert (store.root / ".reserve").stat().st_size == reserve.RESERVE
