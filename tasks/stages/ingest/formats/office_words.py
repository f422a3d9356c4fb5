"""Counts the words of a part of an Office file from its text nodes alone, apart from the readers of its structure."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

from tasks.stages.ingest.formats.word_count import words_of

_PREFIX = rb"(?:\w{1,20}:)?"
_FALLBACK = re.compile(rb"<mc:Fallback>.*?</mc:Fallback>", re.DOTALL)
"""Repeats a text box for old versions of Office."""
_MOVED = re.compile(rb"<%(p)smoveFrom[ >].*?</%(p)smoveFrom>" % {b"p": _PREFIX}, re.DOTALL)
_TEXT = re.compile(
    rb"<%(p)s(t|delText|text)(?:\s[^<>]*)?>([^<]*)<|<%(p)s(?:tab|br|cr)[\s/>]|</%(p)s(?:p|t[cr])>" % {b"p": _PREFIX}
)


def words_in_part(data: bytes) -> tuple[Counter[str], Counter[str]]:
    """Return the words of a part, and the words in it that were deleted or moved away in tracked changes."""
    data = _FALLBACK.sub(b"", data)
    deleted: Counter[str] = Counter()
    for moved in _MOVED.finditer(data):
        deleted += _words(moved[0], frozenset({b"t", b"delText"}))
    rest = _MOVED.sub(b" ", data)
    deleted += _words(rest, frozenset({b"delText"}))
    return _words(rest, frozenset({b"t", b"text"})), deleted


def _words(data: bytes, tags: frozenset[bytes]) -> Counter[str]:
    pieces = [
        (match[2] if match[1] in tags else b"") if match[1] is not None else b" " for match in _TEXT.finditer(data)
    ]
    return words_of(unescape(b"".join(pieces).decode("utf-8", "replace")))
