"""Counts words in the same way in a file and in the text that is read from it, so that losses show."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

from indexmill.text.normalise import INVISIBLE, normalise

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1bff\u2e80-\u2fdf\u3005-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua980-\uaadf\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: each letter counts."""
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_TARGET = re.compile(r"(?<!\\)\]\([^\s()]*+\)")
"""The target of a link in Markdown, which is no visible word."""


def count_words(text: str) -> int:
    """Count the runs of letters and digits, in linear time. Letters of Chinese, Thai and the like count each."""
    return sum(1 for _ in _matches(text))


def words_of(text: str) -> Counter[str]:
    """Return the words of a text, and how often each occurs; counted as by `count_words`."""
    return Counter(match[0] for match in _matches(text))


def without_targets(markdown: str) -> str:
    """Return a Markdown text without the targets of its links, so that only visible words remain."""
    return _TARGET.sub("]", markdown)


def _matches(text: str) -> Iterator[re.Match[str]]:
    if text.isascii():
        return _ASCII_WORD.finditer(text)
    return _word().finditer(normalise("NFKC", INVISIBLE.sub("", text)))


@cache
def _word() -> re.Pattern[str]:
    """Compile the pattern of a word in any script; marks, such as vowel signs, belong to the letter before."""
    marks = "".join(chr(code) for code in range(0x300, 0x12000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    letters = rf"[^\W_{_UNSPACED}]"
    return re.compile(rf"[{_UNSPACED}]|{letters}(?:{letters}|[{marks}])*")
