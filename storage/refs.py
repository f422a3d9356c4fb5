"""Committing a version: creating its ref, and nothing else, publishes a snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pydantic import JsonValue

from indexmill.errors import CorruptBlob, LeaseLost, NotFound, SnapshotNotFound, StoreError
from indexmill.store.layout import (
    BRANCH,
    LEASES,
    REMOVALS,
    alias_name,
    alias_prefix,
    number_of,
    ref_name,
    ref_prefix,
    removal_name,
)
from indexmill.store.manifest import Alias, Ref, Removal
from storage.protocol import Store
from storage.records import get_record, last_number, numbered


def read(store: Store, version: int) -> Ref:
    """Read the ref of a version; SnapshotNotFound if there is none, CorruptBlob if it is damaged."""
    name = ref_name(BRANCH, version)
    try:
        ref = get_record(store, name, Ref)
    except NotFound:
        raise SnapshotNotFound(f"{store.url} has no version {version}") from None
    if ref.version != version:
        raise CorruptBlob(f"{store.url}/{name} says that it is version {ref.version}, expected {version}")
    return ref


def _versions(store: Store) -> list[int]:
    return list(numbered(store.list(ref_prefix(BRANCH))))


def newest(store: Store) -> Ref | None:
    """Return the newest ref, or None before the first one."""
    versions = _versions(store)
    return read(store, versions[-1]) if versions else None


def standing(store: Store) -> Ref | None:
    """Return the newest ref whose version was not removed, which readers open; None if there is none."""
    removed = numbered(store.list(REMOVALS))
    there = [version for version in _versions(store) if version not in removed]
    return read(store, there[-1]) if there else None


def last_version(store: Store) -> int:
    """Return the highest number of a version; 0 before the first."""
    return max(_versions(store), default=0)


def history(store: Store) -> list[Ref]:
    return [read(store, version) for version in _versions(store)]


def first_with(store: Store, manifest_digest: str) -> int | None:
    """Return the lowest version with this manifest; None if none has it. Damaged refs are skipped."""
    for version in _versions(store):
        with contextlib.suppress(StoreError):
            if read(store, version).manifest == manifest_digest:
                return version
    return None


def highest_epoch(store: Store) -> int:
    """Return the highest epoch of any lease so far; 0 before the first."""
    return last_number(store, LEASES)


def commit(
    store: Store,
    manifest_digest: str,
    parent: int | None,
    epoch: int,
    run_id: str,
    created: str,
    cost: Mapping[str, JsonValue],
    note: str,
) -> Ref:
    """Publish a manifest as the version after its parent; returns the ref that is now the newest.

    Committing the same again succeeds, even after a crash or an error that left the outcome unknown: a ref with this
    run id and manifest is the result. Raises LeaseLost if another run took a newer lease or this version, ValueError if
    the parent does not exist.
    """
    ref = Ref(
        version=(parent or 0) + 1,
        manifest=manifest_digest,
        parent=parent,
        epoch=epoch,
        run_id=run_id,
        created=created,
        cost=dict(cost),
        note=note,
    )
    versions = _versions(store)
    if ref.version in versions:
        return _ours(read(store, ref.version), ref, store)
    if parent != (versions[-1] if versions else None):
        raise ValueError(f"{store.url} is at version {versions[-1] if versions else 0}; {parent} cannot be the parent")
    latest = highest_epoch(store)
    if latest > epoch:
        raise LeaseLost(
            f"another run took the lease of {store.url} (epoch {latest}, this run's is {epoch}) before version "
            f"{ref.version} was published; nothing was published by this run: run it again"
        )
    try:
        store.create(ref_name(BRANCH, ref.version), ref.to_bytes())
    except StoreError:
        # The ref may exist nevertheless. A second attempt makes sure that it is durable.
        with contextlib.suppress(StoreError):
            store.create(ref_name(BRANCH, ref.version), ref.to_bytes())
        with contextlib.suppress(SnapshotNotFound):
            return _ours(read(store, ref.version), ref, store)
        raise
    return _ours(read(store, ref.version), ref, store)


def _ours(existing: Ref, ref: Ref, store: Store) -> Ref:
    if (existing.run_id, existing.manifest, existing.parent) == (ref.run_id, ref.manifest, ref.parent):
        return existing
    raise LeaseLost(
        f"run {existing.run_id} published version {existing.version} of {store.url} at {existing.created}, before this "
        f"run ({ref.run_id}) did. Nothing is lost: repeat the command to build on that version"
    )


def promote(store: Store, alias: str, version: int | None, created: str, note: str = "") -> Alias:
    """Point an alias to a version from now on, or remove it with None; returns the record.

    Needs no lease: a move is the record of the next number, which only one of several concurrent calls can create.
    Raises SnapshotNotFound for a version that does not exist or was removed, LeaseLost if the alias was moved elsewhere
    at the same moment.
    """
    if version is not None:
        read(store, version)
        check_there(store, version)
    number = last_number(store, alias_prefix(alias)) + 1
    name = alias_name(alias, number)
    moved = Alias(alias=alias, number=number, version=version, created=created, note=note)
    if not store.create(name, moved.to_bytes()):
        moved = get_record(store, name, Alias)
        if moved.version != version:
            where = "removed" if moved.version is None else f"pointed to version {moved.version}"
            raise LeaseLost(
                f"the alias {alias!r} of {store.url} was {where} at the same moment; check it and try again"
            )
    if version is not None:
        check_there(store, version)  # the version may have been removed meanwhile: then the alias has to move again
    return moved


def pointed(store: Store, alias: str) -> int | None:
    """Return the version that an alias points to; None if it does not exist, CorruptBlob if its record is damaged."""
    number = last_number(store, alias_prefix(alias))
    return get_record(store, alias_name(alias, number), Alias).version if number else None


def aliases(store: Store) -> dict[str, int]:
    """Return the version of each alias, ordered by name."""
    last: dict[str, str] = {}
    for name in store.list(alias_prefix()):
        if number_of(name) is not None:
            last[name.split("/")[-2]] = name
    records = {alias: get_record(store, name, Alias) for alias, name in last.items()}
    return {alias: record.version for alias, record in records.items() if record.version is not None}


def removals(store: Store) -> dict[int, Removal]:
    """Return the records of removed versions, by version."""
    names = numbered(store.list(REMOVALS))
    return {number: get_record(store, name, Removal) for number, name in names.items()}


def remove(store: Store, removal: Removal) -> None:
    """Record the removal of a version, before its blobs are removed. The first record of a version stands."""
    store.create(removal_name(removal.version), removal.to_bytes())


def restore(store: Store, version: int) -> None:
    """Undo the removal of a version before any of its data was deleted."""
    store.delete(removal_name(version))


def check_there(store: Store, version: int) -> None:
    """Raise SnapshotNotFound, with the reason, if a version was collected or withdrawn."""
    try:
        removal = get_record(store, removal_name(version), Removal)
    except NotFound:
        return
    raise SnapshotNotFound(f"{store.url}: {removal}; `indexmill snapshots` lists the existing versions")
