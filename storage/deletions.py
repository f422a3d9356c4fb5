"""Remove blobs and receipts safely, although suspended runs may continue: set aside, announce, check, remove.

    aside/<epoch>.<n>.json      unneeded names that collections found, with times; only the last record counts
    removing/<epoch>.<n>.json   names that the holder of a lease is removing now; deleted when it ends

**The race.** A store promises create-if-absent, get, list and delete, and the lease says who may write. But a process
can be suspended for any time between its last check and its next action: a collection before it deletes a blob, a
writer before it creates its ref. Meanwhile its lease expires and another run does its work. No record fences a delete,
and none fences a create. So both sides announce their actions before they check:

    the remover                                     the writer
    1. creates a `removing` record of some names    1. stops if a `removing` record names a blob it needs
    2. checks the lease and for new versions        2. checks its blobs and the lease, creates the ref
    3. deletes them                                 3. checks for `removing` records of later leases
    4. deletes its record; again from 1             4. checks that all its blobs exist

Thus a writer claims blobs by its ref, which every remover checks: of a remover and a writer, at least one sees the
other. Let a remover hold epoch g and a writer epoch w.

- g < w: the remover was suspended. It deletes only names that it announced before it checked the lease, when there was
  no epoch w. So its record existed before the writer began. At the writer's step 1 the record still exists, or the
  removed blobs are missing at step 2. Either way nothing is published. Names that it announces after w was taken are
  not deleted, because it sees w.
- g > w: the writer was suspended, at worst between its last check of the lease and its ref. If the remover's step 2
  came after the ref, it sees the version and deletes nothing. Otherwise its record existed before the ref. At the
  writer's step 3 the record still exists, or the remover has ended and step 4 finds what is missing. The writer
  restores the manifest and the lineage, which it has in memory: from now on every remover sees the ref. Other missing
  blobs were in its scratch folder, which the next holder of the lease has swept. So it withdraws the version
  (`refs/removed/`, reason `incomplete`), and readers open the previous one. That one still exists: no version is
  removed because of a newer one that lacks a blob, or whose run is not over.

**Dead runs.** A record in `removing/` counts until its run is over: it released its lease, which is after its last
delete, or its process is known to be dead, or, on another machine, its lease expired `STALE` ago. Only the last case
relies on time. A suspended remover checks the lease and for new versions again before it deletes anything more, so at
most one delete is unprotected. The next remover deletes the record of a killed remover.

A writer that dies between its ref and its check leaves a version that may lack blobs: `verify` reports it, and the next
build makes them again.

**Setting aside** makes such races rare, and gives readers of a removed version some time. One collection records the
names that nothing needs; a later one, at least `STALE` seconds afterwards, removes those that are still unneeded. A
name that is used again needs no note: a ref, a run that may be resumed or a new modification time makes the next
collection drop the name from its record. If it is set aside again, or its time is in the future, its wait starts again.
Safety does not depend on clocks here: if clocks are hours apart, names are removed sooner or later than they should be.
There is only one such record, and it contains only names that still exist.

Forgetting announces and checks in the same way, without a wait.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from indexmill.errors import LeaseLost, NotFound, StoreError
from indexmill.store.layout import ASIDE, REMOVING, aside_name, blob_path, removing_name
from indexmill.store.record import Name, Record, Timestamp, Word
from storage import refs
from storage.clock import Clock, timestamp
from storage.lease import Lease, at_work
from storage.protocol import Store
from storage.records import find_record, get_record

_TOGETHER = 64  # names that are announced at once, between two checks of the lease

_CHECK_AGAIN = 60.0  # seconds after which the next deletion needs another check, as after a suspension

_NUMBERED = re.compile(r"([0-9]{20})\.([0-9]{20})\.json")

_Names = Annotated[tuple[Name, ...], Field(strict=False)]


class Since(NamedTuple):
    """The time at which a name was set aside, and the run that did it."""

    time: str
    run_id: str


class _Group(Record):
    """The names that one run set aside at one time."""

    since: Timestamp
    run_id: Word
    names: _Names


class _Aside(Record):
    """The names that later collections may remove."""

    run_id: Word
    created: Timestamp
    groups: Annotated[tuple[_Group, ...], Field(strict=False)]


class _Removing(Record):
    """The names that a run is removing."""

    run_id: Word
    created: Timestamp
    names: _Names


def set_aside(store: Store) -> dict[str, Since]:
    """Return the names that are set aside; a damaged record counts as empty."""
    for newest in store.list(ASIDE)[-1:]:
        if (record := find_record(store, newest, _Aside)) is not None:
            return {name: Since(group.since, group.run_id) for group in record.groups for name in group.names}
    return {}


def replace_set_aside(store: Store, lease: Lease, names: Mapping[str, Since]) -> None:
    """Write the names set aside from now on to a new record, which replaces all earlier ones."""
    before = [name for name in store.list(ASIDE) if name < aside_name(lease.epoch + 1, 0)]
    groups: dict[Since, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(names[name], []).append(name)
    if groups:
        records = tuple(
            _Group(since=since.time, run_id=since.run_id, names=tuple(groups[since])) for since in sorted(groups)
        )
        record = _Aside(run_id=lease.run_id, created=timestamp(lease.clock()), groups=records)
        _create(store, ASIDE, aside_name, lease.epoch, record)
    for name in before:
        store.delete(name)


def remove(
    store: Store,
    lease: Lease,
    names: Sequence[str],
    *,
    seen: int,
    spare: Callable[[str], bool] = lambda name: False,
) -> list[str]:
    """Announce and delete names in order, in batches; returns the deleted names.

    seen: the highest version when the caller chose the names; if there is a newer one, nothing more is deleted and
    LeaseLost is raised, as it is if the lease is lost. spare: called just before a deletion; True keeps the name.
    """
    removed = []
    for start in range(0, len(names), _TOGETHER):
        together = tuple(names[start : start + _TOGETHER])
        record = _Removing(run_id=lease.run_id, created=timestamp(lease.clock()), names=together)
        announced = _create(store, REMOVING, removing_name, lease.epoch, record)
        try:
            checked = -math.inf
            for name in together:
                if lease.clock() - checked > _CHECK_AGAIN:
                    checked = lease.clock()
                    _check_again(store, lease, seen)
                if not spare(name):
                    store.delete(name)
                    removed.append(name)
        finally:
            with contextlib.suppress(StoreError):  # the announcement ends with the lease anyway
                store.delete(announced)
    return removed


def _check_again(store: Store, lease: Lease, seen: int) -> None:
    lease.check()
    latest = refs.last_version(store)
    if latest != seen:
        raise LeaseLost(
            f"run {refs.read(store, latest).run_id} published version {latest} of {store.url} while this run searched "
            "for data to remove, and nothing more was removed: run the same command again"
        )


def check_unannounced(store: Store, digests: Collection[str], clock: Clock, *, after: int = 0) -> None:
    """Raise LeaseLost if an unfinished run with an epoch above `after` may be removing one of these blobs."""
    announced = {name: epoch for name in store.list(REMOVING) if (epoch := _parse_name(name)[0]) > after}
    if not announced:
        return
    needed = set(map(blob_path, digests))
    for holding in at_work(store, clock(), set(announced.values())):
        for name in [name for name, epoch in announced.items() if epoch == holding.epoch]:
            with contextlib.suppress(NotFound):  # it has just ended
                record = get_record(store, name, _Removing)
                if conflicts := sorted(needed.intersection(record.names)):
                    raise LeaseLost(
                        f"run {holding.run_id} ({holding.holder}) may still be removing {store.url}/{conflicts[0]}, "
                        "which the new version needs: wait until it has ended, or end it, and run again"
                    )


def check_alone(store: Store, lease: Lease) -> None:
    """Raise LeaseLost, naming the run, if an earlier run that lost its lease may still be at work."""
    others = [holding for holding in at_work(store, lease.clock()) if holding.epoch != lease.epoch]
    if others:
        raise LeaseLost(
            f"{others[0].holder} of run {others[0].run_id} never released its lease of {store.url}, which expired at "
            f"{others[0].expires}, and may still write: nothing was removed. End it, or run without --now: a later gc "
            "removes what is set aside"
        )


def sweep(store: Store, clock: Clock) -> None:
    """Delete the announcements of runs that are over."""
    epochs = {name: _parse_name(name)[0] for name in store.list(REMOVING)}
    working = {holding.epoch for holding in at_work(store, clock(), set(epochs.values()))}
    for name, epoch in epochs.items():
        if epoch not in working:
            store.delete(name)


def _create(store: Store, prefix: str, named: Callable[[int, int], str], epoch: int, record: Record) -> str:
    """Create a record under the next number of an epoch, and return its name, which `named(epoch, number)` makes."""
    number = (
        max((number for of_epoch, number in map(_parse_name, store.list(prefix)) if of_epoch == epoch), default=0) + 1
    )
    name = named(epoch, number)
    if not store.create(name, record.to_bytes()):
        raise StoreError(f"{store.url}/{name} was created by another process just now: run the same command again")
    return name


def _parse_name(name: str) -> tuple[int, int]:
    """Return the epoch and the number in the name of a record; zeros for other names."""
    matched = _NUMBERED.fullmatch(name.rpartition("/")[2])
    return (int(matched[1]), int(matched[2])) if matched else (0, 0)
