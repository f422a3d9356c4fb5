"""Corpora of records, scanned and planned."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from schemas.corpus import CorpusSettings
from tasks.stages.ingest.shard_plan import ShardPlan, digest_of_documents, documents_of, plan
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.spill import ScanResult, scan

Record: TypeAlias = dict[str, Any]


def write_lines(path: Path, records: Sequence[Record]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def scans(folder: Path, corpus: Path) -> list[ScanResult]:
    """What scans of each file leave in a spill folder."""
    folder.mkdir(exist_ok=True)
    chosen = CorpusSettings(paths=(str(corpus),))
    return [scan([file], chosen, folder) for file in find(chosen).files]


def ingest(folder: Path, corpus: Path, shard_tokens: int = 40) -> ShardPlan:
    results = scans(folder, corpus)
    random.Random(1).shuffle(results)  # noqa: S311 - any order will do
    return plan(pickle.loads(pickle.dumps(results)), folder, shard_tokens)  # noqa: S301 - as a worker sends it


def documents(planned: ShardPlan, folder: Path) -> list[Record]:
    return [row for shard in planned.shards for row in documents_of(shard, folder).to_pylist()]


def digest(rows: Sequence[Record]) -> str:
    return digest_of_documents([row["document_id"] for row in rows], [row["content_hash"] for row in rows])


def records(count: int) -> list[Record]:
    return [{"id": f"d{n}", "title": f"T{n}", "text": f"text {n} " * (n % 7 + 1), "n": n} for n in range(count)]
