"""Forget documents from end to end: write tombstones, publish a version without them, and remove everything else.

The tombstones come first: once they exist, no build brings the documents back. If the newest version contains any of
the documents, a build publishes a version without them. Only then is anything removed. Each step has its own run
record; after a crash or a refused build, the same call continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from flows.operation import Operation, operation
from indexmill.errors import BadInput, StoreError
from indexmill.store.layout import forgotten_name
from storage import tombstones
from storage.clock import Clock, timestamp
from storage.forget import ForgetRecord, LiftRecord, Search, remove
from storage.protocol import Store


def forget(
    store: Store,
    document_ids: Sequence[str],
    *,
    build: Callable[[], object] | None,
    why_not: str = "",
    clock: Clock = time.time,
) -> tuple[ForgetRecord, frozenset[str]]:
    """Forget documents for good; returns the record of the removal, and the ids that the store had.

    build: publishes a version of the present corpus; called, without the lease, if the newest version has one of the
    documents. Without `build`, that case raises BadInput with the reason `why_not` and changes nothing. Raises
    LeaseLost if another run is at work, and any error of the build.
    """
    # No record may contain an id: neither the details of a run nor its error.
    details = {"documents": len(document_ids)}
    with operation(store, "forget", details=details, clock=clock) as run:
        search = Search(store, document_ids)
        if search.newest_holds and build is None:
            raise BadInput(
                f"version {search.there[-1].version} of {store.url}, the newest, contains documents to forget, and "
                f"{why_not or 'no build is allowed'}: a version without them has to be published first"
            )
        created = timestamp(clock())
        tombstones.put(store, document_ids, run_id=run.run_id, created=created, derived=search.derived())
        known_ids = frozenset(search.known_ids)
        if not search.newest_holds:
            return _removed(run, search, clock), known_ids
        run.done = True
        run.report = {"forget": {"tombstones": len(document_ids), "build": True}}
    assert build is not None  # noqa: S101 - refused above
    build()
    with operation(store, "forget", details=details, clock=clock) as run:
        search = Search(store, document_ids)
        if search.newest_holds:
            raise StoreError(
                f"{store.url}: the newest version still contains documents to forget; nothing was removed: run the "
                "same command again"
            )
        return _removed(run, search, clock), known_ids | search.known_ids


def lift(store: Store, document_ids: Sequence[str], *, clock: Clock = time.time) -> tuple[str, ...]:
    """Let documents with these ids in again, and record it; returns the ids that were forgotten.

    Nothing that was removed returns. Raises LeaseLost if another run is at work.
    """
    with operation(store, "forget", details={"documents": len(document_ids), "lift": True}, clock=clock) as run:
        created = timestamp(clock())
        lifted = tombstones.lift(store, document_ids, created=created)
        if lifted:
            digests = tuple(sorted(map(tombstones.document_digest, lifted)))
            record = LiftRecord(run_id=run.run_id, created=created, lifted=digests)
            store.create(forgotten_name(run.run_id), record.to_bytes())
        run.done = bool(lifted)
        run.report = {"forget": {"lifted": len(lifted)}}
    return lifted


def _removed(run: Operation, search: Search, clock: Clock) -> ForgetRecord:
    record = remove(run.store, run.lease, search, clock=clock)
    run.done = True
    counts = {"blobs", "bytes", "receipts", "quarantine_rows", "records", "answers"}
    run.report = {"forget": record.model_dump(mode="json", include=counts)}
    return record
