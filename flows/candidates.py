"""Publication of a candidate that a gate refused and an operator has approved."""

from __future__ import annotations

import time
from dataclasses import dataclass

from flows.build_run import COSTS
from flows.operation import operation
from indexmill.errors import BadInput, LeaseLost, SnapshotNotFound
from indexmill.store.manifest import Ref
from storage import holds, refs, runs
from storage.clock import Clock, timestamp
from storage.protocol import Store
from storage.publish import publish, read_manifest


@dataclass(frozen=True, slots=True)
class Published:
    """The version of a published candidate. published: False if an earlier call published it."""

    published: bool
    version: int
    manifest: str
    candidate: str
    run: str
    documents: int
    passages: int


def publish_candidate(store: Store, run_id: str, *, note: str = "", clock: Clock = time.time) -> Published:
    """Publish the candidate of a run as the version after the one it was built on; harmless if already done.

    Raises BadInput for a run without a candidate, GateRefused if the store is on hold, LeaseLost if another run is at
    work or has published since the candidate was built, CorruptBlob if one of its blobs is missing.
    """
    candidate = runs.read_run(store, run_id, clock=clock)
    if candidate.candidate is None:
        raise BadInput(
            f"run {run_id} ended as {candidate.state!r} and has no candidate: only versions that a gate refused "
            "after they were built can be published by hand; `indexmill runs` lists them"
        )
    digest, parent = candidate.candidate, candidate.start.parent
    report = candidate.end.report if candidate.end is not None else {}
    with operation(store, "publish", details={"candidate": run_id, "note": note}, clock=clock) as run:
        holds.check(store)
        manifest = read_manifest(store, digest)
        run.report = {"candidate": run_id} | {name: report[name] for name in ("quality", "stand_ins") if name in report}
        parent, ref = _follower(store, parent)
        if ref is None:
            totals = report.get("totals")
            cost = {name: totals[name] for name in COSTS if name in totals} if isinstance(totals, dict) else {}
            created = timestamp(clock())
            ref = publish(store, run.lease, manifest, parent, created=created, cost=cost, note=note)
            run.published = True
        elif ref.manifest != digest:
            raise LeaseLost(
                f"run {ref.run_id} published version {ref.version} after the candidate of run {run_id} was built on "
                f"{f'version {parent}' if parent else 'an empty store'}: build again from the newest version"
            )
        run.version, run.manifest = ref.version, digest
    return Published(
        published=run.published,
        version=ref.version,
        manifest=digest,
        candidate=run_id,
        run=run.run_id,
        documents=manifest.corpus.documents,
        passages=manifest.corpus.passages,
    )


def _follower(store: Store, parent: int | None) -> tuple[int | None, Ref | None]:
    """Return the version that a candidate follows and the ref after it, if any; skips withdrawn versions."""
    removed = refs.removals(store)
    while (number := (parent or 0) + 1) in removed and removed[number].reason == "incomplete":
        parent = number
    try:
        return parent, refs.read(store, number)
    except SnapshotNotFound:
        return parent, None
