"""The corpus of a run: read, checked by gates, divided into shards, and passed to the per-shard stages by waves."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import BadInput, ConfigurationError, CorruptBlob, GateRefused, NotFound, SnapshotNotFound
from indexmill.retrieve.rights import Access
from indexmill.text.counted import counted
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS
from storage import refs, runs, tombstones
from storage.poison import Poison
from storage.publish import read_manifest
from storage.readings import put_reading
from storage.table_blobs import read_table
from tasks.core.executor import Call, timed
from tasks.core.part_runner import SEARCH_PRIORITY, Parent, PartRunner, PartSpec
from tasks.pipeline import gates
from tasks.pipeline.run_setup import RunSetup
from tasks.stages.ingest import corpus_coverage, read_part, shard_plan, spill, supervisor
from tasks.stages.ingest.documents import clip
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.ingest.known import PreviousReading, known_of, reading_record
from tasks.stages.ingest.listing import list_again, list_corpus
from tasks.stages.ingest.part import IngestSettings
from tasks.stages.ingest.refused import (
    EMPTY,
    NO_FAILURES,
    TEMPORARY,
    example_of,
    failed_files,
    failures_of,
    files_refused_for,
    no_document,
    reasons_of,
    summary_of,
    unread_files,
)
from tasks.stages.ingest.source_files import (
    RECORDS,
    PassedOver,
    SourceFile,
    SourceFiles,
    batches,
    bytes_to_read,
    digest_of_files,
    is_quick,
)

FEW_BYTES, FEW_FILES = 4 << 20, 500
"""The most bytes to read, and the most files that were changed or deleted, of a small refresh."""


class RunCorpus:
    """The documents of a run, in shards; the per-shard stages work on the latest wave.

    plan: the shards; available once the corpus is read.
    """

    def __init__(self, runner: PartRunner, setup: RunSetup) -> None:
        self._runner, self._setup = runner, setup
        self._configuration = setup.configuration
        self._sources: SourceFiles | None = None
        self._unchanged: frozenset[str] = frozenset()  # the names of listed files that need not be read
        self._plan: shard_plan.ShardPlan | None = None
        self._shards_so_far: tuple[shard_plan.Shard, ...] = ()
        self.wave: tuple[shard_plan.Shard, ...] = ()

    def preflight(self) -> None:
        """Find the files; raises ConfigurationError, BadInput or GateRefused if there are none to read."""
        self._sources = self._find_files()
        self._refuse_rights()
        self._refuse_unread(self._sources)
        self._runner.report.corpus_files = self._digest_of_files(self._sources)
        if not self._sources.files:
            self._refuse_shrink(gates.CorpusChange(*self._before(), now=0, empty=self._sources.empty))

    def read(self, poison: Iterable[Poison], *, again: bool) -> shard_plan.ShardPlan:
        """Read the corpus, reject unusable rows, and divide the documents into shards.

        poison: documents that a stage cannot process. again: whether this run has read the corpus before, without
        knowing these documents. Raises BadInput and GateRefused.
        """
        sources = self._find_files() if self._sources is None else self._sources
        self._refuse_rights()
        self._folder.mkdir(parents=True, exist_ok=True)
        poisonous = {record.content_hash: (record.reason, f"{record.stage}: {record.detail}") for record in poison}
        sources, plan, results = self._planned(sources, poisonous)
        self._sources = sources
        refused = self.forgotten.without(shard_plan.quarantine_of(plan, self._folder))
        runs.add_quarantine(self._runner.store, self._runner.run_id, "ingest", refused, anew=again)
        self._remember(sources, plan, results, refused)
        failures = failures_of(refused)
        self._count(plan, refused, failures)
        if failures.num_rows and self._configuration.run.strict:
            raise BadInput(summary_of(failures, " and --strict is on"))
        self._refuse_many_failures(plan, failures)
        if not plan.documents and self._runner.parent is None:
            raise BadInput(no_document(refused))
        self._compare_with_parent(plan, sources.empty, failures)
        return plan

    def take(self, shards: Sequence[shard_plan.Shard]) -> None:
        """Make these shards the current wave of the per-shard stages; other stages see all waves so far."""
        known_labels = {shard.label for shard in self._shards_so_far}
        self._shards_so_far += tuple(shard for shard in shards if shard.label not in known_labels)
        self.wave = tuple(shards)

    def take_all(self) -> None:
        """Make the whole corpus one wave, unless there were waves already."""
        if self.is_read and not self._shards_so_far:
            self.take(self.plan.shards)

    def forget_shards(self) -> None:
        """Drop all shards, so that the corpus is read again: the spilled rows have become parts or were deleted."""
        self._plan, self._shards_so_far, self.wave = None, (), ()

    @property
    def is_read(self) -> bool:
        return self._plan is not None

    @property
    def plan(self) -> shard_plan.ShardPlan:
        """The shards of the corpus, once it is read."""
        if self._plan is None:
            raise RuntimeError("the corpus has not been read")
        return self._plan

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the shards of all waves so far."""
        return self._shards_so_far[-1].up_to if self._shards_so_far else self.plan.fingerprint

    @property
    def documents(self) -> int:
        """The number of documents in the shards of all waves so far."""
        return sum(shard.documents for shard in self._shards_so_far)

    def specs(self, shards: Iterable[shard_plan.Shard]) -> list[PartSpec]:
        """Return the parts of the `ingest` stage for the given shards."""
        return [
            PartSpec(
                shard.label,
                {"documents": shard.digest},
                IngestSettings(
                    spill=str(self._folder),
                    shard=shard,
                    before=() if self._previous is None else self._previous.documents_near(shard.label),
                ),
            )
            for shard in shards
        ]

    def drop_spill(self) -> None:
        """Delete the spill files of documents that have become parts."""
        remaining = self.plan.shards[len(self._shards_so_far) :]
        if remaining:
            shard_plan.drop_before(remaining[0], self._folder)
        else:
            shutil.rmtree(self._folder, ignore_errors=True)

    @cached_property
    def forgotten(self) -> tombstones.Forgotten:
        """The documents to forget; read from the store once per run."""
        return tombstones.forgotten(self._runner.store)

    @property
    def _folder(self) -> Path:
        return self._runner.store.scratch(self._runner.run_id) / "spill"

    @property
    def expects_work(self) -> bool:
        """Whether the files differ from the records of both the last version and the last run; a quick check."""
        if self._sources is not None and self._is_unchanged(self._sources):
            return False
        return runs.saw_other_files(self._runner.store, self._runner.report.corpus_files)

    @property
    def has_small_changes(self) -> bool:
        """Whether few files may have changed or are gone, which add up to a few megabytes; a quick check."""
        if self._sources is None or self._previous is None:
            return False
        unchanged = set(self._unchanged)
        changes = [file for file in self._sources.files if file.name not in unchanged]
        gone = len(self._previous.files) - len(unchanged)
        return max(gone, len(changes)) <= FEW_FILES and sum(map(bytes_to_read, changes)) <= FEW_BYTES

    @property
    def _settings(self) -> CorpusSettings:
        """The settings of the corpus; raises ConfigurationError if there are none."""
        if self._configuration.corpus is None:
            raise ConfigurationError(
                "no corpus: give --corpus FILE_OR_FOLDER, or `corpus: {paths: [...]}` in indexmill.yaml"
            )
        return self._configuration.corpus

    def _find_files(self) -> SourceFiles:
        """List the files of the corpus; an empty result is allowed only if there is a parent version."""
        settings, previous = self._settings, self._previous
        listing = list_corpus(
            settings,
            self._runner.store.scratch(self._runner.run_id) / "places",
            tokens={} if previous is None else previous.tokens(settings),
            allow_none=self._runner.parent is not None,
            doing=self._runner.progress.doing,
        )
        progress = self._runner.progress
        for warning in listing.warnings:
            progress.warn(warning)
        if summary := listing.summary:  # a few pictures beside documents are usual; more of them than documents is not
            (progress.warn if listing.files_passed_over > len(listing.files) else progress.note)(summary)
        if previous is None:
            return listing
        files = tuple(
            replace(file, cursor=previous.cursor(file, settings)) if file.kind == RECORDS else file
            for file in listing.files
        )
        self._unchanged = previous.unchanged(files, settings)
        return replace(listing, files=files)

    @cached_property
    def _previous(self) -> PreviousReading | None:
        """The record of what the last version read; None if everything must be read."""
        parent = self._runner.parent
        if self._setup.full or self._runner.cold or parent is None or parent.manifest is None:
            return None
        return known_of(self._runner.store, parent.manifest)

    def _is_unchanged(self, sources: SourceFiles) -> bool:
        previous = self._previous
        return previous is not None and len(previous.files) == len(sources.files) == len(self._unchanged)

    def _digest_of_files(self, sources: SourceFiles) -> str | None:
        """Return the digest by which the next run detects that no file changed; None if it would not help."""
        if self._is_unchanged(sources):
            before = runs.last_report(self._runner.store).get("corpus_files")
            return before if isinstance(before, str) else None
        # If some files are unchanged, others are new or changed. If none is, all may have been too recent to record.
        return None if self._unchanged else digest_of_files(sources.files)

    def _planned(
        self, sources: SourceFiles, poison: Mapping[str, tuple[str, str]]
    ) -> tuple[SourceFiles, shard_plan.ShardPlan, list[spill.ScanResult]]:
        """Read files that may have changed, reuse the rest from the last version, and plan the shards.

        Returns the last listing of the files, without those deleted meanwhile.
        """
        previous = self._previous
        unchanged = set(self._unchanged)
        to_read = [file for file in sources.files if file.name not in unchanged]
        scanned: list[spill.ScanResult] = []
        while True:
            sources, results = self._scan_twice(sources, to_read)
            scanned += results
            taken_over = [] if previous is None else [self._carry(previous, unchanged, scanned)]
            plan = self._plan = shard_plan.plan(
                [*scanned, *taken_over],
                self._folder,
                self._configuration.shards.document_tokens,
                poison=poison,
                forgotten=self.forgotten.id_hashes,
            )
            if not plan.lacking:
                return sources, plan, scanned
            # A row that was not a document in the last version has become one, so its text must be read.
            lacking = set(plan.lacking)
            unchanged -= lacking
            to_read = [replace(file, cursor=None) for file in sources.files if file.name in lacking]
            scanned = [result for result in scanned if lacking.isdisjoint(result.files)]

    def _scan_twice(
        self, sources: SourceFiles, files: Sequence[SourceFile]
    ) -> tuple[SourceFiles, list[spill.ScanResult]]:
        """Read files; list and read once more those that disappeared or changed meanwhile."""
        results = self._scan(files)
        moved = {name for result in results for name in (*result.stale, *result.changed)}
        if not moved:
            return sources, results
        scratch = self._runner.store.scratch(self._runner.run_id) / "places"
        listing = list_again([file for file in files if file.name in moved], self._settings, scratch)
        now = {file.name: file for file in listing.files}
        results = [
            result if moved.isdisjoint(result.files) else spill.without(result, moved, self._folder)
            for result in results
        ]
        results = [result for result in results if result.files] + self._scan(listing.files)
        listed = (now.get(file.name, file) for file in sources.files if file.name in now or file.name not in moved)
        empty = dict.fromkeys((*sources.empty, *listing.empty))
        return replace(sources, files=tuple(listed), empty=tuple(empty)), results

    def _carry(
        self, previous: PreviousReading, unchanged: Collection[str], scanned: Sequence[spill.ScanResult]
    ) -> spill.ScanResult:
        """Reuse the rows of files that were not read, and of sources from which only changes were read."""
        changes = [result for result in scanned if not result.until.whole]
        names = {*unchanged, *(name for result in changes for name in result.files)}
        rows, refused = previous.rows(names), previous.refused(names)
        for result in changes:
            ids = spill.ids_of(result, self._folder)
            shown = pa.chunked_array([[clip(name) for name in ids.to_pylist()]], pa.string())
            rows, refused = _without(rows, result.files, ids), _without(refused, result.files, shown)
        files = [file for file in previous.files.values() if file.identity.name in names]
        return spill.carry(rows, refused, {file.identity.name: file.counts for file in files}, self._folder)

    def _remember(
        self,
        sources: SourceFiles,
        plan: shard_plan.ShardPlan,
        scanned: Sequence[spill.ScanResult],
        rejected: pa.Table,
    ) -> None:
        """Record what was read, for the run after the next version, and what became of each file."""
        runner = self._runner
        by_name = {file.name: file for file in sources.files}
        read = {name: result for result in scanned for name in result.files}
        refused = shard_plan.refused_of(plan, self._folder)
        unsure = {*plan.changed, *files_refused_for(refused, TEMPORARY)}
        # Files with forgotten documents are always read: their rows must not be stored, and the run counts them.
        unsure.update(name for name in plan.with_forgotten if by_name[name].kind != RECORDS)
        cursors = {
            file.source: read[file.name].until.cursor if file.name in read else file.cursor
            for file in sources.files
            if file.kind == RECORDS
        }
        cursors = {source: cursor for source, cursor in cursors.items() if cursor is not None}
        forgotten, files, unread = self.forgotten, list[SourceFile](), list[PassedOver]()
        nameless: list[SourceFile | PassedOver] = []  # a record must not name them
        for file in sources.files:
            (nameless if file.document_name in forgotten else files).append(file)
        for entry in sources.passed_over:
            (nameless if forgotten.is_named_in(entry.document_name) else unread).append(entry)
        rows = shard_plan.known_rows(self._folder)
        covered = corpus_coverage.table_of(
            [replace(file, token="") if file.name in unsure else file for file in files],
            unread,
            plan.counts,
            rows,
            rejected,
            forgotten=nameless,
        )
        record = reading_record(
            runner.store,
            plan.fingerprint,
            self._settings,
            [file for file in files if file.name not in unsure and (file.token or file.source in cursors)],
            covered,
            rows,
            forgotten.without(refused),
            cursors,
        )
        put_reading(runner.store, runner.run_id, record)
        runner.report.coverage = corpus_coverage.summary_of(covered)
        counts = runner.report.stage("ingest").counts
        counts["files_read"], counts["files_unchanged"] = len(read), len(by_name) - len(read)
        counts["files_passed_over"] = sources.files_passed_over

    def _scan(self, files: Sequence[SourceFile]) -> list[spill.ScanResult]:
        """Read files into the spill folder; slow formats are read as parts."""
        slow = [] if self._setup.full else [file for file in files if file.token and format_of(file.kind) is not None]
        scanned = self._read_parts(slow) if slow else []
        done = {name for result in scanned for name in result.files}
        return scanned + self._scan_now([file for file in files if file.name not in done])

    def _read_parts(self, files: Sequence[SourceFile]) -> list[spill.ScanResult]:
        """Make the parts that read slow files, and write their rows into the spill folder."""
        runner = self._runner
        specs = {spec.shard: spec for spec in read_part.specs(files, self._settings)}
        parts = runner.make(read_part.STAGE, specs.values())
        runner.parts.pop(read_part.STAGE.name, None)  # not parts of a version: see `tasks.stages.ingest.read_part`
        calls = [
            Call(
                f"unpack-{runner.run_id}-{label}",
                partial(read_part.unpack, fresh=parts[label].run_id == runner.run_id),
                (runner.store.url, dict(parts[label].outputs), read_part.files_of(spec), self._folder),
                light=True,
                local=True,
            )
            for label, spec in specs.items()
        ]
        return [result for _, result in runner.run_patiently(calls, SEARCH_PRIORITY)]

    def _scan_now(self, files: Sequence[SourceFile]) -> list[spill.ScanResult]:
        """Read files into the spill folder."""
        runner = self._runner
        groups = {f"scan-{runner.run_id}-{number}": group for number, group in enumerate(batches(files))}
        runner.progress.begin("ingest", len(groups))
        calls = [
            Call(
                key,
                timed,
                (supervisor.scan, group, self._settings, self._folder),
                light=is_quick(files),
                local=True,
                on_progress=partial(runner.within, "ingest", key),
            )
            for key, group in groups.items()
        ]
        scanned = []
        report = runner.report.stage("ingest")
        for call, (result, seconds) in runner.run_patiently(calls, SEARCH_PRIORITY):
            runner.progress.within("ingest", call.key, None)
            scanned.append(result)
            report.seconds += seconds
            runner.report.count_work("ingest", seconds)
            runner.progress.advance("ingest")
        return scanned

    def _count(self, plan: shard_plan.ShardPlan, refused: pa.Table, failures: pa.Table) -> None:
        """Count the documents in the report, and warn of unread files and front matter."""
        report, progress = self._runner.report, self._runner.progress
        counts = report.stage("ingest").counts
        totals = {"documents": plan.documents, "quarantined": failures.num_rows, "repeats": plan.repeats}
        totals |= {"forgotten": plan.forgotten, "changed_while_read": len(plan.changed)}
        reasons = Counter(refused.column("reason").to_pylist())
        totals["empty_files"] = reasons[EMPTY]
        for name in totals:  # counts from an earlier reading, which included documents that a stage cannot process
            counts.pop(name, None)
        counts |= totals
        report.refused = reasons
        report.changed_files = plan.changed
        counted_files = plan.counts.items()
        left_out = {name: file.metadata_left_out for name, file in counted_files if file.metadata_left_out}
        if left_out:
            counts["metadata_left_out"] = sum(left_out.values())
            progress.warn(
                f"metadata in {gates.first_of(tuple(left_out))} were left out (front matter that is not YAML or over a "
                "limit, or values that JSON cannot represent, such as bytes): the documents are in the index with "
                "the rest of their metadata"
            )
        if line := corpus_coverage.words_line(report.coverage):
            progress.note(line)
        if failed := failed_files(refused):
            progress.warn(
                f"{gates.first_of(failed)} could not be read: see `indexmill quarantine`; the build continues with "
                "the rows before the failure"
            )

    def _refuse_many_failures(self, plan: shard_plan.ShardPlan, refused: pa.Table) -> None:
        """Raise GateRefused if too many rows were rejected: the corpus or its reader must have changed."""
        most = self._configuration.run.max_failed_share
        failed = sum(count for reason, count in plan.refused.items() if reason not in NO_FAILURES)
        rows = failed + plan.documents + plan.repeats
        if failed > max(most * rows, gates.FEW):
            raise GateRefused(
                f"{failed:,} of {counted(rows, 'row was', 'rows were')} refused ({reasons_of(refused)}), more than "
                f"run.max_failed_share allows ({most:g} of them), such as {example_of(refused)}. Nothing was "
                "published. `indexmill quarantine` lists them; fix the corpus, or raise run.max_failed_share"
            )

    def _compare_with_parent(self, plan: shard_plan.ShardPlan, empty: tuple[str, ...], refused: pa.Table) -> None:
        """Check the corpus's size, and the documents lost with an empty or unreadable source, against the gate."""
        for path in empty:
            self._runner.progress.warn(f"no file of the corpus is under {path}")
        if self._runner.parent is None:
            return
        unreadable = unread_files(refused)
        change = gates.CorpusChange(
            *self._before(),
            now=plan.documents,
            empty=empty,
            unreadable=unreadable,
            lost=self._lost() if empty or unreadable else 0,
            refused_rows=refused.num_rows,
            refused_why=f"{reasons_of(refused)}, such as {example_of(refused)}" if refused.num_rows else "",
        )
        self._refuse_shrink(change)

    def _before(self) -> tuple[int, int | None]:
        """Return the parent's version and number of documents; None for the number if the manifest is damaged."""
        parent = self._runner.parent
        if parent is None:
            return 0, 0
        return parent.version, parent.manifest.corpus.documents if parent.manifest else None

    def _refuse_unread(self, sources: SourceFiles) -> None:
        """Raise GateRefused if no reader takes most of the corpus' files."""
        most = self._configuration.gates.max_unread_share
        why = gates.refuse_unread(sources.files_unread, len(sources.files), most, sources.summary)
        if why is not None:
            raise GateRefused(why)

    def _refuse_rights(self) -> None:
        """Raise GateRefused if documents would open to more readers than in the previous version."""
        parent, corpus = self._runner.parent, self._configuration.corpus
        if parent is None or self._setup.allow_rights_change:
            return
        access = None if corpus is None else corpus.access
        now = None if access is None else Access(access.field, access.required)
        why = gates.refuse_rights(parent.version, self._rights_of(parent), now)
        if why is not None:
            raise GateRefused(why)

    def _rights_of(self, parent: Parent) -> Access | None:
        """Return the access rules of the parent, or of the newest version before it if its manifest is damaged."""
        store, manifest = self._runner.store, parent.manifest
        for version in range(parent.version, 0, -1):
            if manifest is not None:
                return Access.of(manifest, store.url)
            with contextlib.suppress(SnapshotNotFound, NotFound, CorruptBlob):
                manifest = read_manifest(store, refs.read(store, version - 1).manifest)
        return None

    def _refuse_shrink(self, change: gates.CorpusChange) -> None:
        most = self._configuration.gates.max_shrink
        why = None if self._setup.allow_shrink else gates.refuse_size(change, most)
        if why is not None and change.before and self.forgotten.tombstones:
            forgotten = sum(name in self.forgotten for ids in self._parents_ids() for name in ids.to_pylist())
            why = gates.refuse_size(replace(change, before=change.before - forgotten), most)
        if why is not None:
            raise GateRefused(why)

    def _parents_ids(self) -> Iterator[pa.ChunkedArray]:
        parent = self._runner.parent
        for shard in parent.manifest.under("documents") if parent and parent.manifest else ():
            yield read_table(self._runner.store, shard.digest, DOCUMENTS, columns=["document_id"])["document_id"]

    def _lost(self) -> int:
        here = shard_plan.document_ids(self._folder)
        lost = (ids.filter(pc.invert(pc.is_in(ids, here))).to_pylist() for ids in self._parents_ids())
        return sum(name not in self.forgotten for ids in lost for name in ids)


def _without(rows: pa.Table, files: Collection[str], ids: pa.ChunkedArray) -> pa.Table:
    of_files = pc.is_in(rows.column("file"), pa.array(sorted(files), pa.string()))
    changed = pc.and_(of_files, pc.is_in(rows.column("document_id"), ids.combine_chunks()))
    return rows.filter(pc.invert(pc.fill_null(changed, fill_value=False)))
