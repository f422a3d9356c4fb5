"""The decisions of the gates, by hand and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.evaluate.recall import Question
from schemas.config import GateSettings
from tasks.pipeline.gates import CorpusChange, refuse_quality, refuse_size, refuse_unread
from tasks.pipeline.quality import MOST_QUESTIONS, GoldMeasurement, Miss, Quality, RecallComparison, compare
from tests.deep import examples


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (100, 80, None),
        (100, 79, "79 documents where version 7 has 100: 21% fewer"),
        (100, 120, None),
        (5, 4, None),
        (3, 2, "33% fewer"),
        (1, 0, "contains no document, and version 7 has 1"),
        (0, 0, None),
        (None, 3, None),  # damaged: the rest cannot be told
        (None, 0, "version 7 has an unknown number (it is damaged)"),
    ],
)
def test_a_share_of_the_documents_may_go(before: int | None, now: int, said: str | None) -> None:
    why = refuse_size(CorpusChange(7, before, now), 0.2)
    assert (why is None) if said is None else (said in str(why))


@given(before=st.integers(0, 1000), now=st.integers(0, 1000), share=st.floats(0, 1))
def test_growth_is_never_refused_and_less_is_never_better(before: int, now: int, share: float) -> None:
    refused = refuse_size(CorpusChange(1, before, now), share) is not None
    assert not (refused and now >= before)
    if refused and now:
        assert refuse_size(CorpusChange(1, before, now - 1), share) is not None
    assert (refuse_size(CorpusChange(1, before, 0), share) is not None) == (before > 0)


def test_a_silent_source_may_take_nothing_away() -> None:
    said = refuse_size(CorpusChange(7, 100, 101, empty=("a", "b"), unreadable=("c.gz",), lost=4, refused_rows=2), 1.0)
    assert said == (
        "no file of the corpus is under a and 1 other (is a mount missing?); c.gz cannot be read to the "
        "end; version 7 has 4 documents that the corpus lacks (2 rows were refused: see `indexmill quarantine`). "
        "Nothing was published: fix the source, or delete the documents with --allow-shrink"
    )
    assert refuse_size(CorpusChange(7, 100, 101, empty=("a",)), 0.0) is None


@pytest.mark.parametrize(
    ("unread", "read", "most", "refused"),
    [(952, 2, 0.5, True), (952, 2, 1.0, False), (50, 50, 0.5, False), (51, 50, 0.5, True), (10, 0, 0.0, False)],
)
def test_a_corpus_of_mostly_unread_files_is_refused(unread: int, read: int, most: float, refused: bool) -> None:
    why = refuse_unread(unread, read, most, "952 files are not read")
    advice = f"if this is intended, set gates.max_unread_share above {most:g}"
    expected = f"952 files are not read. Nothing was published: {advice}"
    assert why == (expected if refused else None)


def quality(now: float, before: float | None = None) -> Quality:
    compared = None if before is None else RecallComparison(3, 50, {"fused": before}, {"fused": now}, 0, True)
    return Quality("0" * 64, 5, 50, 0, 0, {"fused": now}, {}, [], compared)


@pytest.mark.parametrize(
    ("before", "now", "minimum", "refused"),
    [
        (0.8, 0.78, None, False),
        (0.8, 0.7799, None, True),
        (0.8, 0.9, None, False),
        (None, 0.1, None, False),
        (None, 0.1, 0.1, False),
        (None, 0.0999, 0.1, True),
        (0.8, 0.79, 0.795, True),
    ],
)
def test_recall_may_fall_by_the_tolerance_and_not_below_the_minimum(
    before: float | None, now: float, minimum: float | None, refused: bool
) -> None:
    settings = GateSettings.model_validate({"questions": "q.jsonl", "minimum": minimum})
    assert (refuse_quality(quality(now, before), settings) is not None) == refused


def asked(*gold: str) -> list[Question]:
    """Questions by the ids of their gold documents, a letter each."""
    return [Question(str(number), "Who?", tuple(ids)) for number, ids in enumerate(gold)]


def measured(*questions: tuple[set[int], set[int]]) -> GoldMeasurement:
    """Which gold documents are held and found, question by question."""
    held, found = ([tuple(sorted(one)) for one in part] for part in zip(*questions, strict=True))
    misses = [
        Miss(question=number, documents=("z",))
        for number, places in enumerate(held)
        if len(places) > len(found[number])
    ]
    return GoldMeasurement(held=tuple(held), found={"dense": tuple(found)}, misses={"dense": tuple(misses)})


def test_recall_is_of_the_gold_documents_that_a_snapshot_holds() -> None:
    questions = asked("xy", "ay", "ab")
    one = Quality.of("0" * 64, measured(({0, 1}, {0}), ({1}, {1}), (set(), set())), questions, 5)
    assert (one.questions, one.unanswerable, one.missing, one.recall) == (3, 1, 2, {"dense": 0.75})
    none = Quality.of("0" * 64, measured(*[(set(), set())] * 3), questions, 5)
    assert (none.unanswerable, none.recall) == (3, {})


def test_a_candidate_is_held_to_the_gold_documents_of_the_version_before() -> None:
    before = measured(({0, 1}, {0, 1}), ({0}, {0}), (set(), set()))
    candidate = measured(({0}, {0}), (set(), set()), ({0, 1}, set()))
    questions = asked("xy", "y", "vw")
    missed = compare(candidate, before, questions, 3, lost_counts=True)
    assert (missed.questions, missed.lost) == (2, 1)
    assert (missed.before, missed.now) == ({"dense": 1.0}, {"dense": 0.25})
    let_go = compare(candidate, before, questions, 3, lost_counts=False)
    assert (let_go.questions, let_go.lost) == (1, 1)
    assert (let_go.before, let_go.now) == ({"dense": 1.0}, {"dense": 1.0})


def test_a_forgotten_document_counts_as_never_there() -> None:
    before = measured(({0, 1}, {0, 1}), ({0}, {0}))
    candidate = measured(({1}, {1}), (set(), set()))
    questions = asked("xy", "x")  # x is forgotten: the place of y in its question stays
    found = compare(candidate, before, questions, 3, lost_counts=True, forgotten={"x"})
    assert (found.questions, found.lost, found.before, found.now) == (1, 0, {"dense": 1.0}, {"dense": 1.0})
    one = Quality.of("0" * 64, candidate, questions, 5, {"x"})
    assert (one.missing, one.unanswerable, one.recall) == (0, 1, {"dense": 1.0})


def test_a_record_tells_each_question_and_what_is_found_instead() -> None:
    questions = asked("xy", "ab", "c")
    one = Quality.of("0" * 64, measured(({0, 1}, {1}), (set(), set()), ({0}, {0})), questions, 5).details()
    assert one["by_question"] == {"questions": ["Who?"] * 3, "recall": {"dense": [0.5, None, 1.0]}}
    assert one["missed"] == [{"question": "Who?", "method": "dense", "missed": ["x"], "found": ["z"]}]


def test_the_questions_of_a_record_are_bounded() -> None:
    many = [Question(str(number), "W" * 1_000, ("x",)) for number in range(MOST_QUESTIONS + 1)]
    found = Quality.of("0" * 64, measured(*[({0}, {0})] * len(many)), many, 5).details()["by_question"]
    assert len(found["questions"]) == len(found["recall"]["dense"]) == MOST_QUESTIONS
    assert found["questions"][0] == "W" * 297 + "..."


_SOME = st.sets(st.integers(0, 3))
_SNAPSHOT = st.tuples(_SOME, _SOME).map(lambda both: (both[0], both[0] & both[1]))  # what is found is held
_PAIRS = st.lists(st.tuples(_SNAPSHOT, _SNAPSHOT), min_size=1, max_size=6)


@examples(20, deep=100)
@given(pairs=_PAIRS)
def test_what_was_measured_compares_as_it_should(
    pairs: list[tuple[tuple[set[int], set[int]], tuple[set[int], set[int]]]],
) -> None:
    candidate, before = (measured(*side) for side in zip(*pairs, strict=True))
    questions = asked(*["abcd"] * len(pairs))
    for lost_counts in (True, False):
        found = compare(candidate, before, questions, 1, lost_counts=lost_counts)
        assert found.before.keys() == found.now.keys()
        assert all(0 <= recall <= 1 for recall in (*found.before.values(), *found.now.values()))
        same = compare(before, before, questions, 1, lost_counts=lost_counts)
        assert (same.before, same.lost) == (same.now, 0)
    assert GoldMeasurement.from_bytes(candidate.to_bytes(), "here") == candidate
