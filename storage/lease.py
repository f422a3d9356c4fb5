"""The lease: one run writes to a store at a time.

A run takes the lease by creating the record of the next epoch. The holder renews it from a thread, and commits only
while no higher epoch exists; so a holder that was cut off notices it before it publishes. A lease is free when it was
released, when its process is known to be dead (same machine), or when it expired and a margin has passed.

Every machine uses the clock of the store (`clock_of`), so their own clocks may differ by any amount. Time decides how
long others wait, never who may publish: a holder that was suspended sees the higher epoch, whatever its clock says.

    leases/<epoch>.json               the lease, with its holder
    leases/<epoch>.<n>.json           renewals: the newest says when it expires
    leases/<epoch>.released.json      released
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field

from indexmill.errors import CorruptBlob, IndexmillError, LeaseLost, NotFound, StoreError
from indexmill.store.layout import LEASES, lease_name, release_name, renewal_name
from indexmill.store.record import Record, Timestamp, Word
from storage.clock import Clock, clock_of, from_timestamp, timestamp
from storage.processes import Process, alive, this_process
from storage.protocol import Names, Store
from storage.records import find_record, get_record, numbered
from storage.refs import highest_epoch

DURATION = 120.0
"""The duration of a lease without a renewal, in seconds; it is renewed four times as often."""

MARGIN = 15.0
"""Seconds that others wait after the end of a lease: two machines read the store's clock with some error."""

STALE = 3600.0
"""Seconds after the end of its lease in which a run of another machine may still act on outdated data.

An active run checks its lease every few seconds, and renews it every 30; this is many times `DURATION` and `MARGIN`.
"""


class _Lease(Record):
    epoch: Annotated[int, Field(ge=1)]
    run_id: Word
    holder: Process
    acquired: Timestamp
    expires: Timestamp


class _Renewal(Record):
    run_id: Word
    expires: Timestamp


class _Release(Record):
    run_id: Word
    released: Timestamp


class Holding(_Lease):
    """The current or last lease, with the end that its newest renewal states."""

    released: bool

    def free(self, now: float) -> bool:
        """Return True if another run may take over the lease: its run has ended, or is `MARGIN` late to renew it."""
        return self._ended or now >= from_timestamp(self.expires) + MARGIN

    def over(self, now: float) -> bool:
        """Return True if its run can no longer act: it has ended or, on another machine, is `STALE` late to renew."""
        return self._ended or (alive(self.holder) is None and now >= from_timestamp(self.expires) + STALE)

    @property
    def _ended(self) -> bool:
        """True if its run released the lease, or is known to be dead."""
        return self.released or alive(self.holder) is False

    def __str__(self) -> str:
        return f"run {self.run_id} ({self.holder}) holds epoch {self.epoch} until {self.expires}"


def holding(store: Store) -> Holding | None:
    """Return the lease with the highest epoch, or None before the first; CorruptBlob if its record is damaged."""
    names = store.list(LEASES)
    epoch = max(numbered(names), default=0)
    return _holding(store, epoch, names) if epoch else None


def run_of(store: Store, epoch: int) -> str | None:
    """Return the run that took the lease of an epoch; None if its record is missing or damaged."""
    lease = find_record(store, lease_name(epoch), _Lease)
    return None if lease is None else lease.run_id


def at_work(store: Store, now: float, epochs: Container[int] | None = None) -> list[Holding]:
    """Return leases whose runs may still act on outdated data although they lost the lease.

    epochs: the epochs to check; None for all. Leases whose record is damaged or was just removed are skipped.
    """
    names = store.list(LEASES)
    there = set(names)
    holdings = []
    for epoch in numbered(names):
        if (epochs is None or epoch in epochs) and release_name(epoch) not in there:
            with contextlib.suppress(NotFound, CorruptBlob):
                holdings.append(_holding(store, epoch, names))
    return [holding for holding in holdings if not holding.over(now)]


def _holding(store: Store, epoch: int, names: Names) -> Holding:
    lease = get_record(store, lease_name(epoch), _Lease)
    stem = lease_name(epoch).removesuffix("json")
    expires = lease.expires
    for name in reversed(names):  # renewals sort by number; the newest may be removed by a newer one
        if name.startswith(stem) and name != release_name(epoch) and name != lease_name(epoch):
            with contextlib.suppress(NotFound, CorruptBlob):
                expires = max(expires, get_record(store, name, _Renewal).expires)
                break
    fields = {**dict(lease), "epoch": epoch, "expires": expires}
    return Holding(**fields, released=release_name(epoch) in names)


