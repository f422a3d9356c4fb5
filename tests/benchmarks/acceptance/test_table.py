"""The table of the acceptance run, and what its exit code says."""

from __future__ import annotations

import pytest

from benchmarks.acceptance.table import ResultLine, RowStatus, exit_code, markdown, to_json

LINES = [
    ResultLine("2wiki: build", RowStatus.PASSED, "600 documents", "600", 61.4, 99.6),
    ResultLine("2wiki: recall of fused", RowStatus.FAILED, "0.5 | 0.6", "0.9"),
    ResultLine("later: languages", RowStatus.NOT_RUN, "comes with\nthe work on languages"),
]


def test_a_line_a_row_and_the_counts_below() -> None:
    assert list(markdown(LINES)) == [
        "| row | measured | floor | | s | CPU s |",
        "| --- | --- | --- | --- | ---: | ---: |",
        "| 2wiki: build | 600 documents | 600 | passed | 61 | 100 |",
        "| 2wiki: recall of fused | 0.5 \\| 0.6 | 0.9 | **failed** |  |  |",
        "| later: languages | comes with the work on languages |  | not run |  |  |",
        "",
        "1 passed, 1 failed, 1 not run",
    ]


@pytest.mark.parametrize(("lines", "code"), [(LINES, 1), ([LINES[0], LINES[2]], 0), ([LINES[2]], 0), ([], 0)])
def test_only_a_failed_line_fails_the_run(lines: list[ResultLine], code: int) -> None:
    assert exit_code(lines) == code
    assert to_json(lines)["passed"] is not bool(code)


def test_json_has_every_line() -> None:
    row = to_json(LINES)["rows"][2]
    assert (row["row"], row["status"], row["seconds"]) == ("later: languages", "not run", 0.0)
