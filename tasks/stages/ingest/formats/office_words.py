"""Counts the words of a part of an Office file from its tags alone, apart from the readers of its structure."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

from tasks.stages.ingest.formats.word_count import words_of

_NAMES = rb"Fallback|moveFrom|del|t|delText|text|p|t[cr]|tab|br|cr"
_TAG = re.compile(rb"<(/?)(?:\w{1,20}:)?(%b)(?=[\s/>])([^<>]*)>([^<]*)" % _NAMES)
_TEXT = frozenset({b"t", b"delText", b"text"})
_SHARED = re.compile(
    rb"<(?:\w{1,20}:)?c\s[^<>]{0,500}\bt=[\"']s[\"'][^<>]{0,500}>\s*<(?:\w{1,20}:)?v(?:\s[^<>]*)?>\s*([0-9]{1,9})\s*<"
)
_CELL_END = re.compile(rb"</(?:\w{1,20}:)?c\s*>")
_OWN_TEXT = re.compile(rb"<(?:\w{1,20}:)?c\s[^<>]{0,500}\bt=[\"'](inlineStr|str)[\"'][^<>]{0,500}(?<!/)>")
_VALUE = re.compile(rb"<(?:\w{1,20}:)?v(?:\s[^<>]*)?>([^<>]*)<")


def words_in_part(data: bytes) -> tuple[Counter[str], Counter[str]]:
    """Return the words of a part, and the words in it that were deleted or moved away in tracked changes.

    The fallback of a text box for old versions of Office repeats its text, and does not count.
    """
    pieces: list[bytes] = []
    deleted: list[bytes] = []
    depths = {b"Fallback": 0, b"moveFrom": 0, b"del": 0}
    for closes, name, attributes, text in _TAG.findall(data):
        if name in depths:
            if not attributes.endswith(b"/"):
                depths[name] = max(0, depths[name] + (-1 if closes else 1))
        elif name not in _TEXT:
            if closes or name in (b"tab", b"br", b"cr"):
                pieces.append(b" ")
                deleted.append(b" ")
        elif not closes and not attributes.endswith(b"/") and not depths[b"Fallback"]:
            (deleted if name == b"delText" or depths[b"moveFrom"] or depths[b"del"] else pieces).append(text)
    words, removed = (words_of(unescape(b"".join(texts).decode("utf-8", "replace"))) for texts in (pieces, deleted))
    return words, removed


def words_in_sheet(data: bytes) -> tuple[Counter[int], Counter[str]]:
    """Return how often a sheet shows each shared string, and the words of its other texts; numbers do not count."""
    shared = Counter(map(int, _SHARED.findall(data)))
    texts: list[str] = []
    for cell in _CELL_END.split(data) if _OWN_TEXT.search(data) else ():
        if (start := _OWN_TEXT.search(cell)) is None:
            continue
        if start[1] == b"str":
            pieces = _VALUE.findall(cell, start.end())
        else:
            pieces = [text for closes, name, _, text in _TAG.findall(cell, start.end()) if name == b"t" and not closes]
        texts.append(unescape(b"".join(pieces).decode("utf-8", "replace")))
    return shared, words_of("\n".join(texts))
