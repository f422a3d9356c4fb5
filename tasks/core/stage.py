"""Stages and parts: a part's key hashes everything that determines the part; a part with a receipt is not made again.

A `Stage` is a single declaration: its name and version, the type of its settings, its inputs and outputs, and a pure
function `compute`. No other code repeats any of it. `part_key` turns name, version, settings, libraries and the digests
of the inputs into a key. `make_part` is shared by all stages: it finds the receipt, reads the inputs, computes, stores
the blobs and records the receipt.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.pack_schema import PackSchema
from indexmill.store.packs import open_pack
from schemas.tables import TABLES
from storage.arrays import put_pack
from storage.processes import this_process
from storage.protocol import Store
from storage.receipts import Receipt, find, record, replace
from storage.stores import open_store
from storage.table_blobs import put_table, read_table
from tasks.core.environment import library_versions, python_version
from tasks.core.estimate import EncoderTexts, Estimate, Expected

_PARQUET = b"PAR1"
"""The first bytes of a table; other blobs from which a part may copy rows are packs."""

WHOLE = "all"
"""The shard label of a part that is made from the whole corpus."""


@dataclass(frozen=True)
class StageSettings:
    """The settings that shape a part, apart from its inputs: the base of each stage's frozen dataclass.

    Only the worker uses a field made by `worker_arg`: neither the part nor its key depends on it.
    """

    def keyed(self) -> dict[str, Any]:
        """Return the settings that are hashed into the key of a part, by name."""
        return {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if not one.metadata.get("worker")
            and not (one.metadata.get("left_out") and getattr(self, one.name) == one.default)
        }

    def row_space(self) -> Mapping[str, Any] | None:
        """Return the values that, with a row's key, determine its content; None if later parts may copy no rows."""
        return None


@dataclass(frozen=True)
class NoSettings(StageSettings):
    """The settings of a stage without settings."""


def worker_arg(default: Any = MISSING) -> Any:
    """Declare a field of `StageSettings` that the worker needs and the part's key must not depend on."""
    return field(default=default, metadata={"worker": True})


def left_out_at(default: Any) -> Any:
    """Declare a field of `StageSettings` that was added later: the key leaves it out if it has its default."""
    return field(default=default, metadata={"left_out": True})


@dataclass(frozen=True)
class Input:
    """An input of a stage: an output of an earlier stage.

    schema: the schema of a table or of a pack of arrays; None for a file. each: True for an input per label, named
    `<name>/<label>`. pieces: True for all pieces of the output for the part's own label, named `<name>/<piece>`.
    output: the output's name, if the stage uses another name for the input. stage: the stage that makes the output, if
    several stages make outputs of this name. optional: True if the input may be missing.
    """

    name: str
    schema: pa.Schema | PackSchema | None = None
    each: bool = False
    pieces: bool = False
    output: str = ""
    stage: str = ""
    optional: bool = False

    @property
    def source(self) -> str:
        """The name of the output that is read."""
        return self.output or self.name


def shared_tables(*names: str, each: bool = False, optional: bool = False) -> tuple[Input, ...]:
    """Return inputs that are tables of `schemas.tables`. names: their artifacts. each, optional: as in `Input`."""
    schemas = {artifact.partition("/")[0]: table.schema for artifact, table in TABLES.items()}
    return tuple(Input(name, schemas[name], each=each, optional=optional) for name in names)


@dataclass(frozen=True)
class Output:
    """An output of a stage.

    schema: the schema of a table or of a pack of arrays; None for a file. artifact: the name in the snapshot, with
    `{label}` for the label of the shard or group and `{name}` for the output's name; None if only stages and the next
    build read the output. each: True if a part makes several, named `<name>/<label>`. pieces: True if a part makes its
    rows in small pieces, so that a change rewrites little; they are named as for `each`, with labels that begin with
    the part's label. labels: the labels of the parts that publish the output; empty for all. The name `*` matches any
    name that is not declared.
    """

    name: str
    schema: pa.Schema | PackSchema | None = None
    artifact: str | None = None
    each: bool = False
    pieces: bool = False
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["table", "arrays", "file"]:
        if isinstance(self.schema, pa.Schema):
            return "table"
        return "file" if self.schema is None else "arrays"

    def artifact_name(self, label: str, output: str) -> str | None:
        """Return the name in the snapshot of an output of the part `label`; None if it is private.

        output: the output's name, or `<name>/<label>` if a part makes several.
        """
        if self.artifact is None or (self.labels and label not in self.labels):
            return None
        return self.artifact.format(label=output.partition("/")[2] if self.each or self.pieces else label, name=output)


