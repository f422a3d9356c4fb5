"""The time of a plan, from the rates of past runs."""

from __future__ import annotations

from typing import Any

from storage.clock import timestamp
from storage.processes import this_process
from storage.runs import RunEnd, RunStart, StoredRun
from tasks.pipeline.plan.duration import Seconds, StageWork, seconds_of

EMBED = {"model": "hash"}


def run(
    number: int, seconds: float, stages: dict[str, dict[str, Any]], model: str = "hash", code: int = 0
) -> StoredRun:
    """A run that took so many seconds on the clock."""
    name = f"run-{number}"
    details: dict[str, Any] = {"configuration": {"embed": {"model": model}}}
    start = RunStart(run_id=name, command="build", started=timestamp(1e9), process=this_process(), details=details)
    state = "failed" if code else "published"
    report: dict[str, Any] = {"stages": stages}
    end = RunEnd(run_id=name, state=state, exit_code=code, ended=timestamp(1e9 + seconds), report=report)
    return StoredRun(start, end, state, None, 0)


def embedded(vectors: int, seconds: float) -> dict[str, Any]:
    return {"parts_made": 1, "parts_reused": 0, "seconds": seconds, "vectors_made": vectors}


def test_there_is_no_time_without_a_past() -> None:
    assert seconds_of([], {"split": StageWork(3)}, EMBED, 2) is None
    nothing = run(1, 5.0, {"split": {"parts_made": 0, "seconds": 0.0}})
    assert seconds_of([nothing], {"split": StageWork(3)}, EMBED, 2) is None


def test_work_takes_what_the_quickest_and_the_slowest_took() -> None:
    history = [
        run(1, 50.0, {"embed": embedded(1000, 80.0), "split": {"parts_made": 10, "seconds": 20.0}}),
        run(2, 14.0, {"embed": embedded(100, 10.0), "split": {"parts_made": 1, "seconds": 3.0}}),
        run(3, 5.0, {"embed": embedded(0, 0.0), "split": {"parts_made": 0, "seconds": 0.0}}),
    ]
    found = seconds_of(
        history, {"embed": StageWork(4, 500), "split": StageWork(2), "tri_graph": StageWork(1)}, EMBED, 2
    )
    # 500 vectors at 0.08 to 0.1 s, two parts at 2 to 3 s; a pace of 0.5, and beside it 0 to 7.5 s.
    assert found == Seconds(
        low=22.0, high=35.5, work_low=44.0, work_high=56.0, runs=("run-1", "run-2"), unjudged=("tri_graph",)
    )


def test_vectors_of_another_encoder_tell_nothing() -> None:
    history = [run(1, 50.0, {"embed": embedded(1000, 80.0), "split": {"parts_made": 10, "seconds": 20.0}}, "other")]
    found = seconds_of(history, {"embed": StageWork(4, 500), "split": StageWork(1)}, EMBED, 2)
    assert found is not None
    assert (found.work_low, found.unjudged) == (2.0, ("embed",))


def test_a_run_that_failed_has_rates_and_no_pace() -> None:
    history = [run(1, 900.0, {"split": {"parts_made": 10, "seconds": 20.0}}, code=1)]
    found = seconds_of(history, {"split": StageWork(5)}, EMBED, 2)
    assert found is not None
    assert (found.low, found.high) == (10.0, 10.0)


def test_what_a_run_takes_beside_its_work_is_no_more_than_it_could_have() -> None:
    history = [run(1, 60.0, {"split": {"parts_made": 10, "seconds": 100.0}})]
    found = seconds_of(history, {"split": StageWork(1)}, EMBED, 2)
    assert found is not None
    assert (found.low, found.high) == (6.0, 16.0)  # 60 s for 100 s of work on two workers leave 10
