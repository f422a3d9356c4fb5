"""The index of ``world``, built once for all tests about rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import indexmill
from indexmill.snapshot import Snapshot
from storage.folder import open_folder
from tests.indexmill.rights.world import build, republish


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 lets everyone read documents without groups, version 2 nobody; read it only."""
    path = build(tmp_path_factory.mktemp("rights"))
    republish(open_folder(path), 2, {"field": "groups", "required": True})
    return path


@pytest.fixture(scope="session")
def snapshot(store: Path) -> Iterator[Snapshot]:
    """Version 1."""
    with indexmill.open(store, version=1) as opened:
        yield opened
