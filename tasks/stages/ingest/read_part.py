"""Stage `read`: the documents of files that are slow to read, such as PDF, stored as a part.

The key hashes the files' version tokens (`SourceFile.token`), the formats' versions and the settings, so that a resumed
build does not read a file again. Only the current build uses the parts: the next build copies the unchanged documents
of the previous version, wherever they came from (`tasks.stages.ingest.known`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexmill.store.canonical import canonical_json, digest_of
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS, QUARANTINE
from storage.stores import open_store
from storage.table_blobs import read_table
from tasks.core.part_runner import PartSpec
from tasks.core.shards import assign, id_hashes
from tasks.core.stage import Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.stages.ingest import spill, supervisor
from tasks.stages.ingest.file_counts import FILE_COUNTS, of_table, table_of
from tasks.stages.ingest.known import format_digest
from tasks.stages.ingest.source_files import SourceFile
from tasks.stages.ingest.spill_files import of_files, quarantine_row

_FILE_COST = 1 << 18
"""The weight of a file, added to its bytes."""
_PART_WEIGHT = 8 << 20
"""The maximum weight of a part's files, unless a single file weighs more."""

_READ = pa.schema([*DOCUMENTS, pa.field("file", pa.string(), nullable=False)])


@dataclass(frozen=True, kw_only=True)
class ReadPartSettings(StageSettings):
    """Settings of the `read` stage. formats: by format, the digest of everything that determines its rows.

    files, corpus: the files to read, and the settings for reading them.
    """

    formats: Mapping[str, str]
    files: tuple[SourceFile, ...] = worker_arg()
    corpus: CorpusSettings = worker_arg()


def specs(files: Sequence[SourceFile], settings: CorpusSettings) -> list[PartSpec]:
    """Return the parts that read some files. A file's part depends on its name's hash: a new file changes few parts."""
    by_name = {file.name: file for file in files}
    names = sorted(by_name)
    weights = np.array([by_name[name].size + _FILE_COST for name in names], np.int64)
    parts = []
    for label, rows in assign(id_hashes(names), weights, _PART_WEIGHT, "r").items():
        mine = tuple(by_name[names[row]] for row in sorted(rows.tolist()))
        listed = [
            [file.source, file.path, file.name, file.document_name, file.token, dict(file.details)] for file in mine
        ]
        formats = {kind: format_digest(kind, settings) for kind in sorted({file.kind for file in mine})}
        inputs = {"files": digest_of(canonical_json(listed))}
        parts.append(PartSpec(label, inputs, ReadPartSettings(formats=formats, files=mine, corpus=settings)))
    return parts


def files_of(spec: PartSpec) -> tuple[SourceFile, ...]:
    """Return the files that a part reads."""
    assert isinstance(spec.settings, ReadPartSettings)  # noqa: S101 - `specs` sets them
    return spec.settings.files


def unpack(
    store_url: str, outputs: Mapping[str, str], files: Sequence[SourceFile], folder: Path, *, fresh: bool
) -> spill.ScanResult:
    """Put the rows of a part into the spill folder, as if its files were scanned now. fresh: see `spill.respill`."""
    store = open_store(store_url)
    read = read_table(store, outputs["read"], _READ)
    refused = read_table(store, outputs["refused"], QUARANTINE)
    counts = of_table(read_table(store, outputs["files"], FILE_COUNTS).to_pylist())
    return spill.respill(files, read, refused, counts, folder, fresh=fresh)


def _compute(part: Part[ReadPartSettings]) -> Outputs:
    settings = part.settings
    with tempfile.TemporaryDirectory(prefix="indexmill-read-") as folder:
        result = supervisor.scan(settings.files, settings.corpus, folder)
        read, refused = spill.spilled_rows(result, folder)
    # Changed files are not stored under the key of the listed files; the build reads them again.
    unread = [
        quarantine_row(file.name, None, file.document_name, "unreadable-file", "it changed while it was read")
        for file in settings.files
        if file.name in result.changed
    ]
    unchanged = {file.name for file in settings.files}.difference(result.changed)
    counted = {name: counts for name, counts in result.counts.items() if name in unchanged}
    refused = pa.concat_tables([of_files(refused, unchanged), pa.Table.from_pylist(unread, QUARANTINE)])
    return Outputs(
        tables={"read": of_files(read, unchanged), "refused": refused, "files": table_of(counted)},
        counts={"files": len(settings.files), "refused_files": refused.num_rows},
    )


STAGE = Stage(
    "read",
    version=2,
    compute=_compute,
    outputs=(Output("read", _READ), Output("refused", QUARANTINE), Output("files", FILE_COUNTS)),
    priority=60,
    local=True,
)
