"""The list of runs, on terminals of any width."""

from __future__ import annotations

import dataclasses
from typing import Any

from flows.build_run import BuildOutcome
from flows.command.build import outcome_lines
from flows.command.runs import described, listing
from indexmill.text.terminal import TerminalStyle, display_width

CAUSE = "corpus of 7 documents is smaller than version 3 by more than gates.max_shrink\nallows"


def run(number: int, **more: Any) -> dict[str, Any]:
    return {
        "run": f"20260301T02000{number}000Z-0000000{number}",
        "started": f"2026-03-01T02:00:0{number}.123Z",
        "command": "build",
        "state": "published",
        "version": number,
        "seconds": 192.4,
        "quarantined": 0,
        "error": None,
        **more,
    }


RUNS = [run(1), run(2, state="refused", version=None, error=CAUSE), run(3, command="gc", state="killed", seconds=None)]


def test_a_wide_terminal_and_a_pipe_have_the_cause_in_a_column() -> None:
    header, first, refused, killed = listing(RUNS).splitlines()
    assert header.split() == ["run", "started", "(UTC)", "command", "state", "version", "duration", "cause"]
    assert first.endswith("2026-03-01 02:00:01  build    published        1  3 min 12 s")
    assert refused.endswith(CAUSE.replace("\n", " "))  # whole, on one line
    assert killed.split()[3:6] == ["gc", "killed", "3"]
    assert "..." not in refused
    cut = listing(RUNS, 140).splitlines()
    assert max(map(display_width, cut)) <= 140
    assert cut[2].endswith("…")


def test_a_narrow_terminal_has_the_cause_in_a_line_of_its_own() -> None:
    lines = listing(RUNS, 100).splitlines()
    assert lines[3] == f"    {CAUSE.replace(chr(10), ' ')}"
    assert listing(RUNS, 60).splitlines()[3] == "    corpus of 7 documents is smaller than version 3 by more…"
    coloured = listing(RUNS, 100, TerminalStyle(colours=True)).splitlines()
    assert coloured[0] == f"\x1b[1m{lines[0]}\x1b[0m"
    assert coloured[3] == f"\x1b[2m{lines[3]}\x1b[0m"


def test_refused_rows_have_a_column_where_there_are_any() -> None:
    assert "refused" not in listing([run(1)])
    header, line = listing([run(1, quarantined=1_234)]).splitlines()
    assert header.endswith("duration  refused")
    assert line.endswith("3 min 12 s    1,234")


def test_a_store_without_runs_has_a_header_alone() -> None:
    assert listing([]) == "run  started (UTC)  command  state  version  duration"


def test_the_stages_of_a_run_fit_a_terminal_and_leave_out_what_is_zero() -> None:
    facts = dict.fromkeys(("exit_code", "parent", "candidate", "ended", "plan"))
    counts = {"parts_made": 123, "wall_seconds": 234.56, "seconds": 2345.67, "bytes_made": 10**9}
    more = {"quarantined": 1234, "vectors_made": 123_456, "vectors_reused": 123_456}
    for told, titles in ((counts, "size"), (counts | more, "size  vectors   copied")):
        *_, table = described(run(1, **facts, stages={"lsh_summaries": told}, totals=told))
        assert table.splitlines()[0].split("size")[1].split() == titles.split()[1:]
        assert max(map(display_width, table.splitlines())) <= 80
    assert "reused  refused" in table


def test_the_end_of_a_build_tells_its_time_as_the_list_of_runs_does() -> None:
    counts = {field.name: 0 for field in dataclasses.fields(BuildOutcome)}
    told = {"manifest": "", "run": "", "quality": None, "published": True, "version": 1, "seconds": 192.4}
    outcome = BuildOutcome(**{**counts, **told})  # type: ignore[arg-type]
    assert list(outcome_lines(outcome))[1].endswith("; 3 min 12 s")


def test_a_run_is_described_with_its_warnings() -> None:
    facts = dict.fromkeys(("exit_code", "parent", "candidate", "ended", "plan"))
    told = {"stages": {}, "warnings": ["a.txt changed\nwhile it was read"], "warnings_left_out": 2}
    lines = list(described(run(1, **facts, **told)))
    assert lines[-2:] == ["warning: a.txt changed while it was read", "2 more warnings were not recorded"]
    assert "duration: 3 min 12 s" in lines
