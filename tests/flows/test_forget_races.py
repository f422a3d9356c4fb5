"""Forgetting while others move an alias, write, or publish, each at the one moment that counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.forget import forget
from indexmill.errors import LeaseLost, StoreError
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import refs
from storage.folder import FolderStore, open_folder
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder

CREATED = "2026-01-31T02:00:00Z"
FORGOTTEN = "doc-0002"


@pytest.fixture(scope="module")
def start() -> Iterator[Path]:
    """A store whose first version holds a document that the second is without."""
    with quick_folder() as folder:
        rows = documents(5, words=60)
        for left in (rows, {name: row for name, row in rows.items() if name != FORGOTTEN}):
            build(settings(folder / "store", write_corpus(folder / "corpus.jsonl", left)))
        yield folder / "store"


@pytest.fixture
def root(start: Path) -> Iterator[Path]:
    with quick_folder() as folder:
        shutil.copytree(start, folder / "store")
        yield folder / "store"


class Disturbed(FolderStore):
    """A store in which others do something once, just before a record is created or the temporary files go."""

    def __init__(self, root: Path, before: str, then: Callable[[FolderStore], object]) -> None:
        super().__init__(root)
        self._before, self._then, self._done = before, then, False

    def _call(self, what: str) -> None:
        if what.startswith(self._before) and not self._done:
            self._done = True
            self._then(open_folder(self.root))

    def create(self, name: str, data: bytes) -> bool:
        self._call(f"create {name}")
        return super().create(name, data)

    def delete(self, name: str) -> None:
        self._call(f"delete {name}")
        super().delete(name)

    def sweep(self, now: float, keep: str = "") -> int:
        if keep and now == float("inf"):
            self._call("sweep")
        return super().sweep(now, keep)


def test_an_alias_that_moves_to_a_version_as_that_is_withdrawn_moves_on(root: Path) -> None:
    def promote(store: FolderStore) -> None:
        refs.promote(store, "late", 1, CREATED)

    record, _ = forget(Disturbed(root, "create refs/removed/", promote), [FORGOTTEN], build=None)
    assert record.aliases == {"late": (1, 2)}
    assert StoreReader(root).resolve(alias="late").version == 2


def test_what_another_run_writes_while_blobs_go_is_not_taken_for_forgotten(root: Path) -> None:
    def write(store: FolderStore) -> None:
        store.put_blob(f"{FORGOTTEN}, by a worker that knows nothing of it".encode())

    with pytest.raises(StoreError, match=r"traces of forgotten documents remain in blobs/.*run the same command again"):
        forget(Disturbed(root, "sweep", write), [FORGOTTEN], build=None)
    assert open_folder(root).list("forgotten/") == []
    record, _ = forget(open_folder(root), [FORGOTTEN], build=None)
    assert record.done


def test_a_version_that_another_run_publishes_meanwhile_keeps_its_blobs_until_it_was_looked_at(root: Path) -> None:
    """The new version holds the document: a run that was asleep publishes the first one's manifest again."""

    def publish(store: FolderStore) -> None:
        refs.commit(store, refs.read(store, 1).manifest, 2, 1000, "asleep", CREATED, {}, "")

    with pytest.raises(LeaseLost, match="run asleep published version 3"):
        forget(Disturbed(root, "create removing/", publish), [FORGOTTEN], build=None)
    assert verify(StoreReader(root), 3).ok
    assert open_folder(root).list("removing/") == []


def test_blobs_are_announced_while_they_go(root: Path) -> None:
    seen: list[list[str]] = []
    forget(
        Disturbed(root, "delete blobs/", lambda store: seen.append(store.list("removing/"))), [FORGOTTEN], build=None
    )
    ((name,),) = seen
    assert name.startswith("removing/")
    assert open_folder(root).list("removing/") == []
