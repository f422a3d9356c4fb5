"""A complete check of a published version: its ref, its manifest, and every blob with its content."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.errors import IndexmillError, StoreError
from indexmill.models.progress import Items, report_progress
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.store.canonical import canonical_json
from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from indexmill.store.reader import StoreReader
from indexmill.store.regular_files import MANIFEST_BYTES


@dataclass(frozen=True)
class Problem:
    """A difference from the published version."""

    what: str
    """The ref, the manifest, the lineage, or the artifact's name."""
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


@dataclass(frozen=True)
class Verification:
    """The result of checking one version."""

    version: int | None
    """None for an exported folder."""
    manifest: str | None
    artifacts: int
    """The number of checked artifacts."""
    bytes: int
    """The total length of the hashed blobs."""
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "manifest": self.manifest,
            "ok": self.ok,
            "artifacts": self.artifacts,
            "bytes": self.bytes,
            "problems": [{"what": problem.what, "detail": problem.detail} for problem in self.problems],
        }


def verify(store: StoreReader, version: int | None = None) -> Verification:
    """Check a version, the newest by default: rehash every blob, and compare tables and packs with the manifest.

    Damage is reported, not raised. Raises SnapshotNotFound if there is no such version, or it was removed.
    """
    number = version if version is not None else store.newest_version()
    try:
        ref = store.ref(number)
        store.check_there(number)
    except StoreError as error:
        return Verification(number, None, 0, 0, (Problem("ref", str(error)),))
    problems: list[Problem] = []
    if ref.parent is not None and ref.parent not in store.versions():
        problems.append(Problem("ref", f"version {ref.version} follows version {ref.parent}, which is missing"))
    try:
        data = store.blob_bytes(ref.manifest, MANIFEST_BYTES, again=True)
        manifest = store.manifest(ref.manifest)
    except StoreError as error:
        return Verification(number, ref.manifest, 0, 0, (*problems, Problem("manifest", str(error))))
    if canonical_json(json.loads(data)) != data:
        problems.append(Problem("manifest", "is not canonical JSON"))
    read = len(data)
    try:
        lineage = store.blob_bytes(manifest.lineage, again=True)
        read += len(lineage)
        problems += _check_lineage(lineage)
    except StoreError as error:
        problems.append(Problem("lineage", str(error)))
    checked, artifact_problems = check_artifacts(
        manifest, lambda artifact: store.blob(artifact.digest, artifact.bytes, again=True)
    )
    read += sum(artifact.bytes for artifact in checked)
    return Verification(number, ref.manifest, len(checked), read, (*problems, *artifact_problems))


def check_artifacts(manifest: Manifest, open_local: Callable[[Artifact], Path]) -> tuple[list[Artifact], list[Problem]]:
    """Check the content of each artifact against its entry in the manifest.

    open_local: verifies an artifact's bytes and returns its file. Returns the artifacts with correct bytes, and the
    problems.
    """
    checked: list[Artifact] = []
    problems: list[Problem] = []
    total = sum(artifact.bytes for artifact in manifest.artifacts)
    done = 0
    for number, artifact in enumerate(manifest.artifacts):
        report_progress(done, total, Items(number, len(manifest.artifacts), "artifact"))
        done += artifact.bytes
        try:
            path = open_local(artifact)
            checked.append(artifact)
            problems += [Problem(artifact.name, detail) for detail in _check_content(artifact, path)]
        except IndexmillError as error:
            problems.append(Problem(artifact.name, str(error)))
    return checked, problems


def _check_content(artifact: Artifact, path: Path) -> Iterable[str]:
    if artifact.kind == "arrays":
        actual: Any = open_pack(path).schema
    elif artifact.kind == "table":
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                rows, actual = file.metadata.num_rows, describe_table(file.schema_arrow)
        except (pa.ArrowException, OSError) as error:
            yield f"{path} is not a Parquet table: {error}"
            return
        if artifact.rows is not None and rows != artifact.rows:
            yield f"{path} has {rows} rows; the manifest says {artifact.rows}"
    else:
        return
    if artifact.schema_ is not None and actual != artifact.schema_:
        yield f"{path} contains {actual}; the manifest says {artifact.schema_}"


_LINEAGE = ["stage", "shard", "key", "row_space", "output", "digest"]


def _check_lineage(data: bytes) -> Iterable[Problem]:
    try:
        pq.read_table(pa.BufferReader(data), columns=_LINEAGE).select(_LINEAGE)
    except (ValueError, KeyError, OSError) as error:
        yield Problem("lineage", f"is not a list of parts: {error!r}")