S = TypeVar("S")


@dataclass(frozen=True)
class Stage(Generic[S]):
    """One step of the pipeline. `version` changes whenever the output changes for the same input.

    S: the type of the stage's settings. per_document: a document's rows depend only on that document, so rows of
    unchanged documents are copied (`tasks.core.unchanged`) and a failure can be attributed to a document.
    moves_with_documents: the rows of a renamed or copied document are copied even from other shards. priority: parts of
    stages with a higher priority start first. uses_encoder: workers open the encoder. local: parts use the run's
    scratch folder, which other machines may not see. libraries: the libraries that affect the output. requests: returns
    the requests that `compute` sends to a language model. expensive: a plan counts the parts and does not compute them.
    estimate: estimates an expensive part from its inputs; for each input that is only planned, it receives the number
    of rows, or None if unknown. A stage with an estimate is expensive. encodes: for a plan, returns the texts that
    `compute` sends to an encoder endpoint. rows_version: the version that last changed the rows that later parts may
    copy, if newer versions changed only the form of the output. listed: False if a version's lineage omits the parts,
    because earlier runs decide whether they are made.
    """

    name: str
    version: int
    compute: Callable[[Part[S]], Outputs]
    libraries: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    per_document: bool = False
    moves_with_documents: bool = False
    priority: int = 0
    uses_encoder: bool = False
    local: bool = False
    expensive: bool = False
    estimate: Callable[[Part[S], Expected], Estimate] | None = None
    encodes: Callable[[Part[S], Expected], EncoderTexts] | None = None
    requests: Callable[[Part[S]], Iterable[Request]] | None = None
    rows_version: int = 0
    listed: bool = True

    @property
    def module(self) -> str:
        """The module that defines `compute`, where a worker finds this stage as `STAGE`."""
        return self.compute.__module__

    def input(self, name: str) -> Input:
        """Return the declared input `<name>` or `<name>/<label>`; raises LookupError if it is not declared."""
        return _declared(self.name, "input", self.inputs, name)

    def output(self, name: str) -> Output:
        """Return the declared output `<name>` or `<name>/<label>`; raises LookupError if it is not declared."""
        return _declared(self.name, "output", self.outputs, name)


D = TypeVar("D", Input, Output)


