"""Rolling back to an earlier version, and resuming builds afterwards.

A rollback writes two records under the lease: the hold, then the ref of a new version with the old manifest. A crash
between the two leaves a store on hold with its newest version unchanged; running the same rollback again completes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from flows.operation import operation
from indexmill.store.manifest import Hold
from storage import holds, refs
from storage.clock import Clock, timestamp
from storage.processes import this_user
from storage.protocol import Store
from storage.publish import check_whole, publish, read_manifest


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The result of a rollback, printed by `rollback --json`."""

    published: bool
    """False if the newest version already had that manifest."""
    version: int
    """The newest version now."""
    target: int
    """The requested version."""
    manifest: str
    run: str
    hold: Hold


@dataclass(frozen=True, slots=True)
class Resumed:
    """The result of a resume, printed by `resume --json`."""

    released: bool
    """False if the store was not on hold."""
    version: int | None
    """The newest version, which the next build starts from."""
    run: str


def roll_back(store: Store, target: int, *, note: str = "", clock: Clock = time.time) -> RolledBack:
    """Make the manifest of an earlier version the newest again, under a new number, and put the store on hold.

    Nothing is written unless every blob of that version exists with its recorded length. Raises SnapshotNotFound for a
    version that does not exist or was removed, CorruptBlob for an incomplete one, LeaseLost if another run is at work.
    """
    with operation(store, "rollback", details={"version": target, "note": note}, clock=clock) as run:
        old = refs.read(store, target)
        refs.check_there(store, target)
        served = refs.standing(store)
        manifest = read_manifest(store, old.manifest)
        check_whole(store, manifest)
        run.lease.check()
        created = timestamp(clock())
        hold = holds.place(store, target, run_id=run.run_id, by=this_user(), created=created, note=note)
        if served is None or served.manifest != old.manifest:
            text = f"back to version {target}" + (f": {note}" if note else "")
            served = publish(store, run.lease, manifest, refs.last_version(store), created=created, note=text)
            run.published = True
        run.version, run.manifest = served.version, served.manifest
        return RolledBack(run.published, served.version, target, served.manifest, run.run_id, hold)


def resume(store: Store, *, note: str = "", clock: Clock = time.time) -> Resumed:
    """End the hold, so that builds are allowed again; does nothing if there is none.

    Takes the lease; raises LeaseLost if the rollback that placed the hold, or another run, is at work.
    """
    with operation(store, "resume", details={"note": note}, clock=clock) as run:
        newest = refs.newest(store)
        ended = holds.release(store, run_id=run.run_id, by=this_user(), created=timestamp(clock()), note=note)
        run.done = ended is not None
        return Resumed(run.done, None if newest is None else newest.version, run.run_id)
