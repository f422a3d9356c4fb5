"""Garbage collection: remove what no kept version, alias or unfinished run needs.

Kept are the newest version, those that a policy keeps, those that an alias points to, and those with the manifest of a
kept one; what a person may still publish; what unfinished runs and the runs since the newest version made; every blob
that another record names; and whatever is younger than the grace period. The ledger stays as it is: what was paid for
is worth more than its place. The order makes a crash harmless anywhere:

1. A record says that a version is no longer there. Readers then say so, whether its blobs are gone or not. Aliases
   are looked at once more, since moving one needs no lease: a version that one points to by now is taken back.
2. Receipts go before the blobs they name, so that no receipt promises what is not there.
3. Blobs go, each looked at again just before: one that was put meanwhile stays.
4. Old records of runs, leases and closed batches go.

Running again finishes. Refs stay for ever, so that no number is used twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from indexmill.errors import CorruptBlob, NotFound, StoreError
from indexmill.layout import batch_prefix, blob_path, is_digest, lease_prefix, run_prefix
from indexmill.manifest import Manifest, Ref, Removal
from storage import lineage, refs, runs
from storage.clock import Clock, from_timestamp, timestamp
from storage.lease import Lease
from storage.protocol import Kept, Store
from storage.receipts import Receipt
from storage.runs import Run

__all__ = [
    "DAY",
    "Collected",
    "Policy",
    "Survey",
    "blobs_of",
    "collect",
    "digests_in",
    "reach",
    "receipts_of",
    "survey",
]

DAY = 24 * 3600.0

_HEX = re.compile(rb"[0-9a-f]{64}")
_TOLD = re.compile(rb'"(?:error|manifest)":"(?:[^"\\]|\\.)*"')
_KNOWN = (
    *("batches/", "blobs/", "exports/", "forgotten/", "holds/", "leases/", "ledger/", "refs/", "refusals/", "runs/"),
    *("tombstones/", "work/"),
)
_CHECKED = 64  # blobs between two looks at the lease


@dataclass(frozen=True)
class Policy:
    """What to keep. With neither `last` nor `within`, every version. Times are in seconds."""

    last: int | None = None
    """So many of the newest versions."""
    within: float | None = None
    """The versions made since so long ago."""
    grace: float = DAY
    """Blobs and receipts that are younger than this stay, whatever they are."""
    records: float = 90 * DAY
    """Records of runs and leases older than this go."""


@dataclass(frozen=True)
class Survey:
    """What there is to remove, and what stays."""

    versions_kept: tuple[int, ...]
    versions_withdrawn: tuple[int, ...]
    """Not there since `forget` withdrew them: neither kept nor removed."""
    versions: tuple[int, ...]
    receipts_kept: int
    receipts: tuple[str, ...]
    blobs_kept: int
    bytes_kept: int
    blobs: dict[str, int]
    """Bytes by digest."""
    records: tuple[str, ...]
    """Of old runs, leases and batches, in the order to remove them."""


@dataclass(frozen=True)
class Collected:
    """What was removed (or, in a dry run, would be), and what stays."""

    versions_kept: tuple[int, ...]
    versions_withdrawn: tuple[int, ...]
    versions_removed: tuple[int, ...]
    receipts_kept: int
    receipts_removed: int
    blobs_kept: int
    blobs_removed: int
    bytes_kept: int
    bytes_removed: int
    records_removed: int

    @classmethod
    def of(cls, found: Survey) -> Collected:
        """What a survey would remove."""
        return cls(
            versions_kept=found.versions_kept,
            versions_withdrawn=found.versions_withdrawn,
            versions_removed=found.versions,
            receipts_kept=found.receipts_kept,
            receipts_removed=len(found.receipts),
            blobs_kept=found.blobs_kept,
            blobs_removed=len(found.blobs),
            bytes_kept=found.bytes_kept,
            bytes_removed=sum(found.blobs.values()),
            records_removed=len(found.records),
        )


def survey(store: Store, policy: Policy, *, clock: Clock) -> Survey:
    """Mark what stays, and list the rest; changes nothing.

    Raises CorruptBlob where the ref, the manifest or the lineage of a kept version cannot be read: what it needs is
    then not known, and nothing may be removed.
    """
    now = clock()
    history = refs.history(store)
    kept = _kept_versions(store, history, policy, now)
    known = runs.list_runs(store, clock=clock)
    old = _old_runs(known, kept, now - policy.records)
    marked: set[str] = set()
    for digest in {ref.manifest for ref in kept}:
        marked |= reach(store, digest)
    since = from_timestamp(history[-1].created) if history else -math.inf
    for run in known:
        if run.end is not None and run.state == "refused" and run.end.manifest and from_timestamp(run.started) >= since:
            with contextlib.suppress(StoreError):  # it may never have been complete
                marked |= reach(store, run.end.manifest)
    old_records = tuple(_old_records(store, old, {run.run_id for run in known}, now - policy.records))
    marked |= digests_in(store, set(old_records))
    working = {run.run_id for run in known if run.run_id not in old and _unfinished(run, since)}
    receipts = list(receipts_of(store))
    young = {name: _young(store.look(name), now - policy.grace) for name, _ in receipts}
    for name, receipt in receipts:
        if receipt is not None and (young[name] or receipt.run_id in working):
            marked |= set(receipt.outputs.values())
    doomed = [
        name
        for name, receipt in receipts
        if not young[name] and (receipt is None or not marked.issuperset(receipt.outputs.values()))
    ]
    blobs: dict[str, int] = {}
    blobs_kept = bytes_kept = 0
    for digest, blob in blobs_of(store):
        if digest in marked or _young(blob, now - policy.grace):
            blobs_kept, bytes_kept = blobs_kept + 1, bytes_kept + blob.bytes
        else:
            blobs[digest] = blob.bytes
    gone = refs.removals(store)
    staying = {ref.version for ref in kept}
    return Survey(
        versions_kept=tuple(sorted(staying)),
        versions_withdrawn=tuple(sorted(number for number, one in gone.items() if one.reason == "forgotten")),
        versions=tuple(ref.version for ref in history if ref.version not in gone and ref.version not in staying),
        receipts_kept=len(receipts) - len(doomed),
        receipts=tuple(doomed),
        blobs_kept=blobs_kept,
        bytes_kept=bytes_kept,
        blobs=blobs,
        records=old_records,
    )


def collect(store: Store, lease: Lease, found: Survey, policy: Policy, *, clock: Clock) -> Collected:
    """Remove what a survey made under this lease found, or a new one. Raises LeaseLost once another run takes over."""
    created = timestamp(clock())
    lease.check()
    for version in found.versions:
        refs.remove(store, Removal(version=version, reason="gc", run_id=lease.run_id, created=created))
    wanted = set(found.versions).intersection(refs.aliases(store).values())
    if wanted:
        for version in wanted:
            refs.restore(store, version)
        done = collect(store, lease, survey(store, policy, clock=clock), policy, clock=clock)
        versions = sorted({*found.versions, *done.versions_removed} - wanted)
        return dataclasses.replace(done, versions_removed=tuple(versions))
    lease.check()
    for name in found.receipts:
        store.delete(name)
    # From here on no run can find a receipt of what goes: what it puts itself is young.
    removed: dict[str, int] = {}
    for number, (digest, size) in enumerate(found.blobs.items()):
        if not number % _CHECKED:
            lease.check()
        if not _young(store.look(blob_path(digest)), clock() - policy.grace):
            store.delete(blob_path(digest))
            removed[digest] = size
    lease.check()
    for name in found.records:
        store.delete(name)
    spared = {digest: size for digest, size in found.blobs.items() if digest not in removed}
    return Collected(
        versions_kept=found.versions_kept,
        versions_withdrawn=found.versions_withdrawn,
        versions_removed=found.versions,
        receipts_kept=found.receipts_kept,
        receipts_removed=len(found.receipts),
        blobs_kept=found.blobs_kept + len(spared),
        blobs_removed=len(removed),
        bytes_kept=found.bytes_kept + sum(spared.values()),
        bytes_removed=sum(removed.values()),
        records_removed=len(found.records),
    )


def reach(store: Store, manifest: str) -> frozenset[str]:
    """Every blob that a manifest needs, itself and its lineage's parts among them; CorruptBlob if that is not known."""
    read = Manifest.from_bytes(store.get_blob(manifest), f"{store.url}/{blob_path(manifest)}")
    parts = lineage.read(store, read.lineage).entries
    return frozenset(
        {
            manifest,
            read.lineage,
            *(artifact.digest for artifact in read.artifacts),
            *(digest for part in parts for digest in part.outputs.values()),
        }
    )


