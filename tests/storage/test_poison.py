"""What runs have found out about documents that a stage cannot take."""

from __future__ import annotations

from indexmill.store.layout import poison_name
from storage import poison
from storage.folder import FolderStore
from storage.poison import Poison

MAKER, CONTENT = "1" * 64, "2" * 64


def found(detail: str, *, content: str = CONTENT, maker: str = MAKER) -> Poison:
    return Poison(content_hash=content, stage="embed", maker=maker, kills=True, detail=detail, run_id="run")


def test_the_first_record_stands_and_a_damaged_one_is_replaced(store: FolderStore) -> None:
    poison.record(store, found("signal 9"))
    poison.record(store, found("signal 11"))
    assert poison.scan(store, MAKER) == [found("signal 9")]
    store.replace(poison_name(MAKER, CONTENT), b'{"cut')
    assert poison.scan(store, MAKER) == []
    poison.record(store, found("signal 11"))
    assert poison.scan(store, MAKER) == [found("signal 11")]


def test_records_are_of_a_maker_and_in_the_order_of_contents(store: FolderStore) -> None:
    for one in (found("b", content="b" * 64), found("a", content="a" * 64), found("other", maker="3" * 64)):
        poison.record(store, one)
    assert [one.detail for one in poison.scan(store, MAKER)] == ["a", "b"]
    assert [one.reason for one in poison.scan(store, "3" * 64)] == ["kills-worker"]
