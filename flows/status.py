"""How fresh the index is: what a monitor asks every few minutes, told from the store's records alone.

An index is as fresh as the last run that read the corpus and ended well, whether it published or found nothing to do.
Its age counts from the start of that run, when the corpus was read. A candidate that was published by hand is as old
as the run that built it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from indexmill.folder import FolderReader
from indexmill.layout import batch_name
from indexmill.manifest import Hold, Ref
from storage import batches, holds, lease, refs, runs
from storage.clock import from_timestamp
from storage.folder import FolderStore
from storage.lease import MARGIN, Holding
from storage.processes import alive
from storage.runs import Run

__all__ = ["Status", "look", "told"]

_READ_THE_CORPUS = ("build", "backfill")
_ENDED_WELL = ("published", "unchanged")


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version, and how long ago it was published."""

    version: int
    manifest: str
    run: str
    created: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run as it stands now."""

    run: str
    command: str
    state: str
    exit_code: int | None
    started: str
    ended: str | None
    age_seconds: float  # since it started
    error: str | None


@dataclass(frozen=True, slots=True)
class AtWork:
    """Who holds the lease, and since when. ended: why it is nobody's any more, though it was never given back."""

    run: str
    holder: str
    since: str
    expires: str
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch of questions that is not collected yet; see `indexmill batches`."""

    id: str
    state: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Status:
    """How a store stands. success: the last run that brought the index up to date."""

    fresh: bool
    age_seconds: float | None  # since the corpus was read that the index was last held against
    max_age_seconds: float | None
    version: Version | None
    success: LastRun | None
    last: LastRun | None
    running: AtWork | None
    zombie: AtWork | None
    hold: str | None
    aliases: dict[str, int]
    batches: tuple[Pending, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The status as one JSON object."""
        return dataclasses.asdict(self) | {
            "batches": [dataclasses.asdict(one) for one in self.batches],
            "problems": list(self.problems),
        }


def look(store: FolderStore, now: float, max_age: float | None = None) -> Status:
    """The state of a store at a time, seconds since the epoch; `max_age` in seconds, any age for None."""
    newest = refs.newest(store)
    known = runs.list_runs(store, clock=lambda: now)
    ahead = [run for run in known if _age(run.started, now) < -MARGIN]
    past = [run for run in known if run not in ahead]
    success, read_at = _success(past)
    age = None if read_at is None else max(0.0, _age(read_at, now))
    holding = lease.holding(store)
    held = None if holding is None or holding.released else _at_work(holding, now)
    unended = held is not None and not any(run.run_id == held.run and run.end is not None for run in known)
    zombie = held if held is not None and held.ended is not None and unended else None
    hold = holds.standing(store)
    stale = list(_staleness(newest is not None, age, max_age))
    return Status(
        fresh=not stale,
        age_seconds=age,
        max_age_seconds=max_age,
        version=None if newest is None else _version(newest, now),
        success=None if success is None else _last_run(success, now),
        last=_last_run((past or known)[-1], now) if known else None,
        running=held if held is not None and held.ended is None else None,
        zombie=zombie,
        hold=None if hold is None else str(hold),
        aliases=FolderReader(store.root).aliases(),
        batches=tuple(
            Pending(batch, state, round(max(0.0, now - kept.modified), 3))
            for batch, state in batches.open_states(store).items()
            if (kept := store.look(batch_name(batch, "asked"))) is not None
        ),
        problems=(*stale, *_of_clocks(ahead), *_of_zombie(zombie), *_of_hold(hold)),
    )


def _version(ref: Ref, now: float) -> Version:
    return Version(ref.version, ref.manifest, ref.run_id, ref.created, max(0.0, _age(ref.created, now)))


def _success(known: list[Run]) -> tuple[Run | None, str | None]:
    """The last run that brought the index up to date, and when the corpus was read that it did so with."""
    started = {run.run_id: run.started for run in known}
    found: list[tuple[str, Run]] = []
    for run in known:
        if run.state not in _ENDED_WELL:
            continue
        if run.start.command in _READ_THE_CORPUS:
            found.append((run.started, run))
        elif run.state == "published" and (built := run.start.details.get("candidate")) in started:
            found.append((started[str(built)], run))
    if not found:
        return None, None
    read_at, last = max(found, key=lambda one: (one[0], one[1].started))
    return last, read_at


def _staleness(published: bool, age: float | None, max_age: float | None) -> Iterable[str]:
    if not published:
        yield "no version was published yet: run `indexmill build`"
    elif max_age is not None and age is None:
        yield "no run is known to have held the index against the corpus: run `indexmill build`"
    elif max_age is not None and age is not None and age > max_age:
        yield f"the index was last held against the corpus {told(age)} ago, and --max-age is {told(max_age)}"


def _of_hold(hold: Hold | None) -> Iterable[str]:
    if hold is not None:
        yield f"{hold}; `indexmill resume` lets builds go on"


def _of_clocks(ahead: list[Run]) -> Iterable[str]:
    if ahead:
        yield (
            f"run {ahead[-1].run_id} began at {ahead[-1].started}, which is yet to come, and does not count: a clock "
            "is wrong, here or where it ran"
        )


def _of_zombie(zombie: AtWork | None) -> Iterable[str]:
    if zombie is not None:
        yield f"run {zombie.run} never ended: {zombie.ended}; the next run takes over, nothing is lost"


def _at_work(holding: Holding, now: float) -> AtWork:
    ended = None
    if alive(holding.holder) is False:
        ended = f"its {holding.holder} is gone"
    elif holding.free(now):
        ended = f"its lease ran out at {holding.expires}, and its {holding.holder} did not renew it"
    return AtWork(holding.run_id, str(holding.holder), holding.acquired, holding.expires, ended)


def _last_run(run: Run, now: float) -> LastRun:
    end = run.end
    return LastRun(
        run=run.run_id,
        command=run.start.command,
        state=run.state,
        exit_code=run.exit_code,
        started=run.started,
        ended=None if end is None else end.ended,
        age_seconds=_age(run.started, now),
        error=None if end is None else end.error,
    )


def _age(timestamp: str, now: float) -> float:
    return round(now - from_timestamp(timestamp), 3)


def told(seconds: float) -> str:
    """A length of time for people: its two largest units."""
    pieces = []
    rest = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number:
            pieces.append(f"{number}{unit}")
    return " ".join(pieces[:2]) or "0s"
