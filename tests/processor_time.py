"""Default tests are cheap: a test fails if it takes more processor time than it may, whatever the clock says.

Counted are the set-up of a test's own fixtures and its call, in this process and in the children that end
meanwhile. What is shared counts for no test: fixtures of a wider scope, and what a child took before the test began.
Slow tests may take what they need.

Limits are seconds of a machine that does the reference work in `REFERENCE_SECONDS`. A machine that shares its cores
with others takes up to three times as long at times; a test that is over its limit has as much longer.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import sys
import time
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
"""How many times as much processor time a test may take beside other work, which shares caches and cores."""

REFERENCE_SECONDS = 0.1
"""Processor seconds of the reference work on the machine of the limits."""

IMPORT = 0.01
"""Seconds of processor time that a test has on top for each module which it is the first to import here: sentence-
transformers and what it needs are 3,700 modules, which take from 7 s on."""

_LOOK_SECONDS = 1.0
"""How often children are looked at: often enough for the limits, seldom enough for thousands of tests."""

_shared = 0.0
"""The processor seconds that the set-up of shared fixtures took so far."""

_known: tuple[float, dict[int, float]] = float("-inf"), {}
"""When children were looked at, and the processor seconds of each."""

_BEGAN = pytest.StashKey["Stopwatch"]()


class Stopwatch:
    """Measures processor seconds from when it is made."""

    def __init__(self) -> None:
        self._began = _seconds_so_far()
        self._shared = _shared
        self._modules = len(sys.modules)
        self._children = _known_children()

    def seconds(self) -> float:
        """The processor seconds of this process, and of children that have ended, but for shared fixtures."""
        return _seconds_so_far() - self._began - (_shared - self._shared)

    def seconds_before(self) -> float:
        """Those that are counted in `seconds` though children took them before."""
        return sum(self._children[process] for process in self._children.keys() - set(_children()))

    def seconds_of_imports(self) -> float:
        """Those that the import of libraries explains."""
        return IMPORT * max(0, len(sys.modules) - self._modules)


def _seconds_so_far() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _known_children() -> dict[int, float]:
    """The processor seconds of each child, some of them as they were a moment ago."""
    global _known
    if time.monotonic() > _known[0] + _LOOK_SECONDS:
        _known = time.monotonic(), {process: _seconds_of(process) for process in _children()}
    return _known[1]


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


def slowness() -> float:
    """How many times as long as the machine of the limits this one takes for the reference work; at least 1."""
    return max(1.0, statistics.median(_reference_seconds() for _ in range(3)) / REFERENCE_SECONDS)


def _reference_seconds() -> float:
    began = time.process_time()
    ranks = {str(number): number * 7919 % 10007 for number in range(200_000)}
    sorted(ranks, key=lambda name: ranks[name])
    return time.process_time() - began


def limit_of(item: pytest.Item) -> float:
    """The processor seconds that a test may take on an idle machine."""
    if item.get_closest_marker("slow") or (DEEP and item.get_closest_marker("deep")):
        return float("inf")
    return END_TO_END_LIMIT if item.get_closest_marker("end_to_end") else LIMIT


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Count what a shared fixture takes, for no test."""
    global _shared
    if fixturedef.scope == "function":
        return (yield)
    shared, began = _shared, _seconds_so_far()
    result = yield
    _shared = shared + _seconds_so_far() - began  # those that it asked for are part of it
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to count."""
    item.stash[_BEGAN] = Stopwatch()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test fail that took more than it may."""
    result = yield
    watch, limit = item.stash[_BEGAN], limit_of(item)
    seconds = watch.seconds()
    if seconds > NOISE * limit and (seconds := seconds - watch.seconds_before()) > slowness() * (
        NOISE * limit + watch.seconds_of_imports()
    ):
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
