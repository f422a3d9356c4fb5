from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.forget import forget
from flows.status import read_status
from schemas.tables import PASSAGES
from storage import batches, refs
from storage.batches import BatchQuestion, BatchRequest, Kind
from storage.folder import open_folder
from storage.lease import acquire
from storage.publish import read_manifest
from storage.table_blobs import read_table
from tasks.core.executor import StoppedError
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run, write_settings
from tests.llm_batches import Plan
from tests.llm_server import CANARY, LlmServer
from tests.tasks.batching import Bench, questions


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with LlmServer(keys={CANARY}) as running:
        running.batches.plan = Plan(looks=50)
        yield running


@pytest.fixture
def pending(server: LlmServer, quick: Path) -> Bench:
    """A store with one batch at the endpoint."""
    bench = Bench.at(quick / "store", server.base_url, stop_after=1)
    with pytest.raises(StoppedError):
        bench.fill(questions(5))
    return bench


@pytest.fixture
def run(pending: Bench, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, with the settings of `pending`."""
    folder = Path(pending.store.root).parent
    llm = {"backend": "openai", "model": "some-model", "base_url": pending.base_url}
    capsys.readouterr()
    return Run(capsys, "-c", write_settings(folder / "indexmill.yaml", {"store": str(folder / "store"), "llm": llm}))


def test_pending_batches_are_listed(pending: Bench, run: Run) -> None:
    (batch,) = run.json("batches")["batches"]
    assert (batch["state"], batch["questions"], batch["stage"]) == ("started", 4, "summaries")
    assert batch["batch_id"] == "batch_0001"
    (shown,) = read_status(pending.store, pending.now).batches
    assert (shown.id, shown.state) == (batch["id"], "started")


def test_a_cancelled_batch_is_collected_by_the_next_run(pending: Bench, server: LlmServer, run: Run) -> None:
    (batch,) = run.json("batches")["batches"]
    assert run.json("batches", "--cancel", batch["id"])["status"] == "cancelled"
    pending.stop_after = None
    counts = pending.fill(questions(5))
    assert counts["llm_batch_answers"] == 2
    assert server.batches.wrong == []


def test_a_batch_that_is_given_up_is_asked_again(pending: Bench, server: LlmServer, run: Run) -> None:
    (batch,) = run.json("batches")["batches"]
    server.batches.batches.clear()
    assert run("batches", "--give-up", batch["id"]) == 0
    assert run.json("batches") == {"batches": []}
    pending.stop_after = None
    server.batches.plan = Plan()
    with acquire(pending.store, "run-2", clock=lambda: pending.now):
        pending.fill(questions(5), run_id="run-2")
    assert len(server.batches.batches) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cancel", "ab"), "ab is not an open batch at an endpoint"),
        (("--give-up", "ab"), "there is no batch ab"),
        (("--cancel", "a", "--give-up", "b"), "--cancel and --give-up are mutually exclusive"),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert run("batches", *arguments, "--json") == 2
    assert run.out == ""
    assert message in run.err
    assert CANARY not in run.err


@pytest.mark.slow
def test_questions_about_a_forgotten_document_leave_open_batches(tmp_path: Path) -> None:
    plain = settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", documents(6)))
    build(plain)
    store = open_folder(tmp_path / "store")
    newest = refs.newest(store)
    assert newest is not None
    manifest = read_manifest(store, newest.manifest)
    rows = [row for one in manifest.under("passages") for row in read_table(store, one.digest, PASSAGES).to_pylist()]
    request = BatchRequest(
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
            BatchQuestion(key=f"{number:064x}", kind=0, about=(row["passage_id"],), makes="")
            for number, row in enumerate(rows)
        ),
    )
    batch = batches.ask(store, "ab" * 16, request)
    gone = {row["passage_id"] for row in rows if row["document_id"] == "doc-0003"}
    write_corpus(tmp_path / "corpus.jsonl", {name: row for name, row in documents(6).items() if name != "doc-0003"})
    made, _ = forget(store, ["doc-0003"], build=lambda: build(plain))
    assert made.questions == len(gone) > 0
    assert made.batches == (str(batch),)
    (left,) = batches.begun(store)
    assert len(left.request.questions) == len(rows) - len(gone)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store" / "batches").rglob("*.json"))
    assert not any(passage.encode() in kept for passage in gone)
