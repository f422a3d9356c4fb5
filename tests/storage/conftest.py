from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import faults
from storage.folder import FolderStore, init_store
from tests.storage.quick import quick_folder


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture
def store(quick: Path) -> FolderStore:
    return init_store(quick / "store")


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(0)
    faults.install(None)
