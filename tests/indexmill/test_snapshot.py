"""Opening a snapshot, reading its artifacts, and retrieving from it."""

from __future__ import annotations

import contextlib
import threading
import timeit
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import indexmill
from indexmill import (
    BadInput,
    CorruptBlob,
    FamilyNotFound,
    NotFound,
    RetrievalOptions,
    Snapshot,
    SnapshotNotFound,
    StoreError,
)
from indexmill.answer.answer_types import AnswerKeywords, AnswerOptions
from indexmill.command import cli
from indexmill.opening import open_candidate, open_manifest
from indexmill.retrieve.artifacts import CacheKey
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import MOST_CHARACTERS, check_question
from indexmill.retrieve.retrieval_options import RetrievalKeywords
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path, run_name
from indexmill.store.manifest import Manifest
from storage.runs import RunEnd
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter, Text, export, point, publish

QUESTIONS = ["Who paid for the bridge?", "Where does the Ilse rise?", "a town of lamps", "clockmaker"]


def test_a_question_is_answered_with_the_passage_that_holds_the_evidence(snapshot: Snapshot) -> None:
    best = snapshot.retrieve("Ada Venn paid for the bridge.", method="dense", k=2)[0]
    assert (best.kind, best.text) == ("passage", "Ada Venn paid for the bridge.")
    assert (best.title, best.document_ids, best.version, best.tokens) == ("Marrow Bridge", ("bridge",), 1, 6)
    assert best.score == pytest.approx(1.0, abs=1e-5)
    assert best.to_dict()["document_ids"] == ["bridge"]
    assert "explanation" not in best.to_dict()


def test_rows_run_through_the_shards_in_the_order_of_their_labels(snapshot: Snapshot) -> None:
    everything = snapshot.retrieve("the", k=100)
    assert len(everything) == len(passages_of(snapshot)) == 5
    begun = [passages_of(snapshot).text(row)[:12] for row in range(5)]
    assert begun == ["The Marrow B", "Ada Venn pai", "Ada Venn was", "The Ilse is ", "Tallow is a "]
    documents = snapshot.table("passages").column("document_id").to_pylist()
    assert documents == ["bridge", "bridge", "venn", "ilse", "tallow"]
    scores = [hit.score for hit in everything]
    assert scores == sorted(scores, reverse=True)


def test_a_batch_gives_each_question_what_it_gets_alone(snapshot: Snapshot) -> None:
    alone = [snapshot.retrieve(question, k=3) for question in QUESTIONS]
    assert snapshot.retrieve_batch(QUESTIONS, k=3) == alone
    assert snapshot.retrieve_batch(QUESTIONS[::-1], k=3) == alone[::-1]
    assert snapshot.retrieve_batch(QUESTIONS, k=3, vectors=snapshot.encode(QUESTIONS)) == alone
    assert snapshot.retrieve_batch([], k=3) == []


@pytest.mark.parametrize("question", ["", "   ", "\n\t"])
def test_an_empty_question_has_no_hits(snapshot: Snapshot, question: str) -> None:
    assert snapshot.retrieve(question) == []
    full = snapshot.retrieve(QUESTIONS[0])
    assert snapshot.retrieve_batch([question, QUESTIONS[0], question]) == [[], full, []]


@pytest.mark.parametrize("k", [0, -1, 2.0, "5", None, True])
def test_a_k_that_is_no_positive_whole_number_is_refused(snapshot: Snapshot, k: object) -> None:
    with pytest.raises(BadInput, match="k is"):
        snapshot.retrieve("bridge", k=k)  # type: ignore[arg-type]


def test_what_is_no_question_is_refused(snapshot: Snapshot) -> None:
    with pytest.raises(BadInput, match="Unicode"):
        snapshot.retrieve("bridge \udcff")
    with pytest.raises(BadInput, match="expected a str"):
        snapshot.retrieve_batch([b"bridge"])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="sequence of questions"):
        snapshot.retrieve_batch("bridge")


