"""The timeline of a run."""

from __future__ import annotations

import pytest

from tasks.core.timeline import MOST_SPANS, Timeline


def test_parts_that_follow_each_other_on_a_worker_are_one_span() -> None:
    timeline = Timeline()
    timeline.add("b:2", "embed", 1.0, 3.0)
    timeline.add("a:1", "embed", 0.0, 1.0)
    timeline.add("a:1", "embed", 1.2, 2.0)
    timeline.add("a:1", "resolve", 2.0, 2.5)
    timeline.add("a:1", "embed", 4.0, 5.0)
    assert timeline.to_json() == {
        "workers": ["a:1", "b:2"],
        "spans": [
            [0, "embed", 0.0, 2.0, 2],
            [1, "embed", 1.0, 3.0, 1],
            [0, "resolve", 2.0, 2.5, 1],
            [0, "embed", 4.0, 5.0, 1],
        ],
        "left_out": 0,
    }


def test_the_order_of_arrival_shows_nowhere() -> None:
    spans = [("a:1", "embed", float(start), start + 0.9) for start in range(0, 40, 3)]
    one, other = Timeline(), Timeline()
    for span in spans:
        one.add(*span)
    for span in reversed(spans):
        other.add(*span)
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize(("workers", "pause"), [(1, 0.1), (3, 0.6), (5, 100.0)])
def test_a_long_run_has_a_bounded_timeline_that_counts_what_it_leaves_out(workers: int, pause: float) -> None:
    timeline = Timeline()
    parts = 5 * MOST_SPANS
    for number in range(parts):
        began = (number // workers) * (1.0 + pause)
        timeline.add(f"host:{number % workers}", "embed", began, began + 1.0)
    found = timeline.to_json()
    assert len(found["spans"]) <= MOST_SPANS
    assert sum(span[4] for span in found["spans"]) + found["left_out"] == parts
    assert (found["left_out"] == 0) == (pause < 60)
