"""How many texts a build writes, from the builds before it."""

from __future__ import annotations

import pytest

from storage.runs import StoredRun
from tasks.pipeline.plan.past_texts import USUAL_EXPONENT, PastTexts, expected_texts, past_texts
from tests.tasks.pipeline.plan.test_duration import run

FIRST = PastTexts(documents=100, changed=100, texts=50, written=50)


def night(number: int, documents: int, changed: int, code: int = 0, **reports: int) -> StoredRun:
    counted = {"parts_made": 1, "parts_reused": 7, "seconds": 1.0}
    stages = {
        "ingest": {**counted, "documents": documents},
        "split": {**counted, "documents_made": changed},
        "reports": {**counted, "bytes_made": 9, "vectors_made": 9, "vectors_reused": 9, **reports},
    }
    return run(number, 60.0, stages, code=code)


def test_a_store_without_builds_tells_nothing() -> None:
    assert expected_texts([], 100, 1) is None


def test_after_the_first_build_the_usual_exponent_counts() -> None:
    assert expected_texts([FIRST], 100, 1) == pytest.approx(50 * 0.01**USUAL_EXPONENT)
    assert expected_texts([FIRST], 200, 2) == pytest.approx(100 * 0.01**USUAL_EXPONENT)


def test_no_more_texts_are_written_than_there_are() -> None:
    assert expected_texts([FIRST], 100, 100) == 50
    assert expected_texts([FIRST], 100, 0) == 0


def test_the_nights_before_give_the_exponent() -> None:
    nights = [FIRST, *[PastTexts(documents=100, changed=1, texts=50, written=10)] * 3]
    assert expected_texts(nights, 100, 1) == pytest.approx(10)
    unlike = [*nights, PastTexts(documents=100, changed=50, texts=50, written=50)]
    assert expected_texts(unlike, 100, 1) == pytest.approx(10)
    for written in (0, 1):  # fewer than changed documents: the exponent is 1
        few = PastTexts(documents=100, changed=50, texts=50, written=written)
        assert expected_texts([FIRST, few, few], 100, 1) == pytest.approx(0.5)


def test_texts_of_reused_parts_are_not_forgotten() -> None:
    quiet = PastTexts(documents=100, changed=1, texts=3, written=1)  # it counts the texts of parts that it made
    assert expected_texts([FIRST, quiet, quiet], 100, 1) == pytest.approx(50 * 0.02)


def test_the_counts_come_from_the_reports_of_builds_that_ended_well() -> None:
    history = [
        night(1, 10, 10, reports_made=5),
        night(2, 10, 1, code=1, reports_made=5),
        night(3, 12, 2, reports_made=1, reports_reused=5),
        night(4, 12, 0),
    ]
    assert past_texts(history, "reports") == [PastTexts(10, 10, 5, 5), PastTexts(12, 2, 6, 1)]
    assert past_texts(history, "unknown") == []
