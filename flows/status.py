"""The freshness of the index, computed from the store's records alone, for monitors that run every few minutes.

The published index is as fresh as the last successful run that compared it with the corpus, whether that run published
it or found nothing to do. Its age counts from the start of that run, when the corpus was read. A candidate that was
published by hand is as old as the run that built it; after a rollback, the version is as old as the runs it came from.
A refused build or a rollback determines the state at any age.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from indexmill.errors import CorruptBlob, UnsupportedFormat
from indexmill.retrieve.legibility import illegible_line, languages_of
from indexmill.store.layout import batch_name
from indexmill.store.manifest import Hold, Manifest, Ref, Removal
from indexmill.store.reader import StoreReader
from storage import batches, holds, lease, refs, runs
from storage.clock import from_timestamp
from storage.lease import MARGIN, Holding
from storage.processes import alive
from storage.protocol import Store
from storage.publish import read_manifest
from storage.runs import StoredRun

State = Literal["fresh", "stale", "refused", "candidate-waiting", "rolled-back", "on-hold", "unpublished"]
"""The state of a store; if several apply, the last in this list.

stale: older than the requested age. refused: a gate refused the last build, and nothing newer is published.
candidate-waiting: refused, and the candidate can be published by hand. rolled-back: no build has compared the index
with the corpus since. on-hold: builds are refused until `indexmill resume`.
"""

EXIT_CODES: dict[State, int] = {
    "fresh": 0,
    "stale": 1,
    "unpublished": 1,
    "refused": 3,
    "candidate-waiting": 7,
    "on-hold": 8,
    "rolled-back": 9,
}
"""The exit codes of `indexmill status`; 2 stands for a missing store."""

_READ_THE_CORPUS = ("build", "backfill")
_ENDED_WELL = ("published", "unchanged")


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version, and its age since publication."""

    version: int
    manifest: str
    run: str
    created: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class LastRun:
    """The current state of a run."""

    run: str
    command: str
    state: str
    exit_code: int | None
    started: str
    ended: str | None
    age_seconds: float  # since the start of the run
    error: str | None


@dataclass(frozen=True, slots=True)
class AtWork:
    """The holder of the lease. ended: the reason why the lease is free although it was not released."""

    run: str
    holder: str
    since: str
    expires: str
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch of prompts whose answers are not collected yet; see `indexmill batches`."""

    id: str
    state: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a store.

    success: the last run that compared the served index with the corpus. candidate: the run whose candidate can be
    published by hand. stand_ins: by stage, the numbers of texts in the served index and of fallbacks among them.
    languages: by two-letter code ("" for unknown) in the newest version, the numbers of documents and passages, and
    the legibility to the encoder, 0 to 1; see `indexmill.retrieve.legibility`. encoder_warning: one line about the
    languages that the encoder hardly reads, empty if it reads all.
    coverage: what became of the files of the corpus in the run `success`; see `tasks.stages.ingest.corpus_coverage`.
    """

    state: State
    fresh: bool
    age_seconds: float | None  # since the corpus was read for the last comparison
    max_age_seconds: float | None
    version: Version | None
    success: LastRun | None
    last: LastRun | None
    running: AtWork | None
    zombie: AtWork | None
    hold: str | None
    candidate: str | None
    stand_ins: dict[str, dict[str, int]]
    coverage: dict[str, Any]
    languages: dict[str, dict[str, int | float]]
    encoder_warning: str
    aliases: dict[str, int]
    batches: tuple[Pending, ...]
    problems: tuple[str, ...]


def read_status(store: Store, now: float, max_age: float | None = None) -> Status:
    """Compute the status of a store at a time in seconds since the epoch. max_age: in seconds; None for any age."""
    history = refs.history(store)
    newest = refs.standing(store)
    all_runs = runs.list_runs(store, clock=lambda: now, history=history)
    ahead = [run for run in all_runs if _age(run.started, now) < -MARGIN]
    past = [run for run in all_runs if run not in ahead]
    successes = _successes(past)
    of_current = _of_current(successes, history, newest)
    read_at, success = of_current[-1] if of_current else (None, None)
    age = None if read_at is None else max(0.0, _age(read_at, now))
    holding = lease.holding(store)
    holder = None if holding is None or holding.released else _at_work(holding, now)
    unended = holder is not None and not any(run.run_id == holder.run and run.end is not None for run in all_runs)
    zombie = holder if holder is not None and holder.ended is not None and unended else None
    hold = holds.standing(store)
    stale = _staleness(newest is not None, age, max_age)
    refused = _refused(past, successes[-1][0] if successes else "")
    candidate = refused if history and _is_publishable(refused, history[-1]) else None
    back = _rollback(past, newest, read_at)
    withdrawn = refs.removals(store).get(history[-1].version) if history else None
    manifest = None if newest is None else _manifest(store, newest)
    state = _state(newest is not None, hold, back, candidate, refused, stale)
    return Status(
        state=state,
        fresh=state == "fresh",
        age_seconds=age,
        max_age_seconds=max_age,
        version=None if newest is None else _version(newest, now),
        success=None if success is None else _last_run(success, now),
        last=_last_run((past or all_runs)[-1], now) if all_runs else None,
        running=holder if holder is not None and holder.ended is None else None,
        zombie=zombie,
        hold=None if hold is None else str(hold),
        candidate=None if candidate is None else candidate.run_id,
        stand_ins={} if success is None else _report_of(success, "stand_ins"),
        coverage={} if success is None else _report_of(success, "coverage"),
        languages={} if manifest is None else languages_of(manifest),
        encoder_warning="" if manifest is None else illegible_line(manifest),
        aliases=StoreReader(store.url).aliases(),
        batches=tuple(
            Pending(batch, state, round(max(0.0, now - file.modified), 3))
            for batch, state in batches.open_states(store).items()
            if (file := store.stat(batch_name(batch, "asked"))) is not None
        ),
        problems=(
            *([] if stale is None else [stale]),
            *_problems(withdrawn, refused, back, newest, ahead, zombie, hold),
        ),
    )


