"""Documents that kill the processes that work on them: found, recorded and left out, and the rest is published."""

from __future__ import annotations

import importlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client

from flows.build_run import BuildOutcome
from flows.cluster import private_cluster
from flows.dask_executor import DaskExecutor
from flows.progress_lines import Lines
from indexmill.errors import BadInput, GateRefused, IndexmillError
from storage import runs
from storage.folder import open_folder
from tasks.core.executor import Call, Failed, InlineExecutor, WorkerDied
from tasks.core.report import Progress
from tasks.families.bm25 import postings
from tasks.pipeline import corpus_run
from tasks.stages.embed import embed
from tasks.stages.recognise import rules
from tasks.stages.split import split
from tests.corpora import Documents, documents, write_corpus
from tests.flows import children, deadly
from tests.flows.children import Warnings, settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with private_cluster(2, tmp_path_factory.mktemp("cluster")) as client:
        yield client


def build(
    root: Path,
    rows: Documents,
    client: Client | None = None,
    progress: Progress | None = None,
    **changes: dict[str, object],
) -> BuildOutcome:
    corpus = write_corpus(root.parent / f"{root.name}.jsonl", rows)
    executor = None if client is None else DaskExecutor(client)
    return children.build(settings(root, corpus, **changes), executor, progress=progress)


