"""The one rule: a part's key is the hash of what made it, and a part that has a receipt is never made again.

A stage is a name, a code version, the libraries that shape its output and a pure `compute`. `part_key` turns these,
the settings and the digests of the inputs into a key; `make_part` is the thin shell that every stage shares: look for
the receipt, read the inputs, compute, put the blobs, record the receipt.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.packs import open_pack
from storage.arrays import put_pack
from storage.overlay import open_any
from storage.protocol import Store
from storage.receipts import Receipt, find, record, replace
from storage.tables import put_table, read_table
from tasks.core.environment import library_versions, python_version
from tasks.core.estimate import Estimator

__all__ = ["Inputs", "Job", "Made", "Outputs", "Stage", "make_part", "part_key"]


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline. `version` changes whenever the output changes for the same input."""

    name: str
    version: int
    compute: Callable[[Inputs], Outputs]
    libraries: tuple[str, ...] = ()
    estimate: Estimator | None = None  # None where a plan may as well make the part
    requests: Callable[[Inputs], Iterable[Request]] | None = None  # what `compute` will ask a language model

    @property
    def module(self) -> str:
        """Where a worker finds this stage: the module that defines its `compute`, as `STAGE`."""
        return self.compute.__module__


@dataclass(frozen=True, slots=True)
class Job:
    """One part to make: everything a worker needs, and nothing that is not small."""

    stage: str  # the module that defines STAGE
    key: str
    shard: str
    store_url: str
    run_id: str
    inputs: Mapping[str, str]  # name -> digest
    settings: Mapping[str, Any]
    row_space: str = ""  # what the row keys of this stage's expensive rows are relative to
    reuse: tuple[str, ...] = ()  # digests of packs whose rows may be copied
    earlier: tuple[Mapping[str, str], ...] = ()  # inputs and outputs of earlier parts: see tasks.core.unchanged
    cold: bool = False  # ignore the receipt that is there


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a stage computed: tables and groups of arrays by name, and counts for the run's report.

    failed: rows that something else stands in for. The part is used, and a later run may make it again. texts: what a
    language model writes of the part where there is one, of which the failed ones are.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    packs: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    texts: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A part as the driver sees it: its receipt, and what making it took (nothing when it was there)."""

    receipt: Receipt
    reused: bool
    counts: Mapping[str, int]
    seconds: float
    differs: bool = False  # a cold run made other bytes than the receipt's: the environment is not reproducible


class Inputs:
    """The inputs of one part, read and verified on first use."""

    def __init__(self, store: Store, job: Job) -> None:
        self.store = store
        self.job = job
        self.settings = job.settings

    def table(self, name: str, schema: pa.Schema, *columns: str) -> pa.Table:
        """The input table of this name, or some columns of it, checked against its schema."""
        return read_table(self.store, self.job.inputs[name], schema, columns=columns or None)

    def tables(self, prefix: str, schema: pa.Schema, *columns: str) -> pa.Table:
        """All input tables named `<prefix>/<shard>`, one after the other in the order of their labels."""
        names = sorted(name for name in self.job.inputs if name.startswith(prefix + "/"))
        empty = schema.empty_table().select(list(columns or schema.names))
        return pa.concat_tables([self.table(name, schema, *columns) for name in names] or [empty])

    def paths(self, prefix: str) -> list[Path]:
        """The verified local files of the inputs named `<prefix>/<shard>`, in the order of their labels."""
        return [self.path(digest) for name, digest in sorted(self.job.inputs.items()) if name.startswith(prefix + "/")]

    def rows(self, prefix: str) -> int:
        """The rows of all input tables named `<prefix>/<shard>`, as the files' footers tell."""
        return sum(int(pq.read_metadata(path).num_rows) for path in self.paths(prefix))

    def rows_of(self, name: str) -> int:
        """The rows of the input table of this name, as the file's footer tells."""
        return int(pq.read_metadata(self.path(self.job.inputs[name])).num_rows)

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]]:
        """The arrays of a pack, memory-mapped."""
        return open_pack(self.path(digest))

    def path(self, digest: str) -> Path:
        """The verified local file of a blob."""
        return self.store.open_local(digest)

    def scratch(self) -> Path:
        """The run's temporary folder inside the store."""
        return self.store.scratch(self.job.run_id)


def part_key(stage: Stage, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """SHA-256 of everything that shapes a part: 64 hex digits."""
    return digest_of(
        canonical_json(
            {
                "stage": stage.name,
                "version": stage.version,
                "settings": dict(settings),
                "libraries": library_versions("pyarrow", *stage.libraries),
                "python": python_version(),
                "inputs": dict(inputs),
            }
        )
    )


def make_part(job: Job) -> Made:
    """Make the part of a job, or find that it is made. Runs on a worker; safe to run twice at the same time."""
    started = time.perf_counter()
    store = open_any(job.store_url)
    stage: Stage = importlib.import_module(job.stage).STAGE
    found = find(store, stage.name, job.key)
    if found is not None and not job.cold:
        return Made(found, reused=True, counts={}, seconds=time.perf_counter() - started)
    outputs = stage.compute(Inputs(store, job))
    digests: dict[str, str] = {}
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name, table in sorted(outputs.tables.items()):
        digests[name], sizes[name] = put_table(store, table)
        rows[name] = table.num_rows
    for name, arrays in sorted(outputs.packs.items()):
        digests[name], sizes[name] = put_pack(store, job.run_id, arrays)
        rows[name] = max((len(array) for array in arrays.values()), default=0)
    for name, data in sorted(outputs.files.items()):
        digests[name] = store.put_blob(data)
        sizes[name] = len(data)
    seconds = time.perf_counter() - started
    made = Receipt(
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
    winner = record(store, made)
    differs = winner.outputs != digests
    if job.cold and differs and made.complete:
        winner = replace(store, made)  # what was there came of other arithmetic, or was damaged
    return Made(winner, False, dict(outputs.counts), seconds, differs)