def blobs_of(store: Store) -> Iterator[tuple[str, Kept]]:
    """Every blob that is there, by digest."""
    for name in store.list("blobs/sha256/"):
        digest = name.rpartition("/")[2]
        if is_digest(digest) and name == blob_path(digest) and (blob := store.look(name)) is not None:
            yield digest, blob


def digests_in(store: Store, without: Iterable[str] = ()) -> set[str]:
    """Whatever may be the digest of a blob in the records of runs and in those that this module does not know.

    So a record that names a blob keeps it, also one of a kind that is added later. What a run ended with does
    not count: refs and candidates say whether its manifest is needed, and an error names what could not be written.
    """
    left_out = set(without)
    found: set[str] = set()
    for name in store.list(""):
        if name not in left_out and (name.startswith(run_prefix()) or not name.startswith(_KNOWN)):
            with contextlib.suppress(NotFound, ValueError):  # a name that is none of a store's
                data = store.get(name)
                if name.endswith("/end.json"):
                    data = _TOLD.sub(b"", data)
                found |= {digest.decode() for digest in _HEX.findall(data)}
    return found


def _kept_versions(store: Store, history: list[Ref], policy: Policy, now: float) -> list[Ref]:
    removed = refs.removals(store)
    there = [ref for ref in history if ref.version not in removed]
    if not there or (policy.last is None and policy.within is None):
        return there
    numbers = {there[-1].version, *refs.aliases(store).values()}
    numbers |= {ref.version for ref in there[len(there) - min(policy.last or 0, len(there)) :]}
    if policy.within is not None:
        numbers |= {ref.version for ref in there if from_timestamp(ref.created) >= now - policy.within}
    manifests = {ref.manifest for ref in there if ref.version in numbers}
    return [ref for ref in there if ref.manifest in manifests]


