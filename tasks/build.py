"""One run's work: bring the index up to date with the corpus, stage by stage.

Every run computes the corpus minus what is already there. A `Build` decides which parts a stage needs, finds those
that have receipts, hands the others to an executor and keeps the digests for the next stage. It knows neither Prefect
nor Dask, and it commits nothing: `manifest` returns what `storage.publish` may commit.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.canonical import canonical_json, digest_of
from indexmill.errors import BadInput, ConfigurationError, GateRefused
from indexmill.manifest import Artifact, Corpus, Family, Manifest
from indexmill.packs import open_pack
from schemas.config import Configuration
from storage import lineage as lineages
from storage import runs, tombstones
from storage.lineage import Lineage, LineageEntry
from storage.protocol import Store
from storage.publish import describe
from storage.receipts import Receipt, candidates, find, scan
from tasks import bm25, check, embed, embed_names, encoder, recognise, resolve, split, tri_graph, zoom_graph, zoom_links
from tasks.encoder import EncoderChoice, OpenedEncoder, choose_encoder, fingerprint_of
from tasks.environment import environment_fingerprint, library_versions
from tasks.executor import Call, Executor
from tasks.ingest import part as ingest_part
from tasks.ingest import spill
from tasks.ingest.sources import SourceFile, batches, expand
from tasks.report import Progress, Report
from tasks.stage import Job, Made, Stage, make_part, part_key

__all__ = ["NEEDS", "WHOLE", "Build", "Parent"]

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
}
"""The methods of a build that are stages, in an order that satisfies each, and the stages that each waits for."""

_FAMILIES = {"tri_graph": tri_graph.counts, "zoom_graph": zoom_graph.counts}
"""The families by name, each with what counts its artifact `matrices`."""

WHOLE = "all"
"""The shard label of a part that is made from the whole corpus."""


@dataclass(frozen=True)
class Parent:
    """The version a run starts from, and the parts it was made of."""

    version: int
    digest: str  # of the manifest
    manifest: Manifest | None  # None where it is damaged
    lineage: Lineage


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
    ) -> None:
        self.store = store
        self.configuration = configuration
        self.executor = executor
        self.run_id = run_id
        self.parent = parent
        self.progress = progress
        self.cold = cold
        self._allow_shrink = allow_shrink
        self.report = Report()
        self.parts: dict[str, Parts] = {}
        self.corpus: spill.ShardPlan | None = None
        self._described = {
            artifact.name: artifact for artifact in (parent.manifest.artifacts if parent and parent.manifest else ())
        }
        self._encoder: OpenedEncoder | None = None
        self._files: list[SourceFile] | None = None
        self._scanned: dict[str, list[Receipt]] = {}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Raise at once what needs no worker to be known: no corpus, or a file or model that is not there."""
        self._files = self._sources()
        self.choice  # noqa: B018 - raises
        if self.configuration.recognise.recogniser != "rules":
            recognise.recogniser_of(self.configuration.recognise.recogniser)

    # Stages, in the order of the flow of data.

    def encoder(self) -> None:
        """Find the model and, for a back-end that runs converted files, convert it once."""
        files: Mapping[str, str] = {}
        model = self.choice.model
        if self.choice.backend == "openvino" and model is not None:
            shaping = {"model": model.digest, "name": model.name}
            files = self._make(encoder.STAGE, [_Want(WHOLE, {}, shaping, {"path": str(model.folder)})])[WHOLE].outputs
        opening = self.choice.opening(files)
        # A worker opens it, which has to do so anyway; this process never needs it.
        call = Call(f"{self.run_id}-fingerprint", fingerprint_of, (self.store.url, opening))
        ((_, fingerprint),) = self.executor.run([call], priority=_PRIORITY["encoder"])
        self._encoder = OpenedEncoder(opening, fingerprint)

    def ingest(self) -> None:
        """Read the corpus, refuse what cannot be used, and cut the rest into shards."""
        files = self._sources() if self._files is None else self._files
        settings = self.configuration.corpus
        groups = list(batches(files))
        folder = self.store.scratch(self.run_id) / "spill"
        folder.mkdir(parents=True, exist_ok=True)
        self.progress.begin("ingest", len(groups))
        calls = [
            Call(f"scan-{self.run_id}-{number}", spill.scan, (group, settings, folder))
            for number, group in enumerate(groups)
        ]
        scanned = []
        for _, result in self.executor.run(calls, priority=_PRIORITY["scan"]):
            scanned.append(result)
            self.progress.advance("ingest")
        forgotten = tombstones.forgotten(self.store)
        self.corpus = spill.plan(
            scanned, folder, self.configuration.shards.document_tokens, forgotten=forgotten.id_hashes
        )
        refused = forgotten.without(spill.quarantine_of(self.corpus, folder))
        runs.add_quarantine(self.store, self.run_id, "ingest", refused)
        counts = self.report.stage("ingest").counts
        counts.update(documents=self.corpus.documents, quarantined=refused.num_rows, repeats=self.corpus.repeats)
        counts.update(forgotten=self.corpus.forgotten, changed_while_read=len(self.corpus.changed))
        self.report.changed_files = self.corpus.changed
        if refused.num_rows and self.configuration.run.strict:
            found = Counter(refused.column("reason").to_pylist())
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found.items()))
            raise BadInput(
                f"{refused.num_rows} rows were refused ({reasons}) and --strict is on; see `indexmill quarantine`"
            )
        self._refuse_silent_loss(refused)
        if not self.corpus.documents and self.parent is None:
            raise BadInput(
                f"the corpus holds no document that can be indexed; {refused.num_rows} rows were refused, see "
                "`indexmill quarantine`"
            )
        self._make(
            ingest_part.STAGE,
            [
                _Want(
                    shard.label,
                    {"documents": shard.digest},
                    {},
                    {"spill": str(folder), "shard": dataclasses.asdict(shard)},
                )
                for shard in self.corpus.shards
            ],
        )

    def _refuse_silent_loss(self, refused: pa.Table) -> None:
        """A file that cannot be read takes its documents away: not from an index that has them, unless asked."""
        before = self.parent.manifest.corpus.documents if self.parent and self.parent.manifest else 0
        now = self.corpus.documents if self.corpus else 0
        unreadable = refused.filter(pc.equal(refused["reason"], "unreadable-file")).column("file").to_pylist()
        if unreadable and now < before and not self._allow_shrink:
            others = f", nor {len(unreadable) - 1} others," if unreadable[1:] else ""
            raise GateRefused(
                f"{unreadable[0]}{others} cannot be read to the end, and the corpus has {now} documents where the "
                f"index has {before}: nothing was published. Mend the file, or let them go with --allow-shrink"
            )

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
                for shard, receipt in self.parts["ingest"].items()
            ],
        )

    def recognise(self) -> None:
        """Find the entities that documents mention."""
        settings = {"fingerprint": self.recogniser_fingerprint}
        extra = {"recogniser": self.configuration.recognise.recogniser}  # a name, or where a pipeline lies
        self._make(
            recognise.STAGE, [_Want(shard, self._texts(shard), settings, extra) for shard in self.parts["split"]]
        )

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
                for shard in self.parts["split"]
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
                    for shard in self.parts["split"]
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
        self._make(zoom_links.STAGE, [_Want(kind, inputs, settings, encoder=rows)])

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
        families = [name for name in _FAMILIES if name in self.parts]
        inputs = self._everything(
            "documents", "passages", "sentences", "mentions", "entities", "surfaces", "vectors", "names", "bm25"
        )
        for family in families:
            inputs |= {f"{family}/{name}": digest for name, digest in self.parts[family][WHOLE].outputs.items()}
        self._make(check.STAGE, [_Want(WHOLE, inputs, {})])

    def run(self) -> Manifest:
        """Every stage in order, and the manifest they add up to."""
        for stage in NEEDS:
            getattr(self, stage)()
        return self.manifest()

    def manifest(self) -> Manifest:
        """The manifest of what the stages made: a function of corpus, settings, code and environment alone."""
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
                fingerprint=self.corpus.fingerprint,
                documents=self.corpus.documents,
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

    def _sources(self) -> list[SourceFile]:
        """The files of the corpus."""
        if self.configuration.corpus is None:
            raise ConfigurationError(
                "no corpus: give --corpus FILE_OR_FOLDER, or `corpus: {paths: [...]}` in indexmill.yaml"
            )
        return expand(self.configuration.corpus)

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
        for stage, parts in self.parts.items():
            for label, receipt in parts.items():
                for output, digest in receipt.outputs.items():
                    if _is_private(stage, label, output):
                        continue
                    name = _artifact_name(stage, label, output)
                    known = self._described.get(name)
                    if known is not None and known.digest == digest:
                        yield known
                        continue
                    kind: Literal["table", "arrays", "file"]
                    kind = "table" if name.split("/")[0] in _TABLES else "file" if stage == "encoder" else "arrays"
                    yield describe(self.store, name, kind, digest)

    def _make(self, stage: Stage, wants: Iterable[_Want]) -> Parts:
        """Find or make the parts a stage needs; the receipts by shard, also kept in `parts`."""
        report = self.report.stage(stage.name)
        wanted = list(wants)
        self.progress.begin(stage.name, len(wanted))
        receipts: Parts = {}
        by_key: dict[str, list[_Want]] = {}  # shards that are made from the same have one part
        for want in wanted:
            by_key.setdefault(part_key(stage, want.settings, want.inputs), []).append(want)
        calls: list[Call] = []
        for key, (want, *_) in by_key.items():
            found = None if self.cold else find(self.store, stage.name, key)
            if found is not None:
                receipts |= {same.shard: found for same in by_key[key]}
                report.parts_reused += 1
                self.progress.advance(stage.name, len(by_key[key]))
                continue
            row_space = _row_space(stage, want.encoder) if want.encoder else ""
            job = Job(
                stage=stage.module,
                key=key,
                shard=want.shard,
                store_url=self.store.url,
                run_id=self.run_id,
                inputs=want.inputs,
                settings={**want.settings, **(want.extra or {})},
                row_space=row_space,
                reuse=self._reuse(stage.name, row_space, want.shard) if row_space and not self.cold else (),
                cold=self.cold,
            )
            calls.append(Call(f"{self.run_id}-{stage.name}-{key}", make_part, (job,)))
        for call, made in self.executor.run(calls, priority=_PRIORITY.get(stage.name, 0)):
            same = by_key[call.arguments[0].key]
            receipts |= dict.fromkeys((want.shard for want in same), self._count(report, made))
            self.progress.advance(stage.name, len(same))
        with self._lock:  # two methods may make parts of one stage
            self.parts[stage.name] = dict(sorted({**self.parts.get(stage.name, {}), **receipts}.items()))
        self.progress.end(stage.name, f"{report.parts_made} made, {report.parts_reused} reused")
        return self.parts[stage.name]

    def _count(self, report: Any, made: Made) -> Receipt:
        with self._lock:
            if made.reused:
                report.parts_reused += 1
            else:
                report.parts_made += 1
                report.parts_differing += made.differs
            report.seconds += made.seconds
            report.counts.update(made.counts)
        return made.receipt

    def _reuse(self, stage: str, row_space: str, shard: str) -> tuple[str, ...]:
        """Packs whose rows may be copied: the parent's first, then those of runs that never published."""
        parent = self.parent.lineage.candidates(stage, row_space, shard) if self.parent else []
        exclude = {part.key for part in parent}
        others = candidates(self.store, stage, row_space, shard, exclude=exclude, receipts=self._unpublished(stage))
        outputs = [*(part.outputs for part in parent), *(receipt.outputs for receipt in others)]
        digests = dict.fromkeys(digest for part in outputs for digest in part.values())
        # A blob that was lost, or deleted because it was damaged, is no reason to stop.
        return tuple(digest for digest in digests if self.store.blob_size(digest) is not None)

    def _unpublished(self, stage: str) -> list[Receipt]:
        """A stage's receipts by runs that never published, as this run found them: listed once."""
        with self._lock:
            if stage not in self._scanned:
                published = runs.published_runs(self.store)
                self._scanned[stage] = [one for one in scan(self.store, stage) if one.run_id not in published]
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
