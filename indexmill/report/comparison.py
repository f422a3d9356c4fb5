"""Comparison of two versions: quality by question, rows added and removed, sizes, and settings that differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import indexmill
from indexmill.diff import compare, differing
from indexmill.report.document_titles import only_in
from indexmill.report.inside import sizes_by_family, total_bytes
from indexmill.report.numbers import clipped
from indexmill.report.run_reading import read_run
from indexmill.report.run_record import GateMeasurement
from indexmill.report.tonight import NAMES, Changes, changes_of
from indexmill.retrieve.method_registry import families_of
from indexmill.snapshot import Snapshot
from indexmill.store.reader import StoreReader
from indexmill.store.table_reader import row_groups

QUESTIONS = 25
"""The maximum number of questions listed as won, and as lost."""
ROWS = 10
"""The maximum number of rows of a table listed as added, and as removed."""
SETTINGS = 50


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two compared versions. sizes: bytes by family. counts: the counts of all families, by label."""

    version: int
    created: str
    note: str
    documents: int
    passages: int
    entities: int
    bytes: int
    sizes: Mapping[str, int]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """A question whose recall differs between the versions."""

    question: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class MethodQuality:
    """The recall of a method in both versions. won, lost, same: how many questions had more, less or equal recall.

    Only questions that were measured in both versions count. The counts are None if a run did not record each question;
    each list contains at most ``QUESTIONS``.
    """

    method: str
    before: float | None
    after: float | None
    won: int | None
    lost: int | None
    same: int | None
    won_questions: tuple[QuestionChange, ...] = ()
    lost_questions: tuple[QuestionChange, ...] = ()


