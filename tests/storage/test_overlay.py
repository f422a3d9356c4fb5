"""A store over another one: all of it is there, and the one below never changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, NotFound
from indexmill.store.layout import blob_path
from storage.folder import FolderStore
from storage.overlay import OverlayStore
from storage.stores import open_store, overlay_of


@pytest.fixture
def over(store: FolderStore, quick: Path) -> OverlayStore:
    (quick / "above?%").mkdir()
    return OverlayStore(quick / "above?%", store)


def files(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_both_stores_are_read_and_one_is_written(store: FolderStore, over: OverlayStore, quick: Path) -> None:
    below = store.put_blob(b"below")
    assert store.create("work/split/a.json", b"{}")
    before = files(store.root)
    above = over.put_blob(b"above")
    (quick / "file").write_bytes(b"file")
    assert over.get_blob(over.put_blob(quick / "file")) == b"file"
    assert over.put_blob(b"below") == below
    assert [over.get_blob(digest) for digest in (below, above)] == [b"below", b"above"]
    assert over.open_local(above).read_bytes() == b"above"
    assert [over.blob_size(digest) for digest in (below, above, "0" * 64)] == [5, 5, None]
    assert [over.is_new(digest) for digest in (below, above)] == [False, True]
    assert not over.create("work/split/a.json", b"other")
    assert over.create("work/split/b.json", b"new")
    assert not over.create("work/split/b.json", b"newer")
    assert over.get("work/split/b.json") == b"new"
    assert over.list("work/split/") == ["work/split/a.json", "work/split/b.json"]
    assert over.list("work/spl") == over.list("work/split/")
    assert files(store.root) == before
    assert over.sweep(0.0) == 0


def test_what_is_deleted_above_is_gone_there_alone(store: FolderStore, over: OverlayStore) -> None:
    store.create("work/split/a.json", b"old")
    over.delete("work/split/a.json")
    with pytest.raises(NotFound):
        over.get("work/split/a.json")
    assert over.list("work/") == []
    assert over.create("work/split/a.json", b"new")
    assert (over.get("work/split/a.json"), store.get("work/split/a.json")) == (b"new", b"old")
    assert over.list("work/") == ["work/split/a.json"]


def test_a_damaged_blob_below_is_written_above(store: FolderStore, over: OverlayStore) -> None:
    digest = store.put_blob(b"whole")
    path = store.root / blob_path(digest)
    path.chmod(0o644)
    path.write_bytes(b"wh")
    with pytest.raises(CorruptBlob):
        over.open_local(digest)
    over.put_blob(b"whole")
    assert over.open_local(digest).read_bytes() == b"whole"
    assert path.read_bytes() == b"wh"


def test_there_need_be_nothing_below(quick: Path) -> None:
    over = overlay_of(quick / "none", quick / "above")
    assert open_store(over.url).list("refs/") == []
    with pytest.raises(NotFound):
        over.get("refs/main/1.json")
    with pytest.raises(CorruptBlob):
        over.open_local("0" * 64)
    digest = over.put_blob(b"first")
    assert over.get_blob(digest) == b"first"
    (quick / "letters").mkdir()
    (quick / "letters" / "a.txt").touch()
    with pytest.raises(ConfigurationError, match="neither empty nor a store"):
        overlay_of(quick / "letters", quick / "above")
    with pytest.raises(ConfigurationError, match="is a file"):
        overlay_of(quick / "letters" / "a.txt", quick / "above")
