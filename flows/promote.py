"""Moving an alias, the name by which a serving team opens a version, such as `prod`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from pydantic import JsonValue

from flows.operation import recorded
from indexmill.errors import BadInput, SnapshotNotFound
from indexmill.store.reader import StoreReader
from indexmill.store.signatures import Trust
from storage import refs, signature_records
from storage.clock import Clock, timestamp
from storage.protocol import Store
from storage.publish import check_whole, read_manifest

_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of moving an alias, printed by `promote --json`."""

    alias: str
    version: int | None
    """The version that it points to now; None once it is removed."""
    before: int | None
    """The version that it pointed to before."""
    moved: bool
    """False if it already pointed there."""
    run: str


def promote(
    store: Store, version: int, alias: str, *, note: str = "", trust: Trust | None = None, clock: Clock = time.time
) -> Promoted:
    """Point an alias to a version. Needs no lease: a build may be at work.

    trust: the signers whose signatures the version must have; raises NotTrusted otherwise. Raises BadInput for a name
    that could be mistaken for a version, SnapshotNotFound for a version that does not exist, CorruptBlob for an
    incomplete one, LeaseLost if the alias was moved elsewhere at the same moment.
    """
    _check_alias(alias)
    with recorded(store, "promote", details=_details(alias, version, note), clock=clock) as run:
        ref = refs.read(store, version)
        if trust is not None:
            trust.check(ref.manifest, signature_records.envelopes(store, version), f"version {version} of {store.url}")
        check_whole(store, read_manifest(store, ref.manifest))
        before = refs.pointed(store, alias)
        if before != version:
            refs.promote(store, alias, version, timestamp(clock()), note)
            run.done = True
        run.version, run.manifest = version, ref.manifest
        return Promoted(alias, version, before, before != version, run.run_id)


def remove_alias(store: Store, alias: str, *, note: str = "", clock: Clock = time.time) -> Promoted:
    """Remove an alias; raises SnapshotNotFound, with a list of the existing aliases, if there is no such alias."""
    _check_alias(alias)
    with recorded(store, "promote", details=_details(alias, None, note), clock=clock) as run:
        before = refs.pointed(store, alias)
        if before is None:
            aliases = ", ".join(StoreReader(store.url).aliases()) or "none"
            raise SnapshotNotFound(f"{store.url} has no alias {alias!r}: it has {aliases}; nothing was removed")
        refs.promote(store, alias, None, timestamp(clock()), note)
        run.done = True
        return Promoted(alias, None, before, True, run.run_id)


def _details(alias: str, version: int | None, note: str) -> dict[str, JsonValue]:
    return {"alias": alias, "version": version, "note": note}


def _check_alias(alias: str) -> None:
    if not _ALIAS.fullmatch(alias) or alias.isdecimal() or alias == "newest":
        raise BadInput(
            f"{alias!r} cannot be an alias: expected letters, digits, '_', '-' and '.', neither a number nor 'newest', "
            "such as prod"
        )
