"""Unicode normalisation in time linear in the text's length, and invisible characters.

Python sorts the combining marks of a letter by insertion, so a hundred thousand marks on one letter take minutes.
Unicode's Stream-Safe Text Format (UAX #15, section 13) has at most thirty in a row, more than any language needs.
Longer runs are split by combining grapheme joiners, which belong to no word.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
"""Characters that are not part of a word's spelling: soft hyphens, spaces and joiners without width, variants, marks of
direction. Texts without them are compared, not shown: emoji and some scripts need joiners."""

_MOST = 30
_JOINER = "\N{COMBINING GRAPHEME JOINER}"
_RUN = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){31,}")
"""Characters that may be marks, or decompose into marks: except for two, no letter or digit begins with a mark."""


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
