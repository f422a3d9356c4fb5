from __future__ import annotations

import pytest

from indexmill.errors import CorruptBlob, GateRefused
from indexmill.store.layout import hold_name
from indexmill.store.manifest import Hold
from indexmill.store.reader import StoreReader
from storage import holds
from storage.folder import FolderStore
from storage.refs import commit
from tests.storage.children import CREATED


def place(store: FolderStore, version: int = 1, note: str = "", created: str = CREATED) -> Hold:
    return holds.place(store, version, run_id="run1", by="ada@indexer", created=created, note=note)


def release(store: FolderStore, created: str = CREATED) -> Hold | None:
    return holds.release(store, run_id="run2", by="ada@indexer", created=created)


def test_the_newest_record_tells_the_state_whatever_its_time(store: FolderStore) -> None:
    commit(store, "1" * 64, None, 1, "a", CREATED, {}, "")
    reader = StoreReader(store.root)
    holds.check(store)
    assert release(store) is None
    for round_, (held, ended) in enumerate((("2026", "2020"), ("1990", "1980"), ("2040", "2026"))):
        hold = place(store, created=f"{held}-01-01T00:00:00Z")
        assert holds.standing(store) == reader.hold() == hold
        with pytest.raises(GateRefused, match=f"ada@indexer.*run1.*version 1.*resume|on hold since {held}"):
            holds.check(store)
        freed = release(store, created=f"{ended}-01-01T00:00:00Z")
        assert freed is not None
        assert (hold.number, freed.number) == (2 * round_ + 1, 2 * round_ + 2)
        assert holds.standing(store) is reader.hold() is None
        holds.check(store)


def test_a_hold_stands_until_there_is_another_version_or_reason(store: FolderStore) -> None:
    first = place(store, note="bad names")
    assert place(store, note="bad names") == place(store) == first
    other = place(store, note="bad vectors")
    assert (other.number, other.note) == (2, "bad vectors")
    assert place(store, 2, "bad vectors").number == 3


def test_a_damaged_record_refuses_builds_and_can_be_ended(store: FolderStore) -> None:
    store.create(hold_name(1), b'{"held":')
    for look in (holds.check, holds.standing):
        with pytest.raises(CorruptBlob, match=hold_name(1)):
            look(store)
    with pytest.raises(CorruptBlob, match=hold_name(1)):
        StoreReader(store.root).hold()
    assert release(store) is not None
    holds.check(store)
    store.create(hold_name(3), b"{}")
    assert place(store).number == 4
