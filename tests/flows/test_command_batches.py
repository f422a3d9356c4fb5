from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forget import forget
from flows.status import read_status
from indexmill.command import main
from indexmill.store.manifest import Manifest
from schemas.tables import PASSAGES
from storage import batches, refs
from storage.batches import Asked, Kind, Question
from storage.folder import open_store
from storage.lease import acquire
from storage.tables import read_table
from tasks.core.executor import StoppedError
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.llm_batches import Plan
from tests.llm_server import CANARY, LlmServer
from tests.storage.quick import quick_folder
from tests.tasks.batching import Bench, questions


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with LlmServer(keys={CANARY}) as running:
        running.batches.plan = Plan(looks=50)
        yield running


@pytest.fixture
def pending(server: LlmServer) -> Iterator[Bench]:
    """A store with one batch at the endpoint."""
    with quick_folder() as folder:
        bench = Bench.at(folder / "store", server.base_url, stop_after=1)
        with pytest.raises(StoppedError):
            bench.fill(questions(5))
        yield bench


def run_batches(bench: Bench, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """What `indexmill batches --json` says, its exit code, and what it complains about."""
    folder = Path(bench.store.root).parent
    llm = {"backend": "openai", "model": "some-model", "base_url": bench.base_url}
    (folder / "indexmill.yaml").write_text(yaml.safe_dump({"store": "store", "llm": llm}), encoding="utf-8")
    capsys.readouterr()
    code = main(["batches", "-c", str(folder / "indexmill.yaml"), "--json", *arguments])
    shown = capsys.readouterr()
    return code, json.loads(shown.out) if shown.out else None, shown.err


def test_pending_batches_are_listed(pending: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = run_batches(pending, capsys)
    (batch,) = found["batches"]
    assert code == 0
    assert (batch["state"], batch["questions"], batch["stage"]) == ("started", 4, "summaries")
    assert batch["batch_id"] == "batch_0001"
    (shown,) = read_status(pending.store, pending.now).batches
    assert (shown.id, shown.state) == (batch["id"], "started")


def test_a_cancelled_batch_is_collected_by_the_next_run(
    pending: Bench, server: LlmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (batch,) = run_batches(pending, capsys)[1]["batches"]
    code, found, _ = run_batches(pending, capsys, "--cancel", batch["id"])
    assert (code, found["status"]) == (0, "cancelled")
    pending.stop_after = None
    counts = pending.fill(questions(5))
    assert counts["llm_batch_answers"] == 2
    assert server.batches.wrong == []


def test_a_batch_that_is_given_up_is_asked_again(
    pending: Bench, server: LlmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (batch,) = run_batches(pending, capsys)[1]["batches"]
    server.batches.batches.clear()
    assert run_batches(pending, capsys, "--give-up", batch["id"])[0] == 0
    assert run_batches(pending, capsys)[1] == {"batches": []}
    pending.stop_after = None
    server.batches.plan = Plan()
    with acquire(pending.store, "run-2", clock=lambda: pending.now):
        pending.fill(questions(5), run_id="run-2")
    assert len(server.batches.batches) == 1


@pytest.mark.parametrize("arguments", [("--cancel", "ab"), ("--give-up", "ab"), ("--cancel", "a", "--give-up", "b")])
def test_what_cannot_be_done_is_said(
    pending: Bench, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, found, complaint = run_batches(pending, capsys, *arguments)
    assert (code, found) == (2, None)
    assert "batch" in complaint
    assert CANARY not in complaint


def test_questions_about_a_forgotten_document_leave_open_batches(tmp_path: Path) -> None:
    plain = settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", documents(6)))
    build(plain)
    store = open_store(tmp_path / "store")
    newest = refs.newest(store)
    assert newest is not None
    manifest = Manifest.from_bytes(store.get_blob(newest.manifest), "the manifest")
    rows = [row for one in manifest.under("passages") for row in read_table(store, one.digest, PASSAGES).to_pylist()]
    asked = Asked(
        run_id="run-1",
        stage="summaries",
        created="2027-01-31T02:00:00Z",
        endpoint="host",
        model="some-model",
        bytes=1,
        input_tokens=1,
        output_tokens=1,
        kinds=(Kind(task="summary", prompt_version="1", answers={}, max_output_tokens=1),),
        questions=tuple(
            Question(key=f"{number:064x}", kind=0, about=(row["passage_id"],), makes="")
            for number, row in enumerate(rows)
        ),
    )
    batch = batches.ask(store, "ab" * 16, asked)
    gone = {row["passage_id"] for row in rows if row["document_id"] == "doc-0003"}
    write_corpus(tmp_path / "corpus.jsonl", {name: row for name, row in documents(6).items() if name != "doc-0003"})
    made, _ = forget(store, ["doc-0003"], build=lambda: build(plain))
    assert made.questions == len(gone) > 0
    assert made.batches == (str(batch),)
    (left,) = batches.begun(store)
    assert len(left.asked.questions) == len(rows) - len(gone)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store" / "batches").rglob("*.json"))
    assert not any(passage.encode() in kept for passage in gone)
