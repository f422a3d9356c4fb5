"""Questions in a language that the encoder does not read are answered by their words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill.command import main
from indexmill.retrieve.legibility import illegible_line, language_legibility, languages_of, legibility_of
from indexmill.retrieve.retrieval_method import QueryBatch
from indexmill.snapshot import Snapshot
from indexmill.store.manifest import Corpus, LanguageCounts, Manifest
from tests.indexmill.small_snapshot import Text, writer_of

GERMAN, RUSSIAN = "Die Brücke führt über den Fluss.", "Мост ведёт через реку."
WORLD = {
    "p0": (Text("bruecke", "", GERMAN, language="de"), Text("most", "", RUSSIAN, language="ru")),
    "p1": (Text("bridge", "", "The bridge crosses the river."), Text("city", "", "Город у реки.", language="ru")),
}
COUNTS = {
    "de": LanguageCounts(documents=1, passages=1, tokens=40, joints=100, cuts=29),
    "en": LanguageCounts(documents=1, passages=1, tokens=40, joints=100, cuts=2),
    "ru": LanguageCounts(documents=2, passages=2, tokens=100, joints=100, cuts=96),
}


def published(path: Path, languages: dict[str, LanguageCounts], *, words: bool = True) -> Snapshot:
    writer = writer_of(path, WORLD)
    writer.languages = languages
    if words:
        writer.bm25()
        writer.lsh_tree([])
    writer.publish()
    return indexmill.open(path)


@pytest.mark.parametrize(
    ("language", "cuts", "legibility"),
    [
        ("en", 2, 1.0),
        ("es", 24, 0.64),
        ("de", 29, 0.44),
        ("ru", 96, 0.0),
        ("zh", 99, 0.0),
        ("zh", 0, 1.0),
        ("", 99, 1.0),
    ],
)
def test_a_language_is_read_as_far_as_its_words_are_whole(language: str, cuts: int, legibility: float) -> None:
    counts = LanguageCounts(documents=9, tokens=50, joints=100, cuts=cuts)
    assert language_legibility(language, counts) == pytest.approx(legibility, abs=1e-3)
    assert language_legibility(language, LanguageCounts(documents=9)) == 1.0  # nothing counted


def test_the_language_of_a_question_is_that_of_the_passages_with_its_words(tmp_path: Path) -> None:
    questions = ["Welche Brücke?", "Чей мост?", "Which bridge?", "Brücke мост", "?!"]
    with published(tmp_path, COUNTS) as snapshot:
        batch = QueryBatch(questions, np.empty((5, 0), np.float32))
        found = legibility_of(snapshot).of_questions(batch)
        assert found == pytest.approx([0.44, 0.0, 1.0, 0.22, 1.0], abs=1e-5)
        for question, legibility in zip(questions, found, strict=True):
            alone = QueryBatch([question], np.empty((1, 0), np.float32))
            assert legibility_of(snapshot).of_questions(alone) == [legibility]


def test_words_are_found_by_the_stems_of_the_languages_that_count(tmp_path: Path) -> None:
    with published(tmp_path / "counted", COUNTS) as snapshot:
        for question, text in (("Brücken", GERMAN), ("мостом", RUSSIAN), ("bridges", "The bridge crosses the river.")):
            (hits,) = snapshot.retrieve_batch([question], method="bm25")
            assert hits[0].text == text
            (term,) = hits[0].explanation["terms"] if hits[0].explanation else []
            assert term["term"] == question.lower().replace("ü", "u")
    with published(tmp_path / "before", {}) as snapshot:
        assert snapshot.retrieve("Brücken", method="bm25") == []


@pytest.mark.parametrize("words", [True, False])
def test_without_counts_or_words_every_question_is_legible(tmp_path: Path, *, words: bool) -> None:
    with published(tmp_path, {} if words else COUNTS, words=words) as snapshot:
        assert legibility_of(snapshot).of_questions(QueryBatch(["Чей мост?"], np.empty((1, 0), np.float32))) == [1.0]


def test_words_decide_where_vectors_mislead(tmp_path: Path) -> None:
    with published(tmp_path, COUNTS) as snapshot:
        misled = -snapshot.encode(["Город у реки."])  # the farthest vector from the passage
        for method in ("fused", "lsh_tree"):
            (hits,) = snapshot.retrieve_batch(["Город"], method=method, vectors=misled, k=1)
            assert hits[0].text == "Город у реки.", method


def test_a_question_that_the_encoder_does_not_read_is_answered_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published(tmp_path, COUNTS).close()
    for question, advised in (("Чей мост?", True), ("Which bridge?", False), ("?!", False)):
        assert main(["query", question, "--store", str(tmp_path)]) == 0
        assert ("hardly reads" in capsys.readouterr().err) is advised


def manifest(languages: dict[str, LanguageCounts], documents: int) -> Manifest:
    corpus = Corpus(fingerprint="", documents=documents, passages=documents, languages=languages)
    return Manifest(corpus=corpus, models={"encoder": {"model": "tiny"}}, lineage="0" * 64)


def test_one_line_names_the_languages_and_the_remedy() -> None:
    chinese = LanguageCounts(documents=848, passages=2182, tokens=100, unknown=71, joints=200, cuts=198)
    russian = LanguageCounts(documents=240, passages=931, tokens=900, unknown=5, joints=100, cuts=96)
    english = LanguageCounts(documents=99, passages=99, tokens=10, joints=100, cuts=2)
    line = illegible_line(manifest({"en": english, "ru": russian, "zh": chinese}, 1187))
    assert line == (
        "the encoder tiny hardly reads 848 documents in zh (71% of the tokens are unknown to it), 240 documents in ru "
        "(it cuts words at 96% of the joints between letters); questions about them are answered by their words: "
        "choose an encoder for these languages with embed.model, see docs/operations/encoders.md"
    )
    few = russian.model_copy(update={"documents": 19})
    assert illegible_line(manifest({"en": english, "ru": few}, 1000)) == ""
    assert illegible_line(manifest({"en": english}, 99)) == illegible_line(manifest({}, 0)) == ""


def test_languages_are_listed_by_their_documents() -> None:
    assert languages_of(manifest(COUNTS, 4)) == {
        "ru": {"documents": 2, "passages": 2, "legibility": 0.0},
        "de": {"documents": 1, "passages": 1, "legibility": 0.44},
        "en": {"documents": 1, "passages": 1, "legibility": 1.0},
    }


def test_a_manifest_without_languages_keeps_its_bytes() -> None:
    assert b"languages" not in manifest({}, 0).to_bytes()
    whole = manifest(COUNTS, 4)
    assert Manifest.from_bytes(whole.to_bytes()) == whole
