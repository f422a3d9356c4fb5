"""Whole builds that ask the endpoint of `tests.llm_server`: their settings, and what a run did and left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import indexmill
from flows.build_run import BuildOutcome
from flows.plan import make_plan
from schemas.config import Configuration
from storage import ledger, runs
from storage.folder import open_folder
from storage.ledger import LedgerEntry
from tasks.core.report import Silent
from tasks.pipeline.plan.plan import Plan
from tests.corpora import Documents, write_corpus
from tests.flows.children import Forks, build, settings
from tests.llm_server import LlmServer


def ask(
    store: Path, rows: Documents, server: LlmServer, *, llm: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """The settings of a build of these documents that asks this server; the corpus is written beside the store."""
    asked = {"backend": "openai", "model": "tester", "base_url": server.base_url, **(llm or {})}
    return settings(store, write_corpus(store.parent / f"{store.name}.jsonl", rows), llm=asked, **changes)


def edited(rows: Documents) -> Documents:
    """The documents of the next night: one is longer, one is new."""
    title, text = rows["doc-0007"]
    return {**rows, "doc-0007": (title, f"{text} Then Zed Vex came to Krait Hall."), "doc-0099": ("Rook", "Rook left.")}


def plan(chosen: dict[str, Any]) -> Plan:
    """What a build would do, found in this process: others take seconds to start."""
    alone = {**chosen, "run": {**chosen.get("run", {}), "workers": 1}}
    return make_plan(Configuration.model_validate(alone), progress=Silent())


def build_within_plan(chosen: dict[str, Any], server: LlmServer) -> tuple[Plan, BuildOutcome]:
    """A build whose calls and tokens, by the server's bill, are within the bounds of its plan."""
    expected = plan(chosen)
    bill = server.billed
    before = bill.calls, bill.input_tokens, bill.output_tokens
    outcome = build(chosen)
    after = bill.calls, bill.input_tokens, bill.output_tokens
    spent = [now - then for now, then in zip(after, before, strict=True)]
    bounds = expected.llm_calls, expected.llm_tokens.input, expected.llm_tokens.output
    for bound, number in zip(bounds, spent, strict=True):
        assert bound.low <= number <= bound.high, (bounds, spent)
    assert [outcome.llm_calls, outcome.llm_tokens] == [spent[0], sum(spent[1:])]
    return expected, outcome


def stage_report(chosen: dict[str, Any], outcome: BuildOutcome, stage: str) -> dict[str, Any]:
    """What the record of a run counts of a stage."""
    end = runs.read_run(open_folder(chosen["store"]), outcome.run).end
    assert end is not None
    stages: Any = end.report["stages"]
    return stages[stage]  # type: ignore[no-any-return]


def answers_of(store: Path | str, task: str | None = None) -> list[LedgerEntry]:
    """The answers in the ledger, of one task or of all."""
    entries = [entry for _, _, entry in ledger.scan(open_folder(store)) if entry is not None]
    return [entry for entry in entries if task in (None, entry.task)]


def rows_of(store: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the newest version."""
    with indexmill.open(store) as snapshot:
        rows: list[dict[str, Any]] = snapshot.table(table).to_pylist()
    return rows


def family_counts(store: Path, family: str) -> Mapping[str, int]:
    """What the manifest of the newest version counts of a family."""
    with indexmill.open(store) as snapshot:
        return snapshot.manifest.families[family].counts


def files_with(root: Path, word: str) -> list[Path]:
    """The files below a folder that hold a word; of tables, the rows are searched."""
    found = []
    for path in (path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        text = str(pq.read_table(path).to_pylist()).encode() if data.startswith(b"PAR1") else data
        if word.encode() in text:
            found.append(path)
    return found


def check_killed_build(settings_of: Callable[..., dict[str, Any]], server: LlmServer, share: float) -> None:
    """Kill a build after a share of its answers: the next pays again at most for what was in flight.

    settings_of: from the name of a store, and settings of the language model.
    """
    with Forks() as forks:
        whole = forks.build(settings_of("whole"))
        assert whole.outcome is not None
        asked = server.billed.calls
        chosen = settings_of("store", concurrency=4)
        recorded = [at for at, name in enumerate(whole.crossed, 1) if "ledger/" in name]
        assert forks.build(chosen, at=recorded[int(len(recorded) * share)]).code == -signal.SIGKILL
        resumed = forks.build(chosen)
    assert resumed.outcome is not None
    assert resumed.outcome.manifest == whole.outcome.manifest
    assert asked <= server.billed.calls - asked <= asked + 4