def acquire(
    store: Store,
    run_id: str,
    *,
    clock: Clock | None = None,
    duration: float = DURATION,
    process: Process | None = None,
) -> Lease:
    """Take the lease for a run, and remove unfinished files of dead runs. clock: by default the store's.

    Use it as a context manager: inside, a thread renews the lease; at the end it is released. Raises LeaseLost,
    naming the holder and the end of its lease, if another run holds it.
    """
    process = process or this_process()
    clock = clock or clock_of(store)
    while True:
        current = holding(store)
        now = clock()
        if current is not None and not current.free(now):
            raise LeaseLost(
                f"another run is writing to {store.url}: {current}; wait for it to end (a run that died on another "
                f"machine is taken over {MARGIN:g} seconds after that time)"
            )
        lease = _Lease(
            epoch=(current.epoch if current is not None else 0) + 1,
            run_id=run_id,
            holder=process,
            acquired=timestamp(now),
            expires=timestamp(now + duration),
        )
        if store.create(lease_name(lease.epoch), lease.to_bytes()):
            store.sweep(now, keep=run_id)
            return Lease(store, lease.epoch, run_id, clock, duration)


class Lease:
    """A lease that this process holds."""

    def __init__(self, store: Store, epoch: int, run_id: str, clock: Clock, duration: float) -> None:
        self.store, self.epoch, self.run_id, self.clock = store, epoch, run_id, clock
        self._duration = duration
        self._renewals = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._lost: LeaseLost | None = None
        self._thread: threading.Thread | None = None
        self._on_lost: Callable[[], None] | None = None

    def check(self) -> None:
        """Raise LeaseLost unless this is still the newest lease; call it before anything is published."""
        if self._lost is None and (latest := highest_epoch(self.store)) > self.epoch:
            with contextlib.suppress(StoreError):
                current = holding(self.store)
                self._lost = LeaseLost(
                    f"another run took over the lease of {self.store.url} from run {self.run_id} (epoch {self.epoch}): "
                    f"{current}; nothing more is published by this run"
                )
            if self._lost is None:
                self._lost = LeaseLost(
                    f"epoch {latest} of {self.store.url} has followed epoch {self.epoch} of this run"
                )
        if self._lost is not None:
            raise self._lost

    def renew(self) -> None:
        """Extend the lease to `duration` from now; LeaseLost if another run has taken it over."""
        with self._lock:
            self.check()
            if self._ended.is_set():
                return
            expires = self.clock() + self._duration
            renewal = _Renewal(run_id=self.run_id, expires=timestamp(expires))
            self.store.create(renewal_name(self.epoch, self._renewals + 1), renewal.to_bytes())
            self._renewals += 1
            if self._renewals > 1:
                self.store.delete(renewal_name(self.epoch, self._renewals - 1))
            self.check()

    def start(self, on_lost: Callable[[], None] | None = None) -> None:
        """Renew from a thread until the lease is released or lost; the latest `on_lost` is called from that thread."""
        self._on_lost = on_lost or self._on_lost
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._keep, name=f"lease {self.epoch} of {self.store.url}", daemon=True
            )
            self._thread.start()

    def _keep(self) -> None:
        while not self._ended.wait(self._duration / 4):
            try:
                self.renew()
            except LeaseLost:
                if self._on_lost is not None:
                    self._on_lost()
                return
            except IndexmillError:
                continue  # a full disk, or a network share that is offline: try again until another run takes over

    def release(self) -> None:
        """Remove the run's scratch folder and release the lease; harmless if it was lost or released before."""
        already = self._ended.is_set()
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if already:
            return
        with contextlib.suppress(StoreError):
            self.store.drop_scratch(self.run_id)
        record = _Release(run_id=self.run_id, released=timestamp(self.clock()))
        with self._lock, contextlib.suppress(StoreError):  # without the record, the lease expires
            self.store.create(release_name(self.epoch), record.to_bytes())
            if self._renewals:
                self.store.delete(renewal_name(self.epoch, self._renewals))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
