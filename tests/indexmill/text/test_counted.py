"""Numbers and what they count."""

from __future__ import annotations

import pytest

from indexmill.text.counted import counted


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
