"""Runs on paper, small enough to work out by hand, and what holds for all of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.schedule import (
    DRIVER,
    SCHEDULER,
    WORKERS,
    SimulatedRound,
    SimulatedStep,
    Task,
    Workers,
    critical_path,
    play,
)
from tests.deep import examples


def tasks(*seconds: float, stage: str = "embed", priority: int = 0) -> tuple[Task, ...]:
    return tuple(Task(stage, one, priority) for one in seconds)


def step(
    name: str, *seconds: float, needs: tuple[str, ...] = (), priority: int = 0, before: float = 0.0
) -> SimulatedStep:
    return SimulatedStep(name, (SimulatedRound(0.0, tasks(*seconds, stage=name, priority=priority)),), needs, before)


def test_one_worker_does_one_thing_after_the_other() -> None:
    played = play([step("embed", 1, 2, 3), step("check", 4, needs=("embed",))], Workers(1))
    assert played.seconds == 10
    assert played.steps == {"embed": (0, 6), "check": (6, 10)}
    assert played.busy == {"embed": 6, "check": 4}
    assert played.waited == {WORKERS: 10}


def test_two_workers_share_a_round_and_wait_for_its_last_part() -> None:
    played = play([step("embed", 1, 2, 3), step("check", 4, needs=("embed",))], Workers(2))
    # 1 and 2 begin; 3 follows 1 and ends at 4; then `check` is alone.
    assert played.seconds == 8
    assert played.waited == {WORKERS: 2, "embed": 2, "check": 4}


def test_steps_that_need_nothing_of_each_other_run_side_by_side() -> None:
    graph = [step("split", 1), step("embed", 5, needs=("split",)), step("names", 3, needs=("split",))]
    assert play(graph, Workers(2)).seconds == 6
    assert play(graph, Workers(1)).seconds == 9


def test_of_what_waits_a_higher_priority_comes_first_and_then_what_came_first() -> None:
    graph = [step("low", 1, 1, 1), step("high", 1, 1, priority=5, before=0.5)]
    played = play(graph, Workers(1))
    # One is at work as `high` comes, and the worker has another one already; the third is overtaken.
    assert played.steps["high"] == (0.5, 4)
    assert played.steps["low"] == (0, 5)
    assert play([step("one", 1, 1), step("other", 1, 1)], Workers(1)).steps["one"] == (0, 2)


def test_the_driver_works_before_and_after_rounds_and_between_steps() -> None:
    driven = SimulatedStep(
        "tree", (SimulatedRound(0.5, tasks(1)), SimulatedRound(0.25, tasks(2)), SimulatedRound(0.25, ())), (), 1.0, 0.75
    )
    played = play([driven, step("check", needs=("tree",), before=2.0)], Workers(3))
    assert played.seconds == 1 + 0.5 + 1 + 0.25 + 2 + 0.25 + 0.75 + 2
    assert played.waited == {DRIVER: 4.75, "embed": 3}


def test_the_first_part_of_a_stage_in_a_worker_takes_longer() -> None:
    graph = [SimulatedStep("embed", (SimulatedRound(0.0, tuple(Task("embed", 1, opening=10) for _ in range(4))),))]
    assert play(graph, Workers(1)).seconds == 14
    assert play(graph, Workers(2)).seconds == 12
    assert play(graph, Workers(4)).seconds == 11
    # And the first of all in a worker longer still.
    assert play(graph, Workers(2, opening=5)).seconds == 17
    assert play([step("split", 1), *graph], Workers(1, opening=5)).seconds == 20


def test_a_scheduler_that_hands_out_one_task_after_the_other_holds_many_workers_up() -> None:
    graph = [step("embed", *[1.0] * 100)]
    # Ten tasks a second for workers that could take a hundred: the last is handed out at 10.
    played = play(graph, Workers(100, handing=0.1))
    assert played.seconds == pytest.approx(11)
    assert max(played.waited, key=lambda name: played.waited[name]) == SCHEDULER
    # Two workers find the next task handed out already: what the scheduler takes shows at the start alone.
    assert play(graph, Workers(2, handing=0.1)).seconds == pytest.approx(50 + 0.2, abs=0.11)


def test_a_worker_pauses_between_tasks() -> None:
    assert play([step("embed", 1, 1, 1)], Workers(1, pause=0.5)).seconds == 4


def test_workers_share_the_cores_of_a_machine_with_the_driver() -> None:
    graph = [step("embed", 6, 6)]
    assert play(graph, Workers(1, cores=2, driver=1)).seconds == 12
    assert play(graph, Workers(2, cores=2)).seconds == 6
    assert play(graph, Workers(2, cores=2, driver=1)).seconds == pytest.approx(9)  # three want two cores
    assert play(graph, Workers(2, cores=1)).seconds == pytest.approx(12)
    # The long one is alone, and faster, once the short one has ended: 3 / 0.5, then the other 3.
    assert play([step("embed", 3, 6)], Workers(2, cores=1)).seconds == pytest.approx(9)


def test_a_round_submits_no_more_than_its_window_so_that_others_come_between() -> None:
    graph = [step("many", *[1.0] * 200), step("few", 1, before=0.5)]
    # 64 of `many` were submitted before; after the first of these ended, its 65th came after `few`.
    assert play(graph, Workers(1)).steps["few"] == (0.5, 65)


def test_a_graph_that_is_none_is_refused() -> None:
    for wrong in ([step("a", 1, needs=("b",)), step("b", 1)], [step("a", 1), step("a", 1)]):
        with pytest.raises(ValueError, match="the step 'a'"):
            play(wrong, Workers(1))
    with pytest.raises(ValueError, match="at least one worker"):
        play([], Workers(0))


def test_nothing_takes_no_time() -> None:
    assert play([], Workers(1)).seconds == 0
    assert play([], Workers(1)).waited == {}


SECONDS = st.integers(0, 40).map(lambda quarters: quarters / 4)  # sums are exact


@st.composite
def graphs(draw: st.DrawFn) -> list[SimulatedStep]:
    """Steps with rounds of parts, each needing some of those before."""
    steps: list[SimulatedStep] = []
    for number in range(draw(st.integers(1, 6))):
        rounds = tuple(
            SimulatedRound(
                draw(SECONDS),
                tuple(
                    Task(f"stage-{number}", seconds, draw(st.integers(0, 2)))
                    for seconds in draw(st.lists(SECONDS, max_size=9))
                ),
            )
            for _ in range(draw(st.integers(0, 3)))
        )
        needs = draw(st.sets(st.sampled_from([one.name for one in steps]))) if steps else set()
        steps.append(SimulatedStep(str(number), rounds, tuple(sorted(needs)), draw(SECONDS), draw(SECONDS)))
    return steps


def work_of(graph: list[SimulatedStep]) -> float:
    return sum(task.seconds for one in graph for round_ in one.rounds for task in round_.tasks)


@examples(20, deep=100)
@given(graphs(), st.integers(1, 9))
def test_no_run_is_shorter_than_its_work_and_its_longest_chain_and_none_waits_without_need(
    graph: list[SimulatedStep], count: int
) -> None:
    played = play(graph, Workers(count))
    work, chain = work_of(graph), critical_path(graph)
    assert played.seconds >= max(work / count, chain) - 1e-9
    # Graham (1966): at any moment all workers are busy, or the longest chain goes on.
    assert played.seconds <= work / count + chain + 1e-9
    assert sum(played.busy.values()) == pytest.approx(work)
    assert sum(played.waited.values()) == pytest.approx(played.seconds)
    assert set(played.steps) == {one.name for one in graph}


@examples(20, deep=100)
@example([SimulatedStep("0", (), (), 0.0, 0.0), SimulatedStep("1", (), ("0",), 0.0, 0.25)])
@given(graphs())
def test_with_a_worker_for_every_part_a_run_is_its_longest_chain(graph: list[SimulatedStep]) -> None:
    assert play(graph, Workers(1000)).seconds == pytest.approx(critical_path(graph))


@examples(20, deep=100)
@given(graphs(), st.integers(1, 5), st.integers(1, 8))
def test_slower_cores_and_openings_shorten_no_run_on_one_worker(
    graph: list[SimulatedStep], opening: int, twice: int
) -> None:
    """Of steps one after the other: side by side, a longer task may change their order for the better (Graham 1969)."""
    before = [(), *((one.name,) for one in graph)]
    graph = [dataclasses.replace(one, needs=needs) for one, needs in zip(graph, before, strict=False)]
    alone = play(graph, Workers(1)).seconds
    opened = [
        dataclasses.replace(
            one,
            rounds=tuple(
                SimulatedRound(r.before, tuple(dataclasses.replace(task, opening=float(opening)) for task in r.tasks))
                for r in one.rounds
            ),
        )
        for one in graph
    ]
    stages = {task.stage for one in graph for round_ in one.rounds for task in round_.tasks}
    longer = play(opened, Workers(1)).seconds
    assert alone - 1e-9 <= longer <= alone + opening * len(stages) + 1e-9
    slower = play(graph, Workers(1, cores=1, driver=twice)).seconds
    assert alone - 1e-9 <= slower <= alone * (1 + twice) + 1e-9


@examples(20, deep=100)
@given(graphs(), st.integers(1, 9))
def test_a_run_that_is_played_again_is_the_same(graph: list[SimulatedStep], count: int) -> None:
    workers = Workers(count, 0.25, 0.125, 2.0, 4, 0.5)
    assert play(graph, workers) == play(graph, workers)
