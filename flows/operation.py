"""The frame of every operation that writes to a store: a run id, the lease, and records of the start and the end.

Operations that only create records, such as moving an alias, need no lease: `recorded` is the frame without it.

However the block ends, the run's record names its outcome and the lease is released. A killed run does neither; the
next run takes over the lease and finds every finished part by its receipt.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from indexmill.errors import DiskFull, IndexmillError, StoreError, VersionWithdrawn
from indexmill.models.secrets import redacted
from indexmill.store.free_space import temporary_folder
from storage import refs, runs
from storage.clock import Clock, timestamp
from storage.lease import DURATION, Lease, acquire
from storage.protocol import Store

_FREES_SPACE = frozenset({"forget", "gc"})
"""The commands that may use a store's reserve if the disk is full."""

_ENDINGS: dict[int, runs.Ending] = {3: "refused", 4: "budget", 5: "superseded"}


@dataclass
class Recorded:
    """A run at work. The block sets the fields of its end record."""

    store: Store
    run_id: str
    published: bool = False
    done: bool = False
    """True if it completed its task without publishing a version."""
    version: int | None = None
    manifest: str | None = None
    report: Mapping[str, JsonValue] = field(default_factory=dict)
    plan: Mapping[str, JsonValue] | None = None  # planned and actual figures


@dataclass(kw_only=True)
class Operation(Recorded):
    """A run at work that holds the lease."""

    lease: Lease


@contextlib.contextmanager
def operation(
    store: Store,
    command: str,
    *,
    details: Mapping[str, JsonValue] | None = None,
    clock: Clock = time.time,
    lease_seconds: float = DURATION,
) -> Iterator[Operation]:
    """Hold the lease and keep the run's records during the block.

    clock: the clock of the records; the lease uses the store's. Raises LeaseLost if another run is at work or took
    over the lease meanwhile, and any error of the block.
    """
    run_id = runs.make_run_id(clock)
    with (
        store.freeing_space() if command in _FREES_SPACE else contextlib.nullcontext(),
        acquire(store, run_id, duration=lease_seconds) as lease,
    ):
        if command not in _FREES_SPACE:
            store.keep_reserve()
        newest = refs.newest(store)
        runs.start(store, run_id, command, clock=clock, parent=newest.version if newest else None, details=details)
        at_work = Operation(store, run_id, lease=lease)
        with _recorded(at_work, clock):
            try:
                yield at_work
            except (VersionWithdrawn, DiskFull):
                raise
            except Exception:
                lease.check()  # raises if a lost lease is the cause
                raise


@contextlib.contextmanager
def recorded(
    store: Store, command: str, *, details: Mapping[str, JsonValue] | None = None, clock: Clock = time.time
) -> Iterator[Recorded]:
    """Keep a run's records during a block that needs no lease: other runs may be at work meanwhile."""
    run_id = runs.make_run_id(clock)
    runs.start(store, run_id, command, clock=clock, leased=False, details=details)
    at_work = Recorded(store, run_id)
    with _recorded(at_work, clock):
        yield at_work


@contextlib.contextmanager
def _recorded(at_work: Recorded, clock: Clock) -> Iterator[None]:
    state: runs.Ending = "failed"
    code, message = 1, None
    try:
        yield
        state = "published" if at_work.published else "done" if at_work.done else "unchanged"
        code = 0
    except IndexmillError as error:
        code, message = error.exit_code, redacted(str(error))
        state = _ENDINGS.get(code, "failed")
        raise
    except KeyboardInterrupt as error:
        state, code = "interrupted", 130
        message = f"interrupted by {error if error.args else 'Ctrl-C'}: finished parts are kept, the next run continues"
        raise
    except OSError as error:
        full = DiskFull.of_any(error, at_work.store.folder, temporary_folder())
        code, message = (1, f"{type(error).__name__}: {error}") if full is None else (full.exit_code, str(full))
        message = redacted(message)
        if full is None:
            raise
        raise full from error
    except BaseException as error:
        message = redacted(f"{type(error).__name__}: {error}")
        raise
    finally:
        record = runs.RunEnd(
            run_id=at_work.run_id,
            state=state,
            exit_code=code,
            ended=timestamp(clock()),
            version=at_work.version,
            manifest=at_work.manifest,
            error=message,
            report=dict(at_work.report),
            plan=None if at_work.plan is None else dict(at_work.plan),
        )
        # A full disk must not hide the run's error; a published version is valid without its run's end record.
        with contextlib.suppress(StoreError):
            runs.end(at_work.store, record)
        at_work.store.drop_scratch(at_work.run_id)
