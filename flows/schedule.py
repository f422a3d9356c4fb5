"""The nightly run on one machine: a process that starts `indexmill build` whenever a schedule comes due.

Each run is a separate process with its own Prefect server, so that no state carries over to the next run. If a run
takes longer than the schedule's interval, the runs due meanwhile are skipped. After the machine slept, one run makes up
for all missed ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import FrameType

from flows.interrupt import handling_signals
from indexmill.errors import BadInput
from indexmill.text.durations import TIMESTAMPS, stamp
from storage.clock import Clock

_INTERVAL = 20.0
"""Seconds between two checks of the clock, which may be set, or stop while the machine sleeps."""


def next_run(cron: str, timezone: str, after: float) -> datetime:
    """Return the next time a schedule is due after a given time (seconds since 1970); BadInput if it is invalid."""
    from prefect.server.schemas.schedules import CronSchedule

    try:
        schedule = CronSchedule(cron=cron, timezone=timezone)
        (due,) = asyncio.run(schedule.get_dates(1, start=datetime.fromtimestamp(after + 1, UTC)))
    except ValueError as error:
        raise BadInput(
            f"--cron {cron!r} --timezone {timezone!r}: invalid schedule: expected five fields, as in '0 2 * * *', and "
            "a zone, as in 'Europe/Berlin'"
        ) from error
    return due


def serve(
    command: Sequence[str],
    cron: str,
    timezone: str,
    *,
    tell: Callable[[str], None],
    clock: Clock = time.time,
    interval: float = _INTERVAL,
) -> None:
    """Run a command whenever the schedule comes due, until SIGTERM or Ctrl-C.

    Either signal terminates a run at work; `serve` returns when that run has ended. `tell` is called with lines about
    the runs. These lines and the messages of the runs begin with the time.
    """

    def say(line: str) -> None:
        tell(f"{stamp(clock)} {line}")

    due = next_run(cron, timezone, clock())
    say(f"next run at {due:%Y-%m-%d %H:%M %Z}")
    stop = _Stop()
    with handling_signals(stop):
        while not stop.came.wait(interval):
            if clock() < due.timestamp():
                due = min(due, next_run(cron, timezone, clock()))  # the clock was set back
                continue
            say("the run begins")
            code = stop.run(command)
            due = next_run(cron, timezone, clock())
            then = "the schedule ends" if stop.came.is_set() else f"next run at {due:%Y-%m-%d %H:%M %Z}"
            say(f"the run ended with exit code {code}; {then}")


class _Stop:
    """The handler of SIGTERM and Ctrl-C, which terminates the run at work."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came.set()
        if self._process is not None:
            self._process.terminate()

    def run(self, command: Sequence[str]) -> int:
        # Ctrl-C reaches every process of a terminal; in its own session, the run gets it from this process only.
        environment = {**os.environ, TIMESTAMPS: "1"}
        self._process = subprocess.Popen(command, start_new_session=True, env=environment)  # noqa: S603 - ours
        if self.came.is_set():
            self._process.terminate()
        try:
            return self._process.wait()
        finally:
            self._process = None
