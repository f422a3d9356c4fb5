"""A run as its records tell it, by examples that are worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.recorded_run import RecordedRun, StoreModel, graph_of, read_run, recorded, run_of
from benchmarks.schedule import Workers, play
from flows.build_run import backfill_inline, build_inline
from indexmill.errors import BadInput, CorruptBlob
from schemas.config import Configuration
from storage import runs
from storage.clock import timestamp
from storage.folder import FolderStore, open_folder
from storage.receipts import Receipt, Work
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves
from tests.corpora import documents, write_corpus
from tests.flows.children import settings

SKEW = 1_000_000.0
"""The clock of the workers' machine, at the start of the run."""


def receipt(round_: int, stage: str, shard: str, began: float, seconds: float, **changes: Any) -> Receipt:
    work = Work(
        round=round_,
        worker=changes.get("worker", "host:1"),
        began=timestamp(SKEW + began),
        processor_seconds=changes.get("processor", seconds / 2),
        opened=changes.get("opened", 1),
        bytes_read=changes.get("read", 100),
        peak_bytes=changes.get("peak", 1000),
    )
    return Receipt(
        stage=stage,
        key=f"{stage}-{shard}",
        shard=shard,
        outputs={"out": "0" * 64},
        bytes={"out": changes.get("made", 0)},
        run_id="run",
        seconds=seconds,
        work=work,
    )


def report(steps: list[Any], rounds: list[Any], **graph: Any) -> dict[str, Any]:
    return {
        "stages": {"ingest": {"documents": 40}},
        "graph": {"steps": steps, "rounds": rounds, "left_out": 0, "driver_processor_seconds": 3.0, **graph},
    }


REPORT = report(
    steps=[
        ["scan", [], False, 0, 5.0, 8.0],
        ["split", ["scan", "left out"], True, 0, 8.25, 14.0],
        ["check", ["split"], False, 0, 14.5, 17.0],
    ],
    rounds=[
        [0, "scan", 0, "scan", 5.0, 5.0, 7.5, 1, 1.0],
        [1, "split", 0, "split", 8.25, 8.5, 13.75, 2, 4.5],
        [2, "check", 0, "check", 14.5, 14.75, 15.5, 1, 0.5],
        [3, "check", 0, "check", 15.75, 16.0, 16.75, 1, 0.5],
    ],
)
RECEIPTS = [
    receipt(1, "split", "p0", 8.75, 3.0),  # a quarter of a second in which the modules of the stage were imported
    receipt(1, "split", "p1", 11.875, 1.5),  # an eighth after the one before
    receipt(2, "check", "p0", 14.75, 0.5),
    receipt(3, "check", "all", 16.0, 0.5),
]


def example(**changes: Any) -> RecordedRun:
    return recorded("run", 20.0, {**REPORT, **changes}, RECEIPTS)


def test_what_passes_between_rounds_and_steps_is_the_drivers() -> None:
    run = example()
    assert (run.documents, run.workers, run.seconds, run.driver_share) == (40, 1, 20.0, 0.15)
    assert (run.start_seconds, run.steps_seconds, run.end_seconds) == (5.0, 12.0, 3.0)
    assert [(step.name, step.needs, step.before, step.after) for step in run.steps] == [
        ("scan", (), 0.0, 0.5),
        ("split", ("scan",), 0.25, 0.625),  # from the end of its last part
        ("check", ("split",), 0.5, 0.5),
    ]
    assert [round_.before for step in run.steps for round_ in step.rounds] == [0.0, 0.25, 0.25, 0.75]


def test_a_part_that_had_two_cores_takes_as_long_on_one_as_on_both() -> None:
    wide = [RECEIPTS[0], receipt(1, "split", "p1", 11.875, 1.5, processor=2.5), *RECEIPTS[2:]]
    _, split, _ = graph_of(recorded("run", 20.0, REPORT, wide), "wall")
    assert split.rounds[0].tasks[1].seconds == 2.5


def test_the_clock_of_another_machine_is_set_by_the_part_that_began_the_soonest() -> None:
    run = example()
    assert [part.gap for part in run.parts] == [0.0, 0.25, 0.125, 0.0, 0.0]
    assert run.pause == 0.125
    assert run.opening == 1.5  # the call of `scan` took 2.5 seconds, its work 1


def test_a_worker_that_reads_the_corpus_is_not_idle() -> None:
    rounds = [*REPORT["graph"]["rounds"], [4, "axes", 0, "axes", 5.5, 5.5, 8.0, 1, 0.5]]
    steps = [["axes", [], False, 0, 5.5, 8.0], *REPORT["graph"]["steps"]]
    # It was called at 5.5 and began at 7.4375: the call of `scan` ended there, which the driver had by 7.5.
    axes = receipt(4, "axes", "all", 7.4375, 0.5)
    run = recorded("run", 20.0, report(steps, rounds), [*RECEIPTS, axes])
    assert [part.gap for part in run.parts if part.stage == "axes"] == [0.0]
    other = recorded(
        "run", 20.0, report(steps, rounds), [*RECEIPTS, receipt(4, "axes", "all", 7.4375, 0.5, worker="host:2")]
    )
    assert [part.gap for part in other.parts if part.stage == "axes"] == pytest.approx([1.937])  # to the millisecond


