"""One run's work: bring the index up to date with the corpus, stage by stage.

Every run computes the corpus minus what is already there. A `Build` decides which parts a stage needs, finds those
that have receipts, hands the others to an executor and keeps the digests for the next stage. It knows neither Prefect
nor Dask, and it commits nothing: `manifest` returns what `storage.publish` may commit.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.canonical import canonical_json, digest_of
from indexmill.errors import BadInput, ConfigurationError, CorruptBlob, GateRefused, ModelUnavailable
from indexmill.evaluate import parse_questions
from indexmill.layout import blob_path, poison_prefix
from indexmill.manifest import Artifact, Corpus, Family, Manifest
from indexmill.packs import open_pack
from indexmill.retrieve.registry import available
from schemas.config import Configuration
from schemas.tables import DOCUMENTS
from storage import lineage as lineages
from storage import poison, refs, runs, tombstones
from storage.lineage import Lineage, LineageEntry
from storage.protocol import Store
from storage.publish import describe
from storage.receipts import Receipt, candidates, find, overlap, scan
from storage.tables import read_table
from tasks import (
    bm25,
    check,
    embed,
    embed_names,
    encoder,
    gates,
    quality,
    recognise,
    resolve,
    split,
    tri_graph,
    zoom_graph,
    zoom_links,
)
from tasks.encoder import EncoderChoice, OpenedEncoder, choose_encoder, fingerprint_of
from tasks.environment import code_digest, environment_fingerprint, library_versions
from tasks.executor import Call, Executor, Failed, StoppedError, WorkerDied, timed
from tasks.ingest import part as ingest_part
from tasks.ingest import spill
from tasks.ingest.sources import Found, batches, is_quick
from tasks.ingest.sources import find as find_sources
from tasks.isolate import DocumentsFailed, blames_documents, failing_documents
from tasks.quality import Measured, Quality, compare
from tasks.report import Progress, Report, Silent, StageReport
from tasks.stage import Job, Made, Stage, make_part, part_key

__all__ = ["MAY_FAIL", "NEEDS", "OF_SHARDS", "WHOLE", "Build", "Parent"]

Parts = dict[str, Receipt]  # by shard label

_PRIORITY = {"scan": 50, "ingest": 40, "encoder": 60, "split": 20, "recognise": 10, "resolve": 10, "embed_names": 5}
_TABLES = frozenset({"documents", "passages", "sentences", "mentions", "entities", "surfaces"})
NEEDS: dict[str, tuple[str, ...]] = {
    "encoder": (),
    "ingest": (),
    "split": ("ingest",),
    "recognise": ("split",),
    "embed": ("encoder", "split"),
    "resolve": ("recognise",),
    "embed_names": ("encoder", "resolve"),
    "bm25": ("split",),
    "tri_graph": ("resolve",),
    "zoom_links": ("embed",),
    "zoom_entity_links": ("embed_names",),
    "zoom_graph": ("zoom_links", "zoom_entity_links"),
    "check": ("embed", "embed_names", "bm25", "tri_graph", "zoom_graph"),
    "quality": ("check",),
}
"""The methods of a build that are stages, in an order that satisfies each, and the stages that each waits for."""

OF_SHARDS = ("ingest", "split", "recognise", "embed", "bm25")
"""The stages that make a part of each shard, in an order that satisfies each."""

_FAMILIES = {"tri_graph": tri_graph.counts, "zoom_graph": zoom_graph.counts}
"""The families by name, each with what counts its artifact `matrices`."""

_BY_DOCUMENT = frozenset({"split", "recognise", "embed", "bm25"})
"""The stages that make of each document a function of that document alone: see `tasks.unchanged`."""

WHOLE = "all"
"""The shard label of a part that is made from the whole corpus."""


MAY_FAIL = 10
"""So many rows may be refused whatever their share: a small corpus with a few bad rows is published."""

_ISOLATED = frozenset({"split", "recognise", "embed", "bm25"})
"""The stages that read a shard's documents, and fail because of some of them."""
_ATTEMPTS = 3
"""How often the workers at a part may die before it is the part's fault."""
_FAILED_TOGETHER = 16
"""So many failed parts are looked into before the others are tried."""


@dataclass(frozen=True)
class Parent:
    """The version a run starts from, and the parts it was made of."""

    version: int
    digest: str  # of the manifest
    manifest: Manifest | None  # None where it is damaged
    lineage: Lineage


class _NotThere(Exception):
    """A part that was looked for is still to be made."""


@dataclass(frozen=True)
class _Want:
    """A part that a stage needs: the shard, what it is made from, and the settings that shape it."""

    shard: str
    inputs: Mapping[str, str]
    settings: Mapping[str, Any]
    extra: Mapping[str, Any] | None = None  # what the worker needs and the key must not depend on
    encoder: Mapping[str, Any] | None = None  # what determines the expensive rows, where a stage has them


