"""Default tests are cheap: a test fails if it takes more processor time than it may, whatever the clock says.

Counted are the call of a test and the set-up of its own fixtures, in this process and in the children that end
meanwhile. What is shared counts for no test: fixtures of a wider scope, and what a child took before the test began.
Slow tests may take what they need.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deep import DEEP

LIMIT = 1.0
"""Seconds of processor time of a default test."""

END_TO_END_LIMIT = 30.0
"""Seconds of processor time of a test marked `end_to_end`: real commands, with Prefect's server and Dask's workers."""

MOST_END_TO_END = 15
"""How many of these the default run has at most."""

NOISE = 3.0
"""How many times as much processor time a test may take beside other work, which shares caches and cores, and where it
is the first to import a library: spaCy takes two seconds."""

_FIXTURES = pytest.StashKey[float]()
"""The processor seconds that the set-up of a test's own fixtures took."""

_shared = 0.0
"""The processor seconds that the set-up of shared fixtures took so far."""


class Stopwatch:
    """Measures processor seconds from when it is made."""

    def __init__(self) -> None:
        self._began = _seconds_so_far()
        self._children = {process: _seconds_of(process) for process in _children()}

    def seconds(self) -> float:
        """The processor seconds of this process, and of children that have ended, since then."""
        before = sum(self._children[process] for process in self._children.keys() - set(_children()))
        return _seconds_so_far() - self._began - before


def _seconds_so_far() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _children() -> list[int]:
    """The ids of the children of all threads; psutil would look through all processes of the machine."""
    processes: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            processes += map(int, thread.read_text().split())
    return processes


def _seconds_of(process: int) -> float:
    try:
        times = psutil.Process(process).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def limit_of(item: pytest.Item) -> float:
    """The processor seconds that a test may take on an idle machine."""
    if item.get_closest_marker("slow") or (DEEP and item.get_closest_marker("deep")):
        return float("inf")
    return END_TO_END_LIMIT if item.get_closest_marker("end_to_end") else LIMIT


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Count what a fixture takes for the test, or for none if it is shared."""
    global _shared
    watch = Stopwatch()
    result = yield
    seconds = watch.seconds()
    if fixturedef.scope == "function":
        request.node.stash[_FIXTURES] = request.node.stash.get(_FIXTURES, 0.0) + seconds
    else:
        _shared += seconds
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test fail that took more than it may."""
    watch, before = Stopwatch(), _shared
    result = yield
    seconds = item.stash.get(_FIXTURES, 0.0) + watch.seconds() - (_shared - before)
    limit = limit_of(item)
    if seconds > NOISE * limit:
        pytest.fail(
            f"took {seconds:.1f} s of processor time; a default test may take {limit:.0f} s ({NOISE * limit:.0f} s "
            "beside other work): make it cheaper, share a fixture of a wider scope, or mark it slow",
            pytrace=False,
        )
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse more end-to-end tests in the default run than it has time for."""
    end_to_end = [item for item in items if limit_of(item) == END_TO_END_LIMIT]
    if len(end_to_end) > MOST_END_TO_END:
        names = "\n".join(item.nodeid for item in end_to_end)
        raise pytest.UsageError(f"the default run has at most {MOST_END_TO_END} end-to-end tests; marked are\n{names}")
