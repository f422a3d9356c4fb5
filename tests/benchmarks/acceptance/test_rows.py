"""Rows that are made up: what passes, what fails, what does not run, and what goes on beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.acceptance.rows import AcceptanceRow, Group, Measure, at_least, run_group
from benchmarks.acceptance.table import ResultLine, RowStatus


def met(subject: object) -> Iterator[Measure]:
    yield Measure("3", "2", True)


def unmet(subject: object) -> Iterator[Measure]:
    yield Measure("1", "2", False, "of half")


def raising(subject: object) -> Iterator[Measure]:
    yield Measure("3", "2", True, "before")
    raise KeyError("vectors/p")


def statuses(lines: list[ResultLine]) -> list[tuple[str, str, str]]:
    return [(line.row, line.status.value, line.value) for line in lines]


def test_a_row_that_raises_fails_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = Group(
        "g",
        (
            AcceptanceRow("a", met),
            AcceptanceRow("b", raising),
            AcceptanceRow("c", met, ("b",)),
            AcceptanceRow("d", unmet),
            AcceptanceRow("e", met, ("a",)),
        ),
    )
    assert statuses(run_group(group, tmp_path, tmp_path)) == [
        ("g: a", "passed", "3"),
        ("g: b before", "passed", "3"),
        ("g: b", "failed", "KeyError: 'vectors/p'"),
        ("g: c", "failed", "needs b, which failed"),
        ("g: d of half", "failed", "1"),
        ("g: e", "passed", "3"),
    ]
    assert "KeyError" in capsys.readouterr().err


def test_a_group_without_its_data_does_not_run(tmp_path: Path) -> None:
    group = Group("g", (AcceptanceRow("a", raising), AcceptanceRow("b", raising)), files=("corpus.jsonl",))
    lines = run_group(group, tmp_path, tmp_path / "work")
    assert statuses(lines) == [(f"g: {name}", "not run", f"there is no {tmp_path / 'corpus.jsonl'}") for name in "ab"]


def test_a_row_that_comes_later_says_why_it_does_not_run(tmp_path: Path) -> None:
    lines = run_group(Group("g", (AcceptanceRow("a", reason="comes with the work on models"),)), tmp_path, tmp_path)
    assert statuses(lines) == [("g: a", "not run", "comes with the work on models")]


def test_rows_are_chosen_by_a_part_of_their_name_with_what_they_require() -> None:
    group = Group(
        "g",
        (
            AcceptanceRow("build", met),
            AcceptanceRow("night", met, ("build",)),
            AcceptanceRow("rebuild", met, ("night",)),
            AcceptanceRow("x", met),
        ),
    )
    for only, names in (("g: x", ["x"]), ("rebuild", ["build", "night", "rebuild"]), ("h: ", [])):
        assert [row.name for row in group.choose([only]).rows] == names
    assert group.choose([]) == group


def test_several_numbers_have_a_floor_each() -> None:
    assert at_least([0.9, 0.91], [0.9, 0.9], "of fused") == Measure("0.900 / 0.910", "0.900 / 0.900", True, "of fused")
    assert not at_least([0.9, 0.89], [0.9, 0.9]).is_met


def test_the_first_line_of_a_row_has_its_seconds(tmp_path: Path) -> None:
    def twice(subject: object) -> Iterator[Measure]:
        yield from met(subject)
        yield from met(subject)

    first, second = run_group(Group("g", (AcceptanceRow("a", twice),)), tmp_path, tmp_path)
    assert first.seconds > 0 == second.seconds
    assert first.status is second.status is RowStatus.PASSED
