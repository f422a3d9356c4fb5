"""Texts in a loop: small models repeat a sentence, or a list's item, until their answer is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

_LEAST_WORDS = 24
"""The fewest words, or characters in a script without spaces, in which a loop is looked for."""

_RUN = 4
_DISTINCT = 0.5
"""The least share of a text's runs of four words that must differ."""


def loops(text: str) -> bool:
    """Return whether a text repeats itself: fewer than half of its runs of four words differ."""
    words: Sequence[str] = text.split()
    if len(words) < len(text) / 20:  # a script without spaces
        words = text
    if len(words) < _LEAST_WORDS:
        return False
    runs = list(zip(*(islice(words, first, None) for first in range(_RUN)), strict=False))
    return len(set(runs)) < _DISTINCT * len(runs)