def test_openings_are_told_from_the_bytes_of_the_other_parts() -> None:
    scan, split, _ = graph_of(example())
    # p1 says that 100 bytes take 1.5 seconds, so the first part opened for 1.5, and for a quarter less a pause before.
    assert [(task.seconds, task.opening) for task in split.rounds[0].tasks] == [(1.5, 1.625), (1.5, 1.625)]
    assert [(task.seconds, task.opening) for task in scan.rounds[0].tasks] == [(1.0, 0.0)]


def test_a_run_that_is_played_on_the_workers_it_had_takes_as_long_as_it_took() -> None:
    run = example()
    # The gaps of first parts are the most that can be told: `check` had none.
    played = play(graph_of(run), Workers(1, pause=run.pause, opening=run.opening))
    assert played.seconds == pytest.approx(run.steps_seconds, abs=0.2)
    assert play(graph_of(run), Workers(2, pause=run.pause)).seconds < played.seconds - 1


def test_seconds_of_processors_and_a_store_far_away() -> None:
    run = example()
    _, split, check = graph_of(run, "processor", StoreModel(latency=0.1, bandwidth=50.0, readers=1))
    # Half of the seconds; a blob opened and one put, the receipt looked for and created; 100 bytes at 50 a second.
    assert [task.seconds for task in split.rounds[0].tasks] == pytest.approx([0.75 + 0.4 + 2, 0.75 + 0.4 + 2])
    assert split.rounds[0].before == pytest.approx(0.25 + 2 * 0.1)
    assert check.rounds[0].tasks[0].seconds == pytest.approx(0.25 + 0.4 + 2)


def test_memory_is_told_by_the_parts_that_raise_it() -> None:
    receipts = [
        receipt(1, "split", "p0", 8.5, 1.0, peak=300),
        receipt(1, "split", "p1", 9.5, 1.0, peak=300),
        receipt(2, "check", "p0", 14.75, 0.5, peak=450),
        receipt(3, "check", "all", 16.0, 0.5, peak=100, worker="host:2"),
    ]
    parts = recorded("run", 20.0, REPORT, receipts).parts[1:]
    assert [(part.raised_bytes, part.process_bytes) for part in parts] == [(0, 300), (0, 300), (150, 450), (0, 100)]


def test_groups_of_a_backfill_follow_each_other() -> None:
    steps = [["scan", [], False, 0, 0.0, 1.0]]
    steps += [["split", ["scan"], True, wave, float(wave), wave + 1.0] for wave in (1, 2)]
    rounds = [[wave, "split", wave, "split", float(wave), float(wave), wave + 1.0, 1, 1.0] for wave in (1, 2)]
    receipts = [receipt(wave, "split", f"p{wave - 1}", float(wave), 1.0) for wave in (1, 2)]
    graph = graph_of(recorded("run", 3.0, report(steps, rounds), receipts))
    assert [(step.name, step.needs) for step in graph] == [
        ("0 scan", ()),
        ("1 split", ("0 scan",)),
        ("2 split", ("1 split",)),
    ]
    assert play(graph, Workers(5)).seconds == 3.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"left_out": 3}, "leaves out 3"),
        ({"steps": [["scan", [], False, 0, 0.0, 1.0]] * 2}, "ran some steps twice"),
    ],
)
def test_a_record_that_does_not_suffice_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        example(graph={**REPORT["graph"], **changes})


@pytest.mark.parametrize(
    "graph", [{}, [], None, {"steps": [[1]], "rounds": [[]], "left_out": 0}, {"steps": 3, "rounds": [], "left_out": 0}]
)
def test_a_damaged_graph_is_told(store: FolderStore, graph: Any) -> None:
    runs.start(store, "run", "build", clock=lambda: 0.0)
    ending = runs.RunEnd(
        run_id="run", state="published", exit_code=0, ended="1970-01-01T00:00:20Z", report={"graph": graph}
    )
    runs.end(store, ending)
    with pytest.raises(CorruptBlob, match="the run run is damaged"):
        read_run(store)


def test_a_receipt_without_its_work_is_refused() -> None:
    with pytest.raises(BadInput, match="does not record its work"):
        recorded("run", 20.0, REPORT, [RECEIPTS[0].model_copy(update={"work": None})])


@pytest.mark.slow
def test_a_real_build_and_a_real_backfill_tell_all_their_parts(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(12, words=110))
    built = build_inline(Configuration.model_validate(settings(tmp_path / "built", corpus)), progress=Silent())
    filled = backfill_inline(
        Configuration.model_validate(settings(tmp_path / "filled", corpus)), Waves(1), progress=Silent()
    )
    store = open_folder(tmp_path / "built")
    run, waves = read_run(store), read_run(open_folder(tmp_path / "filled"))
    for one, outcome in ((run, built), (waves, filled)):
        assert one.run_id == outcome.run
        assert one.documents == 12
        assert sum(part.shard != "" for part in one.parts) == outcome.parts_made
        assert sum(part.bytes_made for part in one.parts) == outcome.bytes_made
        assert all(part.bytes_read > 0 for part in one.parts if part.stage == "split")
    assert {step.group for step in run.steps} == {0}
    shards = {part.shard for part in run.parts if part.stage == "split"}
    split = [step for step in waves.steps if step.name == "split"]
    assert [len(round_.parts) for step in split for round_ in step.rounds] == [1] * len(shards)
    assert len({step.group for step in waves.steps}) == len(shards) + 2
    with pytest.raises(BadInput, match="no run nobody"):
        run_of(store, "nobody")
