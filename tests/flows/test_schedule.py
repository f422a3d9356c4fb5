"""The schedule of one machine: due times, runs one at a time, clocks that jump, signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.schedule import next_run, serve
from indexmill.errors import BadInput

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC


class FalseClock:
    """A clock that moves on by a step whenever it is looked at, and may be set."""

    def __init__(self, *steps: float) -> None:
        self.now, self.steps = NOON, list(steps)

    def __call__(self) -> float:
        self.now += self.steps.pop(0) if self.steps else 0.0
        return self.now


@pytest.mark.parametrize(
    ("cron", "timezone", "due"),
    [
        ("0 2 * * *", "UTC", "2026-01-02T02:00:00+00:00"),
        ("0 2 * * *", "Europe/Berlin", "2026-01-02T02:00:00+01:00"),
        ("*/5 * * * *", "UTC", "2026-01-01T12:05:00+00:00"),
        ("0 12 * * 1", "UTC", "2026-01-05T12:00:00+00:00"),
    ],
)
def test_a_schedule_comes_due(cron: str, timezone: str, due: str) -> None:
    assert next_run(cron, timezone, NOON).isoformat() == due


def test_the_night_without_two_o_clock_has_its_run_all_the_same() -> None:
    before = 1_774_742_400.0  # 2026-03-29 00:00 UTC, an hour before Berlin's clocks go from 2 to 3
    assert before < next_run("30 2 * * *", "Europe/Berlin", before).timestamp() < before + 86_400


@pytest.mark.parametrize(("cron", "timezone"), [("nightly", "UTC"), ("61 * * * *", "UTC"), ("0 2 * * *", "Mars/Base")])
def test_what_is_no_schedule_is_refused(cron: str, timezone: str) -> None:
    with pytest.raises(BadInput, match="five fields"):
        next_run(cron, timezone, NOON)


def served(tmp_path: Path, clock: FalseClock, runs: int) -> list[str]:
    """What a schedule tells that is ended after so many runs of a command that leaves a line."""
    told: list[str] = []
    log = tmp_path / "log"

    def tell(line: str) -> None:
        told.append(line)
        if len(told) > 2 * runs:  # that it begins and how it ended, after the line about the first
            os.kill(os.getpid(), signal.SIGTERM)

    script = f"open({str(log)!r}, 'a').write('ran\\n')"
    serve([sys.executable, "-c", script], "0 2 * * *", "UTC", tell=tell, clock=clock, interval=0.01)
    assert log.read_text() == "ran\n" * runs
    return told


def test_one_run_makes_up_for_all_that_were_missed(tmp_path: Path) -> None:
    day = 86_400.0
    told = served(tmp_path, FalseClock(0.0, 0.0, 60.0, 60.0, 3 * day), runs=1)
    assert told == [
        "2026-01-01T12:00:00Z next run at 2026-01-02 02:00 UTC",
        "2026-01-04T12:02:00Z the run begins",
        "2026-01-04T12:02:00Z the run ended with exit code 0; next run at 2026-01-05 02:00 UTC",
    ]


def test_a_run_is_asked_to_put_the_time_before_its_lines(tmp_path: Path) -> None:
    script = f"import os; open({str(tmp_path / 'asked')!r}, 'w').write(os.environ['INDEXMILL_TIMESTAMPS'])"
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if "ended" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    clock = FalseClock(0.0, 0.0, 86_400.0)
    serve([sys.executable, "-c", script], "0 2 * * *", "UTC", tell=tell, clock=clock, interval=0.01)
    assert (tmp_path / "asked").read_text() == "1"


def test_a_clock_set_back_brings_the_next_run_nearer(tmp_path: Path) -> None:
    clock = FalseClock(0.0, 0.0, -30 * 86_400.0, 0.0, 86_400.0)
    told = served(tmp_path, clock, runs=1)
    assert told[2].endswith("next run at 2025-12-04 02:00 UTC")


def test_a_run_at_work_is_told_to_end_and_waited_for(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(130)))\n"
        f"open({str(ready)!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    told: list[str] = []

    def end() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    clock = FalseClock(0.0, 0.0, 86_400.0)
    serve([sys.executable, "-c", script], "0 2 * * *", "UTC", tell=told.append, clock=clock, interval=0.01)
    assert told[-1] == "2026-01-02T12:00:00Z the run ended with exit code 130; the schedule ends"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