@dataclass(frozen=True, slots=True)
class CameAndWent:
    """The rows of a family's table that only one of the two versions has: their number, and some of their names."""

    table: str
    came: int
    went: int
    came_names: tuple[str, ...]
    went_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Version a compared with version b, the version of the report. differing: (setting, value in a, value in b).

    quality_remark: the reason why quality cannot be compared, or a caveat; else "".
    """

    a: Side
    b: Side
    changes: Changes
    quality: tuple[MethodQuality, ...]
    quality_remark: str
    rows: tuple[CameAndWent, ...]
    differing: tuple[tuple[str, str, str], ...]
    more_differing: int

    def sizes(self) -> tuple[str, ...]:
        """Return the families with files in either version."""
        return tuple(dict.fromkeys((*self.b.sizes, *self.a.sizes)))

    def counts(self) -> tuple[str, ...]:
        """Return the names of the counts that differ between the versions."""
        names = sorted({*self.a.counts, *self.b.counts})
        return tuple(name for name in names if self.a.counts.get(name) != self.b.counts.get(name))


def comparison(
    store: StoreReader, snapshot: Snapshot, version: int, known_changes: Changes | None = None
) -> VersionComparison:
    """Compare an opened version with another version of its store.

    known_changes: changes that were computed before; they are reused if they start from ``version``. Raises
    SnapshotNotFound if there is no such version, CorruptBlob.
    """
    with indexmill.open(store.url, version=version) as older:
        changes = known_changes
        if changes is None or changes.version != version:
            changes = changes_of(compare(older, snapshot, names=NAMES), version)
        (before, missing), (after, also_missing) = _quality(store, older), _quality(store, snapshot)
        different = _differing(older, snapshot)
        return VersionComparison(
            a=_side(older),
            b=_side(snapshot),
            changes=changes,
            quality=() if before is None or after is None else question_changes(before, after),
            quality_remark=missing or also_missing or _unlike(older, before, snapshot, after),
            rows=_rows(older, snapshot, changes),
            differing=tuple(different[:SETTINGS]),
            more_differing=max(len(different) - SETTINGS, 0),
        )


def _side(snapshot: Snapshot) -> Side:
    manifest, ref = snapshot.manifest, snapshot.ref
    return Side(
        version=snapshot.version or 0,
        created="" if ref is None else ref.created,
        note="" if ref is None else ref.note,
        documents=manifest.corpus.documents,
        passages=manifest.corpus.passages,
        entities=sum(shard.rows or 0 for shard in snapshot.shards("entities")),
        bytes=total_bytes(manifest),
        sizes={size.name: size.bytes for size in sizes_by_family(manifest)},
        counts={
            f"{name}: {count.replace('_', ' ')}": number
            for name, family in sorted(manifest.families.items())
            for count, number in sorted(family.counts.items())
        },
    )


# Quality


def _quality(store: StoreReader, snapshot: Snapshot) -> tuple[GateMeasurement | None, str]:
    """Return the measured quality of a version; None and the reason if nothing was measured or recorded."""
    run, why = (None, "") if snapshot.ref is None else read_run(store, snapshot.ref.run_id)
    if run is not None and run.quality is not None:
        return run.quality, ""
    if why and (run is None or not run.is_whole):
        return None, f"Version {snapshot.version}: {why}"
    return None, f"The run of version {snapshot.version} measured no questions."


def _unlike(older: Snapshot, before: GateMeasurement | None, newer: Snapshot, after: GateMeasurement | None) -> str:
    """Return a caveat if the recalls were measured at different depths; else ""."""
    if before is None or after is None or before.k == after.k:
        return ""
    return (
        f"Version {older.version} measured recall at {before.k}, version {newer.version} at {after.k}: "
        "a difference may come from that."
    )


def question_changes(before: GateMeasurement, after: GateMeasurement) -> tuple[MethodQuality, ...]:
    """Compare recalls by method, and count the questions won and lost; questions are matched by text."""
    return tuple(
        _of_method(method, before, after) for method in sorted({*before.recall, *after.recall} | {*after.by_question})
    )


def _of_method(method: str, before: GateMeasurement, after: GateMeasurement) -> MethodQuality:
    overall = before.recall.get(method), after.recall.get(method)
    if method not in before.by_question or method not in after.by_question:
        return MethodQuality(method, *overall, None, None, None)
    had = dict(zip(_numbered(before.asked), before.by_question[method], strict=True))
    won: list[QuestionChange] = []
    lost: list[QuestionChange] = []
    same = 0
    for question, now in zip(_numbered(after.asked), after.by_question[method], strict=True):
        earlier = had.get(question)
        if earlier is None or now is None:
            continue
        if now == earlier:
            same += 1
        else:
            (won if now > earlier else lost).append(QuestionChange(question[0], earlier, now))
    ordered = [
        sorted(changes, key=lambda change: -abs(change.after - change.before))[:QUESTIONS] for changes in (won, lost)
    ]
    return MethodQuality(method, *overall, len(won), len(lost), same, tuple(ordered[0]), tuple(ordered[1]))


def _numbered(questions: Sequence[str]) -> list[tuple[str, int]]:
    """Pair each question with its number of earlier duplicates; long questions are cut, so two may be equal."""
    seen: Counter[str] = Counter()
    numbered = []
    for question in questions:
        numbered.append((question, seen[question]))
        seen[question] += 1
    return numbered


# Rows of families' tables


def _rows(older: Snapshot, newer: Snapshot, changes: Changes) -> tuple[CameAndWent, ...]:
    rows = []
    families = {family.name: family for snapshot in (older, newer) for family in families_of(snapshot.manifest)}
    for family in families.values():
        for table, key in family.tables.items():
            if table in changes.rows:
                came, went = changes.rows[table]
                names = _names(newer, older, table, key), _names(older, newer, table, key)
                rows.append(CameAndWent(table, came, went, *names))
    return tuple(rows)


def _names(snapshot: Snapshot, other_snapshot: Snapshot, table: str, key: str) -> tuple[str, ...]:
    """Return the titles (or texts, for lack of titles) of some rows that only ``snapshot`` has, sorted by key."""
    only_here, only_there = only_in(snapshot, other_snapshot, table), only_in(other_snapshot, snapshot, table)
    shards = [shard for shard in snapshot.shards(table) if shard.name in only_here]
    shown = next((name for name in ("title", "text") if shards and shards[0].has_column(name)), None)
    if shown is None:
        return ()
    other_keys = [
        part[key]
        for shard in other_snapshot.shards(table)
        if shard.name in only_there
        for part in row_groups(other_snapshot.file(shard.name), shard, [key])
    ]
    known_keys = pa.chunked_array([chunk for column in other_keys for chunk in column.chunks], pa.string())
    best: list[tuple[str, str]] = []
    for shard in shards:
        for part in row_groups(snapshot.file(shard.name), shard, [key, shown]):
            fresh = part.filter(pc.invert(pc.is_in(part[key], value_set=known_keys)))
            first = fresh.take(pc.select_k_unstable(fresh, k=ROWS, sort_keys=[(key, "ascending")]))
            pairs = zip(first[key].to_pylist(), first[shown].to_pylist(), strict=True)
            best = sorted([*best, *((name, clipped(text, 120)) for name, text in pairs)])[:ROWS]
    return tuple(text for _, text in best)


# Settings


def _differing(older: Snapshot, newer: Snapshot) -> list[tuple[str, str, str]]:
    """List settings, models and library versions that differ, by path."""
    return [
        (path, _shown(before), _shown(after))
        for part in ("configuration", "models", "environment")
        for path, (before, after) in differing(getattr(older.manifest, part), getattr(newer.manifest, part)).items()
    ]


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return clipped(value if isinstance(value, str) else json.dumps(value, sort_keys=True), 120)
