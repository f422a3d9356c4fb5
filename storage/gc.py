"""Garbage collection: remove what no kept version, alias or unfinished run needs.

A collection keeps the newest version, versions that a policy keeps, versions that an alias points to, and versions
with the same manifest as one of these; candidates that an operator may still publish; parts made by unfinished runs and
by runs since the newest version; every blob that another record names; and everything younger than the grace period. It
never changes the ledger: a paid answer is worth more than its space. Receipts and blobs are removed in two steps: one
collection sets them aside, a later one removes those that are still not needed; see `storage.deletions`, also for runs
that were suspended meanwhile. The order makes a crash at any point harmless:

1. A record marks a version as removed. Readers then report the removal, whether or not its blobs exist. Aliases are
   checked again, since moving one needs no lease: a version that an alias points to by now is restored.
2. Names that were set aside long enough ago and are still not needed are removed, receipts before the blobs they name,
   so that no receipt names a missing blob. Each is checked again just before: one that was stored meanwhile stays.
3. A record lists the names set aside from now on: all others that nothing needs.
4. Old records of runs, leases and closed batches are removed.

Running again completes an interrupted collection. Refs are never removed, so that no number is used twice. An
incomplete newer version, or one that its run may still withdraw, never causes an older version to be removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from indexmill.errors import CorruptBlob, NotFound, StoreError
from indexmill.store.layout import LEASES, batch_prefix, blob_path, is_digest, run_prefix
from indexmill.store.manifest import Manifest, Ref, Removal
from storage import deletions, lineage, refs, runs
from storage.clock import Clock, from_timestamp, timestamp
from storage.deletions import Since
from storage.lease import STALE, Lease, at_work
from storage.protocol import Stat, Store
from storage.receipts import Receipt
from storage.records import find_record, get_record_blob, needs_search
from storage.runs import StoredRun

DAY = 24 * 3600.0

_HEX = re.compile(rb"[0-9a-f]{64}")
_MESSAGES = re.compile(rb'"(?:error|manifest)":"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class Policy:
    """The rules for what to keep; without `last` and `within`, every version. Times are in seconds."""

    last: int | None = None
    """The number of newest versions to keep."""
    within: float | None = None
    """The age up to which versions are kept."""
    grace: float = DAY
    """The grace period: younger blobs and receipts always stay."""
    wait: float = STALE
    """The minimum time between setting aside and removal; 0: at once, only if no other run is active."""
    records: float = 90 * DAY
    """The age beyond which records of runs and leases are removed."""


@dataclass(frozen=True)
class Survey:
    """The data to remove, and the data to keep."""

    versions_kept: tuple[int, ...]
    versions_withdrawn: tuple[int, ...]
    """The versions that `forget` withdrew: neither kept nor removed."""
    versions_incomplete: tuple[int, ...]
    """The versions withdrawn by the runs that published them."""
    versions: tuple[int, ...]
    newest: int
    """The highest version number, including removed versions; 0 if there is none."""
    receipts_kept: int
    receipts: tuple[str, ...]
    """The names of receipts that nothing needs."""
    blobs_kept: int
    bytes_kept: int
    blobs: dict[str, int]
    """The sizes in bytes, by digest, of the blobs that nothing needs."""
    aside: dict[str, Since]
    """The names of receipts and blobs that were set aside and have not been used since."""
    due: tuple[str, ...]
    """The names of receipts and blobs to remove now, receipts first."""
    records: tuple[str, ...]
    """The records of old runs, leases and batches, in the order of removal."""


@dataclass(frozen=True)
class CollectionResult:
    """The data that was removed, set aside or kept, or would be in a dry run.

    Receipts and blobs that nothing needs are removed, set aside now, or still waiting since they were set aside.
    """

    versions_kept: tuple[int, ...]
    versions_withdrawn: tuple[int, ...]
    versions_incomplete: tuple[int, ...]
    versions_removed: tuple[int, ...]
    receipts_kept: int
    receipts_removed: int
    receipts_set_aside: int
    receipts_waiting: int
    blobs_kept: int
    blobs_removed: int
    blobs_set_aside: int
    blobs_waiting: int
    bytes_kept: int
    bytes_removed: int
    bytes_set_aside: int
    bytes_waiting: int
    records_removed: int
    removed_were_set_aside: tuple[str, ...]
    """The times at which the removed names were set aside, ISO 8601, oldest first; none if removed at once."""
    waiting_since: tuple[str, ...]
    """The times at which the waiting names were set aside."""

    @classmethod
    def of(cls, surveyed: Survey, removed: Collection[str] | None = None) -> CollectionResult:
        """Return the result of a survey, given the removed names; without them, the expected result."""
        removed_names = set(surveyed.due if removed is None else removed)
        spared = set(surveyed.due) - removed_names
        waits = surveyed.aside.keys() - surveyed.due
        receipts = set(surveyed.receipts)
        blobs = {blob_path(digest): size for digest, size in surveyed.blobs.items()}
        new = (receipts | blobs.keys()) - waits - set(surveyed.due)
        return cls(
            versions_kept=surveyed.versions_kept,
            versions_withdrawn=surveyed.versions_withdrawn,
            versions_incomplete=surveyed.versions_incomplete,
            versions_removed=surveyed.versions,
            receipts_kept=surveyed.receipts_kept + len(receipts & spared),
            receipts_removed=len(receipts & removed_names),
            receipts_set_aside=len(receipts & new),
            receipts_waiting=len(receipts & waits),
            blobs_kept=surveyed.blobs_kept + len(blobs.keys() & spared),
            blobs_removed=len(blobs.keys() & removed_names),
            blobs_set_aside=len(blobs.keys() & new),
            blobs_waiting=len(blobs.keys() & waits),
            bytes_kept=surveyed.bytes_kept + _bytes(blobs, spared),
            bytes_removed=_bytes(blobs, removed_names),
            bytes_set_aside=_bytes(blobs, new),
            bytes_waiting=_bytes(blobs, waits),
            records_removed=len(surveyed.records),
            removed_were_set_aside=_times(surveyed, removed_names),
            waiting_since=_times(surveyed, waits),
        )


def _bytes(blobs: dict[str, int], names: set[str]) -> int:
    return sum(blobs[name] for name in names if name in blobs)


def _times(surveyed: Survey, names: set[str]) -> tuple[str, ...]:
    return tuple(sorted({surveyed.aside[name].time for name in names if name in surveyed.aside}))


def survey(store: Store, policy: Policy, *, clock: Clock) -> Survey:
    """Mark the data to keep, and list the rest; changes nothing.

    Raises CorruptBlob if the ref, the manifest or the lineage of a kept version cannot be read, since its blobs are
    then unknown and nothing may be removed; and if a version is to be removed while the newest lacks a blob.
    """
    now = clock()
    history = refs.history(store)
    kept_versions = _kept_versions(store, history, policy, now)
    all_runs = runs.list_runs(store, clock=clock, history=history)
    old = _old_runs(all_runs, kept_versions, now - policy.records)
    since = from_timestamp(history[-1].created) if history else -math.inf
    marked = _needed_by_versions(store, kept_versions, all_runs, since)
    old_records = tuple(_old_records(store, old, {run.run_id for run in all_runs}, now - policy.records))
    marked |= digests_in(store, set(old_records))
    working = {run.run_id for run in all_runs if run.run_id not in old and _unfinished(run, since)}
    receipts = list(receipts_of(store))
    stats = store.stats("work/")
    unneeded = _unneeded_receipts(stats, receipts, working, marked, now - policy.grace)
    every = dict(blobs_of(store))
    blobs = {
        digest: blob.bytes
        for digest, blob in every.items()
        if digest not in marked and not _young(blob, now - policy.grace)
    }
    removals = refs.removals(store)
    staying = {ref.version for ref in kept_versions}
    leaving = [ref for ref in history if ref.version not in removals and ref.version not in staying]
    if leaving:
        _check_whole(store, kept_versions[-1], every)
    names = (*unneeded, *map(blob_path, blobs))
    aside = _aside(store, {**stats, **{blob_path(digest): blob for digest, blob in every.items()}}, names, now)
    due = names
    if policy.wait:
        before = now - policy.wait
        lately = [
            ref
            for ref in history
            if ref.version in removals and before < from_timestamp(removals[ref.version].created) <= now
        ]
        needed = {digest for ref in (*lately, *leaving) for digest in _reach_of_gone(store, ref)}
        due = _due(
            unneeded,
            names,
            {name for name, since_when in aside.items() if from_timestamp(since_when.time) <= before},
            needed,
        )
    return Survey(
        versions_kept=tuple(sorted(staying)),
        versions_withdrawn=_removed_as("forgotten", removals),
        versions_incomplete=_removed_as("incomplete", removals),
        versions=tuple(ref.version for ref in leaving),
        newest=history[-1].version if history else 0,
        receipts_kept=len(receipts) - len(unneeded),
        receipts=tuple(unneeded),
        blobs_kept=len(every) - len(blobs),
        bytes_kept=sum(blob.bytes for digest, blob in every.items() if digest not in blobs),
        blobs=blobs,
        aside=aside,
        due=due,
        records=old_records,
    )


def _removed_as(reason: str, removals: Mapping[int, Removal]) -> tuple[int, ...]:
    return tuple(sorted(number for number, removal in removals.items() if removal.reason == reason))


def collect(store: Store, lease: Lease, surveyed: Survey, policy: Policy, *, clock: Clock) -> CollectionResult:
    """Remove and set aside the data of a survey made under this lease, or of a new survey.

    Raises LeaseLost if another run takes over or has published meanwhile, and, for a policy without a wait, if a run
    that lost its lease may still be at work.
    """
    created = timestamp(clock())
    lease.check()
    if not policy.wait:
        deletions.check_alone(store, lease)
    for version in surveyed.versions:
        refs.remove(store, Removal(version=version, reason="gc", run_id=lease.run_id, created=created))
    aliased = set(surveyed.versions).intersection(refs.aliases(store).values())
    if aliased:
        for version in aliased:
            refs.restore(store, version)
        collected = collect(store, lease, survey(store, policy, clock=clock), policy, clock=clock)
        versions = sorted({*surveyed.versions, *collected.versions_removed} - aliased)
        return dataclasses.replace(collected, versions_removed=tuple(versions))

    def spare(name: str) -> bool:
        return _young(store.stat(name), clock() - policy.grace)

    removed = deletions.remove(store, lease, surveyed.due, seen=surveyed.newest, spare=spare)
    lease.check()
    due, now = set(surveyed.due), Since(created, lease.run_id)
    names = (*surveyed.receipts, *map(blob_path, surveyed.blobs))
    deletions.replace_set_aside(
        store, lease, {name: surveyed.aside.get(name, now) for name in names if name not in due}
    )
    deletions.sweep(store, clock)
    for name in surveyed.records:
        store.delete(name)
    return CollectionResult.of(surveyed, removed)


def reach(store: Store, manifest: str) -> frozenset[str]:
    """Return the digests of a manifest and of every blob that it needs, including the parts of its lineage.

    Raises CorruptBlob if one of them cannot be read.
    """
    read = get_record_blob(store, manifest, Manifest)
    return frozenset(
        {
            manifest,
            read.lineage,
            *(artifact.digest for artifact in read.artifacts),
            *lineage.blobs(lineage.read(store, read.lineage)),
        }
    )


def blobs_of(store: Store) -> Iterator[tuple[str, Stat]]:
    """Yield every blob of the store, by digest."""
    for name, blob in store.stats("blobs/sha256/").items():
        digest = name.rpartition("/")[2]
        if is_digest(digest) and name == blob_path(digest):
            yield digest, blob


def digests_in(store: Store, without: Iterable[str] = ()) -> set[str]:
    """Return all strings that may be digests in the records of runs and in records of unknown kinds.

    So a record that names a blob keeps it, even a record of a kind added later. Errors and manifests in end records
    of runs do not count: refs and candidates say whether a manifest is needed, and an error names a blob that could not
    be written.
    """
    excluded = set(without)
    digests: set[str] = set()
    for name in store.list(""):
        if name not in excluded and (name.startswith(run_prefix()) or needs_search(name)):
            with contextlib.suppress(NotFound, ValueError):  # not a name of a store
                data = store.get(name)
                if name.endswith("/end.json"):
                    data = _MESSAGES.sub(b"", data)
                digests |= {digest.decode() for digest in _HEX.findall(data)}
    return digests


def _kept_versions(store: Store, history: list[Ref], policy: Policy, now: float) -> list[Ref]:
    removed = refs.removals(store)
    there = [ref for ref in history if ref.version not in removed]
    if not there or (policy.last is None and policy.within is None):
        return there
    numbers = set(refs.aliases(store).values())
    others = {holding.epoch for holding in at_work(store, now)} - {refs.highest_epoch(store)}
    for ref in reversed(there):
        numbers.add(ref.version)
        if ref.epoch not in others:  # otherwise its run may still find it incomplete, and withdraw it
            break
    numbers |= {ref.version for ref in there[len(there) - min(policy.last or 0, len(there)) :]}
    if policy.within is not None:
        numbers |= {ref.version for ref in there if from_timestamp(ref.created) >= now - policy.within}
    manifests = {ref.manifest for ref in there if ref.version in numbers}
    return [ref for ref in there if ref.manifest in manifests]


def _needed_by_versions(store: Store, kept_versions: list[Ref], all_runs: list[StoredRun], since: float) -> set[str]:
    """Return the blobs of the kept versions, and of candidates that an operator may still publish."""
    needed: set[str] = set()
    for digest in {ref.manifest for ref in kept_versions}:
        needed |= reach(store, digest)
    for run in all_runs:
        if run.candidate and from_timestamp(run.started) >= since:
            with contextlib.suppress(StoreError):  # it may never have been complete
                needed |= reach(store, run.candidate)
    return needed


def _unneeded_receipts(
    stats: Mapping[str, Stat],
    receipts: list[tuple[str, Receipt | None]],
    working: set[str],
    marked: set[str],
    limit: float,
) -> dict[str, Receipt | None]:
    """Return receipts older than the limit that name an unneeded blob; adds outputs still in use to `marked`."""
    young = {name for name, _ in receipts if _young(stats.get(name), limit)}
    for name, receipt in receipts:
        if receipt is not None and (name in young or receipt.run_id in working):
            marked |= set(receipt.outputs.values())
    return {
        name: receipt
        for name, receipt in receipts
        if name not in young and (receipt is None or not marked.issuperset(receipt.outputs.values()))
    }


def _check_whole(store: Store, newest: Ref, blobs: Collection[str]) -> None:
    """Raise CorruptBlob if the newest version lacks a blob, so that no earlier version is removed."""
    manifest = get_record_blob(store, newest.manifest, Manifest)
    for digest in (manifest.lineage, *(artifact.digest for artifact in manifest.artifacts)):
        if digest not in blobs:
            raise CorruptBlob(
                f"{store.url}/{blob_path(digest)} is missing, and the newest version, {newest.version}, needs it; no "
                "version was removed: run `indexmill build` to make it again, or restore it from a copy"
            )


def _aside(store: Store, stats: Mapping[str, Stat], names: Collection[str], now: float) -> dict[str, Since]:
    """Return the `names` that were set aside and not stored since; times in the future (a wrong clock) do not count."""
    unneeded = set(names)
    return {
        name: since
        for name, since in deletions.set_aside(store).items()
        if name in unneeded
        and from_timestamp(since.time) <= now
        and not _young(stats.get(name), from_timestamp(since.time))
    }


def _due(
    unneeded: Mapping[str, Receipt | None], names: Iterable[str], ripe: Collection[str], needed: set[str]
) -> tuple[str, ...]:
    """Return the names set aside long enough (`ripe`), except blobs that are needed or named by a remaining receipt."""
    for name, receipt in unneeded.items():
        if receipt is not None and name not in ripe:
            needed |= set(receipt.outputs.values())
    return tuple(name for name in names if name in ripe and name.rpartition("/")[2] not in needed)


def _reach_of_gone(store: Store, ref: Ref) -> frozenset[str]:
    try:
        return reach(store, ref.manifest)
    except StoreError:  # the version is no longer complete
        return frozenset()


def _unfinished(run: StoredRun, since: float) -> bool:
    """Return True if a run may be resumed: it has no end, reached its budget, or was at work since the last version."""
    if run.end is None:
        return run.state != "published"
    return run.end.state == "budget" or from_timestamp(run.end.ended) >= since


def _old_runs(all_runs: list[StoredRun], kept_versions: list[Ref], before: float) -> set[str]:
    """Return the runs whose records are removed: they ended long ago and made no kept version; never the last run."""
    makers = {ref.run_id for ref in kept_versions}
    return {
        run.run_id
        for run in all_runs[:-1]
        if run.run_id not in makers
        and run.state != "running"
        and from_timestamp(run.started if run.end is None else run.end.ended) < before
    }


def _old_records(store: Store, old: set[str], run_ids: set[str], before: float) -> Iterator[str]:
    """Yield the old records; a run's start precedes its end, since a start alone looks killed. Open batches stay."""
    stats = store.stats(run_prefix())
    for name in sorted(stats, key=lambda name: (name.split("/")[1], not name.endswith("/start.json"))):
        run_id = name.split("/")[1]
        if run_id in old or (run_id not in run_ids and not _young(stats[name], before)):
            yield name
    for name, stat in store.stats(batch_prefix()).items():
        if name.endswith("/closed.json") and not _young(stat, before):
            yield name
    current = refs.highest_epoch(store)
    for name, stat in store.stats(LEASES).items():
        epoch = name.removeprefix(LEASES)[:20]
        if epoch.isdecimal() and int(epoch) < current and not _young(stat, before):
            yield name


def receipts_of(store: Store) -> Iterator[tuple[str, Receipt | None]]:
    """Yield (name, receipt) for every receipt; None for a receipt that cannot be read, which is treated as missing."""
    for name in store.list("work/"):
        yield name, find_record(store, name, Receipt)


def _young(entry: Stat | None, limit: float) -> bool:
    return entry is not None and entry.modified > limit
