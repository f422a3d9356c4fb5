"""Texts that may be in a language, and ciphers."""

from __future__ import annotations

import pytest

from tasks.stages.ingest.formats.plausible_text import is_plausible
from tests.tasks.stages.ingest.formats.pdf_files import prose

ENGLISH = " ".join(prose(15))
SYMBOLS = "AAPL MSFT GOOG AMZN NVDA TSLA META BRK UNH JNJ XOM JPM PG CVX HD MA BAC ABBV PFE KO COST LLY PEP MRK TMO"


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH,
        " ".join([SYMBOLS] * 4),
        "Насос подает воду " * 40,
        "水泵抽水 " * 80,
        "a1b2c3 0x7fff " * 99,
        "uif qvnq npwft",
    ],
)
def test_text_lists_and_other_scripts_are_plausible(text: str) -> None:
    assert is_plausible([text])


@pytest.mark.parametrize("shift", [1, 3, 7, 23])
def test_shifted_letters_are_not(shift: int) -> None:
    assert not is_plausible(
        "".join(chr((ord(letter) - 97 + shift) % 26 + 97) if letter.isalpha() else letter for letter in line.lower())
        for line in prose(15)
    )


@pytest.mark.parametrize("offset", [-31, -30, -29, -28])
def test_letters_in_the_order_of_glyphs_are_not(offset: int) -> None:
    """Such fonts number their glyphs as ASCII does, from the space on."""
    text = "".join(chr(max(33, ord(letter) + offset)) if letter.isalpha() else letter for letter in ENGLISH)
    assert not is_plausible([text])
