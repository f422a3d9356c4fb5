"""Facts as a page."""

from __future__ import annotations

import pytest

from indexmill.text.fact_lines import facts, words_of

DIGEST = "990b134af2689e86951d09e52036050994b80162066b18411b5adadea4f1f019"


def test_values_begin_in_one_column_and_numbers_end_in_one() -> None:
    assert facts([("rows", "7"), ("passages", "1,200"), ("model", "MiniLM"), ("note", "two\nlines")]) == [
        "  rows          7",
        "  passages  1,200",
        "  model     MiniLM",
        "  note      two lines",
    ]
    assert facts([]) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "none"),
        (True, "yes"),
        (12_000, "12,000"),
        (0.25, "0.25"),
        (DIGEST, "990b134af268"),
        ("f32", "f32"),
        ({"openvino": "2026.4", "digest_of_it": DIGEST}, "digest of it 990b134af268, openvino 2026.4"),
        (["dense", "bm25"], "dense, bm25"),
        ({}, "none"),
    ],
)
def test_a_value_is_told_in_words(value: object, words: str) -> None:
    assert words_of(value) == words
