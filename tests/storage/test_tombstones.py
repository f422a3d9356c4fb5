from __future__ import annotations

import pyarrow as pa

from schemas.tables import QUARANTINE
from storage import tombstones
from storage.folder import FolderStore
from tasks.stages.ingest.documents import clip

CREATED = "2026-01-31T02:00:00Z"


def rows(*given: dict[str, object]) -> pa.Table:
    plain = {"file": "f", "line": 1, "document_id": None, "reason": "no-text", "detail": ""}
    return pa.Table.from_pylist([plain | row for row in given], schema=QUARANTINE)


def test_a_tombstone_is_created_once_and_does_not_hold_the_id(store: FolderStore) -> None:
    assert tombstones.put(store, ["secret", "other"], run_id="run", created=CREATED) == 2
    assert tombstones.put(store, ["secret"], run_id="later", created=CREATED) == 0
    (first, second) = names = store.list("tombstones/")
    assert {tombstones.document_digest(name) for name in ("secret", "other")} == {
        name.split("/")[1].removesuffix(".json") for name in names
    }
    assert b"secret" not in store.get(first) + store.get(second)
    forgotten = tombstones.forgotten(store)
    assert "secret" in forgotten
    assert "others" not in forgotten
    assert {bytes.fromhex(tombstones.document_digest("secret"))} < forgotten.id_hashes


def test_what_was_made_of_a_forgotten_document_is_named_too(store: FolderStore) -> None:
    derived = {"doc": [tombstones.document_digest("passage"), tombstones.document_digest("summary")]}
    tombstones.put(store, ["doc", "other"], run_id="run", created=CREATED, derived=derived)
    forgotten = tombstones.forgotten(store)
    for named in ("doc", "other", "passage", "summary"):
        assert forgotten.names(["stranger", named])
    assert not forgotten.names(["stranger"])
    assert "passage" not in forgotten


def test_a_lifted_id_may_return_but_nothing_made_of_the_forgotten_document(store: FolderStore) -> None:
    derived = {"doc": [tombstones.document_digest("passage")]}
    tombstones.put(store, ["doc"], run_id="run", created=CREATED, derived=derived)
    assert tombstones.lift(store, ["doc", "other", "doc"], created=CREATED) == ("doc",)
    assert tombstones.lift(store, ["doc"], created=CREATED) == ()
    forgotten = tombstones.forgotten(store)
    assert ("doc" in forgotten, forgotten.names(["doc"]), forgotten.names(["passage"])) == (False, False, True)
    assert forgotten.id_hashes == frozenset()
    table = rows({"document_id": "doc"})
    assert forgotten.without(table) is table
    later = {"doc": [tombstones.document_digest("later")]}
    assert tombstones.put(store, ["doc"], run_id="later", created=CREATED, derived=later) == 1
    again = tombstones.forgotten(store)
    assert ("doc" in again, again.names(["passage"]), again.names(["later"])) == (True, True, True)


def test_refused_rows_of_a_forgotten_document_are_left_out(store: FolderStore) -> None:
    long = "n" * 400
    tombstones.put(store, ["doc 7", "a.md", long], run_id="run", created=CREATED)
    table = rows(
        {"document_id": "doc 7"},
        {"document_id": clip(long)},
        {"file": "a.md"},
        {"detail": 'the line begins {"id": "doc 7", "text'},
        {"document_id": "doc 8", "detail": "doc"},
        {"line": 7},
    )
    left = tombstones.forgotten(store).without(table)
    assert left.to_pylist() == table.slice(4).to_pylist()
    assert tombstones.Forgotten().without(table) is table


def test_the_shown_id_is_the_one_of_the_quarantine() -> None:
    for name in ("a", "n" * 300, "n" * 301, "é" * 500):
        assert tombstones.shown(name) == clip(name)
