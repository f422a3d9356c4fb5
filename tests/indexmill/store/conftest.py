"""A store that tests of reading it may damage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.folder import FolderStore, init_folder
from tests.storage import children
from tests.storage.quick import quick_folder


@pytest.fixture
def two_versions() -> Iterator[FolderStore]:
    """A store with two versions."""
    with quick_folder() as folder:
        children.build(folder / "store", 1)
        children.build(folder / "store", 2)
        yield init_folder(folder / "store")
