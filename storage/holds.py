"""The hold: a store that was rolled back refuses builds until an operator releases it.

    holds/<number>.json     held or released; the newest record decides

Records are created under the lease, so that no build is at work when a hold begins; they are ordered by number, never
by time.
"""

from __future__ import annotations

import contextlib
from typing import Any

from indexmill.errors import CorruptBlob, GateRefused
from indexmill.store.layout import HOLDS, hold_name
from indexmill.store.manifest import Hold
from storage import refs
from storage.protocol import Store
from storage.records import create_next, get_record, last_number


def standing(store: Store) -> Hold | None:
    """Return the hold in force, or None if there is none; CorruptBlob if its record is damaged."""
    number = last_number(store, HOLDS)
    newest = get_record(store, hold_name(number), Hold) if number else None
    return newest if newest is not None and newest.held else None


def check(store: Store) -> None:
    """Raise GateRefused, with the user, time and reason, if the store is on hold."""
    hold = standing(store)
    if hold is None:
        return
    newest = refs.standing(store)
    if newest is None or hold.version is None or refs.read(store, hold.version).manifest == newest.manifest:
        advice = "once the cause of the rollback is fixed, `indexmill resume` allows builds again"
    else:
        advice = (
            f"the newest version, {newest.version}, has other content: the rollback was interrupted. "
            f"`indexmill rollback {hold.version}` completes it, `indexmill resume` abandons it"
        )
    raise GateRefused(f"{store.url} is {hold}; nothing was built: {advice}")


def place(store: Store, version: int, *, run_id: str, by: str, created: str, note: str = "") -> Hold:
    """Put the store on hold at a version; returns the hold in force: an earlier one if version and reason agree."""
    try:
        current = standing(store)
    except CorruptBlob:
        current = None  # a readable record replaces the damaged one
    if current is not None and current.version == version and note in ("", current.note):
        return current
    return _append(store, held=True, version=version, run_id=run_id, by=by, created=created, note=note)


def release(store: Store, *, run_id: str, by: str, created: str, note: str = "") -> Hold | None:
    """End the hold; returns the record that ends it, or None if no hold was in force.

    A damaged record counts as a hold.
    """
    with contextlib.suppress(CorruptBlob):
        if standing(store) is None:
            return None
    return _append(store, held=False, version=None, run_id=run_id, by=by, created=created, note=note)


def _append(store: Store, **fields: Any) -> Hold:
    return create_next(store, HOLDS, hold_name, lambda number: Hold(number=number, **fields))
