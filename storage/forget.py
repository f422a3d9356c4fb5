"""Forget documents: withdraw every version that contains one, and immediately remove all data that may contain one.

A version without a document, and everything in its lineage, is a function of a corpus without it. So the blobs that
such versions need stay, as do parts of shards that cannot contain the document. Everything else is removed, without a
grace period: parts can be made again. The order makes a crash at any point harmless:

1. Aliases move from withdrawn versions to the newest one, then records withdraw those versions.
2. Records are rewritten without the words that name a document. Answers of language models derived from one, and
   questions about it in open batches, are removed while the documents can still be read to identify them.
3. Receipts are removed, then blobs, announced as `storage.deletions` describes, but without a wait; then temporary
   files.
4. A final check reads everything. Only if it finds no trace, a record says that the documents are forgotten.

The tombstones and a version without the documents come first: see `flows.forget`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from indexmill.errors import CorruptBlob, NotFound, StoreError
from indexmill.store.layout import batch_name, blob_path, forgotten_name
from indexmill.store.manifest import Manifest, Ref, Removal
from indexmill.store.record import Digest, Record, Timestamp, Word
from schemas.tables import DOCUMENTS, PASSAGES, QUARANTINE
from storage import batches, deletions, lineage, refs, tombstones
from storage.batches import Batch
from storage.clock import Clock, timestamp
from storage.document_traces import Traces
from storage.gc import blobs_of, digests_in, receipts_of
from storage.lease import Lease
from storage.protocol import Store
from storage.provenance import AnswerProvenance, hashed
from storage.receipts import Receipt
from storage.records import get_record, get_record_blob, needs_search
from storage.runs import QuarantineRecord
from storage.table_blobs import put_table, read_table
from storage.tombstones import document_digest

_REWRITTEN = ("refs/", "holds/", "runs/")
_SHARD = re.compile(r"p([01]*)")
_PARQUET = b"PAR1"


_T = TypeVar("_T")
_Tuple = Annotated[tuple[_T, ...], Field(strict=False)]


class ExportedCopy(Record):
    """A copy outside the store that contains, or may contain, a forgotten document."""

    version: int | None
    path: str


class ForgetRecord(Record):
    """The record of what a run removed to forget documents, created once a final check of the store finds no trace."""

    run_id: Word
    created: Timestamp
    documents: _Tuple[Digest]
    """The SHA-256 of each id."""
    versions: _Tuple[int]
    """The versions that were withdrawn."""
    aliases: dict[str, Annotated[tuple[int, int], Field(strict=False)]]
    """The aliases that were moved: the old and the new version by name."""
    blobs: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    receipts: Annotated[int, Field(ge=0)]
    quarantine_rows: Annotated[int, Field(ge=0)]
    records: Annotated[int, Field(ge=0)]
    """The records that named a document: rewritten, or removed if they belong to no run and no version."""
    answers: Annotated[int, Field(ge=0)] = 0
    """The number of removed answers of language models and refused prompts."""
    questions: Annotated[int, Field(ge=0)] = 0
    """The number of removed questions of open batches."""
    batches: _Tuple[str] = ()
    """The batches that have or had such questions, with their endpoint, which keeps the texts until collection."""
    exports: _Tuple[ExportedCopy]
    done: bool


class LiftRecord(Record):
    """The record of a run that let documents with forgotten ids in again."""

    run_id: Word
    created: Timestamp
    lifted: _Tuple[Digest]
    """The SHA-256 of each id."""


@dataclass(frozen=True)
class Forgetting:
    """The data that must be removed to forget documents."""

    versions: tuple[int, ...]
    aliases: dict[str, tuple[int, int]]
    receipts: tuple[str, ...]
    blobs: dict[str, int]
    """The sizes of the blobs in bytes, by digest."""
    quarantine_rows: dict[str, int]
    """The number of rows to remove, by the name of their record."""
    records: tuple[str, ...]
    answers: tuple[str, ...]
    """The names of the records of answers of language models and of refused prompts."""
    questions: int
    """The number of questions to remove from open batches."""
    batches: tuple[str, ...]
    exports: tuple[ExportedCopy, ...]


class Search:
    """The data of documents in a store, searched once."""

    def __init__(self, store: Store, document_ids: Iterable[str]) -> None:
        self.store = store
        self.document_ids = tuple(dict.fromkeys(document_ids))
        self.known_ids: set[str] = set()
        """The ids that the store contains."""
        self._paths = [f"{int(document_digest(document_id), 16):0256b}" for document_id in self.document_ids]
        self._contents: list[dict[str, str | None]] = []
        self.passages: dict[str, set[str]] = {}
        """The ids of the passages of each document."""
        self._table_holds = cache(self._look)
        removed = refs.removals(store)
        self.there: list[Ref] = []
        self.holding: list[Ref] = []
        """The versions to withdraw: they contain a document, or cannot be read."""
        history = refs.history(store)
        self.newest = history[-1].version if history else 0
        """The highest version number, including withdrawn versions; 0 if there is none."""
        for ref in history:
            holds = self._manifest_holds(ref.manifest)  # withdrawn versions too: some of their blobs may remain
            if ref.version not in removed:
                self.there.append(ref)
                if holds:
                    self.holding.append(ref)
        self.candidates = [manifest for manifest in self._refused() if not self._manifest_holds(manifest)]
        for _, receipt in receipts_of(store):
            if receipt is not None and self.may_hold(receipt.shard):
                for output, digest in receipt.outputs.items():
                    if output in ("documents", "passages"):
                        self._table_holds(output, digest)

    @property
    def newest_holds(self) -> bool:
        """True if a version without the documents must be published first."""
        return bool(self.there and self.holding) and self.there[-1] == self.holding[-1]

    @property
    def clean(self) -> list[Ref]:
        """The refs of the existing versions that contain none of the documents."""
        return [ref for ref in self.there if ref not in self.holding]

    @cached_property
    def traces(self) -> Traces:
        """The ids and text pieces that identify the documents elsewhere."""
        return Traces(self.document_ids, self._contents, self._passage_ids)

    def unaccounted(self, answers: AnswerProvenance | None = None) -> tuple[str, ...]:
        """Return the names of answers of models that derive from the documents, or from no text in the store."""
        gone = hashed([*self.document_ids, *self._passage_ids])
        return tuple((answers or self._answers).unaccounted(lambda: self._accounted, gone))

    def derived(self) -> dict[str, set[str]]:
        """Return, by document, the SHA-256 of the ids of its passages and of the texts that models made from them."""
        digests = {}
        for document_id in self.document_ids:
            passages = self.passages.get(document_id, set())
            outputs = self._answers.made_of(hashed([document_id, *passages]), lambda: self._accounted)
            digests[document_id] = outputs.union(map(document_digest, passages))
        return digests

    def names(self, ids: Iterable[str]) -> bool:
        """Return True if an id belongs to a document, one of its passages, or a text made from them."""
        return any(document_digest(name) in self._digests for name in ids)

    @cached_property
    def _digests(self) -> frozenset[str]:
        return frozenset({*map(document_digest, self.document_ids), *chain(*self.derived().values())})

    @cached_property
    def _answers(self) -> AnswerProvenance:
        return AnswerProvenance(self.store, self.traces)

    @property
    def _passage_ids(self) -> frozenset[str]:
        return frozenset(passage for passages in self.passages.values() for passage in passages)

    @cached_property
    def _accounted(self) -> NDArray[np.uint64]:
        """The `hashed` ids of all documents and passages in the store, as they were before anything was removed."""
        hashes = [hashed(())]
        for digest, _ in blobs_of(self.store):
            with contextlib.suppress(StoreError):  # the content of a damaged blob is unknown
                path = self.store.open_local(digest)
                if _is_table(path) and {"document_id", "passage_id"} <= set(pq.read_schema(path).names):
                    table = pq.read_table(path, columns=["document_id", "passage_id"])
                    hashes += [hashed(column.unique().to_pylist()) for column in table.columns]
        return np.unique(np.concatenate(hashes))

    def may_hold(self, shard: str) -> bool:
        """Return True if a shard can contain one of the documents: its label's bits are a prefix of an id's hash."""
        matched = _SHARD.fullmatch(shard)
        return matched is None or any(path.startswith(matched[1]) for path in self._paths)

    def _refused(self) -> list[str]:
        """Return the manifests of refused runs: an operator may still publish them."""
        manifests = []
        for name in self.store.list("runs/"):
            if name.endswith("/end.json"):
                record = _value(self.store, name)
                if record.get("state") == "refused" and record.get("manifest"):
                    manifests.append(record["manifest"])
        return manifests

    def _manifest_holds(self, digest: str) -> bool:
        try:
            manifest = get_record_blob(self.store, digest, Manifest)
        except CorruptBlob:
            return True
        holds = False
        for artifact in manifest.artifacts:
            table, _, shard = artifact.name.partition("/")
            if table in ("documents", "passages") and self.may_hold(shard):
                holds |= self._table_holds(table, artifact.digest)
        return holds

    def _look(self, name: str, digest: str) -> bool:
        """Return True if a table of documents or passages has a row of one of the documents, or cannot be read."""
        try:
            if name == "documents":
                table = read_table(self.store, digest, DOCUMENTS)
            else:  # reading the texts would take most of the time
                table = read_table(self.store, digest, PASSAGES, columns=("passage_id", "document_id"))
        except StoreError:
            return True  # unreadable: assume that it has one
        ids, searched = table.column("document_id").to_pylist(), set(self.document_ids)
        rows = [row for row, document_id in enumerate(ids) if document_id in searched]
        matches = table.take(pa.array(rows, pa.int64())).to_pylist()
        self.known_ids.update(row["document_id"] for row in matches)
        if name == "documents":
            self._contents += [row for row in matches if row not in self._contents]
        else:
            for row in matches:
                self.passages.setdefault(row["document_id"], set()).add(row["passage_id"])
        return bool(matches)


def dry_run(store: Store, search: Search) -> Forgetting:
    """Find the data that `remove` would remove; if a build must come first, also blobs that its version will share."""
    rows = {name: count for name, (_, count) in _quarantines(store, search.traces)}
    records = (*(name for name, _ in _tainted(store, search.traces)), *_others(store, search.traces))
    receipts, blobs = _parts(store, search, without=rows)
    newest = search.there[-1].version if search.there else 0
    return Forgetting(
        versions=tuple(ref.version for ref in search.holding),
        aliases=_aliases(store, search, newest + search.newest_holds),
        receipts=receipts,
        blobs=blobs,
        quarantine_rows=rows,
        records=records,
        answers=search.unaccounted(),
        questions=sum(_dropped(*pair) for pair in batches.naming(store, search.names)),
        batches=tuple(str(batch) for batch, _ in batches.naming(store, search.names)),
        exports=_exports(store, search),
    )


def remove(store: Store, lease: Lease, search: Search, *, clock: Clock) -> ForgetRecord:
    """Withdraw versions and remove data, then check everything once more; returns the record.

    The newest version must not contain a document, and the tombstones must exist. Raises LeaseLost once another run has
    taken over, StoreError if traces remain that it may not remove.
    """
    created = timestamp(clock())
    lease.check()
    newest = search.there[-1].version if search.there else 0
    aliases = _move_aliases(store, search, newest, created)
    for ref in search.holding:
        refs.remove(store, Removal(version=ref.version, reason="forgotten", run_id=lease.run_id, created=created))
    aliases |= _move_aliases(store, search, newest, created)  # moving an alias needs no lease
    rows = _clean_quarantines(store, search.traces)
    tainted = list(_tainted(store, search.traces))
    for name, clean in tainted:
        store.replace(name, clean)
    others = list(_others(store, search.traces))
    answers = search.unaccounted()
    for name in (*others, *answers):
        store.delete(name)
    forgotten = tombstones.forgotten(store)
    batches.sweep(store)
    affected = list(batches.naming(store, forgotten.names))
    for _, remaining in affected:
        batches.replace(store, remaining)
    receipts, blobs = _parts(store, search)
    lease.check()
    deletions.remove(store, lease, [*receipts, *map(blob_path, blobs)], seen=search.newest)
    store.sweep(math.inf, keep=lease.run_id)
    exports = _exports(store, search)
    _check_nothing_remains(store, search, lease.run_id)
    record = ForgetRecord(
        run_id=lease.run_id,
        created=created,
        documents=tuple(sorted(document_digest(document_id) for document_id in search.document_ids)),
        versions=tuple(ref.version for ref in search.holding),
        aliases=aliases,
        blobs=len(blobs),
        bytes=sum(blobs.values()),
        receipts=len(receipts),
        quarantine_rows=rows,
        records=len(tainted) + len(others),
        answers=len(answers),
        questions=sum(_dropped(*pair) for pair in affected),
        batches=tuple(str(batch) for batch, _ in affected),
        exports=exports,
        done=True,
    )
    lease.check()
    store.create(forgotten_name(lease.run_id), record.to_bytes())
    return record


def _clean_quarantines(store: Store, traces: Traces) -> int:
    rows = 0
    for name, (record, count) in list(_quarantines(store, traces)):
        remaining = _remaining_rows(store, record, traces)
        digest, _ = put_table(store, remaining, QUARANTINE)
        store.replace(name, record.model_copy(update={"digest": digest, "rows": remaining.num_rows}).to_bytes())
        rows += count
    return rows


def _dropped(batch: Batch, remaining: Batch) -> int:
    return len(batch.request.questions) - len(remaining.request.questions)


def _aliases(store: Store, search: Search, newest: int) -> dict[str, tuple[int, int]]:
    clean = {ref.version for ref in search.clean}
    return {alias: (version, newest) for alias, version in refs.aliases(store).items() if version not in clean}


def _move_aliases(store: Store, search: Search, newest: int, created: str) -> dict[str, tuple[int, int]]:
    moved = _aliases(store, search, newest)
    for alias in moved:
        refs.promote(store, alias, newest, created, "its version was withdrawn")
    return moved


def _exports(store: Store, search: Search) -> tuple[ExportedCopy, ...]:
    """Return the exported copies, except those of versions that contain none of the documents to forget."""
    clean = {ref.version for ref in search.clean}
    copies = []
    for name in store.list("exports/"):
        record = _value(store, name)
        if record.get("version") not in clean:
            copies.append(ExportedCopy(version=record.get("version"), path=str(record.get("path", name))))
    return tuple(copies)


def _quarantines(store: Store, traces: Traces) -> Iterator[tuple[str, tuple[QuarantineRecord, int]]]:
    """Yield the quarantine records with rows that name a document, and the number of those rows."""
    for name in store.list("runs/"):
        if "/quarantine." in name:
            record = get_record(store, name, QuarantineRecord)
            count = record.rows - _remaining_rows(store, record, traces).num_rows
            if count:
                yield name, (record, count)


def _remaining_rows(store: Store, record: QuarantineRecord, traces: Traces) -> pa.Table:
    """Return the rows of a quarantine to keep; none if its blob cannot be read."""
    try:
        table = read_table(store, record.digest, QUARANTINE)
    except StoreError:
        return QUARANTINE.empty_table()
    stay = [not traces.in_quarantine(row) for row in table.to_pylist()]
    return table.filter(pa.array(stay, pa.bool_()))


def _tainted(store: Store, traces: Traces) -> Iterator[tuple[str, bytes]]:
    """Yield the names of records whose text names a document, each with its cleaned content."""
    for prefix in _REWRITTEN:
        for name in store.list(prefix):
            if "/quarantine." not in name:
                data = store.get(name)
                clean = traces.cleaned(data)
                if clean != data:
                    yield name, clean


def _others(store: Store, traces: Traces) -> Iterator[str]:
    """Yield the records of unknown kinds with a trace in their content or name."""
    for name in store.list(""):
        if "/" not in name or not needs_search(name):
            continue
        with contextlib.suppress(NotFound, ValueError):  # not a name of a store
            if traces.in_text(name.removesuffix(".json")) or traces.in_record(store.get(name)):
                yield name


def _parts(store: Store, search: Search, without: Collection[str] = ()) -> tuple[tuple[str, ...], dict[str, int]]:
    """Find the receipts and blobs to remove: no clean version needs them, and their shard may contain a document."""
    keep: set[str] = set()
    keys: set[tuple[str, str]] = set()
    for manifest in [*(ref.manifest for ref in search.clean), *search.candidates]:
        read = get_record_blob(store, manifest, Manifest)
        keep |= {manifest, read.lineage, *(artifact.digest for artifact in read.artifacts)}
        try:
            parts = lineage.read(store, read.lineage).entries
        except CorruptBlob:
            continue  # its parts are made again
        keys |= {(part.stage, part.key) for part in parts}
        keep |= {digest for part in parts for digest in part.outputs.values()}
    doomed = []
    for name, receipt in receipts_of(store):
        if receipt is not None and ((receipt.stage, receipt.key) in keys or _elsewhere(search, receipt)):
            keep |= set(receipt.outputs.values())
        else:
            doomed.append(name)
    for digest in digests_in(store, without) - keep:
        if store.blob_size(digest) is not None and not _blob_holds(store.open_local(digest), search.traces):
            keep.add(digest)
    return tuple(doomed), {digest: blob.bytes for digest, blob in blobs_of(store) if digest not in keep}


def _elsewhere(search: Search, receipt: Receipt) -> bool:
    return _SHARD.fullmatch(receipt.shard) is not None and not search.may_hold(receipt.shard)


def _check_nothing_remains(store: Store, search: Search, run_id: str) -> None:
    remains = list(_remains(store, search, run_id))
    if remains:
        more = f" and {len(remains) - 5} others" if remains[5:] else ""
        raise StoreError(
            f"{store.url}: traces of forgotten documents remain in {', '.join(remains[:5])}{more}: remove them by "
            "hand, or stop the run that writes there, and run the same command again"
        )


def _remains(store: Store, search: Search, run_id: str) -> Iterator[str]:
    """Yield the names of records and blobs that have a trace or should be removed."""
    traces = search.traces
    yield from (name for name, _ in _tainted(store, traces))
    yield from (name for name, _ in _quarantines(store, traces))
    receipts, blobs = _parts(store, search)
    yield from receipts
    yield from (blob_path(digest) for digest in blobs)
    for digest, _ in blobs_of(store):
        path = store.open_local(digest)
        if _is_table(path):
            names = [name for name in pq.read_schema(path).names if name in ("document_id", "passage_id")]
            if names and traces.in_table(pq.read_table(path, columns=names)):
                yield blob_path(digest)
    yield from _others(store, traces)
    yield from search.unaccounted(AnswerProvenance(store, traces))
    yield from (batch_name(batch.id, "asked") for batch, _ in batches.naming(store, tombstones.forgotten(store).names))
    if store.sweep(math.inf, keep=run_id):
        yield "tmp"


def _blob_holds(path: Path, traces: Traces) -> bool:
    if not _is_table(path):
        return traces.in_record(path.read_bytes())
    table = pq.read_table(path)
    texts = (column.to_pylist() for column in table.columns if pa.types.is_string(column.type))
    return traces.in_table(table) or any(
        text is not None and traces.in_text(text) for column in texts for text in column
    )


def _is_table(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def _value(store: Store, name: str) -> dict[str, Any]:
    data = store.get(name)
    try:
        return _OBJECT.validate_json(data)
    except ValidationError as error:
        raise CorruptBlob(
            f"{store.url}/{name} is not a record ({len(data)} bytes); restore it from a copy of the store, or "
            "remove it by hand: a refused candidate or an exported copy that only it names is then not searched"
        ) from error