def _unfinished(run: Run, since: float) -> bool:
    """Whether a run may be taken up again: it has no end, met its budget, or was at work since the last version."""
    if run.end is None:
        return run.state != "published"
    return run.end.state == "budget" or from_timestamp(run.end.ended) >= since


def _old_runs(known: list[Run], kept: list[Ref], before: float) -> set[str]:
    """The runs whose records go: ended long ago, the makers of no kept version, and not the last of all."""
    makers = {ref.run_id for ref in kept}
    return {
        run.run_id
        for run in known[:-1]
        if run.run_id not in makers
        and run.state != "running"
        and from_timestamp(run.started if run.end is None else run.end.ended) < before
    }


def _old_records(store: Store, old: set[str], known: set[str], before: float) -> Iterator[str]:
    """Records to remove. A run's start goes first: without it the run is not known; without its end it looks killed.

    A batch that is not closed stays, however old.
    """
    names = store.list(run_prefix())
    for name in sorted(names, key=lambda name: (name.split("/")[1], not name.endswith("/start.json"))):
        run_id = name.split("/")[1]
        if run_id in old or (run_id not in known and not _young(store.look(name), before)):
            yield name
    for name in store.list(batch_prefix()):
        if name.endswith("/closed.json") and not _young(store.look(name), before):
            yield name
    current = refs.highest_epoch(store)
    for name in store.list(lease_prefix()):
        epoch = name.removeprefix(lease_prefix())[:20]
        if epoch.isdecimal() and int(epoch) < current and not _young(store.look(name), before):
            yield name


def receipts_of(store: Store) -> Iterator[tuple[str, Receipt | None]]:
    """Every receipt by name; None for what cannot be read, which counts as not there."""
    for name in store.list("work/"):
        try:
            yield name, Receipt.from_bytes(store.get(name), name)
        except (NotFound, CorruptBlob):
            yield name, None


def _young(entry: Kept | None, limit: float) -> bool:
    """Whether something is there and newer than the limit."""
    return entry is not None and entry.modified > limit
