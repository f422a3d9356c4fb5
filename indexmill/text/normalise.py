"""Unicode normalisation in time linear in the text's length, and invisible characters.

Python sorts the combining marks of a letter by insertion, so a hundred thousand marks on one letter take minutes.
Unicode's Stream-Safe Text Format (UAX #15, section 13) has at most thirty in a row, more than any language needs.
Longer runs are split by combining grapheme joiners, which belong to no word.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
"""Characters that are not part of a word's spelling: soft hyphens, spaces and joiners without width, variants, marks of
direction. Texts without them are compared, not shown: emoji and some scripts need joiners."""

_JOINING = (
    "\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1a00-\u1cff\u2190-\u2bff\u3030\u303d\u3297\u3299"
    "\ua840-\uabff\ufb50-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f\U0001f000-\U0001faff"
)
"""Emoji, and scripts in which joiners shape letters, such as Persian and those of India."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1bff\ua980-\uaadf"
"""Scripts of South East Asia, in which a space without width may separate words."""
HIDDEN = re.compile(
    rf"[\u00ad\u2060-\u2064\ufeff]|[\u200c\u200d](?<![{_JOINING}].)(?![{_JOINING}])"
    rf"|\u200b(?:(?<![{_UNSPACED}].)|(?![{_UNSPACED}]))"
)
"""Characters to drop from texts and questions, in which they would hide a word: soft hyphens, and spaces and joiners
without width, unless an emoji or the script needs them."""

ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670]")
"""The accents of Latin, Greek and Cyrillic letters, the vowel points of Hebrew and Arabic, and the Arabic tatweel: what
variants of a spelling differ in."""

_MARKS = ((0x300, 0x1E00), (0x20D0, 0x2100), (0x2CE0, 0x2E00), (0x302A, 0x30A0), (0xA660, 0xAC00), (0xFE20, 0xFE30))
"""The Unicode blocks that contain combining marks, except those of rare historic scripts."""

_MOST = 30
_JOINER = "\N{COMBINING GRAPHEME JOINER}"
_RUN = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){31,}")
"""Characters that may be marks, or decompose into marks: except for two, no letter or digit begins with a mark."""


@cache
def marks() -> str:
    """Return the combining marks, which belong to words as in Devanagari, as a regular expression's class has them."""
    codes = (chr(code) for low, high in _MARKS for code in range(low, high))
    return "".join(code for code in codes if unicodedata.category(code) in ("Mn", "Mc"))


def normalise(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Convert the text to a normal form, with no more than thirty combining marks in a row."""
    return unicodedata.normalize(form, parted(text))


def parted(text: str) -> str:
    """Insert a joiner, which has no meaning, after every thirty combining marks in a row."""
    return _RUN.sub(_parted, text)


def _parted(run: re.Match[str]) -> str:
    parts: list[str] = []
    marks = 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) else 0
        if marks > _MOST:
            parts.append(_JOINER)
            marks = 1
        parts.append(character)
    return "".join(parts)
