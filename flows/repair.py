"""Repair of a store: everything is read first, and the lease is taken only if there is damage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from flows.operation import operation
from indexmill.command.versions import version_of
from indexmill.store.blob_cache import BlobCache
from indexmill.store.bucket import is_bucket
from indexmill.store.reader import StoreReader
from indexmill.text.counted import counted
from storage import refs, runs
from storage.clock import Clock
from storage.copies import Copy
from storage.lease import acquire
from storage.repair import Finding, damaged_blobs, needs, repair_blobs, repair_records, repair_store_file
from storage.stores import open_store
from tasks.core.report import Progress

_STAGE = "verify"
_REPORT_EVERY = 64  # blobs between two progress messages


@dataclass(frozen=True)
class Repaired:
    """The result of a repair, printed by `repair --json`."""

    dry_run: bool
    versions: tuple[int, ...]
    """The versions that were checked."""
    blobs: int
    """The number of blobs read; `bytes` is their total length."""
    bytes: int
    findings: tuple[Finding, ...]

    @property
    def whole(self) -> bool:
        """True if the checked versions are now complete for readers and builds."""
        fine = ("dropped",) if self.dry_run else ("dropped", "restored")
        return all(finding.outcome in fine for finding in self.findings)

    @property
    def outcomes(self) -> Mapping[str, int]:
        return Counter(finding.outcome for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "whole": self.whole,
            "versions": list(self.versions),
            "blobs": self.blobs,
            "bytes": self.bytes,
            "findings": [
                {
                    "name": finding.name,
                    "what": finding.what,
                    "versions": list(finding.versions),
                    "damage": finding.damage,
                    "outcome": finding.outcome,
                    "from": finding.source,
                }
                for finding in self.findings
            ],
        }


def repair(
    where: Path | str,
    copies: Sequence[Copy] = (),
    *,
    version: str | None = None,
    dry_run: bool = False,
    progress: Progress,
    clock: Clock = time.time,
) -> Repaired:
    """Check every blob that one version needs, or that any version needs, and restore or remove damaged blobs.

    where: the store's path or URL. version: a number, an alias or `newest`; None for all. A store in a bucket is also
    restored from this machine's cache. A dry run changes nothing and takes no lease. Raises SnapshotNotFound if there
    is no such version, CorruptBlob if the record of the newest version is damaged and no copy has it, LeaseLost if
    another run is at work.
    """
    if is_bucket(where):
        cache = BlobCache.default()
        copies = [*copies, Copy(f"the cache {cache.folder}", partial(cache.find, again=True))]
    findings: list[Finding] = []
    store_file = repair_store_file(where, copies, apply=not dry_run)
    if store_file is not None:
        findings.append(store_file)
        if dry_run:  # everything else can be read once this record is restored
            return Repaired(dry_run, (), 0, 0, tuple(findings))
    store = open_store(where)
    records = repair_records(store, copies, None)
    if not dry_run and any(finding.outcome == "restored" for finding in records):
        with acquire(store, runs.make_run_id(clock)) as lease:
            records = repair_records(store, copies, lease)
    findings += records
    restored = any(finding.outcome == "restored" for finding in findings)
    if not dry_run or not restored:
        refs.newest(store)  # raises CorruptBlob for a damaged record
    needed = needs(store, copies)
    number = None if version is None else version_of(StoreReader(where), version)
    digests = needed.of(number)
    progress.begin(_STAGE, len(digests))
    read: list[int] = []

    def count_blob(size: int) -> None:
        read.append(size)
        if not len(read) % _REPORT_EVERY:
            progress.advance(_STAGE, _REPORT_EVERY)

    damaged = damaged_blobs(store, digests, count_blob)
    progress.end(_STAGE, f"{counted(len(digests), 'blob')}, {len(damaged):,} damaged or missing")
    if (damaged or restored) and not dry_run:
        details: dict[str, JsonValue] = {"version": number, "from": [str(copy) for copy in copies]}
        with operation(store, "repair", details=details, clock=clock) as run:
            blobs = repair_blobs(store, copies, damaged, needs(store, copies), run.lease)
            run.done = bool(findings + blobs)
            run.report = {"repair": dict(Counter(finding.outcome for finding in findings + blobs))}
    else:
        blobs = repair_blobs(store, copies, damaged, needed, None)
    versions = needed.versions if number is None else (number,)
    return Repaired(dry_run, versions, len(digests), sum(read), tuple(findings + blobs))
