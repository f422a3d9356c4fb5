"""Numbers and what they count."""

from __future__ import annotations

import pytest

from indexmill.text.counted import counted, figure_text, range_text


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("document",), "1 document"),
        (0, ("document",), "0 documents"),
        (1200, ("passage",), "1,200 passages"),
        (1, ("summary",), "1 summary"),
        (2, ("summary",), "2 summaries"),
        (3, ("batch",), "3 batches"),
        (2, ("class",), "2 classes"),
        (2, ("index",), "2 indexes"),
        (1, ("row was", "rows were"), "1 row was"),
        (2, ("row was", "rows were"), "2 rows were"),
        (2, ("gold document",), "2 gold documents"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said


def test_a_range_shows_its_bounds_and_what_is_expected() -> None:
    assert range_text(4, 4) == range_text(4, 4, 4) == "4"
    assert range_text(4, 1900) == "4 to 1,900"
    assert range_text(4, 1900, 20) == "about 20 (4 to 1,900)"
    assert range_text(0.1, 0.25, 0.15) == "about 0.15 (0.1 to 0.25)"


def test_a_figure_of_a_record_is_a_number_a_range_or_nothing() -> None:
    assert [figure_text(figure) for figure in (None, 0, 1345, 0.5, "damaged")] == ["", "0", "1,345", "0.5", "damaged"]
    assert figure_text({"low": 4, "high": 1900}) == "4 to 1,900"
    assert figure_text({"low": 4, "high": 1900, "expected": 20, "likely": 30}) == "about 20 (4 to 1,900)"
