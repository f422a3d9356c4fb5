from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.errors import StoreError
from storage import batches, faults
from storage.batches import Batch, BatchQuestion, BatchRequest, Ended, Kind, Started, Starting, Uploaded
from storage.folder import FolderStore, init_folder
from storage.gc import DAY, Policy, survey
from tests.storage.quick import quick_folder

NOW = "2027-01-31T02:00:00Z"
STEPS = (Uploaded(file_id="file-1", created=NOW), Starting(created=NOW), Started(batch_id="batch_1", created=NOW))
ENDED = Ended(
    outcome="completed",
    why="",
    answered=2,
    unusable=0,
    unanswered=0,
    ignored=0,
    input_tokens=10,
    output_tokens=2,
    file_ids=("file-1",),
    run_id="run-1",
    created=NOW,
)


@pytest.fixture
def store() -> Iterator[FolderStore]:
    with quick_folder() as folder:
        yield init_folder(folder / "store")


def asked(count: int = 2) -> BatchRequest:
    kind = Kind(task="summary", prompt_version="1", answers={"type": "object"}, max_output_tokens=64)
    return BatchRequest(
        run_id="run-1",
        stage="summaries",
        created=NOW,
        endpoint="host",
        model="some-model",
        bytes=100,
        input_tokens=50,
        output_tokens=128,
        kinds=(kind,),
        questions=tuple(
            BatchQuestion(key=f"{number:064x}", kind=0, about=(f"passage-{number}",), makes=f"node-{number}")
            for number in range(count)
        ),
    )


def begin(store: FolderStore, name: str = "ab" * 16) -> Batch:
    return batches.ask(store, name, asked())


def test_each_step_of_a_batch_is_found_again(store: FolderStore) -> None:
    batch = begin(store)
    states = ["asked"]
    for step in STEPS:
        assert batches.begun(store) == [batch]
        batch = batches.record(store, batch, step)
        states.append(batch.state)
        assert batches.open_states(store) == {batch.id: batch.state}
    assert states == ["asked", "uploaded", "starting", "started"]
    batch = batches.record(store, batch, ENDED)
    assert batches.begun(store) == [batch]
    batches.close(store, batch)
    assert batches.begun(store) == []
    assert store.list("batches/") == [f"batches/{batch.id}/closed.json"]
    assert b"passage" not in store.get(f"batches/{batch.id}/closed.json")


def test_the_first_record_of_a_step_stands(store: FolderStore) -> None:
    batch = batches.record(store, begin(store), STEPS[0])
    again = batches.record(store, batch, Uploaded(file_id="file-2", created=NOW))
    assert again.uploaded == STEPS[0]


def test_the_id_is_that_of_the_run_its_number_and_the_set_of_questions() -> None:
    first = batches.id_of("run-1", 1, ["b", "a"])
    assert first == batches.id_of("run-1", 1, ["a", "b"])
    others = {batches.id_of("run-1", 2, ["a", "b"]), batches.id_of("run-2", 1, ["a", "b"])}
    assert len({first, *others, batches.id_of("run-1", 1, ["a"])}) == 4


def test_closing_may_break_off_anywhere(store: FolderStore) -> None:
    crossed: list[str] = []
    for at in itertools.count(1):
        batch = begin(store, f"{at:032x}")
        for step in (*STEPS, ENDED):
            batch = batches.record(store, batch, step)
        crossed.clear()
        faults.install(crossed.append)
        faults.arm(at, "eio")
        with contextlib.suppress(OSError, StoreError):
            batches.close(store, batch)
        faults.arm(0)
        faults.install(None)
        for left in batches.begun(store):
            assert left == batch
            batches.close(store, left)
        batches.sweep(store)
        assert batches.open_states(store) == {}
        assert store.list(f"batches/{batch.id}/") == [f"batches/{batch.id}/closed.json"]
        if len(crossed) < at:  # disturbed by nothing
            return


def test_a_batch_is_given_up_without_being_read(store: FolderStore) -> None:
    batch = batches.record(store, begin(store), STEPS[0])
    (Path(store.root) / "batches" / batch.id / "uploaded.json").chmod(0o644)
    (Path(store.root) / "batches" / batch.id / "uploaded.json").write_bytes(b"{")
    assert batches.give_up(store, batch.id)
    assert store.list("batches/") == []
    assert not batches.give_up(store, batch.id)
    assert not batches.give_up(store, "../refs")


def test_giving_up_that_breaks_off_leaves_a_batch_to_give_up(store: FolderStore) -> None:
    batch = begin(store)
    for step in STEPS:
        batch = batches.record(store, batch, step)
    deleted = itertools.count(1)

    def hook(name: str) -> None:
        if name == "delete" and next(deleted) == 4:
            raise OSError(5, "Input/output error")

    faults.install(hook)
    with pytest.raises(StoreError):
        batches.give_up(store, batch.id)
    faults.install(None)
    assert list(batches.open_states(store)) == [batch.id]
    assert batches.give_up(store, batch.id)
    assert store.list("batches/") == []


def test_questions_leave_a_batch(store: FolderStore) -> None:
    batch = begin(store)
    for name in ("passage-1", "node-1"):
        ((whole, left),) = batches.naming(store, lambda ids, name=name: name in ids)
        assert (whole, [one.makes for one in left.request.questions]) == (batch, ["node-0"])
    batches.replace(store, left)
    assert batches.begun(store) == [left]
    assert list(batches.naming(store, lambda ids: "passage-1" in ids)) == []


def test_collection_keeps_open_batches_and_drops_old_closed_ones(store: FolderStore) -> None:
    begin(store)
    closed = begin(store, "cd" * 16)
    batches.close(store, batches.record(store, closed, ENDED))
    kept = store.stat(f"batches/{closed.id}/closed.json")
    assert kept is not None
    early, late = (survey(store, Policy(), clock=lambda days=days: kept.modified + days * DAY) for days in (80, 100))
    assert early.records == ()
    assert late.records == (f"batches/{closed.id}/closed.json",)
