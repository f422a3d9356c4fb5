"""Records of runs, as old and new builds write them, and small stores that have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexmill.store.layout import alias_name, removal_name, run_name
from indexmill.store.manifest import Alias, Removal
from storage.folder import FolderStore
from tests.indexmill.small_snapshot import WORLD, Text, writer_of

QUESTIONS = ["Who paid for the bridge?", "Where does the Ilse rise?", "What is Tallow?"]

AFTER = {
    "p0": (
        Text("bridge", "Marrow Bridge", "The Marrow Bridge crosses the Ilse.\n\nAda Venn paid for all of the bridge."),
        Text("lamp", "Lamps", "Lamps are made in Tallow, where Ada Venn was born."),
    ),
    "p1": (
        Text("ilse", "Ilse", "The Ilse is a cold river. It rises in the Grey Hills."),
        Text("tallow", "", "Tallow is a town of lamps."),
    ),
}
"""``WORLD`` after a night: `bridge` is two words longer, `lamp` came, `venn` went."""


def stage(**counts: Any) -> dict[str, Any]:
    """A stage's part of a report, as builds have always written it."""
    return {
        "parts_made": 2,
        "parts_reused": 1,
        "parts_differing": 0,
        "parts_failed": 0,
        "quarantined": 0,
        "began_seconds": 1.0,
        "wall_seconds": 2.0,
        "seconds": 4.0,
        "bytes_made": 1000,
        "llm_calls": 0,
        "llm_tokens": 0,
        "cost": 0.0,
        **counts,
    }


def end_record(run: str = "run-1", *, quality: Mapping[str, Any] | None = None, **report: Any) -> dict[str, Any]:
    """The record of the end of a run; without anything more, as an older build wrote it."""
    stages = report.pop("stages", {"ingest": stage(began_seconds=0.5), "embed": stage(seconds=9.0, vectors_made=7)})
    told = {
        "stages": stages,
        "totals": {"quarantined": sum(one["quarantined"] for one in stages.values())},
        "corpus_files": "0" * 64,
        **report,
    }
    if quality is not None:
        told["quality"] = quality
    return {
        "run_id": run,
        "state": "published",
        "exit_code": 0,
        "ended": "2026-01-02T02:01:40Z",
        "version": 1,
        "manifest": None,
        "error": None,
        "report": told,
        "plan": None,
    }


def quality(recall: float = 0.5, *, version: int | None = None, by_question: Any = None, missed: Any = None) -> Any:
    """What the gate measured, with what newer builds add."""
    compared = {"version": version, "questions": 3, "before": {"fused": 0.75}, "now": {"fused": recall}, "lost_gold": 1}
    return {
        "manifest": "0" * 64,
        "k": 5,
        "questions": 3,
        "unanswerable": 0,
        "missing_gold": 0,
        "recall": {"fused": recall},
        "compared": compared if version else None,
        **({} if by_question is None else {"by_question": {"questions": QUESTIONS, "recall": by_question}}),
        **({} if missed is None else {"missed": missed}),
    }


COVERAGE: dict[str, Any] = {
    "files": {"indexed": 5, "passed-over": 9},
    "bytes": {"indexed": 5_000, "passed-over": 90},
    "passed_over": {"suffix": 8, "hidden": 1},
    "formats": {
        "pdf": {
            "files": 2,
            "bytes": 4_000,
            "documents": 2,
            "words": 100,
            "text_words": 90,
            "left_out": {"unexplained": 10},
        },
        "json-lines": {"files": 3, "bytes": 1_000, "documents": 30, "words": 0, "text_words": 0, "left_out": {}},
    },
    "folders": [{"name": "docs/", "files": 13, "read": 4}, {"name": "", "files": 1, "read": 1}],
    "folders_left_out": 3,
    "worst": [{"name": "docs/a.pdf", "words": 60, "text_words": 50, "left_out": {"unexplained": 10}}],
}


def new_record(run: str = "run-2", **changed: Any) -> dict[str, Any]:
    """A record with all that newer builds add."""
    record = end_record(
        run,
        stages={
            "ingest": stage(began_seconds=0.5, quarantined=3),
            "embed": stage(began_seconds=3.0, seconds=9.0, vectors_made=7, vectors_reused=2),
            "describe": stage(
                began_seconds=12.0, llm_calls=4, llm_tokens=1200, cost=0.25, llm_refused=2, llm_retries=1
            ),
        },
        quality=quality(
            0.5,
            version=1,
            by_question={"fused": [1.0, 0.5, None]},
            missed=[{"question": QUESTIONS[1], "method": "fused", "missed": ["ilse"], "found": ["bridge", "lamp"]}],
        ),
        timeline={
            "workers": ["tcp://a:1", "tcp://b:2"],
            "spans": [[0, "ingest", 0.5, 2.5, 1], [0, "embed", 3.0, 50.0, 1], [1, "embed", 3.0, 95.0, 2]],
        },
        refused={"empty": 2, "too_long": 1},
        warnings=["2 files changed while they were read"],
        stand_ins={"describe": {"texts": 10, "stand_ins": 4}},
        coverage=COVERAGE,
    )
    record["plan"] = {
        "cost": {"planned": {"low": 0.1, "expected": 0.15, "likely": 0.2, "high": 0.2}, "actual": 0.25},
        "seconds": {"planned": None, "actual": 100.0},
        "vectors_made": {"planned": 7, "actual": 7},
    }
    return record | changed


def start_record(run: str = "run-1", parent: int | None = None, command: str = "build") -> dict[str, Any]:
    """The record of the start of a run."""
    return {"run_id": run, "command": command, "started": "2026-01-02T02:00:00Z", "parent": parent, "leased": True}


def write_run(
    store: FolderStore, run: str, end: Mapping[str, Any] | None, parent: int | None = None, command: str = "build"
) -> None:
    """Keep the records of a run."""
    assert store.create(run_name(run, "start"), json.dumps(start_record(run, parent, command)).encode())
    if end is not None:
        assert store.create(run_name(run, "end"), json.dumps(end).encode())


def two_nights(path: Path, end: Mapping[str, Any] | None = None) -> FolderStore:
    """A store with two versions, `WORLD` and `AFTER`, whose runs are recorded in the old and in the new form."""
    for version, world in ((1, WORLD), (2, AFTER)):
        writer = writer_of(path, world)
        writer.tri_graph()
        writer.publish(version, note=f"night {version}")
    first = end_record("run-1", quality=quality(0.75, by_question={"fused": [0.5, 1.0, 1.0]}))
    write_run(writer.store, "run-1", first)
    write_run(writer.store, "run-2", new_record() if end is None else end, parent=1)
    return writer.store


def withdraw(store: FolderStore, version: int) -> None:
    """Record that a version was withdrawn."""
    record = Removal(version=version, reason="forgotten", run_id="run-9", created="2026-01-09T00:00:00Z")
    assert store.create(removal_name(version), record.to_bytes())


def promote(store: FolderStore, alias: str, version: int) -> None:
    """Point an alias to a version."""
    record = Alias(alias=alias, number=1, version=version, created="2026-01-09T00:00:00Z")
    assert store.create(alias_name(alias, 1), record.to_bytes())