class Build:
    """The stages of one run, each a method; they may be called by hand, in threads, or by a flow."""

    def __init__(
        self,
        store: Store,
        configuration: Configuration,
        executor: Executor,
        run_id: str,
        *,
        parent: Parent | None = None,
        progress: Progress,
        cold: bool = False,
        allow_shrink: bool = False,
        approve: Callable[[Build], None] | None = None,
    ) -> None:
        self.store = store
        self.configuration = configuration
        self.executor = executor
        self.run_id = run_id
        self.parent = parent
        self.progress = progress
        self.cold = cold
        self.allow_shrink = allow_shrink
        self._approve = approve  # raises where the build must not go on, once the corpus is known
        self.measured: Quality | None = None
        self.report = Report()
        self.parts: dict[str, Parts] = {}
        self.corpus: spill.ShardPlan | None = None
        self._taken: tuple[spill.Shard, ...] = ()
        self._wave: tuple[spill.Shard, ...] = ()
        self._looking = False
        self._encoder: OpenedEncoder | None = None
        self._sources: Found | None = None
        self._attempt = 0
        self._manifest: Manifest | None = None
        self._receipts: dict[str, Receipt] = {}  # by key: what this run has found or made
        self._scanned: dict[str, list[Receipt]] = {}
        self._alike: dict[str, frozenset[str]] = {}  # by stage: see `_alike_shards`
        self._lock = threading.Lock()

    def look(self) -> None:
        """Raise at once what needs no worker to be known: no corpus, or a file or model that is not there."""
        self._sources = self._find_sources()
        if not self._sources.files:
            self._refuse_shrink(gates.CorpusChange(*self._before(), now=0, empty=self._sources.empty))
        self.questions  # noqa: B018 - raises
        self.choice  # noqa: B018 - raises
        if self.configuration.recognise.recogniser != "rules":
            recognise.recogniser_of(self.configuration.recognise.recogniser)

    # Stages, in the order of the flow of data.

    def encoder(self) -> None:
        """Find the model and, for a back-end that runs converted files, convert it once."""
        if self._encoder is not None:
            return
        files: Mapping[str, str] = {}
        model = self.choice.model
        if self.choice.backend == "openvino" and model is not None:
            shaping = {"model": model.digest, "name": model.name}
            files = self._make(encoder.STAGE, [_Want(WHOLE, {}, shaping, {"path": str(model.folder)})])[WHOLE].outputs
        opening = self.choice.opening(files)
        # A worker opens it, which has to do so anyway; this process never needs it.
        call = Call(f"{self.run_id}-fingerprint", timed, (fingerprint_of, self.store.url, opening), light=True)
        with self.report.at_work("encoder") as report:
            ((_, (fingerprint, seconds)),) = self._patiently([call], _PRIORITY["encoder"])
            report.seconds += seconds
        self._encoder = OpenedEncoder(opening, fingerprint)

    def scan(self) -> None:
        """Read the corpus, refuse what cannot be used, and cut the rest into shards."""
        sources = self._find_sources() if self._sources is None else self._sources
        folder = self._spill
        folder.mkdir(parents=True, exist_ok=True)
        scans = self._scan(sources, folder)
        known = {one.content_hash: (one.reason, f"{one.stage}: {one.detail}") for one in self._poison()}
        self.corpus = spill.plan(
            scans,
            folder,
            self.configuration.shards.document_tokens,
            poison=known,
            forgotten=self._forgotten.id_hashes,
        )
        refused = self._forgotten.without(spill.quarantine_of(self.corpus, folder))
        runs.add_quarantine(self.store, self.run_id, "ingest", refused, anew=self._attempt > 0)
        counts = self.report.stage("ingest").counts
        counts |= {"documents": self.corpus.documents, "quarantined": refused.num_rows, "repeats": self.corpus.repeats}
        counts |= {"forgotten": self.corpus.forgotten, "changed_while_read": len(self.corpus.changed)}
        self.report.changed_files = self.corpus.changed
        if refused.num_rows and self.configuration.run.strict:
            found = Counter(refused.column("reason").to_pylist())
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found.items()))
            raise BadInput(
                f"{refused.num_rows} rows were refused ({reasons}) and --strict is on; see `indexmill quarantine`"
            )
        self._refuse_many_failures()
        if not self.corpus.documents and self.parent is None:
            raise BadInput(
                f"the corpus holds no document that can be indexed; {refused.num_rows} rows were refused, see "
                "`indexmill quarantine`"
            )
        self._compare_with_parent(self.corpus, sources.empty, refused, folder)
        if self._approve is not None:
            self._approve(self)

    def take(self, shards: Sequence[spill.Shard]) -> None:
        """Let the stages of shards work on the next shards of the corpus alone.

        Other stages, and the manifest, have the shards that were taken so far. Whoever takes none has all at once.
        """
        taken = {shard.label for shard in self._taken}
        self._taken += tuple(shard for shard in shards if shard.label not in taken)
        self._wave = tuple(shards)

    @property
    def documents_taken(self) -> int:
        """How many documents the shards have that were taken so far."""
        return sum(shard.documents for shard in self._taken)

    def ingest(self) -> None:
        """Make the documents of each shard a part."""
        if self.corpus is None:
            self.scan()
            assert self.corpus is not None  # noqa: S101
            self.take(self.corpus.shards)
        self._make(
            ingest_part.STAGE,
            [
                _Want(
                    shard.label,
                    {"documents": shard.digest},
                    {},
                    {"spill": str(self._spill), "shard": dataclasses.asdict(shard)},
                )
                for shard in self._wave
            ],
        )
        if not self._looking:
            self._drop_spill()

    @property
    def _spill(self) -> Path:
        return self.store.scratch(self.run_id) / "spill"

    def _drop_spill(self) -> None:
        """Give back the disk of documents that are parts now."""
        assert self.corpus is not None  # noqa: S101 - it has been scanned
        left = self.corpus.shards[len(self._taken) :]
        if left:
            spill.drop_before(left[0], self._spill)
        else:
            shutil.rmtree(self._spill, ignore_errors=True)

    def _scan(self, sources: Found, folder: Path) -> list[spill.ScanResult]:
        """Read every file of the corpus into the spill folder."""
        groups = list(batches(sources.files))
        self.progress.begin("ingest", len(groups))
        calls = [
            Call(
                f"scan-{self.run_id}-{number}",
                timed,
                (spill.scan, group, self.configuration.corpus, folder),
                light=is_quick(sources.files),
            )
            for number, group in enumerate(groups)
        ]
        scanned = []
        with self.report.at_work("ingest") as report:
            for _, (result, seconds) in self._patiently(calls, _PRIORITY["scan"]):
                scanned.append(result)
                report.seconds += seconds
                self.progress.advance("ingest")
        return scanned

    def _refuse_many_failures(self) -> None:
        """Rows that fail by the dozen are no rows that fail: the corpus, or what reads it, has changed."""
        corpus, most = self.corpus, self.configuration.run.max_failed_share
        failed = sum(corpus.refused.values()) if corpus else 0
        rows = failed + (corpus.documents + corpus.repeats if corpus else 0)
        if corpus and failed > max(most * rows, MAY_FAIL):
            reasons = ", ".join(f"{count} {reason}" for reason, count in corpus.refused.items())
            raise GateRefused(
                f"{failed} of {rows} rows were refused ({reasons}), more than run.max_failed_share allows ({most:g} of "
                "them): nothing was published. `indexmill quarantine` lists them; mend the corpus, or raise "
                "run.max_failed_share"
            )

    def _compare_with_parent(
        self, corpus: spill.ShardPlan, empty: tuple[str, ...], refused: pa.Table, folder: Path
    ) -> None:
        """The gate of the corpus: too few documents, or a source that fell silent and took some away."""
        unreadable = refused.filter(pc.equal(refused["reason"], "unreadable-file")).column("file").to_pylist()
        for path in empty:
            self.progress.warn(f"no file of the corpus lies under {path}")
        if self.parent is not None:
            change = gates.CorpusChange(
                *self._before(),
                now=corpus.documents,
                empty=empty,
                unreadable=unreadable,
                lost=self._lost(folder) if empty or unreadable else 0,
                refused_rows=refused.num_rows,
            )
            self._refuse_shrink(change)

    def _before(self) -> tuple[int, int | None]:
        """The parent's version and documents; None for a number that cannot be told, since it is damaged."""
        if self.parent is None:
            return 0, 0
        return self.parent.version, self.parent.manifest.corpus.documents if self.parent.manifest else None

    def _refuse_shrink(self, change: gates.CorpusChange) -> None:
        most = self.configuration.gates.max_shrink
        why = None if self.allow_shrink else gates.refuse_size(change, most)
        if why is not None and change.before and self._forgotten.tombstones:
            gone = sum(one in self._forgotten for ids in self._parents_ids() for one in ids.to_pylist())
            why = gates.refuse_size(dataclasses.replace(change, before=change.before - gone), most)
        if why is not None:
            raise GateRefused(why)

    @cached_property
    def _forgotten(self) -> tombstones.Forgotten:
        """The documents that the store has to forget, as they were when this run first asked."""
        return tombstones.forgotten(self.store)

    def _parents_ids(self) -> Iterator[pa.ChunkedArray]:
        """The document ids of each shard of the parent."""
        for shard in self.parent.manifest.under("documents") if self.parent and self.parent.manifest else ():
            yield read_table(self.store, shard.digest, DOCUMENTS, columns=["document_id"])["document_id"]

    def _lost(self, folder: Path) -> int:
        """How many documents of the parent the corpus lacks, those that are forgotten left out."""
        here = spill.document_ids(folder)
        lost = (ids.filter(pc.invert(pc.is_in(ids, here))).to_pylist() for ids in self._parents_ids())
        return sum(one not in self._forgotten for ids in lost for one in ids)

    def split(self) -> None:
        """Cut documents into passages and sentences."""
        settings = {"split": self.configuration.split.model_dump(), "tokenizer": self.choice.tokenizer}
        opening = self.choice.tokenizer_opening(self.store)
        self._make(
            split.STAGE,
            [
                _Want(
                    shard,
                    {"documents": receipt.outputs["documents"]},
                    settings,
                    {"opening": opening},
                )
                for shard in self._labels
                for receipt in [self.parts["ingest"][shard]]
            ],
        )

    def recognise(self) -> None:
        """Find the entities that documents mention."""
        settings = {"fingerprint": self.recogniser_fingerprint}
        extra = {"recogniser": self.configuration.recognise.recogniser}  # a name, or where a pipeline lies
        self._make(recognise.STAGE, [_Want(shard, self._texts(shard), settings, extra) for shard in self._labels])

    def embed(self) -> None:
        """Make the vectors of passages and sentences that no earlier part holds."""
        shaping = {
            "encoder": self.opened_encoder.numbers,
            "sentences": self.configuration.embed.sentences,
            "title_in_passage": self.configuration.split.title_in_passage,
        }
        self._make(
            embed.STAGE,
            [
                _Want(
                    shard,
                    self._texts(shard),
                    shaping,
                    {"opening": self.opened_encoder.opening},
                    encoder=self.opened_encoder.numbers,
                )
                for shard in self._labels
            ],
        )

    def resolve(self) -> None:
        """Make the entity table of the whole corpus."""
        inputs = {
            **{f"mentions/{shard}": receipt.outputs["mentions"] for shard, receipt in self.parts["recognise"].items()},
            **{f"passages/{shard}": receipt.outputs["passages"] for shard, receipt in self.parts["split"].items()},
        }
        self._make(resolve.STAGE, [_Want(WHOLE, inputs, {"entities_per_shard": self.configuration.shards.entities})])

    def embed_names(self) -> None:
        """Make the vectors of canonical names that no earlier part holds."""
        wants = [
            _Want(
                name.removeprefix("named/"),
                {"names": digest},
                {"encoder": self.opened_encoder.numbers},
                {"opening": self.opened_encoder.opening},
                encoder=self.opened_encoder.numbers,
            )
            for name, digest in sorted(self.parts["resolve"][WHOLE].outputs.items())
            if name.startswith("named/")
        ]
        self._make(embed_names.STAGE, wants)

    def bm25(self) -> None:
        """Count the terms of passages for lexical retrieval."""
        setting = self.configuration.families.bm25
        if setting.enabled:
            shaping = {"title_weight": setting.title_weight if self.configuration.split.title_in_passage else 0}
            self._make(
                bm25.STAGE,
                [
                    _Want(shard, {name: texts[name] for name in ("documents", "passages")}, shaping)
                    for shard in self._labels
                    for texts in [self._texts(shard)]
                ],
            )

    def tri_graph(self) -> None:
        """Build the entity / sentence / passage graph (LinearRAG)."""
        if self.configuration.families.tri_graph.enabled:
            inputs = self._everything("passages", "sentences", "mentions", "entities")
            self._make(tri_graph.STAGE, [_Want(WHOLE, inputs, {})])

    def zoom_links(self) -> None:
        """Compare documents with each other (ZoomRAG)."""
        if self.configuration.families.zoom_graph.enabled:
            self._compare("documents", self._everything("documents", "passages", "vectors"))

    def zoom_entity_links(self) -> None:
        """Compare entities with each other, where the settings ask for it."""
        settings = self.configuration.families.zoom_graph
        if settings.enabled and settings.entity_links:
            self._compare("entities", self._everything("names"))

    def _compare(self, kind: str, inputs: Mapping[str, str]) -> None:
        settings = self.configuration.families.zoom_graph.links()
        rows = {"encoder": self.opened_encoder.numbers, "links": settings}
        extra = {"dimension": self.opened_encoder.numbers["dimension"]}
        self._make(zoom_links.STAGE, [_Want(kind, inputs, settings, extra, encoder=rows)])

    def zoom_graph(self) -> None:
        """Build the graph of documents and entities (ZoomRAG)."""
        settings = self.configuration.families.zoom_graph
        if not settings.enabled:
            return
        inputs = self._everything("documents", "passages", "sentences", "mentions", "entities", "names")
        for kind, receipt in self.parts["zoom_links"].items():
            inputs[f"candidates/{kind}"] = receipt.outputs["zoom_candidates"]
        self._make(zoom_graph.STAGE, [_Want(WHOLE, inputs, {"cap": settings.cap})])

    def check(self) -> None:
        """Hold the artifacts against each other before anything is published; raises where they disagree."""
        of_shards = {
            shard: {**self._texts(shard), "vectors": self.parts["embed"][shard].outputs["vectors"]}
            for shard in self.parts["split"]
        }
        for shard, receipt in self.parts.get(bm25.STAGE.name, {}).items():
            of_shards[shard]["bm25"] = receipt.outputs["bm25"]
        entities = self.parts["resolve"][WHOLE].outputs
        for shard, receipt in self.parts["embed_names"].items():
            of_shards[shard] = {"entities": entities[f"entities/{shard}"], "names": receipt.outputs["names"]}
        checked = self._make(check.STAGE, [_Want(shard, inputs, {}) for shard, inputs in of_shards.items()])
        whole = self._everything("mentions")
        whole |= {f"checked/{shard}": checked[shard].outputs["checked"] for shard in of_shards}
        for family in (name for name in _FAMILIES if name in self.parts):
            whole |= {f"{family}/{name}": digest for name, digest in self.parts[family][WHOLE].outputs.items()}
        self._make(check.STAGE, [_Want(WHOLE, whole, {})])

    def quality(self) -> None:
        """Measure the candidate's recall on the questions of the gate, and hold it against the parent's."""
        if self.questions is None or not self.manifest().corpus.documents:  # an empty index finds nothing
            return
        setting = self.configuration.gates
        asked = [
            dataclasses.replace(one, gold_ids=tuple(gold for gold in one.gold_ids if gold not in self._forgotten))
            for one in parse_questions(self.questions, str(setting.questions))
        ]
        manifest = self.store.put_blob(self.manifest().to_bytes())
        candidate = self._measured(manifest, setting.methods)
        self.measured = Quality.of(manifest, candidate, asked, setting.k)
        before = self._measured_parent()
        if before is not None and self.parent is not None:
            compared = compare(candidate, before, asked, self.parent.version, lost_counts=not self.allow_shrink)
            self.measured = dataclasses.replace(self.measured, compared=compared)
        self.report.quality = self.measured.to_json()

    def _measured(self, manifest: str, methods: Sequence[str]) -> Measured:
        """What the questions of the gate find in the snapshot of a manifest; made once, like any part."""
        assert self.questions is not None  # noqa: S101 - or nothing would be measured
        inputs = {"manifest": manifest, "questions": self.store.put_blob(self.questions)}
        want = _Want(manifest[:12], inputs, quality.shaping(methods, self.configuration.gates.k))
        digest = self._make(quality.STAGE, [want])[want.shard].outputs["measured"]
        return Measured.from_bytes(self.store.get_blob(digest), f"{self.store.url}/{blob_path(digest)}")

    def _measured_parent(self) -> Measured | None:
        """The same of the parent; None where there is none, or it cannot be read."""
        if self.parent is None or self.parent.manifest is None or not self.parent.manifest.corpus.documents:
            return None
        held = available(self.parent.manifest)
        try:
            return self._measured(
                self.parent.digest, [method for method in self.configuration.gates.methods if method in held]
            )
        except (CorruptBlob, ModelUnavailable) as error:
            self.progress.warn(f"the quality of version {self.parent.version} cannot be measured: {error}")
            return None

    @cached_property
    def questions(self) -> bytes | None:
        """The question file of the gate as it was when it was first read; raises BadInput where it cannot be used."""
        path = self.configuration.gates.questions
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"gates.questions: {path} cannot be read: {error.strerror or error}") from error
        parse_questions(data, str(path))
        return data

    def is_made(self, shards: Sequence[spill.Shard]) -> bool:
        """Whether every part of some shards is there; makes nothing, counts nothing."""
        progress, self.progress, self._looking = self.progress, Silent(), True
        taken, wave, parts = self._taken, self._wave, dict(self.parts)
        try:
            self.take(shards)
            for stage in OF_SHARDS:
                getattr(self, stage)()
        except _NotThere:
            return False
        finally:
            self.progress, self._looking = progress, False
            self._taken, self._wave, self.parts = taken, wave, parts
        return True

    def follow(self, parent: Parent) -> None:
        """Go on from a version that was published on the way: the stages of the whole corpus start anew."""
        self.parent = parent
        self._manifest = self.measured = None
        for name in ("_parents_keys", "_parents_shards", "_places"):
            self.__dict__.pop(name, None)
        self.parts = {stage: parts for stage, parts in self.parts.items() if stage in (*OF_SHARDS, encoder.STAGE.name)}

    def run(self) -> Manifest:
        """Every stage in order, again without the documents that one of them cannot take; the manifest of the rest."""
        self.look()
        while True:
            try:
                for stage in NEEDS:
                    getattr(self, stage)()
                return self.manifest()
            except DocumentsFailed as failed:
                self.begin_again(failed)

    def begin_again(self, failed: DocumentsFailed) -> None:
        """Let the stages run again, all of which have ended; what they made is found by its key."""
        self.progress.warn(f"{failed}; the build goes on without them")
        self._attempt += 1
        self.corpus, self._taken, self._wave = None, (), ()  # the rows that were read are parts now, or gone
        self.parts = {name: parts for name, parts in self.parts.items() if name == "encoder"}
        self._manifest = None
        self._scanned.clear()  # rows of this run, too, may be copied now

    def manifest(self) -> Manifest:
        """The manifest of what the stages made: a function of corpus, settings, code and environment alone."""
        if self._manifest is None:  # once, before its quality is measured, which is no part of it
            self._manifest = self._compose()
        return self._manifest

    def _compose(self) -> Manifest:
        assert self.corpus is not None  # noqa: S101 - `ingest` has run, or there would be no parts
        artifacts = list(self._artifacts())
        families = {"fused": Family(parameters=dict(self.configuration.families.fused.parameters), counts={})}
        if "bm25" in self.parts:
            packs = [open_pack(self.store.open_local(one.outputs["bm25"])) for one in self.parts["bm25"].values()]
            families["bm25"] = Family(
                parameters=dict(self.configuration.families.bm25.parameters), counts=bm25.counts(packs)
            )
        for name, counted in _FAMILIES.items():
            if name in self.parts:
                families[name] = Family(
                    parameters=dict(getattr(self.configuration.families, name).parameters),
                    counts=counted(open_pack(self.store.open_local(self.parts[name][WHOLE].outputs["matrices"]))),
                )
        lineage = Lineage(
            entries=tuple(
                # A receipt names the shard that it was first made for.
                LineageEntry.of(receipt).model_copy(update={"shard": shard})
                for parts in self.parts.values()
                for shard, receipt in parts.items()
            )
        )
        return Manifest(
            corpus=Corpus(
                fingerprint=self._taken[-1].up_to if self._taken else self.corpus.fingerprint,
                documents=self.documents_taken,
                passages=sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith("passages/")),
                counts={
                    table: sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith(table + "/"))
                    for table in ("sentences", "mentions", "entities")
                },
            ),
            configuration=self.configuration.published(),
            environment=dict(environment_fingerprint()),
            models={
                "encoder": dict(self.opened_encoder.fingerprint),
                "recogniser": {
                    "name": self.configuration.recognise.published_name,
                    "fingerprint": self.recogniser_fingerprint,
                },
            },
            artifacts=tuple(artifacts),
            families=families,
            lineage=lineages.put(self.store, lineage),
        )

    # What the stages share.

    def _find_sources(self) -> Found:
        """The files of the corpus; none only where there is an index whose documents they could be the end of."""
        if self.configuration.corpus is None:
            raise ConfigurationError(
                "no corpus: give --corpus FILE_OR_FOLDER, or `corpus: {paths: [...]}` in indexmill.yaml"
            )
        return find_sources(self.configuration.corpus, allow_none=self.parent is not None)

    @cached_property
    def choice(self) -> EncoderChoice:
        """The encoder that the settings name; raises ModelUnavailable."""
        return choose_encoder(self.configuration.embed)

    @property
    def opened_encoder(self) -> OpenedEncoder:
        """The encoder of this run; the stage `encoder` has opened it."""
        if self._encoder is None:
            raise RuntimeError("the stage `encoder` has not run")
        return self._encoder

    @property
    def recogniser_fingerprint(self) -> str:
        """What determines the output of the recogniser that the settings name."""
        return recognise.recogniser_of(self.configuration.recognise.recogniser).fingerprint

    @property
    def _labels(self) -> list[str]:
        """The shards that the stages of shards are at."""
        return [shard.label for shard in self._wave]

    def _texts(self, shard: str) -> dict[str, str]:
        """The inputs of a stage that reads a shard's texts."""
        split = self.parts["split"][shard].outputs
        return {
            "documents": self.parts["ingest"][shard].outputs["documents"],
            "passages": split["passages"],
            "sentences": split["sentences"],
        }

    def _everything(self, *names: str) -> dict[str, str]:
        """The digests of some tables and vectors, all shards, by `<name>/<shard>`."""
        return {
            f"{name}/{shard}": digest
            for parts in list(self.parts.values())  # other stages may be adding theirs
            for label, receipt in parts.items()
            for output, digest in receipt.outputs.items()
            for name, shard in [output.split("/", 1) if "/" in output else (output, label)]
            if name in names and (label != WHOLE or "/" in output)
        }

    def _artifacts(self) -> Iterable[Artifact]:
        """What the snapshot publishes; an artifact that the parent has is described as it was there."""
        before = self.parent.manifest.artifacts if self.parent and self.parent.manifest else ()
        described = {artifact.name: artifact for artifact in before}
        for stage, parts in self.parts.items():
            for label, receipt in parts.items():
                for output, digest in receipt.outputs.items():
                    if _is_private(stage, label, output):
                        continue
                    name = _artifact_name(stage, label, output)
                    known = described.get(name)
                    if known is not None and known.digest == digest:
                        yield known
                        continue
                    kind: Literal["table", "arrays", "file"]
                    kind = "table" if name.split("/")[0] in _TABLES else "file" if stage == "encoder" else "arrays"
                    yield describe(self.store, name, kind, digest)

    def _make(self, stage: Stage, wants: Iterable[_Want]) -> Parts:
        """Find or make the parts a stage needs; the receipts by shard, also kept in `parts`."""
        with self.report.at_work(stage.name) as report:
            try:
                return self._make_parts(stage, wants, report)
            except StoppedError:
                raise
            except Exception:
                report.parts_failed += 1
                raise

    def _make_parts(self, stage: Stage, wants: Iterable[_Want], report: StageReport) -> Parts:
        wanted = list(wants)
        self.progress.begin(stage.name, len(wanted))
        receipts: Parts = {}
        by_key: dict[str, list[_Want]] = {}  # shards that are made from the same have one part
        for want in wanted:
            by_key.setdefault(part_key(stage, want.settings, want.inputs), []).append(want)
        if wanted:
            self._alike[stage.name] = self._alike_shards(stage, wanted[0])
        calls: list[Call] = []
        for key, (want, *_) in by_key.items():
            before = self._receipts.get(key)
            found = before if before or self.cold else find(self.store, stage.name, key)
            if self._looking and found is None:
                raise _NotThere
            if found is not None:
                if not self._looking:
                    self._receipts[key] = found
                receipts |= {same.shard: found for same in by_key[key]}
                report.parts_reused += before is None and not self._looking
                self.progress.advance(stage.name, len(by_key[key]))
                continue
            calls.append(Call(f"{self.run_id}-{stage.name}-{key}", make_part, (self._job(stage, want, key),)))
        for key, made in self._made(stage, calls):
            same = by_key[key]
            self._receipts[key] = self._count(report, made)
            receipts |= dict.fromkeys((want.shard for want in same), self._receipts[key])
            self.progress.advance(stage.name, len(same))
        with self._lock:  # two methods may make parts of one stage
            self.parts[stage.name] = dict(sorted({**self.parts.get(stage.name, {}), **receipts}.items()))
        self.progress.end(stage.name, f"{report.parts_made} made, {report.parts_reused} reused")
        return self.parts[stage.name]

    def _job(self, stage: Stage, want: _Want, key: str) -> Job:
        """The part that a stage must make, as a worker gets it."""
        row_space = _row_space(stage, want.encoder) if want.encoder else ""
        return Job(
            stage=stage.module,
            key=key,
            shard=want.shard,
            store_url=self.store.url,
            run_id=self.run_id,
            inputs=want.inputs,
            settings={**want.settings, **(want.extra or {})},
            row_space=row_space,
            reuse=self._reuse(stage.name, row_space, want.shard) if row_space and not self.cold else (),
            earlier=self._earlier(stage, want.shard),
            cold=self.cold,
        )

    def _made(self, stage: Stage, calls: Iterable[Call]) -> Iterator[tuple[str, Made]]:
        """What some calls make, by the keys of their parts.

        Where workers died, or an exception may be a document's fault, the documents at fault are looked for: raises
        DocumentsFailed if there are any, else the calls are tried again, since a call dies with what shares its worker.
        """
        left = {call.arguments[0].key: call for call in calls}
        for attempt in range(_ATTEMPTS):
            failed: dict[str, Exception] = {}
            again = [dataclasses.replace(call, key=f"{call.key}-{attempt}") for call in left.values()]
            for call, made in self.executor.run(again, priority=_PRIORITY.get(stage.name, 0), keep_going=True):
                key = call.arguments[0].key
                if not isinstance(made, Failed):
                    del left[key]
                    yield key, made
                elif isinstance(made.error, WorkerDied) or (stage.name in _ISOLATED and blames_documents(made.error)):
                    failed[key] = made.error
                else:
                    raise made.error
                if len(failed) == _FAILED_TOGETHER:
                    break
            if failed and stage.name in _ISOLATED:
                self._isolate(stage, [left[key] for key in failed])
            for error in failed.values():
                if attempt + 1 == _ATTEMPTS or not isinstance(error, WorkerDied):
                    raise error
            if not left:
                return

    def _patiently(self, calls: Iterable[Call], priority: int) -> Iterator[tuple[Call, Any]]:
        """What calls return; one whose workers died is tried again, since it may have been another's fault."""
        left = {call.key: call for call in calls}
        for attempt in range(_ATTEMPTS):
            died: WorkerDied | None = None
            tries = {f"{key}-{attempt}": call for key, call in left.items()}
            again = [dataclasses.replace(call, key=key) for key, call in tries.items()]
            for tried, result in self.executor.run(again, priority=priority, keep_going=True):
                if not isinstance(result, Failed):
                    call = tries[tried.key]
                    del left[call.key]
                    yield call, result
                elif isinstance(result.error, WorkerDied):
                    died = result.error
                else:
                    raise result.error
            if died is None:
                return
        raise died or RuntimeError("no attempt was made")

    def _isolate(self, stage: Stage, calls: Iterable[Call]) -> None:
        """Raise DocumentsFailed, its findings recorded, if there are documents that make these calls fail."""
        self.progress.warn(f"{stage.name}: work failed; looking for the documents that make it fail")
        names: list[str] = []
        tries = [Call(f"{call.key}-isolate", failing_documents, call.arguments) for call in calls]
        for _, found in self._patiently(tries, _PRIORITY["scan"]):
            for one in found:
                names.append(one.document_id)
                poison.record(
                    self.store,
                    poison.Poison(
                        content_hash=one.content_hash,
                        stage=stage.name,
                        maker=self._makers[stage.name],
                        kills=one.kills,
                        detail=one.detail,
                        run_id=self.run_id,
                    ),
                )
        if names:
            listed = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            raise DocumentsFailed(f"{stage.name} cannot take {listed}: see `indexmill quarantine`")

    @cached_property
    def _makers(self) -> dict[str, str]:
        """By stage, what a record of poison holds for: with other settings, code or libraries, it is tried again."""
        configuration, model = self.configuration, self.choice.model
        settings = {
            "split": {"split": configuration.split.model_dump(), "tokenizer": self.choice.tokenizer},
            "recognise": {"fingerprint": self.recogniser_fingerprint},
            "embed": {
                "split": configuration.split.model_dump(),
                "encoder": [self.choice.backend, self.choice.precision, "" if model is None else model.digest],
                "sentences": configuration.embed.sentences,
            },
            "bm25": {"families": configuration.families.bm25.model_dump()},
        }
        shared = {"code": code_digest(), "environment": environment_fingerprint()}
        return {
            stage.name: digest_of(
                canonical_json(
                    {**shared, "stage": stage.name, "version": stage.version, "settings": settings[stage.name]}
                )
            )
            for stage in (split.STAGE, recognise.STAGE, embed.STAGE, bm25.STAGE)
        }

    def _poison(self) -> list[poison.Poison]:
        """What earlier runs, and this one, found that a stage cannot take."""
        if not self.store.list(poison_prefix()):
            return []
        return [one for maker in self._makers.values() for one in poison.known(self.store, maker)]

    def _count(self, report: StageReport, made: Made) -> Receipt:
        with self._lock:
            if made.reused:
                report.parts_reused += 1
            else:
                report.parts_made += 1
                report.parts_differing += made.differs
                report.parts_failed += not made.receipt.complete
                report.bytes_made += sum(made.receipt.bytes.values())
            report.seconds += made.seconds
            report.counts.update(made.counts)
        return made.receipt

    def _reuse(self, stage: str, row_space: str, shard: str) -> tuple[str, ...]:
        """Packs whose rows may be copied: the parent's first, then those of runs that never published."""
        parent = self.parent.lineage.candidates(stage, row_space, shard) if self.parent else []
        if self.parent and stage == embed.STAGE.name:
            for label in self._elsewhere(shard):
                parent += self.parent.lineage.candidates(stage, row_space, label)
        exclude = {part.key for part in parent}
        others = candidates(self.store, stage, row_space, shard, exclude=exclude, receipts=self._unpublished(stage))
        outputs = [*(part.outputs for part in parent), *(receipt.outputs for receipt in others)]
        digests = dict.fromkeys(digest for part in outputs for digest in part.values())
        # A blob that was lost, or deleted because it was damaged, is no reason to stop.
        return tuple(digest for digest in digests if self.store.blob_size(digest) is not None)

    def _earlier(self, stage: Stage, shard: str) -> tuple[dict[str, str], ...]:
        """The parent's parts, with their inputs, that documents of a shard may be copied from, the nearest first."""
        ranked = sorted(
            (distance, label)
            for label in self._alike.get(stage.name, ())
            if (distance := overlap(shard, label)) is not None
        )
        found = [self._parents_shards[label] for _, label in ranked]
        return tuple(one for one in found if all(self.store.blob_size(digest) is not None for digest in one.values()))

    def _alike_shards(self, stage: Stage, want: _Want) -> frozenset[str]:
        """The shards of which this run would make the parent's part of a stage again, were they as they were."""
        if stage.name not in _BY_DOCUMENT or self.cold:
            return frozenset()
        alike = frozenset(
            label
            for label, outputs in self._parents_shards.items()
            if want.inputs.keys() <= outputs.keys()
            and (stage.name, label, part_key(stage, want.settings, {name: outputs[name] for name in want.inputs}))
            in self._parents_keys
        )
        return alike if stage is split.STAGE else alike & self._alike.get(split.STAGE.name, frozenset())

    @cached_property
    def _parents_keys(self) -> frozenset[tuple[str, str, str]]:
        entries = self.parent.lineage.entries if self.parent else ()
        return frozenset((entry.stage, entry.shard, entry.key) for entry in entries)

    @cached_property
    def _parents_shards(self) -> dict[str, dict[str, str]]:
        """By label, all that the parent's stages made of a shard's documents."""
        found: dict[str, dict[str, str]] = {}
        for entry in self.parent.lineage.entries if self.parent else ():
            if entry.stage == ingest_part.STAGE.name or entry.stage in _BY_DOCUMENT:
                found.setdefault(entry.shard, {}).update(entry.outputs)
        return found

    def _elsewhere(self, shard: str) -> list[str]:
        """The parent's shards that hold the content of documents whose ids are new to a shard: renamed ones, copies."""
        now = self._contents(self.parts["ingest"][shard].outputs["documents"])
        for label, outputs in self._parents_shards.items():
            if overlap(shard, label) is not None:
                known = self._contents(outputs["documents"])
                now = {name: content for name, content in now.items() if name not in known}
        return sorted({self._places[content] for content in now.values() if content in self._places}) if now else []

    @cached_property
    def _places(self) -> dict[str, str]:
        """Where the parent has some content: a shard by content hash."""
        return {
            content: label
            for label, outputs in self._parents_shards.items()
            for content in self._contents(outputs["documents"]).values()
        }

    def _contents(self, digest: str) -> dict[str, str]:
        """The content hashes of a table of documents, by id; none of one that was lost."""
        if self.store.blob_size(digest) is None:
            return {}
        table = read_table(self.store, digest, DOCUMENTS, columns=("document_id", "content_hash"))
        return dict(zip(table["document_id"].to_pylist(), table["content_hash"].to_pylist(), strict=True))

    def _unpublished(self, stage: str) -> list[Receipt]:
        """A stage's receipts by runs that never published, as this run found them: listed once, if there is such a run.

        This run is one too, where it has made parts of the stage before, and so is the run that published the parent
        and did not come to its end: it may have been in the middle of a backfill.
        """
        with self._lock:
            if stage not in self._scanned:
                others = runs.unpublished_runs(self.store) - {self.run_id}
                if self.parent is not None:
                    last = refs.read(self.store, self.parent.version).run_id
                    others |= set() if runs.ended_well(self.store, last) else {last}
                mine = {self.run_id} if self.report.stage(stage).parts_made else set()
                found = scan(self.store, stage) if others or mine else ()
                self._scanned[stage] = [one for one in found if one.run_id in others | mine]
            return self._scanned[stage]


def _is_private(stage: str, label: str, output: str) -> bool:
    """Whether an output is the input of other stages and of the next build, not of a reader."""
    if stage == "zoom_links":
        return (label, output) != ("documents", "zoom_vectors")
    return stage == "check" or (stage, output.split("/")[0]) == ("resolve", "named")


def _artifact_name(stage: str, label: str, output: str) -> str:
    """Where an output stands in the snapshot: `<table>/<shard>`, `<family>/<name>` or `encoder/<file>`."""
    if stage == "zoom_links":
        return "zoom_graph/vectors"
    if label != WHOLE:
        return f"{output}/{label}"
    return output if stage == "resolve" else f"{stage}/{output}"


def _row_space(stage: Stage, encoder: Mapping[str, Any]) -> str:
    """What the rows of vectors are relative to, beside their texts: the encoder, and the code that makes rows."""
    libraries = library_versions(*stage.libraries)
    made_by = {"stage": stage.name, "version": stage.version, "libraries": libraries, "encoder": dict(encoder)}
    return digest_of(canonical_json(made_by))