def test_vectors_of_another_shape_or_value_are_refused(snapshot: Snapshot) -> None:
    for vectors in (np.zeros((1, 63)), np.zeros((2, 64)), np.zeros(64), [["a"]]):
        with pytest.raises(BadInput, match="vectors="):
            snapshot.retrieve_batch(["bridge"], vectors=vectors)
    with pytest.raises(BadInput, match="NaN"):
        snapshot.retrieve_batch(["bridge"], vectors=np.full((1, 64), np.nan))


def test_a_question_may_come_with_its_vector(snapshot: Snapshot) -> None:
    vectors = snapshot.encode(QUESTIONS[:1])
    assert snapshot.retrieve(QUESTIONS[0], method="dense", vectors=vectors) == snapshot.retrieve(
        QUESTIONS[0], method="dense"
    )
    with pytest.raises(BadInput, match=r"vectors= has the shape \(1, 63\); expected \(1, 64\)"):
        snapshot.retrieve(QUESTIONS[0], vectors=vectors[:, 1:])


def test_options_travel_as_one_object_and_keywords_replace_some(snapshot: Snapshot) -> None:
    options = RetrievalOptions(method="dense", k=2, where={"title": ["Tallow"]})
    assert snapshot.retrieve(QUESTIONS[0], options=options) == snapshot.retrieve(
        QUESTIONS[0], method="dense", k=2, where={"title": ["Tallow"]}
    )
    assert snapshot.retrieve(QUESTIONS[0], options=options, where=None, k=3) == snapshot.retrieve(
        QUESTIONS[0], method="dense", k=3
    )
    assert snapshot.answer(QUESTIONS[0], options=options).method == "dense"
    with pytest.raises(BadInput, match="kk: there is no such setting; did you mean k"):
        snapshot.retrieve(QUESTIONS[0], options=options, kk=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("options", [{"method": ["dense"]}, {"parameters": ["title"]}, {"parameters": "title=1"}])
def test_an_option_of_another_type_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(BadInput, match=f"^{name}= is .*; expected"):
        RetrievalOptions(**options)


@pytest.mark.parametrize(
    ("options", "keywords"), [(RetrievalOptions, RetrievalKeywords), (AnswerOptions, AnswerKeywords)]
)
def test_each_option_is_a_keyword(options: type[RetrievalOptions], keywords: type[RetrievalKeywords]) -> None:
    assert {field.name for field in fields(options)} == set(keywords.__optional_keys__)


def test_options_are_equal_if_their_questions_may_share_a_batch() -> None:
    def same(**changes: Any) -> bool:
        return RetrievalOptions(k=3, parameters={"title": 1}) == RetrievalOptions.of(
            None, {"k": 3, "parameters": {"title": 1}, **changes}
        )

    assert same()
    assert same(principals=[], where=None, method=None)
    for changes in (
        {"k": 4},
        {"parameters": {"title": 1.0}},
        {"parameters": {"title": True}},
        {"parameters": {"title": [1]}},
        {"where": {"lang": "en"}},
        {"principals": ["staff"]},
        {"explain": False},
        {"vectors": np.zeros((1, 64))},
        {"names": [["Ada"]]},
    ):
        assert not same(**changes)


def test_methods_are_those_whose_family_the_snapshot_holds(snapshot: Snapshot) -> None:
    assert snapshot.methods == ("fused", "dense")
    assert snapshot.default_method == "fused"
    with pytest.raises(FamilyNotFound, match="does not contain 'tri_graph'"):
        snapshot.retrieve("bridge", method="tri_graph")
    with pytest.raises(BadInput, match="no method 'magic'"):
        snapshot.retrieve("bridge", method="magic")


def test_a_snapshot_of_no_documents_has_no_hits(tmp_path: Path) -> None:
    for path, world in ((tmp_path / "none", {}), (tmp_path / "empty", {"p": ()})):
        publish(path, world)
        with indexmill.open(path) as snapshot:
            assert snapshot.retrieve_batch(["bridge", ""], k=3) == [[], []]


def test_the_newest_version_is_opened_unless_one_is_pinned(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first = publish(path)
    publish(path, {"p": (Text("only", "Only", "One text."),)}, version=2, note="smaller")
    point(first.store, "prod", 1)
    with (
        indexmill.open(path) as newest,
        indexmill.open(path, version=1) as old,
        indexmill.open(path, alias="prod") as prod,
    ):
        assert (newest.version, old.version, prod.version) == (2, 1, 1)
        assert newest.ref is not None
        assert newest.ref.note == "smaller"
        assert newest.manifest.corpus.documents == 1
        publish(path, version=3)
        assert newest.retrieve("text")[0].version == 2


def test_what_no_version_publishes_opens_by_its_manifest_and_by_the_run_that_left_it(tmp_path: Path) -> None:
    writer = publish(tmp_path, {"p": (Text("a", "A", "one"),)})
    writer.shard("q", (Text("b", "B", "two"),))
    digest = writer.store.put_blob(writer.manifest().to_bytes())
    ends = {"refused": digest, "early": None, "failed": digest}
    for run, manifest in ends.items():
        state = "failed" if run == "failed" else "refused"
        record = RunEnd(run_id=run, state=state, exit_code=3, ended="2026-01-31T02:00:00Z", manifest=manifest)
        assert writer.store.create(run_name(run, "end"), record.to_bytes())
    for opened in (open_manifest(tmp_path, digest), open_candidate(tmp_path, "refused")):
        with opened as snapshot:
            assert (snapshot.version, snapshot.ref) == (None, None)
            hit = snapshot.retrieve("two", k=1)[0]
            assert (hit.document_ids, hit.version) == (("b",), None)
    for run, message in (("early", "has no candidate"), ("failed", "ended as 'failed'"), ("none", "no finished run")):
        with pytest.raises(SnapshotNotFound, match=message):
            open_candidate(tmp_path, run)


@pytest.mark.parametrize(
    ("path", "pinned", "error", "message"),
    [
        ("nowhere", {}, SnapshotNotFound, r"no index yet in .*nowhere: run `indexmill build`"),
        ("file", {}, SnapshotNotFound, "not an index store"),
        ("new", {}, SnapshotNotFound, "no snapshot yet"),
        ("store", {"version": 7}, SnapshotNotFound, "no version 7"),
        ("store", {"alias": "prod"}, SnapshotNotFound, "no alias 'prod'"),
        ("store", {"version": 1, "alias": "prod"}, BadInput, "one of them"),
    ],
)
def test_what_is_not_there_is_named(
    tmp_path: Path, store: Path, path: str, pinned: dict[str, Any], error: type[Exception], message: str
) -> None:
    (tmp_path / "file").write_text("")
    SnapshotWriter(tmp_path / "new")
    with pytest.raises(error, match=message):
        indexmill.open(tmp_path / path, **pinned)


def test_artifacts_are_found_by_name(snapshot: Snapshot) -> None:
    assert [one.name for one in snapshot.shards("vectors")] == ["vectors/p0", "vectors/p1"]
    assert snapshot.artifact("passages/p0").rows == 3
    assert snapshot.table("passages/p1", columns=["text"]).column_names == ["text"]
    vectors = snapshot.arrays("vectors/p0")["passages"]
    assert vectors.shape == (3, 64)
    assert not vectors.flags.writeable
    assert snapshot.file("documents/p0").is_file()
    assert snapshot.dimensions == 64
    with pytest.raises(NotFound, match="no table 'summaries'"):
        snapshot.table("summaries")
    with pytest.raises(NotFound, match="no artifact 'passages'"):
        snapshot.artifact("passages")
    with pytest.raises(NotFound, match="expected arrays"):
        snapshot.arrays("passages/p0")


def test_a_closed_snapshot_says_so(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        vectors = snapshot.vectors("vectors", "passages")[0]
        snapshot.retrieve("bridge")
    for use in (lambda: snapshot.retrieve("bridge"), lambda: snapshot.table("passages")):
        with pytest.raises(StoreError, match="closed"):
            use()
    assert vectors.shape == (3, 64)  # what was handed out stays valid


def test_a_flipped_byte_or_missing_blob_is_found_on_first_use(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        table = snapshot.artifact("passages/p0")
        vectors = snapshot.artifact("vectors/p1")
    path = store / blob_path(table.digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    (store / blob_path(vectors.digest)).unlink()
    with indexmill.open(store) as snapshot:
        with pytest.raises(CorruptBlob, match=table.digest):
            snapshot.table("passages")
        with pytest.raises(CorruptBlob, match="missing"):
            snapshot.retrieve("bridge")


def test_a_table_that_is_none_or_lacks_a_column_is_corrupt(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    writer.shard("p", WORLD["p0"])
    writer.file("note", b"not a table")
    kept = writer.artifacts.pop()
    writer.artifacts.append(kept.model_copy(update={"name": "broken/p", "kind": "table"}))
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot:
        with pytest.raises(CorruptBlob, match="cannot be read as Parquet"):
            snapshot.table("broken")
        with pytest.raises(CorruptBlob, match="lacks the columns"):
            snapshot.table("passages", columns=["colour"])


def test_many_threads_may_share_a_snapshot(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        expected = [snapshot.retrieve(question, k=3) for question in QUESTIONS]
    with indexmill.open(store) as fresh, ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(8)

        def ask(number: int) -> bool:
            if number < 8:
                barrier.wait()
            i = number % len(QUESTIONS)
            return fresh.retrieve(QUESTIONS[i], k=3) == expected[i]

        assert all(pool.map(ask, range(64)))


def test_an_exported_folder_opens_like_a_store(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    with indexmill.open(store) as snapshot:
        expected = snapshot.retrieve_batch(QUESTIONS, k=3)
        export(snapshot, folder)
    with indexmill.open(folder) as snapshot:
        assert snapshot.version is None
        found = snapshot.retrieve_batch(QUESTIONS, k=3)
    assert [[(hit.id, hit.score) for hit in hits] for hits in found] == [
        [(hit.id, hit.score) for hit in hits] for hits in expected
    ]
    with pytest.raises(SnapshotNotFound, match="exported folder"):
        indexmill.open(folder, version=1)
    (folder / "tables" / "passages" / "p0.parquet").write_bytes(b"something else")
    with indexmill.open(folder) as snapshot, pytest.raises(CorruptBlob, match="export the snapshot again"):
        snapshot.table("passages")


def test_a_manifest_may_be_pinned(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = tmp_path / "exported", "0" * 64
    with indexmill.open(store) as snapshot:
        digest = digest_of(snapshot.manifest.to_bytes())
        export(snapshot, folder)
    for path in (store, folder):
        with indexmill.open(path, manifest=digest) as snapshot:
            assert snapshot.retrieve(QUESTIONS[0])
        ran = CliRunner().invoke(cli, ["query", QUESTIONS[0], "--store", str(path), "--manifest", digest])
        assert ran.exit_code == 0
        ran = CliRunner().invoke(cli, ["query", QUESTIONS[0], "--store", str(path), "--manifest", other])
        assert isinstance(ran.exception, SnapshotNotFound)
        with pytest.raises(BadInput, match="64 lower-case hex digits"):
            indexmill.open(path, manifest=digest[:12])
    monkeypatch.setattr(Manifest, "from_bytes", lambda *_: pytest.fail("the manifest was parsed"))
    for path in (store, folder):
        with pytest.raises(SnapshotNotFound, match=f"SHA-256 {digest}; expected {other}"):
            indexmill.open(path, manifest=other)


@pytest.mark.slow
def test_helpers_open_the_manifest_that_is_pinned(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        digest = digest_of(snapshot.manifest.to_bytes())
    asked = QUESTIONS * 4
    with (
        indexmill.open(store, manifest=digest, processes=1) as one,
        indexmill.open(store, manifest=digest, processes=2) as two,
    ):
        assert two.retrieve_batch(asked) == one.retrieve_batch(asked)


def test_a_question_has_a_length(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.retrieve("bridge " * (MOST_CHARACTERS // 7))
        for ask in (snapshot.retrieve, snapshot.answer, lambda one: snapshot.encode([one])):
            with pytest.raises(BadInput, match="has 16,385 characters; expected at most 16,384"):
                ask("x" * (MOST_CHARACTERS + 1))
    ran = CliRunner().invoke(cli, ["query", "x" * (MOST_CHARACTERS + 1), "--store", str(store)])
    assert isinstance(ran.exception, BadInput)


def test_hidden_characters_of_a_question_are_dropped() -> None:
    assert check_question(" Who built Halber\u200bstadt? 👩\u200d💻") == "Who built Halberstadt? 👩\u200d💻"


@pytest.mark.slow
def test_a_run_of_combining_marks_is_broken_up() -> None:
    short = "ho\u0316\u0301ly " + "e" + "\u0316\u0301" * 15
    assert check_question(short) == short
    long = "\u0316\u0301" * 8_192
    asked = check_question(long)
    assert asked.replace("\N{COMBINING GRAPHEME JOINER}", "") == long
    assert max(map(len, asked.split("\N{COMBINING GRAPHEME JOINER}"))) == 30
    own, before = (min(timeit.repeat(partial(unicodedata.normalize, "NFKC", one), number=1)) for one in (asked, long))
    assert own < before / 10


_THING: CacheKey[list[str]] = CacheKey("a thing")
_QUICK: CacheKey[str] = CacheKey("quick")
_SLOW: CacheKey[str] = CacheKey("slow")


def test_what_many_threads_want_first_is_made_once_and_whole(store: Path) -> None:
    made: list[int] = []
    threads = 4
    with indexmill.open(store) as snapshot, ThreadPoolExecutor(threads) as pool:
        barrier, rest = threading.Barrier(threads), threading.Barrier(threads)

        def make() -> list[str]:
            made.append(threading.get_ident())
            with contextlib.suppress(threading.BrokenBarrierError):
                rest.wait(timeout=1)  # until the other threads make it, too, if they do
            return ["whole"]

        def want(_: int) -> list[str]:
            barrier.wait()
            return snapshot.once(_THING, make)

        found = list(pool.map(want, range(threads)))
        assert len(made) == 1
        assert all(one is found[0] for one in found)


def test_what_was_made_is_had_without_waiting_for_what_is_being_made(store: Path) -> None:
    with indexmill.open(store) as snapshot, ThreadPoolExecutor(1) as pool:
        assert snapshot.once(_QUICK, lambda: "made") == "made"
        making, may_end = threading.Event(), threading.Event()

        def slow() -> str:
            making.set()
            assert may_end.wait(timeout=60)
            return "at last"

        waiting = pool.submit(snapshot.once, _SLOW, slow)
        making.wait()
        with ThreadPoolExecutor(1) as other:
            assert other.submit(snapshot.once, _QUICK, lambda: "again").result(timeout=30) == "made"
            may_end.set()
        assert waiting.result() == "at last"


def test_a_lack_of_memory_is_not_the_fault_of_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(artifacts: object) -> None:
        raise error

    writer = SnapshotWriter(tmp_path)
    writer.shard("p0", WORLD["p0"])
    writer.publish()
    monkeypatch.setattr("indexmill.retrieve.passage_vectors.Dense", fails)
    with indexmill.open(tmp_path) as snapshot:
        error: Exception = MemoryError("no memory")
        with pytest.raises(MemoryError, match="no memory"):
            snapshot.retriever("dense")
        error = ValueError("shapes differ")
        with pytest.raises(CorruptBlob, match="shapes differ"):
            snapshot.retriever("dense")
