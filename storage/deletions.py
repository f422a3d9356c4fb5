"""Removing blobs and receipts beside runs that may have been asleep: set aside, announce, look again, remove.

    aside/<epoch>.<n>.json      what collections found that nothing needs, since when; only the last record counts
    removing/<epoch>.<n>.json   what the holder of a lease is removing at this moment; gone when it has ended

**What can go wrong.** A store promises create-if-absent, get, list and delete, and the lease says who may write. But a
process can stop for any time between its last look at anything and what it does next: a collection before it deletes a
blob, a writer before it creates its ref. Meanwhile its lease runs out and another run does its work. No record fences a
delete, and none fences a create. So both sides announce what they do before they look:

    the remover                                     the writer
    1. creates a `removing` record of some names    1. refuses where a `removing` record names a blob it needs
    2. looks at the lease, and for new versions     2. looks at its blobs and the lease, creates the ref
    3. deletes them                                 3. looks for `removing` records of later leases
    4. deletes its record; again from 1             4. looks whether all its blobs are there

A ref is thus the record by which a writer claims blobs, and a remover is bound to see it: of any two, at least one
sees the other. Let a remover hold epoch g and a writer epoch w.

- g < w, the remover was asleep. It deletes only what it announced before it looked at the lease, and it saw no epoch w
  then. So its record was there before the writer began, and is there at the writer's step 1, or what it removed is
  missing at step 2. Either way nothing is published. What it announces after w was taken it does not delete: it sees w.
- g > w, the writer was asleep, between its last look at the lease and its ref at the worst. If the remover's step 2
  came after the ref, it sees the version and deletes nothing. Otherwise its record was there before the ref, and at the
  writer's step 3 it is still there, or the remover has ended and step 4 finds what is missing. The writer puts back
  what it has in memory, manifest and lineage: from here on every remover sees the ref. What else is missing was in its
  scratch folder, which the taker of the lease has swept. So it withdraws the version (`refs/removed/`, reason
  `incomplete`), and readers have the one before. That one is still there: no version is removed because of a newer
  one that lacks a blob, or whose run is not over.

**Who has died.** A record in `removing/` counts until its run is over: it gave its lease back, which is after its last
delete, or its process is known to be dead, or, on another machine, its lease ran out `STALE` ago. The last is the one
place that trusts time. A remover that has been asleep looks at the lease and for new versions again before it deletes
anything more, so what is left to chance is a single delete. A killed remover's record is deleted by the next.

A writer that dies between its ref and its look leaves a version that may lack blobs: `verify` says so, and the next
build makes them again.

**Setting aside** makes such meetings rare, and leaves readers of a removed version some time. One collection writes
down what nothing needs, a later one removes what still nothing needs, `STALE` after that at the earliest. Nobody has to
note that a name is used again. A ref, a run that may be taken up again or a new modification time makes the next
collection leave the name out of its record; set aside again, its time begins anew. So does a time in the future: a
clock was wrong. Safety needs no clock here: where clocks are hours apart, names are removed sooner or later than they
should. There is one record, and it has only names that are still there.

Forgetting announces and looks in the same way, and does not wait.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from indexmill.errors import LeaseLost, NotFound, StoreError
from indexmill.store.layout import aside_name, aside_prefix, blob_path, removing_name, removing_prefix
from indexmill.store.record import Name, Record, Timestamp, Word
from storage import refs
from storage.clock import Clock, timestamp
from storage.lease import Lease, at_work
from storage.protocol import Store
from storage.records import find_record, get_record

_TOGETHER = 64  # names that are announced at once, between two looks at the lease

_LOOK_AGAIN = 60.0  # seconds after which the next deletion needs another look, as after a sleep

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
    """The names that are set aside; a damaged record counts as none."""
    for newest in store.list(aside_prefix())[-1:]:
        if (record := find_record(store, newest, _Aside)) is not None:
            return {name: Since(group.since, group.run_id) for group in record.groups for name in group.names}
    return {}


def replace_set_aside(store: Store, lease: Lease, names: Mapping[str, Since]) -> None:
    """Write the names that are set aside from now on to a new record, which replaces all earlier ones."""
    before = [name for name in store.list(aside_prefix()) if name < aside_name(lease.epoch + 1, 0)]
    groups: dict[Since, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(names[name], []).append(name)
    if groups:
        made = tuple(_Group(since=one.time, run_id=one.run_id, names=tuple(groups[one])) for one in sorted(groups))
        record = _Aside(run_id=lease.run_id, created=timestamp(lease.clock()), groups=made)
        _create(store, aside_prefix(), aside_name, lease.epoch, record)
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
    """Announce and delete some names in their order, in batches; returns the deleted names.

    seen: the highest version that the caller knew when it chose the names; if another exists by now, nothing more is
    deleted and LeaseLost is raised, as it is if the lease is lost. spare: True keeps a name; called just before its
    deletion.
    """
    removed = []
    for start in range(0, len(names), _TOGETHER):
        together = tuple(names[start : start + _TOGETHER])
        record = _Removing(run_id=lease.run_id, created=timestamp(lease.clock()), names=together)
        announced = _create(store, removing_prefix(), removing_name, lease.epoch, record)
        try:
            looked = -math.inf
            for name in together:
                if lease.clock() - looked > _LOOK_AGAIN:
                    looked = lease.clock()
                    _look_again(store, lease, seen)
                if not spare(name):
                    store.delete(name)
                    removed.append(name)
        finally:
            with contextlib.suppress(StoreError):  # it counts no longer than the lease
                store.delete(announced)
    return removed


def _look_again(store: Store, lease: Lease, seen: int) -> None:
    lease.check()
    latest = refs.last_version(store)
    if latest != seen:
        raise LeaseLost(
            f"run {refs.read(store, latest).run_id} published version {latest} of {store.url} while this run looked "
            "for what to remove, and nothing more was removed: run the same command again"
        )


def check_unannounced(store: Store, digests: Collection[str], clock: Clock, *, after: int = 0) -> None:
    """Raise LeaseLost if a run that is not over may be removing one of these blobs; `after`: of later epochs only."""
    announced = {name: epoch for name in store.list(removing_prefix()) if (epoch := _place(name)[0]) > after}
    if not announced:
        return
    needed = set(map(blob_path, digests))
    for holding in at_work(store, clock(), set(announced.values())):
        for name in [name for name, epoch in announced.items() if epoch == holding.epoch]:
            with contextlib.suppress(NotFound):  # it has just ended
                record = get_record(store, name, _Removing)
                if found := sorted(needed.intersection(record.names)):
                    raise LeaseLost(
                        f"run {holding.run_id} ({holding.holder}) may still be removing {store.url}/{found[0]}, which "
                        "the new version needs: wait until it has ended, or end it, and run again"
                    )


def check_alone(store: Store, lease: Lease) -> None:
    """Raise LeaseLost, naming it, if a run before this one may still be at work, though it lost its lease."""
    others = [one for one in at_work(store, lease.clock()) if one.epoch != lease.epoch]
    if others:
        raise LeaseLost(
            f"{others[0].holder} of run {others[0].run_id} never gave back its lease of {store.url}, which ran out at "
            f"{others[0].expires}, and may still write: nothing was removed. End it, or leave out --now: what is set "
            "aside is removed by a later gc"
        )


def sweep(store: Store, clock: Clock) -> None:
    """Delete the announcements of runs that are over."""
    epochs = {name: _place(name)[0] for name in store.list(removing_prefix())}
    working = {one.epoch for one in at_work(store, clock(), set(epochs.values()))}
    for name, epoch in epochs.items():
        if epoch not in working:
            store.delete(name)


def _create(store: Store, prefix: str, named: Callable[[int, int], str], epoch: int, record: Record) -> str:
    """Create a record under the next number of an epoch; returns its name."""
    number = max((number for other, number in map(_place, store.list(prefix)) if other == epoch), default=0) + 1
    name = named(epoch, number)
    if not store.create(name, record.to_bytes()):
        raise StoreError(f"{store.url}/{name} was there at this moment: run the same command again")
    return name


def _place(name: str) -> tuple[int, int]:
    """The epoch and the number in the name of a record; zeros for any other name."""
    matched = _NUMBERED.fullmatch(name.rpartition("/")[2])
    return (int(matched[1]), int(matched[2])) if matched else (0, 0)
