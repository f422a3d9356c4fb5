from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.store.canonical import canonical_json
from indexmill.store.layout import attempt_name, blob_path, receipt_name
from storage.folder import FolderStore
from storage.receipts import Receipt, candidates, find, find_incomplete, overlap, record, scan


def receipt(store: FolderStore, key: str = "ab", **changes: object) -> Receipt:
    data = str(changes.pop("data", key)).encode()
    digest = store.put_blob(data)
    fields = {
        "stage": "embed",
        "key": key,
        "shard": "p0",
        "outputs": {"vectors": digest},
        "rows": {"vectors": 3},
        "bytes": {"vectors": len(data)},
        "row_space": "model",
        "run_id": "run1",
    }
    return Receipt.model_validate(fields | changes)


def test_a_part_with_a_receipt_is_found(store: FolderStore) -> None:
    made = receipt(store, seconds=1.5)
    assert find(store, "embed", "ab") is None
    assert record(store, made) == made
    assert find(store, "embed", "ab") == made
    assert find(store, "split", "ab") is None
    assert store.list("work/") == ["work/embed/ab.json"]


def test_the_first_writer_wins(store: FolderStore) -> None:
    first, second = receipt(store, run_id="run1"), receipt(store, data="other", run_id="run2")
    record(store, first)
    assert record(store, second) == first
    assert find(store, "embed", "ab") == first


def test_an_incomplete_part_is_for_its_run_and_does_not_stand_in_the_way(store: FolderStore) -> None:
    partly = receipt(store, data="partly", complete=False, failed=2)
    assert record(store, partly) == partly
    assert find(store, "embed", "ab") is None
    assert find_incomplete(store, "embed", "ab", partly.outputs) == partly
    again = receipt(store, data="partly too", complete=False, failed=1)
    assert record(store, again) == partly
    whole = receipt(store, run_id="run2")
    assert record(store, whole) == whole
    assert find(store, "embed", "ab") == whole
    assert record(store, receipt(store, data="late", complete=False, run_id="run3")) == whole
    assert store.list("work/") == ["work/embed/ab.json", "work/embed/ab.run1.json"]


def test_a_receipt_whose_blob_was_lost_counts_as_none_and_is_replaced(store: FolderStore) -> None:
    record(store, receipt(store))
    (store.root / blob_path(receipt(store).outputs["vectors"])).unlink()
    assert find(store, "embed", "ab") is None
    assert candidates(store, "embed", "model", "p0") == []
    again = receipt(store, data="made again", run_id="run2")
    assert record(store, again) == again
    assert find(store, "embed", "ab") == again


def test_a_receipt_whose_blob_was_cut_counts_as_none(store: FolderStore) -> None:
    made = receipt(store, data="12345")
    record(store, made)
    path = store.root / blob_path(made.outputs["vectors"])
    path.chmod(0o644)
    path.write_bytes(b"1234")
    assert find(store, "embed", "ab") is None


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"stage":"embed"}', b"\xff\xfe"])
def test_a_damaged_receipt_counts_as_none_and_is_replaced(store: FolderStore, garbage: bytes) -> None:
    store.create(receipt_name("embed", "ab"), garbage)
    store.create(attempt_name("embed", "cd", "run1"), garbage)
    assert find(store, "embed", "ab") is None
    assert scan(store, "embed") == []
    made = receipt(store)
    assert record(store, made) == made
    assert find(store, "embed", "ab") == made


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("p01", "p01", 0),
        ("p01", "p0110", 2),
        ("p0110", "p01", 2),
        ("p", "p111", 3),
        ("H01", "H0", 1),
        ("H0", "h0", None),
        ("p01", "p00", None),
        ("p0", "e0", None),
        ("all", "all", 0),
        ("all", "a", None),
        ("p2", "p", None),
    ],
)
def test_shards_overlap_when_one_prefix_begins_the_other(one: str, other: str, distance: int | None) -> None:
    assert overlap(one, other) == distance


@given(st.text("01", max_size=8), st.text("01", max_size=8))
def test_overlap_is_whether_two_leaves_can_hold_the_same_document(one: str, other: str) -> None:
    def holds(bits: str) -> set[int]:
        return {number for number in range(256) if f"{number:08b}".startswith(bits)}

    assert (overlap("p" + one, "p" + other) is not None) == bool(holds(one) & holds(other))
    assert overlap("p" + one, "p" + other) == overlap("p" + other, "p" + one)


def test_candidates_are_the_overlapping_receipts_of_the_same_row_space_nearest_first(store: FolderStore) -> None:
    cases: list[tuple[str, str, int, dict[str, Any]]] = [
        ("same", "p01", 3, {}),
        ("parent", "p0", 9, {}),
        ("root", "p", 20, {}),
        ("child", "p011", 2, {"complete": False, "failed": 1, "run_id": "run2"}),
        ("fuller", "p010", 4, {}),
        ("sibling", "p00", 3, {}),
        ("model", "p01", 3, {"row_space": "other"}),
        ("entity", "e01", 3, {}),
    ]
    for key, shard, rows, changes in cases:
        record(store, receipt(store, key, shard=shard, rows={"vectors": rows}, **changes))

    def keys(**options: object) -> list[str]:
        return [found.key for found in candidates(store, "embed", "model", "p01", **options)]  # type: ignore[arg-type]

    assert keys() == ["same", "parent", "fuller", "child", "root"]
    assert keys(exclude={"same", "root"}) == ["parent", "fuller", "child"]
    assert keys(receipts=scan(store, "embed")) == keys()
    assert candidates(store, "split", "model", "p01") == []


def test_a_published_part_with_failed_rows_is_found_by_what_it_holds(store: FolderStore) -> None:
    partly = record(store, receipt(store, data="partly", complete=False, failed=2))
    other = record(store, receipt(store, data="other", complete=False, failed=1, run_id="run2"))
    assert find_incomplete(store, "embed", "ab", partly.outputs) == partly
    assert find_incomplete(store, "embed", "ab", other.outputs) == other
    assert find_incomplete(store, "embed", "a", partly.outputs) is None
    whole = record(store, receipt(store, run_id="run3"))
    assert find_incomplete(store, "embed", "ab", whole.outputs) is None
    (store.root / blob_path(partly.outputs["vectors"])).unlink()
    assert find_incomplete(store, "embed", "ab", partly.outputs) is None


def test_a_field_of_another_release_is_dropped(store: FolderStore) -> None:
    made = receipt(store)
    store.create(
        receipt_name("embed", "ab"), canonical_json({**made.model_dump(mode="json"), "work": {"worker": "a:1"}})
    )
    assert find(store, "embed", "ab") == made
