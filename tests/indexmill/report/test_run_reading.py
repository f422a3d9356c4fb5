"""Records of runs, in the forms that old, new and strange builds write."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.report.run_reading import read_run, record_of
from indexmill.report.run_record import FallbackCounts, Missed, PlanFigure, WorkSpan
from indexmill.store.layout import run_name
from indexmill.store.reader import StoreReader
from tests.deep import examples
from tests.indexmill.report.records import COVERAGE, QUESTIONS, end_record, new_record, start_record, write_run
from tests.indexmill.small_snapshot import publish

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_an_older_record_has_stages_and_says_nothing_of_what_it_did_not_record() -> None:
    run = record_of("run-1", start_record(), end_record())
    assert [stage.name for stage in run.stages] == ["ingest", "embed"]
    assert (run.total("work"), run.total("made"), run.seconds) == (13.0, 4, 100.0)
    assert (run.timeline, run.refused, run.warnings, run.quality, run.plan) == (None, None, None, None, ())


def test_a_newer_record_is_read_whole() -> None:
    run = record_of("run-2", start_record("run-2", parent=1), new_record())
    assert run.parent == 1
    assert run.timeline is not None
    assert run.timeline.spans[2] == WorkSpan(1, "embed", 3.0, 95.0, 2)
    assert (run.refused, run.refused_rows) == ({"empty": 2, "too_long": 1}, 3)
    assert run.warnings == ("2 files changed while they were read",)
    assert run.stand_ins == (FallbackCounts("describe", 10, 4),)
    assert run.failures() == {"refused prompts": 2, "calls tried again": 1}
    assert run.plan[0] == PlanFigure("cost", 0.1, 0.2, 0.25)
    assert run.plan[1:] == (PlanFigure("seconds", None, None, 100.0), PlanFigure("vectors_made", 7.0, 7.0, 7.0))
    assert run.quality is not None
    assert run.quality.by_question == {"fused": (1.0, 0.5, None)}
    assert run.quality.missed == (Missed(QUESTIONS[1], "fused", ("ilse",), ("bridge", "lamp")),)
    assert run.quality.compared is not None
    assert (run.quality.compared.before, run.quality.compared.lost_gold) == ({"fused": 0.75}, 1)


@pytest.mark.parametrize(
    "span", [[2, "embed", 0, 1, 1], [-1, "embed", 0, 1, 1], [True, "embed", 0, 1, 1], [0, 1, 0, 1, 1], [0, "embed"]]
)
def test_a_timeline_that_does_not_fit_its_workers_is_not_drawn(span: list[Any]) -> None:
    end = new_record()
    end["report"]["timeline"]["spans"].append(span)
    assert record_of("run-2", {}, end).timeline is None


def test_recall_by_question_that_is_not_parallel_to_the_questions_is_left_out() -> None:
    end = new_record()
    end["report"]["quality"]["by_question"]["recall"] = {"fused": [1.0], "dense": [1.0, 0.0, 0.5]}
    found = record_of("run-2", {}, end).quality
    assert found is not None
    assert list(found.by_question) == ["dense"]


def test_more_than_a_record_may_hold_is_cut() -> None:
    end = new_record()
    end["report"]["warnings"] = ["w"] * 500
    end["report"]["timeline"]["spans"] = [[0, "embed", 0, 1, 1]] * 3000
    end["report"]["quality"]["missed"] = [{"question": "q"}] * 800
    run = record_of("run-2", {}, end)
    assert run.warnings is not None
    assert run.timeline is not None
    assert run.quality is not None
    assert (len(run.warnings), len(run.timeline.spans), len(run.quality.missed)) == (100, 2000, 500)


def test_missed_questions_are_those_of_the_method_with_the_highest_recall_first() -> None:
    end = new_record()
    end["report"]["quality"]["recall"] = {"bm25": 0.2, "dense": 0.9, "fused": 0.9}
    methods = ["bm25"] * 400 + ["fused"] * 60 + ["dense"] * 60 + ["unknown"]
    end["report"]["quality"]["missed"] = [{"question": str(n), "method": one} for n, one in enumerate(methods)]
    quality = record_of("run-2", {}, end).quality
    assert quality is not None
    assert [one.method for one in quality.missed] == ["dense"] * 60 + ["fused"] * 60 + ["bm25"] * 380
    assert [one.question for one in quality.missed[:2]] == ["460", "461"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_duration_is_the_same_in_every_time_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        started, ended = "2026-03-08T01:30:00", "2026-03-08T03:30:00Z"  # over the hour that New York leaves out
        assert record_of("run-1", {"started": started}, {"ended": ended}).seconds == 7200
    finally:
        monkeypatch.undo()
        time.tzset()


@examples(20, deep=100)
@given(st.dictionaries(st.sampled_from(["started", "parent", "command"]), JSON), JSON, JSON, JSON)
def test_values_of_any_form_are_no_error(start: dict[str, Any], stages: Any, timeline: Any, quality: Any) -> None:
    report = {"stages": stages, "timeline": timeline, "quality": quality, "warnings": stages, "refused": timeline}
    report["coverage"] = dict.fromkeys(COVERAGE, stages)
    run = record_of("run", start, {"report": report, "plan": stages, "ended": quality})
    assert all(stage.work >= 0 for stage in run.stages)
    assert run.seconds is None or run.seconds >= 0


def test_the_coverage_is_of_formats_folders_and_the_files_that_lost_most() -> None:
    covered = record_of("run", {}, new_record()).coverage
    assert covered is not None
    assert (covered.read, covered.outcomes, covered.passed_over) == (
        5,
        {"passed-over": 9, "indexed": 5},
        {"suffix": 8, "hidden": 1},
    )
    assert [(one.name, one.files, one.unexplained) for one in covered.formats] == [
        ("json-lines", 3, 0.0),
        ("pdf", 2, 0.1),
    ]
    assert [(one.name, one.files, one.read) for one in covered.folders] == [("docs/", 13, 4), ("", 1, 1)]
    worst = [(one.name, one.text_words, one.left_out) for one in covered.worst]
    assert worst == [("docs/a.pdf", 50, {"unexplained": 10})]


@examples(20, deep=100)
@given(JSON)
def test_a_stage_of_any_form_is_no_error(value: Any) -> None:
    run = record_of(
        "run", {}, {"report": {"stages": {"one": value}, "stand_ins": {"one": value}}, "plan": {"a": value}}
    )
    assert [stage.name for stage in run.stages] == ["one"]


@pytest.mark.parametrize("number", ["1e999", "1e300", "NaN", "-1", "1" + "0" * 400, "true", '"7"', "null"])
def test_numbers_that_are_none_count_as_not_recorded(tmp_path: Path, number: str) -> None:
    store = publish(tmp_path / "s").store
    data = '{"report": {"stages": {"embed": {"seconds": %s, "parts_made": %s}}}}' % (number, number)  # noqa: UP031
    assert store.create(run_name("run-1", "end"), data.encode())
    run, why = read_run(StoreReader(tmp_path / "s"), "run-1")
    assert why == ""
    assert run is not None
    assert (run.stages[0].work, run.stages[0].made) == (0, 0)


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    publish(tmp_path / "s")
    assert read_run(StoreReader(tmp_path / "s"), "run-1") == (None, "The store has no record of the run.")


def test_a_run_that_was_killed_has_what_its_start_says(tmp_path: Path) -> None:
    store = publish(tmp_path / "s").store
    write_run(store, "run-1", None, parent=3)
    run, why = read_run(StoreReader(tmp_path / "s"), "run-1")
    assert run is not None
    assert (run.parent, run.stages, run.seconds) == (3, (), None)
    assert "killed" in why


@pytest.mark.parametrize("damaged", ["start", "end"])
def test_a_damaged_half_of_a_record_costs_that_half_alone(tmp_path: Path, damaged: Literal["start", "end"]) -> None:
    store = publish(tmp_path / "s").store
    records = {"start": start_record("run-1", parent=3), "end": end_record()}
    for name, record in records.items():
        whole = json.dumps(record).encode()
        assert store.create(f"runs/run-1/{name}.json", whole[:40] if name == damaged else whole)
    run, why = read_run(StoreReader(tmp_path / "s"), "run-1")
    assert run is not None
    assert run.is_whole == (damaged == "start")
    assert (run.parent, len(run.stages)) == ((None, 2) if damaged == "start" else (3, 0))
    assert f"The record of the run's {damaged} cannot be read: " in why


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"report": ' + b"9" * 5000 + b"}"])
def test_a_damaged_record_is_told(tmp_path: Path, data: bytes) -> None:
    store = publish(tmp_path / "s").store
    assert store.create(run_name("run-1", "end"), data)
    run, why = read_run(StoreReader(tmp_path / "s"), "run-1")
    assert run is None
    assert "runs/run-1/end.json is not a run's record" in why
