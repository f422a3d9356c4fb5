"""Default tests are cheap: a test fails if it takes more processor time than it may, whatever the clock says.

Counted are its own process and the children that ended while it ran, from its first fixture to its last. Fixtures of a
wider scope are shared, and count for no test. Slow tests may take what they need.
"""

from __future__ import annotations

import resource
from collections.abc import Generator
from typing import Any

import pytest

LIMIT = 1.0
"""Seconds of processor time of a default test."""

END_TO_END_LIMIT = 30.0
"""Seconds of processor time of a test marked `end_to_end`: real commands, with Prefect's server and Dask's workers."""

MOST_END_TO_END = 15
"""How many of these the default run has at most."""

NOISE = 2.0
"""How many times as much processor time the same work may take beside other work, which shares caches and cores."""

_BEGAN = pytest.StashKey[float]()

_shared = 0.0
"""The processor seconds that shared fixtures took so far."""


def processor_seconds() -> float:
    """The processor seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def limit_of(item: pytest.Item) -> float:
    """The most processor seconds of a test."""
    if item.get_closest_marker("slow") is not None:
        return float("inf")
    return NOISE * (END_TO_END_LIMIT if item.get_closest_marker("end_to_end") else LIMIT)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Count what a shared fixture takes, with those that it needs."""
    global _shared
    began, before = processor_seconds(), _shared
    result = yield
    if fixturedef.scope != "function":
        _shared = before + processor_seconds() - began
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what had been taken before a test begins."""
    item.stash[_BEGAN] = processor_seconds() - _shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what a test took to its report, and let it fail where that is too much."""
    report = yield
    if call.when == "teardown" and _BEGAN in item.stash:
        seconds = processor_seconds() - _shared - item.stash[_BEGAN]
        report.user_properties.append(("processor_seconds", round(seconds, 3)))
        if report.passed and seconds > limit_of(item):
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} took {seconds:.1f} s of processor time; a default test may take "
                f"{limit_of(item) / NOISE:.0f} s ({limit_of(item):.0f} s beside other work): make it cheaper, share a "
                "fixture of a wider scope, or mark it slow"
            )
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse more end-to-end tests in the default run than it has time for."""
    end_to_end = [item for item in items if item.get_closest_marker("end_to_end") and limit_of(item) < float("inf")]
    if len(end_to_end) > MOST_END_TO_END:
        names = "\n".join(item.nodeid for item in end_to_end)
        raise pytest.UsageError(f"the default run has at most {MOST_END_TO_END} end-to-end tests; marked are\n{names}")