def _declared(stage: str, kind: str, declared: tuple[D, ...], name: str) -> D:
    base = name.partition("/")[0]
    by_name = {one.name: one for one in declared}
    for candidate in (name, base, "*"):
        if candidate in by_name:
            return by_name[candidate]
    near = get_close_matches(base, by_name, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise LookupError(f"the stage {stage} declares no {kind} {base!r}; it has {', '.join(by_name)}{hint}")


@dataclass(frozen=True, slots=True)
class Job:
    """A part to make, and everything that a worker needs to make it; inputs are given as digests."""

    stage: str  # the module that defines STAGE
    key: str
    shard: str
    store_url: str
    run_id: str
    inputs: Mapping[str, str]  # name -> digest
    settings: Any  # of the type that the stage declares
    row_space: str = ""  # the scope of the keys of this stage's expensive rows
    reuse: tuple[str, ...] = ()  # digests of packs whose rows may be copied
    earlier: tuple[Mapping[str, str], ...] = ()  # inputs and outputs of earlier parts: see tasks.core.unchanged
    cold: bool = False  # ignore an existing receipt


@dataclass(frozen=True, slots=True)
class Outputs:
    """The result of a stage: tables, packs of arrays and files by name, and counts for the run's report.

    reused_packs: by name, the digests of packs that an earlier part stored with the same bytes; they are not stored
    again. failed: the number of rows with a fallback; the part is used, and a later run may make it again. texts: the
    number of texts that the part requested from a language model, including failed texts.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    packs: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    reused_packs: Mapping[str, str] = field(default_factory=dict)
    failed: int = 0
    texts: int = 0


@dataclass(frozen=True, slots=True)
class PartResult:
    """A part as the driver sees it: its receipt, the counts of making it (empty if it existed), and the time taken."""

    receipt: Receipt
    reused: bool
    counts: Mapping[str, int]
    seconds: float
    differs: bool = False  # a cold run made bytes that differ from the receipt's: the environment is not reproducible
    requests: Mapping[str, int] = field(default_factory=dict)  # requests that the worker sent to the store
    worker: str = ""  # the host and the process id of the worker


class PartFailed(Exception):
    """A part failed after calls to a model. error: the cause. counts: the counts of the calls for the run's report."""

    def __init__(self, error: Exception, counts: Mapping[str, int]) -> None:
        super().__init__(error, counts)
        self.error, self.counts = error, counts


class Part(Generic[S]):
    """The inputs of one part, read and verified on first use."""

    is_trial: ClassVar[bool] = False
    """True if the results are discarded."""

    def __init__(self, store: Store, job: Job, stage: Stage[S] | None = None) -> None:
        self.store = store
        self.job = job
        self.stage: Stage[S] = stage_of(job) if stage is None else stage
        self.settings: S = job.settings
        self.counts: Counter[str] = Counter()
        """The counts of calls to models behind endpoints, which are added to the stage's own counts in the report."""

    def digest(self, name: str) -> str:
        """Return the digest of an input. Raises LookupError if the stage does not declare it."""
        self.stage.input(name)
        return self.job.inputs[name]

    def has(self, name: str) -> bool:
        """Return whether an input, which may be optional, exists."""
        self.stage.input(name)
        return name in self.job.inputs

    def labels(self, name: str) -> list[str]:
        """Return the labels of the inputs `<name>/<label>`, sorted."""
        self.stage.input(name)
        return sorted(one.removeprefix(name + "/") for one in self.job.inputs if one.startswith(name + "/"))

    def table(self, name: str, *columns: str) -> pa.Table:
        """Read an input table, or some of its columns, and check it against the declared schema."""
        digest = self.job.inputs[name]
        self.path(digest)
        return read_table(self.store, digest, self.stage.input(name).schema, columns=columns or None)

    def tables(self, name: str, *columns: str, within: str = "") -> pa.Table:
        """Return all input tables `<name>/<label>`, concatenated in the order of their labels.

        within: only labels with this prefix.
        """
        schema: pa.Schema = self.stage.input(name).schema
        tables = [self.table(f"{name}/{label}", *columns) for label in self.labels(name) if label.startswith(within)]
        return pa.concat_tables(tables or [schema.empty_table().select(list(columns or schema.names))])

    def paths(self, prefix: str) -> list[Path]:
        """Return the verified local files of the inputs named `<prefix>/<shard>`, in the order of their labels."""
        return [self.path(digest) for name, digest in sorted(self.job.inputs.items()) if name.startswith(prefix + "/")]

    def rows_of(self, name: str) -> int:
        """Return the number of rows of an input table, from the file's footer."""
        return int(pq.read_metadata(self.path(self.job.inputs[name])).num_rows)

    def pack(self, name: str) -> Mapping[str, NDArray[Any]]:
        """Return the memory-mapped arrays of an input."""
        return self.pack_at(self.digest(name))

    def packs(self, name: str, within: str = "") -> list[Mapping[str, NDArray[Any]]]:
        """Return the arrays of the inputs `<name>/<label>`, by label. within: only labels with this prefix."""
        return [self.pack(f"{name}/{label}") for label in self.labels(name) if label.startswith(within)]

    def pack_at(self, digest: str) -> Mapping[str, NDArray[Any]]:
        return open_pack(self.path(digest))

    def reusable_packs(self) -> list[Mapping[str, NDArray[Any]]]:
        """Return the arrays of each pack whose rows the part may copy."""
        return [self.pack_at(digest) for digest in self.job.reuse if not self._is_table(digest)]

    def reusable_tables(self, schema: pa.Schema, *columns: str) -> list[pa.Table]:
        """Return the tables of a schema whose rows the part may copy, or some columns of them; none for a cold run."""
        tables = [] if self.job.cold else [digest for digest in self.job.reuse if self._is_table(digest)]
        fitting = [digest for digest in tables if pq.read_schema(self.path(digest)).names == schema.names]
        return [read_table(self.store, digest, schema, columns=columns or None) for digest in fitting]

    def _is_table(self, digest: str) -> bool:
        with self.path(digest).open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET

    def path(self, digest: str) -> Path:
        """Return the verified local file of a blob."""
        return self.store.open_local(digest)

    def scratch(self) -> Path:
        """Return the run's temporary folder inside the store."""
        return self.store.scratch(self.job.run_id)


def concatenated(packs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate the arrays of a shard's pieces in memory; needs at least one piece."""
    return {name: np.concatenate([pack[name] for pack in packs]) for name in packs[0]}


def stage_of(job: Job) -> Stage[Any]:
    stage: Stage[Any] = importlib.import_module(job.stage).STAGE
    return stage


def part_key(stage: Stage[Any], shard: str, settings: StageSettings, inputs: Mapping[str, str]) -> str:
    """Return a part's key, the SHA-256 (hex) of all that determines it, including the label only if it names pieces."""
    shard_key = {"shard": shard} if any(one.pieces for one in stage.outputs) else {}
    return digest_of(
        canonical_json(
            {
                "stage": stage.name,
                "version": stage.version,
                "settings": settings.keyed(),
                "libraries": library_versions("pyarrow", *stage.libraries),
                "python": python_version(),
                "inputs": dict(inputs),
                **shard_key,
            }
        )
    )


def make_part(job: Job) -> PartResult:
    """Make the part of a job unless it exists. Runs on a worker; safe to run twice at the same time.

    Raises PartFailed if the stage fails after calls to a model, otherwise the stage's exception.
    """
    started = time.perf_counter()
    store = open_store(job.store_url)
    stage = stage_of(job)
    existing = find(store, stage.name, job.key)
    if existing is not None and not job.cold:
        seconds = time.perf_counter() - started
        return PartResult(existing, reused=True, counts={}, seconds=seconds, requests=store.requests())
    part = Part(store, job, stage)
    try:
        outputs = stage.compute(part)
    except Exception as error:
        if not +part.counts:
            raise
        raise PartFailed(error, +part.counts) from error
    if outputs.failed and stage.requests is None:
        raise ValueError(f"the stage {stage.name} has failed rows, but declares no requests to a language model")
    digests: dict[str, str] = {}
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    if stage.outputs:
        for name in (*outputs.tables, *outputs.packs, *outputs.files):
            stage.output(name)
    for name, table in sorted(outputs.tables.items()):
        digests[name], sizes[name] = put_table(store, table)
        rows[name] = table.num_rows
    for name, arrays in sorted(outputs.packs.items()):
        schema = stage.output(name).schema
        if isinstance(schema, PackSchema):
            schema.conform(arrays)
        reused_digest = outputs.reused_packs.get(name)
        size = None if reused_digest is None else store.blob_size(reused_digest)
        if reused_digest is not None and size is not None:
            digests[name], sizes[name] = reused_digest, size
        else:
            digests[name], sizes[name] = put_pack(store, job.run_id, arrays, job.reuse)
        rows[name] = max((len(array) for array in arrays.values()), default=0)
    for name, data in sorted(outputs.files.items()):
        digests[name] = store.put_blob(data)
        sizes[name] = len(data) if isinstance(data, bytes) else data.stat().st_size
    process = this_process()
    worker = f"{process.host}:{process.pid}"
    seconds = time.perf_counter() - started
    receipt = Receipt(
        stage=stage.name,
        key=job.key,
        shard=job.shard,
        rows=rows,
        outputs=digests,
        bytes=sizes,
        complete=not outputs.failed,
        failed=outputs.failed,
        texts=outputs.texts,
        row_space=job.row_space,
        run_id=job.run_id,
        seconds=round(seconds, 3),
    )
    winner = record(store, receipt)
    differs = winner.outputs != digests
    if job.cold and differs and receipt.complete:
        winner = replace(store, receipt)  # the existing part came from different arithmetic, or was damaged
    counts = Counter(outputs.counts)
    counts.update(+part.counts)
    return PartResult(winner, False, dict(counts), seconds, differs, store.requests(), worker)
