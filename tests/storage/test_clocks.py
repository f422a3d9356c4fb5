"""Hosts whose clocks are wrong agree about a lease, by the clock of the store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from indexmill.errors import LeaseLost
from storage.clock import clock_of, from_timestamp
from storage.lease import DURATION, MARGIN, acquire, holding
from storage.processes import Process
from storage.protocol import Store
from storage.stores import init_store

HOUR = 3600.0
ELSEWHERE = Process(host="another-machine", space="boot pid:[1]", pid=7, started="5")


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, quick: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick / "cache"))
    return init_store(quick / "store" if request.param == "folder" else f"memory://{quick.name}")


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """Let this host's clock be wrong."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_lease_says_when_it_ends_by_the_clock_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    set_clock(monkeypatch, ahead)
    with acquire(store, "one") as lease:
        lease.renew()
        current = holding(store)
        assert current is not None
        assert abs(from_timestamp(current.expires) - store.now() - DURATION) < 5.0


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_live_lease_is_not_taken_over_by_a_host_whose_clock_is_wrong(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    acquire(store, "far", process=ELSEWHERE)
    set_clock(monkeypatch, ahead)
    with pytest.raises(LeaseLost, match="another-machine"):
        acquire(store, "near")


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_dead_lease_is_taken_over_by_a_host_whose_clock_is_wrong(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    acquire(store, "far", process=ELSEWHERE, duration=-MARGIN - 5.0)
    set_clock(monkeypatch, ahead)
    with acquire(store, "near") as lease:
        assert lease.epoch == 2


def test_setting_the_clock_of_a_host_does_not_change_that_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_of(store)
    before = clock()
    set_clock(monkeypatch, HOUR)
    assert 0.0 <= clock() - before < 60.0
