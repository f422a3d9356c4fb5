from __future__ import annotations

import pytest

from indexmill.errors import CorruptBlob, DiskFull, LeaseLost, SnapshotNotFound, StoreError
from indexmill.store.layout import ref_name
from indexmill.store.manifest import Ref, Removal
from indexmill.store.reader import StoreReader
from storage import faults, refs
from storage.folder import FolderStore
from tests.storage.children import CREATED

ONE, TWO = "1" * 64, "2" * 64


def commit(store: FolderStore, manifest: str, parent: int | None, run_id: str, epoch: int = 1) -> Ref:
    return refs.commit(store, manifest, parent, epoch, run_id, CREATED, {"tokens": 5}, "nightly")


def test_versions_follow_each_other(store: FolderStore) -> None:
    assert refs.newest(store) is None
    first = commit(store, ONE, None, "a")
    second = commit(store, TWO, 1, "b")
    assert (first.version, first.parent, second.version, second.parent) == (1, None, 2, 1)
    assert refs.newest(store) == second
    assert refs.history(store) == [first, second] == StoreReader(store.root).history()
    assert refs.read(store, 1).cost == {"tokens": 5}


def test_committing_the_same_again_is_a_success(store: FolderStore) -> None:
    first = commit(store, ONE, None, "a")
    assert commit(store, ONE, None, "a") == first
    commit(store, TWO, 1, "b")
    assert commit(store, ONE, None, "a") == first
    assert len(refs.history(store)) == 2


@pytest.mark.parametrize(("run_id", "manifest"), [("b", ONE), ("a", TWO)])
def test_a_version_of_another_run_is_never_replaced(store: FolderStore, run_id: str, manifest: str) -> None:
    commit(store, ONE, None, "a")
    with pytest.raises(LeaseLost, match="run a published version 1"):
        commit(store, manifest, None, run_id)
    assert refs.newest(store) == refs.read(store, 1)


def test_a_run_may_publish_several_versions(store: FolderStore) -> None:
    commit(store, ONE, None, "a")
    assert commit(store, TWO, 1, "a").version == 2


def test_a_parent_that_does_not_exist_is_refused(store: FolderStore) -> None:
    with pytest.raises(ValueError, match="cannot be the parent"):
        commit(store, ONE, 3, "a")
    commit(store, ONE, None, "a")
    with pytest.raises(ValueError, match="at version 1; 3 cannot be the parent"):
        commit(store, TWO, 3, "b")
    assert [ref.version for ref in refs.history(store)] == [1]


def test_the_outcome_of_a_failed_commit_is_read_from_the_ref(store: FolderStore) -> None:
    faults.install(failing("linked refs/"))
    assert commit(store, ONE, None, "a").version == 1  # it is there: the error came after
    faults.install(failing("create refs/", times=2))
    with pytest.raises(StoreError):
        commit(store, TWO, 1, "b")
    faults.install(None)
    assert len(refs.history(store)) == 1
    faults.install(failing("create refs/", times=1))
    assert commit(store, TWO, 1, "b").version == 2


def test_another_run_that_commits_during_a_failure_wins(store: FolderStore) -> None:
    def hook(name: str) -> None:
        if name.startswith("create refs/"):
            faults.install(None)
            commit(store, ONE, None, "other")
            raise OSError(5, "Input/output error")

    faults.install(hook)
    with pytest.raises(LeaseLost, match="run other published version 1"):
        commit(store, TWO, None, "mine")


def test_a_full_disk_at_the_ref_publishes_nothing(store: FolderStore) -> None:
    faults.install(failing("create refs/", times=2, number=28))
    with pytest.raises(DiskFull, match="free some space"):
        commit(store, ONE, None, "a")
    assert StoreReader(store.root).versions() == []


def test_a_damaged_ref_is_named(store: FolderStore) -> None:
    store.create(ref_name("main", 1), b'{"version":1,')
    for read in (lambda: refs.newest(store), lambda: refs.history(store)):
        with pytest.raises(CorruptBlob, match="00000000000000000001"):
            read()
    with pytest.raises(SnapshotNotFound, match="version 9"):
        refs.read(store, 9)


def test_an_alias_moves_and_is_removed(store: FolderStore) -> None:
    reader = StoreReader(store.root)
    commit(store, ONE, None, "a")
    commit(store, TWO, 1, "b")
    refs.promote(store, "prod", 1, CREATED)
    refs.promote(store, "test-2", 2, CREATED)
    assert reader.aliases() == {"prod": 1, "test-2": 2}
    refs.promote(store, "prod", 2, CREATED, "measured on Monday")
    assert reader.resolve(alias="prod").version == 2
    refs.promote(store, "prod", None, CREATED)
    assert reader.aliases() == {"test-2": 2}
    with pytest.raises(SnapshotNotFound, match="version 7"):
        refs.promote(store, "prod", 7, CREATED)
    with pytest.raises(ValueError, match="not a valid name"):
        refs.promote(store, "../main", 1, CREATED)
    assert reader.versions() == [1, 2]


@pytest.mark.parametrize(("other", "said"), [(2, "pointed to version 2"), (None, "removed")])
def test_an_alias_that_is_moved_elsewhere_at_the_same_moment_is_told(
    store: FolderStore, other: int | None, said: str
) -> None:
    commit(store, ONE, None, "a")
    commit(store, TWO, 1, "b")

    def hook(name: str) -> None:
        if name.startswith("create ") and "/prod/" in name:
            faults.install(None)
            refs.promote(store, "prod", other, CREATED)

    faults.install(hook)
    with pytest.raises(LeaseLost, match=f"the alias 'prod' .* was {said} at the same moment"):
        refs.promote(store, "prod", 1, CREATED)
    assert refs.pointed(store, "prod") == other
    faults.install(None)
    assert refs.promote(store, "prod", 1, CREATED).number == 2


def failing(prefix: str, *, times: int = 1, number: int = 5) -> faults.Hook:
    left = times

    def hook(name: str) -> None:
        nonlocal left
        if left and name.startswith(prefix):
            left -= 1
            raise OSError(number, "the disk says no")

    return hook


def test_an_alias_that_moves_to_a_version_as_that_is_removed_says_so(store: FolderStore) -> None:
    """The version is there at the first look, and gone once the alias has moved."""

    class Collected(FolderStore):
        def create(self, name: str, data: bytes) -> bool:
            made = super().create(name, data)
            if name.startswith("refs/aliases/"):
                refs.remove(store, Removal(version=1, reason="gc", run_id="gc", created=CREATED))
            return made

    commit(store, ONE, None, "a")
    with pytest.raises(SnapshotNotFound, match="version 1 was removed by gc"):
        refs.promote(Collected(store.root), "prod", 1, CREATED)
