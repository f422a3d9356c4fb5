"""The gates of a build, both ways: what is refused, what is kept of it, and how a person publishes it all the same."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import indexmill
from flows.build_run import BuildOutcome
from flows.candidates import publish_candidate
from indexmill.command import main
from indexmill.errors import BadInput, CorruptBlob, GateRefused, LeaseLost, StoreNotWritable
from indexmill.opening import open_candidate
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults, runs
from storage.folder import open_folder
from tasks.pipeline.build import Build
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import Warnings, build, settings
from tests.flows.commands import Run

WORDS = ("amber", "basalt", "cobalt", "dolomite", "emerald", "feldspar", "garnet", "hematite", "iolite", "jasper")


def minerals() -> Documents:
    """Ten documents with a word each that no other has, and two that nothing asks for."""
    rows = {
        word: (f"About {word}", f"The {word} quarry was opened by Ada Marl in 18{n}0.") for n, word in enumerate(WORDS)
    }
    return rows | {f"other-{n}": ("Other", f"Goran Stave visited Port Lassen in 19{n}0.") for n in range(2)}


def ask(path: Path, words: Iterable[str] = WORDS) -> Path:
    """A question for each word, whose evidence is the document of that name."""
    lines = [{"id": word, "question": f"Who opened the {word} quarry?", "gold_ids": [word]} for word in words]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


class Place:
    """A store, its corpus and its questions in a folder."""

    def __init__(self, folder: Path, **gates: Any) -> None:
        self.folder = folder
        self.corpus = folder / "corpus.jsonl"
        self.root = folder / "store"
        self.gates: dict[str, Any] = {"max_shrink": 0.2, "methods": "bm25", "k": 1} | gates
        self.said = Warnings()

    def settings(self, **gates: Any) -> dict[str, Any]:
        return settings(self.root, self.corpus, gates=self.gates | gates)

    def build(self, rows: Documents | None = None, *, allow_shrink: bool = False, **gates: Any) -> BuildOutcome:
        if rows is not None:
            write_corpus(self.corpus, rows)
        return build(self.settings(**gates), progress=self.said, allow_shrink=allow_shrink)

    def refused(self, rows: Documents | None = None, **gates: Any) -> str:
        """What the gate says, held against what every refusal leaves behind."""
        versions = StoreReader(self.root).versions()
        with pytest.raises(GateRefused) as refusal:
            self.build(rows, **gates)
        assert StoreReader(self.root).versions() == versions
        assert (self.last.state, self.last.exit_code) == ("refused", 3)
        return str(refusal.value)

    @property
    def last(self) -> runs.StoredRun:
        """The last run."""
        return runs.list_runs(open_folder(self.root))[-1]

    @property
    def report(self) -> dict[str, Any]:
        """What the last run said about itself."""
        assert self.last.end is not None
        return dict(self.last.end.report)


@pytest.fixture
def place(quick: Path) -> Place:
    return Place(quick)


@pytest.fixture
def asked(quick: Path) -> Place:
    return Place(quick, questions=str(ask(quick / "questions.jsonl")))


def without(rows: Documents, *gone: str) -> Documents:
    return {name: row for name, row in rows.items() if name not in gone}


# The size of the corpus


@pytest.mark.slow
def test_a_corpus_that_shrank_too_far_is_refused_before_anything_is_made(place: Place) -> None:
    rows = documents(12)
    place.build(rows)
    less = without(rows, *sorted(rows)[:3])
    message = place.refused(less)
    assert "the corpus has 9 documents where version 1 has 12: 25% fewer, and gates.max_shrink is 20%" in message
    assert "--allow-shrink" in message
    assert {name: stage["parts_made"] for name, stage in place.report["stages"].items()} == {
        "encoder": 0,
        "ingest": 0,
    }
    assert place.last.candidate is None
    assert place.build(less, allow_shrink=True).version == 2


@pytest.mark.slow
def test_what_a_night_takes_away_is_published(place: Place) -> None:
    rows = documents(12)
    place.build(rows)
    outcome = place.build(without(rows, *sorted(rows)[:2]))
    assert (outcome.version, outcome.documents) == (2, 10)


@pytest.mark.slow
def test_the_refused_rows_are_told_with_a_shrunk_corpus(place: Place) -> None:
    rows = documents(6)
    place.build(rows)
    place.corpus.write_text("not json\n" * 3, encoding="utf-8")
    said = place.refused()
    assert "contains no document, and version 1 has 6 (3 rows were refused: see" in said
    assert f"; 3 not-json, such as {place.corpus.name}:1 (not-json)" in said


def test_an_empty_corpus_is_published_if_a_person_says_so_and_answers_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = documents(6)
    place.build(rows)
    assert "the corpus contains no document, and version 1 has 6" in place.refused({}, max_shrink=1.0)
    outcome = place.build({}, allow_shrink=True)
    assert (outcome.version, outcome.documents) == (2, 0)
    with indexmill.open(place.root) as snapshot:
        for method in snapshot.methods:
            assert snapshot.retrieve_batch(["Who built the bridge of Vell?", ""], method=method) == [[], []]
            assert snapshot.retrieve("bridge", method=method, where={"document_id": "x"}) == []
    for argv in (("query", "Who built the bridge?"), ("show",), ("verify",), ("query", "x", "--where", "title=a")):
        assert main([*argv, "--store", str(place.root)]) == 0, capsys.readouterr().err
    assert not place.build().published  # it stays empty without being asked again
    assert place.build(rows).manifest == place.build(rows).manifest
    assert StoreReader(place.root).versions() == [1, 2, 3]
    assert StoreReader(place.root).ref(3).manifest == StoreReader(place.root).ref(1).manifest


def test_the_first_build_of_an_empty_corpus_is_bad_input(place: Place) -> None:
    with pytest.raises(BadInput, match="no document that can be indexed"):
        place.build({}, allow_shrink=True)
    place.corpus.unlink()
    place.corpus.mkdir()
    with pytest.raises(BadInput, match="no corpus file found"):
        place.build(allow_shrink=True)


@pytest.fixture
def sources(place: Place) -> Place:
    """A corpus of two folders, twelve documents in one and one in the other."""
    place.corpus.mkdir()
    for name, rows in (("archive", documents(12)), ("news", {"new": ("News", "Esme Quill ruled Quillon.")})):
        (place.corpus / name).mkdir()
        write_corpus(place.corpus / name / "rows.jsonl", rows)
    plain = place.settings()
    paths = {"paths": [str(place.corpus / name) for name in ("archive", "news")]}
    place.settings = lambda **gates: plain | {"corpus": paths}  # type: ignore[method-assign]
    place.build()
    return place


@pytest.mark.slow
def test_an_unmounted_source_is_refused_however_small_it_was(sources: Place) -> None:
    (sources.corpus / "news" / "rows.jsonl").unlink()
    message = sources.refused()
    assert f"no file of the corpus is under {sources.corpus / 'news'}" in message
    assert "version 1 has 1 document that the corpus lacks" in message
    # Growth elsewhere does not hide it.
    write_corpus(sources.corpus / "archive" / "rows.jsonl", documents(30))
    assert "version 1 has 1 document that the corpus lacks" in sources.refused()
    assert sources.build(allow_shrink=True).documents == 30
    assert sources.said.warnings[-1] == f"no file of the corpus is under {sources.corpus / 'news'}"
    assert not sources.build().published  # it had nothing that could be lost


@pytest.mark.slow
def test_every_source_unmounted_is_refused_before_a_worker_starts(
    sources: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("archive", "news"):
        (sources.corpus / name / "rows.jsonl").unlink()
    monkeypatch.setattr(Build, "encoder", lambda self: pytest.fail("the build went on"))
    message = sources.refused()
    assert f"under {sources.corpus / 'archive'} and 1 other" in message
    assert "the corpus contains no document, and version 1 has 13" in message
    monkeypatch.undo()
    assert sources.build(allow_shrink=True).documents == 0


@pytest.mark.slow
def test_a_folder_that_vanished_is_bad_input_even_where_documents_may_go(sources: Place) -> None:
    shutil.rmtree(sources.corpus / "news")
    with pytest.raises(BadInput, match="news does not exist"):
        sources.build(allow_shrink=True)
    assert StoreReader(sources.root).versions() == [1]


# Quality


def test_a_drop_of_recall_is_refused_and_the_candidate_kept(asked: Place) -> None:
    rows = minerals()
    assert asked.build(rows).quality is not None
    message = asked.refused(without(rows, "amber", "basalt"))
    assert "bm25 has recall@1 0.8000 where version 1 has 1.0000, and gates.tolerance is 0.02" in message
    assert "(10 questions, 2 gold documents no longer in the corpus)" in message
    assert f"indexmill publish {asked.last.run_id}" in message
    assert asked.last.candidate is not None
    quality = asked.report["quality"]
    assert len(quality.pop("by_question")["questions"]) == 10
    assert quality.pop("missed") == []  # what the candidate lacks is not missed in it
    assert quality == {
        "manifest": asked.last.candidate,
        "k": 1,
        "questions": 10,
        "unanswerable": 2,
        "missing_gold": 2,
        "recall": {"bm25": 1.0},
        "compared": {
            "version": 1,
            "questions": 10,
            "before": {"bm25": 1.0},
            "now": {"bm25": 0.8},
            "lost_gold": 2,
            "lost_gold_counts": True,
        },
    }
    with open_candidate(asked.root, asked.last.run_id) as candidate:
        assert candidate.version is None
        assert candidate.manifest.corpus.documents == 10


@pytest.mark.slow
def test_documents_that_a_person_lets_go_are_not_missed(asked: Place) -> None:
    rows = minerals()
    asked.build(rows)
    outcome = asked.build(without(rows, "amber", "basalt"), allow_shrink=True)
    assert outcome.version == 2
    assert asked.last.start.details["allowed"] == ["shrink"]
    assert outcome.quality is not None
    assert (
        outcome.quality["compared"] | {"questions": 8, "lost_gold": 2, "lost_gold_counts": False}
        == (outcome.quality["compared"])
    )


@pytest.mark.slow
def test_a_drop_within_the_tolerance_is_published(asked: Place) -> None:
    rows = minerals()
    asked.build(rows, tolerance=0.1)
    assert asked.build(without(rows, "amber"), tolerance=0.1).version == 2


@pytest.mark.slow
def test_a_text_that_no_longer_answers_is_a_drop(asked: Place) -> None:
    rows = minerals()
    asked.build(rows)
    title, text = rows["jasper"]
    edited = rows | {"jasper": (title.replace("jasper", "it"), text.replace("jasper", "old"))}
    assert "0.9000 where version 1 has 1.0000" in asked.refused(edited)
    assert asked.build(rows | {"other-0": ("Else", "Fenna Rook left Vell.")}).published


@pytest.mark.slow
def test_recall_below_the_minimum_is_refused_from_the_first_build_on(asked: Place) -> None:
    rows = minerals()
    rows["jasper"] = ("Nothing", "Ada Marl left.")
    with pytest.raises(GateRefused, match=r"bm25 has recall@1 0\.9000, and gates\.minimum is 0\.95"):
        asked.build(rows, minimum=0.95)
    first = asked.last
    assert publish_candidate(open_folder(asked.root), first.run_id).version == 1
    with pytest.raises(GateRefused, match=r"no question of .* has a gold document in the corpus"):
        asked.build(documents(12), minimum=0.5)


@pytest.mark.slow
def test_gold_documents_that_no_version_has_are_counted_and_left_out(asked: Place) -> None:
    ask(asked.folder / "questions.jsonl", [*WORDS, "kyanite", "lazurite"])
    rows = minerals()
    outcome = asked.build(rows)
    assert outcome.quality is not None
    assert outcome.quality | {"questions": 12, "unanswerable": 2, "missing_gold": 2, "recall": {"bm25": 1.0}} == (
        outcome.quality
    )
    rows["kyanite"] = ("Kyanite", "Nothing of what was asked.")  # new evidence that is not found is no drop
    assert asked.build(rows).published


@pytest.mark.slow
def test_a_version_is_measured_once_and_again_for_other_questions(asked: Place) -> None:
    rows = minerals()
    asked.build(rows, questions=None)
    assert "quality" not in asked.report

    def measured() -> tuple[int, int]:
        stage = asked.report["stages"]["quality"]
        return stage["parts_made"], stage["parts_reused"]

    asked.build(rows | {"more": ("More", "Dario Penhale left.")})
    assert measured() == (2, 0)  # the parent was never measured
    asked.build(rows | {"most": ("Most", "Bruno of Vell left.")})
    assert measured() == (1, 1)
    asked.build(rows, k=2)
    assert measured() == (2, 0)
    assert not asked.build(rows, k=2).published
    assert measured() == (0, 1)  # the candidate is the parent
    ask(asked.folder / "questions.jsonl", WORDS[:5])
    asked.build(rows | {"more": ("More", "Dario Penhale left.")}, k=2)
    assert measured() == (2, 0)


@pytest.mark.slow
def test_the_gate_changes_no_byte_of_the_index(asked: Place) -> None:
    outcome = asked.build(minerals())
    asked.root = asked.folder / "plain"
    assert asked.build(questions=None).manifest == outcome.manifest


@pytest.mark.slow
def test_a_method_that_the_version_before_lacks_is_not_compared(asked: Place) -> None:
    rows = minerals()
    families = {"tri_graph": {"enabled": False}, "zoom_graph": {"enabled": False}}
    write_corpus(asked.corpus, rows)
    build(asked.settings(methods=["dense"]) | {"families": families})
    outcome = asked.build(methods=["dense", "tri_graph"])
    assert outcome.quality is not None
    assert sorted(outcome.quality["recall"]) == ["dense", "tri_graph"]
    assert sorted(outcome.quality["compared"]["now"]) == ["dense"]


def test_a_damaged_version_cannot_be_measured_and_does_not_stop_the_next(
    asked: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INDEXMILL_CACHE", raising=False)  # what another reader has assembled is not read again
    rows = minerals()
    asked.build(rows)
    reader = StoreReader(asked.root)
    gone = next(one for one in reader.manifest(reader.newest().manifest).artifacts if one.name.startswith("bm25/"))
    edited = {name: (title, f"{text} It rained.") for name, (title, text) in rows.items()}
    (asked.root / blob_path(gone.digest)).unlink()
    shutil.rmtree(asked.root / "work" / "quality")
    outcome = asked.build(edited)
    assert outcome.version == 2
    assert outcome.quality is not None
    assert outcome.quality["compared"] is None
    assert "the quality of version 1 cannot be measured" in asked.said.warnings[-1]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), ("{", "questions.jsonl:1: is not JSON"), ("\n", "contains no questions")],
)
def test_a_question_file_that_cannot_be_used_is_bad_input_before_any_work(
    asked: Place, content: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = asked.folder / "questions.jsonl"
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="utf-8")
    monkeypatch.setattr(Build, "encoder", lambda self: pytest.fail("the build began"))
    with pytest.raises(BadInput, match=said):
        asked.build(minerals())
    assert (asked.last.state, asked.last.exit_code) == ("failed", 2)
    assert asked.report["stages"] == {}


# The candidate


@pytest.fixture
def kept(asked: Place) -> Place:
    """A store at version 1 whose last run left a candidate."""
    rows = minerals()
    asked.build(rows)
    asked.refused(without(rows, "amber", "basalt"))
    return asked


def test_a_candidate_is_read_by_the_run_that_left_it(kept: Place, capsys: pytest.CaptureFixture[str]) -> None:
    command = Run(capsys, "--store", kept.root)
    run = kept.last.run_id
    found = command.json("query", "Who opened the amber quarry?", "--run", run, "-m", "bm25")
    assert found["version"] is None
    assert "amber" not in [hit["document_ids"][0] for hit in found["hits"]]
    assert command.json("query", "Who opened the amber quarry?", "-m", "bm25")["hits"][0]["document_ids"] == ["amber"]
    assert command.json("show", "--run", run)["manifest"] == kept.last.candidate
    measured = command.json("evaluate", str(kept.folder / "questions.jsonl"), "--run", run, "-m", "bm25", "-k", "1")
    assert measured["methods"]["bm25"]["recall@1"] == 0.8
    shown = command.json("runs", run)
    assert (shown["candidate"], shown["state"]) == (kept.last.candidate, "refused")
    assert command("show", "--run", run) == 0
    assert command.out.startswith(f"candidate of run {run}, not published\n  manifest ")
    for argv, said in (
        (("query", "x", "--run", run, "--snapshot", "1"), "it cannot be combined with VERSION, --alias or --manifest"),
        (("query", "x", "--run", "never"), "has no finished run never"),
        (("show", "--run", runs.list_runs(open_folder(kept.root))[0].run_id), "it ended as 'published'"),
        (("show", "--run", "../../etc"), "has no finished run"),
    ):
        assert command(*argv) == 2
        assert said in command.err


def test_a_candidate_is_published_by_hand_and_the_next_build_goes_on_from_it(
    kept: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = kept.last
    argv = ["publish", refused.run_id, "--store", str(kept.root), "--note", "they were withdrawn"]
    assert main(argv) == 0
    assert capsys.readouterr().out == "published version 2: 10 documents, 10 passages\n"
    ref = StoreReader(kept.root).newest()
    assert (ref.version, ref.manifest, ref.note) == (2, refused.candidate, "they were withdrawn")
    assert verify(StoreReader(kept.root)).ok
    assert (kept.last.start.command, kept.last.state, kept.last.version) == ("publish", "published", 2)
    assert kept.report["quality"]["recall"] == {"bm25": 1.0}
    assert kept.report["candidate"] == refused.run_id
    assert main([*argv, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["published"], told["version"], kept.last.state) == (False, 2, "unchanged")
    again = kept.build()
    assert (again.published, again.version, again.parts_made) == (False, 2, 0)
    more = kept.build(without(minerals(), "amber", "basalt") | {"new": ("New", "Esme Quill left.")})
    assert more.version == 3
    assert more.quality is not None
    assert more.quality["compared"]["version"] == 2
    assert main([*argv]) == 0  # an old candidate that was published stays published
    assert "version 2 is already the candidate of run" in capsys.readouterr().out


@pytest.mark.slow
def test_the_next_build_of_the_same_corpus_is_refused_again_and_makes_nothing(kept: Place) -> None:
    before = kept.last
    message = kept.refused()
    assert f"It is the candidate of run {before.run_id}, unchanged." in message
    assert kept.report["totals"]["parts_made"] == 0
    again = kept.last
    assert again.candidate == before.candidate
    assert publish_candidate(open_folder(kept.root), before.run_id).published
    assert not publish_candidate(open_folder(kept.root), again.run_id).published


@pytest.mark.slow
def test_a_candidate_that_another_version_overtook_is_not_published(kept: Place) -> None:
    refused = kept.last
    kept.build(minerals() | {"new": ("New", "Esme Quill left.")})
    with pytest.raises(LeaseLost, match=r"published version 2 after the candidate of run .* build again"):
        publish_candidate(open_folder(kept.root), refused.run_id)
    assert (kept.last.state, kept.last.exit_code) == ("superseded", 5)
    assert StoreReader(kept.root).versions() == [1, 2]


def test_a_candidate_with_a_missing_blob_is_not_published(kept: Place) -> None:
    refused = kept.last
    assert refused.candidate is not None
    reader = StoreReader(kept.root)
    old = {one.digest for one in reader.manifest(reader.newest().manifest).artifacts}
    lost = next(one for one in reader.manifest(refused.candidate).artifacts if one.digest not in old)
    (kept.root / blob_path(lost.digest)).unlink()
    with pytest.raises(CorruptBlob, match=r"is missing, expected .* nothing was published"):
        publish_candidate(open_folder(kept.root), refused.run_id)
    assert StoreReader(kept.root).versions() == [1]
    kept.refused()  # the next build makes it whole
    assert publish_candidate(open_folder(kept.root), refused.run_id).published


@pytest.mark.slow
def test_a_publishing_that_met_a_full_disk_is_finished_by_another(kept: Place) -> None:
    refused = kept.last
    at = 1
    while True:
        root = Path(shutil.copytree(kept.root, kept.folder / f"copy-{at}"))
        faults.arm(at, "enospc")
        try:
            publish_candidate(open_folder(root), refused.run_id)
            failed = False
        except StoreNotWritable:
            failed = True
        finally:
            crossed = faults.crossings()
            faults.arm(0)
        published = StoreReader(root).versions() == [1, 2]
        assert published or failed
        # Its lease may not have been given back, and its process lives: later it has run out.
        with patch("storage.lease.clock_of", lambda _: lambda: time.time() + 1_000):
            again = publish_candidate(open_folder(root), refused.run_id)
        assert (again.published, again.version) == (not published, 2)
        assert StoreReader(root).versions() == [1, 2]
        assert StoreReader(root).ref(2).manifest == refused.candidate
        assert verify(StoreReader(root)).ok
        shutil.rmtree(root)
        if crossed < at:
            break
        at += 3
    assert at > 20


def test_only_a_candidate_can_be_published_by_hand(kept: Place, capsys: pytest.CaptureFixture[str]) -> None:
    published = runs.list_runs(open_folder(kept.root))[0]
    for run, message in ((published.run_id, "ended as 'published' and has no candidate"), ("never", "no run never")):
        assert main(["publish", run, "--store", str(kept.root)]) == 2
        assert message in capsys.readouterr().err
    assert len(runs.list_runs(open_folder(kept.root))) == 2  # nothing was begun


@pytest.mark.slow
def test_a_run_that_was_refused_early_left_no_candidate(place: Place) -> None:
    rows = documents(12)
    place.build(rows)
    place.refused(without(rows, *sorted(rows)[:6]))
    with pytest.raises(BadInput, match="'refused' and has no candidate"):
        publish_candidate(open_folder(place.root), place.last.run_id)