def deadly_stage(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let documents kill a stage, in this process and in all others."""
    module = {"split": split, "recognise": rules, "embed": embed, "bm25": postings}[name]
    monkeypatch.setattr(module, "STAGE", importlib.import_module(f"tests.flows.deadly.{name}").STAGE)


def poisoned(rows: Documents, words: Mapping[str, str]) -> Documents:
    """The documents with a word at the end of some texts."""
    return {
        name: (title, f"{text} It {words[name]}." if name in words else text) for name, (title, text) in rows.items()
    }


def refused(root: Path) -> dict[str, tuple[str, str]]:
    """Reason and detail of the last run's refusals, by document."""
    _, table = runs.quarantine_of(open_folder(root))
    return {row["document_id"]: (row["reason"], row["detail"]) for row in table.to_pylist()}


STAGES = ["recognise", *(pytest.param(stage, marks=pytest.mark.slow) for stage in ("split", "embed", "bm25"))]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", STAGES)
def test_documents_that_kill_workers_are_left_out_and_not_tried_again(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    rows = documents(24, words=110)
    words = {"doc-0003": deadly.KILL, "doc-0004": deadly.EXIT, "doc-0011": deadly.KILL, "doc-0017": deadly.RAISE}
    clean = build(tmp_path / "clean", {name: row for name, row in rows.items() if name not in words})
    deadly_stage(monkeypatch, stage)
    told = Warnings()
    first = build(tmp_path / "store", poisoned(rows, words), client, told)
    assert (first.published, first.manifest, first.quarantined) == (True, clean.manifest, 4)
    assert refused(tmp_path / "store") == {
        "doc-0003": ("kills-worker", f"{stage}: its process was ended by SIGKILL"),
        "doc-0004": ("kills-worker", f"{stage}: its process ended with exit code 3"),
        "doc-0011": ("kills-worker", f"{stage}: its process was ended by SIGKILL"),
        "doc-0017": (f"fails-{stage}", f"{stage}: ValueError: hell"),
    }
    assert any(warning.startswith(f"{stage} cannot process doc-0003") for warning in told.warnings), told.warnings
    told = Warnings()
    again = build(tmp_path / "store", poisoned(rows, words), client, told)
    assert (again.published, again.parts_made, again.vectors_made, again.quarantined) == (False, 0, 0, 4)
    assert told.warnings == []


class Counts(Lines):
    """The parts of each stage as it ended: how many were done, of how many."""

    def __init__(self) -> None:
        self.told = io.StringIO()
        super().__init__(self.told)
        self.ended: dict[str, tuple[int, int]] = {}

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        state = self._stages[stage]
        self.ended[stage] = state.done, state.parts
        super().end(stage, summary, seconds)


@pytest.mark.slow
def test_a_stage_that_begins_again_counts_its_parts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadly_stage(monkeypatch, "recognise")
    told = Counts()
    assert build(tmp_path / "store", poisoned(documents(24), {"doc-0011": deadly.RAISE}), progress=told).published
    assert "the build continues without them" in told.told.getvalue()
    assert told.ended["recognise"][1] > 1
    assert {stage for stage, (done, parts) in told.ended.items() if done != parts} == set()
    (run,) = runs.list_runs(open_folder(tmp_path / "store"))
    assert run.end is not None
    stages: Any = run.end.report["stages"]
    counts = stages["ingest"]
    assert (counts["documents"], counts["quarantined"]) == (23, 1)


@pytest.mark.slow
def test_documents_that_are_too_much_together_are_not_blamed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = documents(8)
    deadly_stage(monkeypatch, "recognise")
    with pytest.raises(WorkerDied, match="ended 2 worker processes") as caught:
        build(
            tmp_path / "store",
            poisoned(rows, dict.fromkeys(rows, deadly.TOGETHER)),
            client,
            shards={"document_tokens": 100_000},
        )
    assert caught.value.exit_code == 1
    assert "with fewer workers" in str(caught.value)
    assert open_folder(tmp_path / "store").list("poison/") == []


RAISES = {"doc-0002": deadly.RAISE, "doc-0009": deadly.RAISE}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_an_exception_is_laid_to_the_documents_that_raise_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    rows = documents(12)
    clean = build(tmp_path / "clean", {name: row for name, row in rows.items() if name not in RAISES})
    deadly_stage(monkeypatch, stage)
    root, told = tmp_path / "store", Warnings()
    first = build(root, poisoned(rows, RAISES), progress=told)
    assert first.manifest == clean.manifest
    assert refused(root) == dict.fromkeys(RAISES, (f"fails-{stage}", f"{stage}: ValueError: hell"))
    assert len(told.warnings) == 2
    again = build(root, poisoned(rows, RAISES))
    assert (again.published, again.parts_made, again.quarantined) == (False, 0, 2)
    mended = build(root, rows)
    assert mended.manifest == build(tmp_path / "whole", rows).manifest
    assert refused(root) == {}


@pytest.mark.slow
def test_what_one_run_made_is_counted_once_however_often_its_stages_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = documents(30, words=110)
    clean = build(tmp_path / "clean", {name: row for name, row in rows.items() if name not in RAISES})
    deadly_stage(monkeypatch, "embed")
    for cold in (False, True):
        told = build(tmp_path / "store", poisoned(rows, RAISES))
        assert told.vectors_made == (0 if cold else clean.vectors_made)
        assert (told.parts_reused == 0) == (not cold)
    _, table = runs.quarantine_of(open_folder(tmp_path / "store"))
    assert table.num_rows == 2
    last = runs.list_runs(open_folder(tmp_path / "store"))[-1]
    assert last.end is not None
    assert last.end.report["stages"]["ingest"]["documents"] == 28  # type: ignore[index,call-overload]


@pytest.mark.slow
def test_other_code_or_settings_try_a_document_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, root = poisoned(documents(12), RAISES), tmp_path / "store"
    with monkeypatch.context() as patched:
        deadly_stage(patched, "recognise")
        assert build(root, rows).quarantined == 2
        patched.setattr(corpus_run, "code_digest", lambda: "another")
        told = Warnings()
        assert build(root, rows, progress=told).quarantined == 2
        assert len(told.warnings) == 2
    whole = build(tmp_path / "whole", rows)
    assert whole.quarantined == 0
    monkeypatch.setattr(corpus_run, "code_digest", lambda: "mended")
    assert build(root, rows).manifest == whole.manifest


@pytest.mark.slow
def test_of_two_contents_the_one_that_can_be_indexed_is_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = documents(6)
    contents = [("one", f"Esme Quill left Vell {number}. It {deadly.RAISE}.") for number in range(4)]
    corpus = write_corpus(
        tmp_path / "both.jsonl",
        [*rows.items(), *(("twice", content) for content in contents), ("twice", rows["doc-0001"])],
    )
    clean = build(tmp_path / "clean", {**rows, "twice": rows["doc-0001"]})
    deadly_stage(monkeypatch, "split")
    told = children.build(settings(tmp_path / "store", corpus))
    assert told.manifest == clean.manifest
    reasons = [row["reason"] for row in runs.quarantine_of(open_folder(tmp_path / "store"))[1].to_pylist()]
    assert sorted(set(reasons)) == ["duplicate-id", "fails-split"]  # what never was the document was not tried
    assert len(reasons) == 4


@pytest.mark.slow
def test_a_stage_that_fails_with_most_documents_is_itself_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = documents(40)
    deadly_stage(monkeypatch, "split")
    with pytest.raises(ValueError, match="hell"):
        build(
            tmp_path / "store", poisoned(rows, dict.fromkeys(rows, deadly.RAISE)), shards={"document_tokens": 100_000}
        )
    assert open_folder(tmp_path / "store").list("poison/") == []


@pytest.mark.parametrize("error", [MemoryError("no memory"), IndexmillError("the store"), OSError("no disk")])
def test_what_is_no_documents_fault_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(inputs: object) -> None:
        raise error

    importlib.import_module("tests.flows.deadly.split")
    deadly_stage(monkeypatch, "split")
    monkeypatch.setattr("tests.flows.deadly.split.strike", fail)
    with pytest.raises(type(error), match=str(error)):
        build(tmp_path / "store", documents(6))
    assert open_folder(tmp_path / "store").list("poison/") == []


@pytest.mark.slow
def test_strict_takes_a_poisonous_document_for_a_refused_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadly_stage(monkeypatch, "split")
    with pytest.raises(BadInput, match="2 rows were refused \\(2 fails-split\\) and --strict is on"):
        build(tmp_path / "store", poisoned(documents(12), RAISES), run={"strict": True})


# Too many failures


@pytest.mark.slow
def test_more_refused_rows_than_their_share_publish_nothing(tmp_path: Path) -> None:
    rows = documents(100)
    bad = {f"bad-{number}": ("no text", "") for number in range(11)}
    with pytest.raises(GateRefused, match="11 of 111 rows were refused \\(11 no-text\\)") as caught:
        build(tmp_path / "store", {**rows, **bad})
    assert caught.value.exit_code == 3
    assert "run.max_failed_share" in str(caught.value)
    assert "such as store.jsonl:101 (no-text); `corpus.fields` names" in str(caught.value)
    store = open_folder(tmp_path / "store")
    last = runs.list_runs(store)[-1]
    assert (last.state, last.exit_code, last.quarantined) == ("refused", 3, 11)
    assert store.list("refs/") == []
    assert build(tmp_path / "store", {**rows, **bad}, run={"max_failed_share": 0.1}).quarantined == 11


def test_ten_rows_may_be_refused_whatever_their_share(tmp_path: Path) -> None:
    bad = {f"bad-{number}": ("no text", "") for number in range(10)}
    assert build(tmp_path / "store", {**documents(2), **bad}).quarantined == 10


@pytest.mark.slow
def test_documents_that_a_stage_cannot_take_count_as_refused_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly_stage(monkeypatch, "split")
    rows = poisoned(documents(100), {f"doc-{number:04d}": deadly.RAISE for number in range(11)})
    with pytest.raises(GateRefused, match="11 of 100 rows were refused \\(11 fails-split\\)"):
        build(tmp_path / "store", rows, shards={"document_tokens": 100_000})


@pytest.mark.slow
def test_work_that_dies_with_others_is_tried_again(tmp_path: Path) -> None:
    class Unlucky(InlineExecutor):
        """Every call's workers die the first two times."""

        def __init__(self) -> None:
            super().__init__()
            self.died: Counter[str] = Counter()

        def run(
            self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False
        ) -> Iterator[tuple[Call, object]]:
            for call in calls:
                work = call.key.rpartition("-")[0]
                self.died[work] += 1
                if self.died[work] < 3:
                    yield call, Failed(WorkerDied("another's fault"))
                else:
                    yield from super().run([call], keep_going=keep_going)

    rows = documents(4)
    clean = build(tmp_path / "clean", rows)
    corpus = write_corpus(tmp_path / "corpus.jsonl", rows)
    unlucky = Unlucky()
    told = children.build(settings(tmp_path / "store", corpus, shards={"document_tokens": 100_000}), unlucky)
    assert told.documents == clean.documents
    trials = {work for work in unlucky.died if work.endswith("-isolate")}
    assert len(trials) == 4  # of the four stages that read a shard's documents
    assert {tried for work, tried in unlucky.died.items() if work not in trials} == {3}
