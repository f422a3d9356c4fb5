"""BM25: the formula, exactness over shards, order, filters, and what hits say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill import CorruptBlob
from indexmill.retrieve import term_index as bm25
from indexmill.retrieve.term_index import Bm25Parameters, Ranked, TermIndex, joined_postings, question_terms
from indexmill.snapshot import ENCODER
from indexmill.store.manifest import LanguageCounts
from indexmill.text.terms import compound_cuts, stem_of, stemmer_of
from tasks.families.bm25.postings import postings
from tests.deep import examples
from tests.indexmill.damage import Change, changed, without
from tests.indexmill.small_snapshot import SnapshotWriter, Text, writer_of

TEXTS = ["a lamp", "lamp lamp river", "river town of lamps and a bridge", "town", "stone", "lamp a"]


def index(texts: Sequence[str], cuts: Sequence[int] = (), **parameters: float) -> TermIndex:
    """An index of these texts, cut into shards."""
    bounds = [0, *cuts, len(texts)]
    shards = [postings([""] * (high - low), texts[low:high], 0) for low, high in pairwise(bounds)]
    return TermIndex(joined_postings(shards), Bm25Parameters(**parameters))  # type: ignore[arg-type]


def best(held: TermIndex, question: str, k: int = 5, allowed: np.ndarray | None = None) -> list[tuple[int, float]]:
    (found,) = held.rank(question_terms([question]), k, allowed)
    return list(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


def by_hand(texts: Sequence[str], question: str, k1: float = 1.2, b: float = 0.75) -> list[float]:
    """The formula, passage by passage."""
    words = [question_terms([text], common_words=True)[0] for text in texts]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for inside in words:
        score = 0.0
        for term in sorted(set(wanted := question_terms([question])[0])):
            n, f = sum(term in one for one in words), inside.count(term)
            idf = math.log(1 + (len(words) - n + 0.5) / (n + 0.5))
            score += wanted.count(term) * idf * f * (k1 + 1) / (f + k1 * (1 - b + b * len(inside) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("parameters", [{}, {"k1": 0.9, "b": 0.4}, {"k1": 1e-9}, {"b": 0.0}, {"b": 1.0}])
def test_scores_are_those_of_the_formula(parameters: dict[str, float]) -> None:
    for question in ("lamp", "river lamp", "lamps, lamps and a bridge", "stone town"):
        expected = by_hand(TEXTS, question, **parameters)
        found = best(index(TEXTS, **parameters), question, k=10)
        assert [row for row, _ in found] == [
            row for row in np.argsort(-np.array(expected), kind="stable") if expected[row]
        ]
        assert [score for _, score in found] == pytest.approx([expected[row] for row, _ in found])


def test_a_title_that_the_question_says_counts_once_more_and_by_its_share_of_the_title() -> None:
    titles, texts = ["lamp", "lamp of the river", "", ""], ["river", "river", "lamp", "lamp stone"]
    shard = postings(titles, texts, 2)
    (alone,) = TermIndex(joined_postings([shard]), Bm25Parameters(title=0.0)).rank([["lamp"]], 4)
    (found,) = TermIndex(joined_postings([shard]), Bm25Parameters(title=0.5)).rank([["lamp"]], 4)
    lengths = np.array([1.0, 4.0])
    idf = math.log(1 + (4 - 2 + 0.5) / 2.5)
    norms = 1.2 * lengths / (lengths.sum() / 4)
    more = dict(zip((0, 1), (0.5 * idf * 2.2 / (1 + norms)).tolist(), strict=True))
    expected = {row: score + more.get(row, 0) for row, score in zip(alone.rows.tolist(), alone.scores, strict=True)}
    assert dict(zip(found.rows.tolist(), found.scores, strict=True)) == pytest.approx(expected)
    assert found.rows[0] == 0
    assert np.bincount(found.places, found.parts) == pytest.approx(found.scores)


def test_fewer_of_what_is_ranked_are_its_first() -> None:
    held = index(TEXTS)
    (whole,), (few,) = (list(held.rank(question_terms(["river lamp"]), k)) for k in (6, 2))
    assert exact(whole.first(2)) == exact(few)


def test_a_passage_that_shares_no_term_is_no_hit() -> None:
    held = index(TEXTS)
    assert [row for row, _ in best(held, "stone of unheard words", k=6)] == [4]
    assert best(held, "unheard") == best(held, "") == best(index([]), "lamp") == []


def test_ties_go_to_the_lower_row_also_across_shards() -> None:
    held = index(["lamp", "lamp town", "lamp"] * 20, cuts=[7, 30])
    assert [row for row, _ in best(held, "lamp", k=4)] == [0, 2, 3, 5]


def test_common_words_count_where_a_question_has_no_others() -> None:
    assert question_terms(["Who was the lamp?", "To be or to be"]) == [["lamp"], ["to", "be", "or", "to", "be"]]
    assert question_terms(["Who was the lamp?"], common_words=True) == [["who", "was", "the", "lamp"]]
    assert [row for row, _ in best(index(TEXTS), "a")] == [0, 5, 2]


GERMAN = [
    "Die Prämien sind hoch.",
    "Versicherungen für alle",
    "Fahrradversicherungen",
    "Prämie der Versicherung",
    "Rad",
]


@pytest.mark.parametrize(
    ("language", "question", "weights"),
    [
        ("de", "Versicherungsprämie?", {"versicherungsprami": 1, "versicher": 0.5, "prami": 0.5}),
        ("de", "Fahrradversicherung", {"fahrradversicher": 1}),  # as frequent as its parts, one of which is no term
        ("de", "Versicherung der Räder", {"versicher": 1, "der": 1, "rad": 1}),
        ("en", "Versicherungsprämie?", {"versicherungsprami": 1}),
    ],
)
def test_a_compound_of_a_question_asks_for_its_parts_where_the_corpus_has_both(
    language: str, question: str, weights: dict[str, float]
) -> None:
    shard = postings([""] * len(GERMAN), GERMAN, 0, [language] * len(GERMAN))
    terms = TermIndex(joined_postings([shard]), stemmers=[stemmer_of(language)])
    (by_term,) = terms.question_weights([question])
    assert {stem_of(term): weight for term, weight in by_term.items()} == weights


def test_a_word_without_end_is_no_compound() -> None:
    assert list(compound_cuts("versicherungsprämie", [stemmer_of("de")]))
    assert not list(compound_cuts("versicherungs" * 10_000, [stemmer_of("de")]))


def test_an_explanation_names_the_parts_of_compounds(tmp_path: Path) -> None:
    made = SnapshotWriter(tmp_path)
    made.shard("s1", [Text(str(number), "", text, language="de") for number, text in enumerate(GERMAN)])
    made.languages = {"de": LanguageCounts(documents=len(GERMAN), passages=len(GERMAN))}
    made.bm25()
    made.publish()
    with indexmill.open(tmp_path) as snapshot:
        hits = snapshot.retrieve("Versicherungsprämie", method="bm25")
    terms = {hit.document_ids[0]: [share["term"] for share in (hit.explanation or {})["terms"]] for hit in hits}
    assert terms == {"3": ["prami", "versicher"], "0": ["prami"], "1": ["versicher"]}


words = st.lists(st.sampled_from(["lamp", "river", "town", "of", "bridge", "藤原"]), max_size=8).map(" ".join)


@examples(12, deep=60)
@given(
    texts=st.lists(words, max_size=12),
    questions=st.lists(words, max_size=6),
    cuts=st.sets(st.integers(0, 12), max_size=3),
    k=st.integers(1, 14),
    held=st.integers(1, 30),
    data=st.data(),
)
def test_a_batch_gives_what_each_gets_alone_whatever_the_shards_and_groups(
    texts: list[str], questions: list[str], cuts: set[int], k: int, held: int, data: st.DataObject
) -> None:
    whole = index(texts)
    cut = index(texts, sorted(one for one in cuts if one < len(texts)))
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=np.bool_)
    asked = question_terms(questions)
    for mask in (None, allowed):
        alone = [exact(next(iter(whole.rank([terms], k, mask)))) for terms in asked]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bm25, "HELD_POSTINGS", held)
            assert [exact(found) for found in cut.rank(asked, k, mask)] == alone
            assert [exact(found) for found in cut.rank(asked[::-1], k, mask)] == alone[::-1]


def exact(found: Ranked) -> tuple[list[int], bytes, set[tuple[int, int, float]]]:
    parts = zip(found.places.tolist(), found.terms.tolist(), found.parts.tolist(), strict=True)
    return found.rows.tolist(), found.scores.tobytes(), set(parts)


@examples(12, deep=60)
@given(texts=st.lists(words, min_size=1, max_size=40), question=words, k=st.integers(1, 45), data=st.data())
def test_a_filter_leaves_the_best_of_those_that_are_allowed(
    texts: list[str], question: str, k: int, data: st.DataObject
) -> None:
    held = index(texts)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=np.bool_)
    everything = best(held, question, len(texts))
    assert best(held, question, k, allowed) == [one for one in everything if allowed[one[0]]][:k]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    writer(tmp_path / "store").publish()
    return tmp_path / "store"


def writer(path: Path, **parameters: float) -> SnapshotWriter:
    made = writer_of(path)
    made.bm25(**parameters)
    return made


def test_a_snapshot_is_asked_by_its_words_without_an_encoder(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.methods == ("fused", "dense", "bm25")
        first, *others = snapshot.retrieve("Who paid for the bridges?", method="bm25")
        assert (ENCODER, ()) not in snapshot._values
    assert (first.text, first.title) == ("Ada Venn paid for the bridge.", "Marrow Bridge")
    assert [hit.document_ids for hit in others] == [("bridge",)]


def test_an_explanation_names_the_shared_terms_with_their_share_of_the_score(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = snapshot.retrieve("Who paid for the bridge and the Ilse?", method="bm25")
        plain = snapshot.retrieve("Who paid for the bridge and the Ilse?", method="bm25", explain=False)
    assert [hit.score for hit in plain] == [hit.score for hit in hits]
    assert all(hit.explanation is None for hit in plain)
    told = [hit.explanation["terms"] for hit in hits if hit.explanation]
    assert [{one["term"] for one in terms} for terms in told] == [{"paid", "bridge"}, {"bridge", "ilse"}, {"ilse"}]
    for terms in told:
        assert sum(one["share"] for one in terms) == pytest.approx(1.0)
        assert terms == sorted(terms, key=lambda one: -one["share"])


def test_the_parameters_of_the_snapshot_are_used(tmp_path: Path) -> None:
    writer(tmp_path / "flat", k1=0.0, title=0.0).publish()
    with indexmill.open(tmp_path / "flat") as snapshot:
        scores = [hit.score for hit in snapshot.retrieve("bridge", method="bm25")]
    assert scores == pytest.approx([math.log(1 + 3.5 / 2.5)] * 2)


@pytest.mark.parametrize(
    "change",
    [
        without("bm25/p1"),
        changed("bm25/p1", "indptr", None),
        changed("bm25/p1", "counts", lambda held: held[1:]),
        changed("bm25/p1", "lengths", lambda held: held[1:]),
    ],
)
def test_postings_that_do_not_fit_are_refused(tmp_path: Path, change: Change) -> None:
    made = writer(tmp_path)
    change(made)
    made.publish()
    with indexmill.open(tmp_path) as snapshot, pytest.raises(CorruptBlob, match="bm25"):
        snapshot.retrieve("bridge", method="bm25")
