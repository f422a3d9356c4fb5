"""The graph of a run as it was driven."""

from __future__ import annotations

import threading

import pytest

from tasks.core.run_graph import MOST_ROUNDS, RunGraph


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_round_belongs_to_the_step_that_drives_it() -> None:
    clock = Clock()
    graph = RunGraph(clock)
    with graph.step("embed", ("split", "encoder"), of_shards=True):
        clock.now = 1.0
        with graph.round("embed") as told:
            clock.now = 1.5
            graph.calls_known(told)
            told.add(2.0)
            told.add(0.5)
            clock.now = 4.0
        clock.now = 4.25
    assert graph.to_json() == {
        "steps": [["embed", ["split", "encoder"], True, 0, 0.0, 4.25]],
        "rounds": [[0, "embed", 0, "embed", 1.0, 1.5, 4.0, 2, 2.5]],
        "left_out": 0,
    }


def test_steps_that_run_side_by_side_keep_their_rounds_apart() -> None:
    graph = RunGraph(Clock())
    both = threading.Barrier(2, timeout=10)

    def drive(name: str) -> None:
        with graph.step(name, (), of_shards=False):
            both.wait()
            with graph.round(f"{name}s"):
                both.wait()

    threads = [threading.Thread(target=drive, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(step, stage) for _, step, _, stage, *_ in graph.to_json()["rounds"]} == {
        ("one", "ones"),
        ("other", "others"),
    }


def test_groups_of_steps_follow_each_other() -> None:
    graph = RunGraph(Clock())
    for _ in range(2):
        with graph.step("split", (), of_shards=True), graph.round("split"):
            pass
        graph.begin_group()
    found = graph.to_json()
    assert [(step[0], step[3]) for step in found["steps"]] == [("split", 0), ("split", 1)]
    assert [(number, group) for number, _, group, *_ in found["rounds"]] == [(0, 0), (1, 1)]


def test_a_step_and_a_round_that_fail_are_recorded_all_the_same() -> None:
    graph = RunGraph(Clock())
    with pytest.raises(ValueError, match="no"), graph.step("split", (), of_shards=True), graph.round("split"):
        raise ValueError("no")
    with graph.round("later"):
        pass
    found = graph.to_json()
    assert [step[0] for step in found["steps"]] == ["split"]
    assert [(step, stage) for _, step, _, stage, *_ in found["rounds"]] == [("split", "split"), ("", "later")]


def test_a_long_run_has_a_bounded_graph_that_counts_what_it_leaves_out() -> None:
    graph = RunGraph(Clock())
    for _ in range(MOST_ROUNDS + 3):
        with graph.step("split", (), of_shards=True), graph.round("split"):
            pass
    found = graph.to_json()
    assert (len(found["steps"]), len(found["rounds"]), found["left_out"]) == (MOST_ROUNDS, MOST_ROUNDS, 6)
