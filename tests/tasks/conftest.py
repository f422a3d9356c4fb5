"""Fixtures that the tests of stages share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.folder import FolderStore, init_store
from tests.storage.quick import quick_folder


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture
def store(quick: Path) -> FolderStore:
    """An empty store."""
    return init_store(quick / "store")
