from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import faults
from storage.folder import FolderStore, init_store


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return init_store(tmp_path / "store")


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(0)
    faults.install(None)