def _state(
    published: bool,
    hold: Hold | None,
    back: StoredRun | None,
    candidate: StoredRun | None,
    refused: StoredRun | None,
    stale: str | None,
) -> State:
    if not published:
        return "unpublished"
    if hold is not None:
        return "on-hold"
    if back is not None:
        return "rolled-back"
    if refused is not None:
        return "refused" if candidate is None else "candidate-waiting"
    return "fresh" if stale is None else "stale"


def _manifest(store: Store, ref: Ref) -> Manifest | None:
    """Read the manifest of a version; None if this version of indexmill cannot, as `indexmill verify` reports."""
    try:
        return read_manifest(store, ref.manifest)
    except (CorruptBlob, UnsupportedFormat):
        return None


def _version(ref: Ref, now: float) -> Version:
    return Version(ref.version, ref.manifest, ref.run_id, ref.created, max(0.0, _age(ref.created, now)))


def _successes(past: Sequence[StoredRun]) -> list[tuple[str, StoredRun]]:
    """Return the runs that brought the index up to date, with the time they read the corpus, ordered by that time."""
    started = {run.run_id: run.started for run in past}
    successes: list[tuple[str, StoredRun]] = []
    for run in past:
        if run.state not in _ENDED_WELL:
            continue
        if run.start.command in _READ_THE_CORPUS:
            successes.append((run.started, run))
        elif run.state == "published" and (source := run.start.details.get("candidate")) in started:
            successes.append((started[str(source)], run))
    return sorted(successes, key=lambda success: (success[0], success[1].started))


def _of_current(
    successes: Sequence[tuple[str, StoredRun]], history: Sequence[Ref], newest: Ref | None
) -> list[tuple[str, StoredRun]]:
    if newest is None:
        return []
    manifests = {ref.version: ref.manifest for ref in history}
    return [(at, run) for at, run in successes if run.version and manifests.get(run.version) == newest.manifest]


def _refused(past: Sequence[StoredRun], read_at: str) -> StoredRun | None:
    """Return the last build that a gate refused, unless the index matches that build's corpus or a newer one."""
    refused = [run for run in past if run.state == "refused" and run.start.command in _READ_THE_CORPUS]
    return refused[-1] if refused and refused[-1].started > read_at else None


def _is_publishable(refused: StoredRun | None, newest: Ref) -> bool:
    return refused is not None and refused.candidate is not None and refused.start.parent == newest.version


def _rollback(past: Sequence[StoredRun], newest: Ref | None, read_at: str | None) -> StoredRun | None:
    """Return the rollback that published the newest version, unless a build has compared it with the corpus since."""
    for run in past:
        if newest is not None and run.run_id == newest.run_id and run.start.command == "rollback":
            return run if read_at is None or read_at < run.started else None
    return None


def _report_of(success: StoredRun, key: str) -> dict[str, Any]:
    facts: Any = success.end.report.get(key, {}) if success.end is not None else {}
    return dict(facts)


def _staleness(published: bool, age: float | None, max_age: float | None) -> str | None:
    """Return the reason why the index is stale, by its age alone; None if it is not."""
    if not published:
        return "no version was published yet: run `indexmill build`"
    if max_age is None:
        return None
    if age is None:
        return "no recorded run has compared the index with the corpus: run `indexmill build`"
    if age > max_age:
        message = f"the index was last compared with the corpus {duration_text(age)} ago"
        return f"{message}, and --max-age is {duration_text(max_age)}"
    return None


def _problems(
    withdrawn: Removal | None,
    refused: StoredRun | None,
    back: StoredRun | None,
    newest: Ref | None,
    ahead: Sequence[StoredRun],
    zombie: AtWork | None,
    hold: Hold | None,
) -> Iterator[str]:
    if withdrawn is not None:
        yield f"{withdrawn}; the previous version is served: run `indexmill build`"
    if refused is not None:
        why = refused.end.error if refused.end is not None else None
        yield f"the last build, run {refused.run_id}, was refused: {(why or '').partition('. ')[0]}"
    if back is not None and newest is not None:
        yield (
            f"version {newest.version} went back to version {back.start.details.get('version')}, by run {back.run_id}: "
            "no build has compared it with the corpus since"
        )
    if ahead:
        yield (
            f"run {ahead[-1].run_id} began in the future, at {ahead[-1].started}, and is ignored: the clock of this "
            "machine or of that run is wrong"
        )
    if zombie is not None:
        yield f"run {zombie.run} never ended: {zombie.ended}; the next run takes over, nothing is lost"
    if hold is not None:
        yield f"{hold}; `indexmill resume` allows builds again"


def _at_work(holding: Holding, now: float) -> AtWork:
    ended = None
    if alive(holding.holder) is False:
        ended = f"its {holding.holder} has ended"
    elif holding.free(now):
        ended = f"its lease ran out at {holding.expires}, and its {holding.holder} did not renew it"
    return AtWork(holding.run_id, str(holding.holder), holding.acquired, holding.expires, ended)


def _last_run(run: StoredRun, now: float) -> LastRun:
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


def duration_text(seconds: float) -> str:
    """Format a duration in its two largest units."""
    pieces = []
    rest = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number:
            pieces.append(f"{number}{unit}")
    return " ".join(pieces[:2]) or "0s"
