"""Reads letters by the names of their glyphs, for fonts that do not say in Unicode what they show.

PDFium maps the names of Adobe's list, but not joined names such as `f_f_i`, and does not give a font's names. So the
encodings are searched in the bytes of the file, as in `/Differences [11 /f_f /f_i]`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from itertools import chain, islice
from typing import BinaryIO

_MOST_BYTES = 64 << 20
_MOST_EXPANDED = 16 << 20
_MOST_STREAMS, _MOST_ENCODINGS = 5_000, 500
_LONGEST_ENCODING = 8_000
_DIFFERENCES = re.compile(rb"/Differences\s{0,9}\[")
_ENTRY = re.compile(rb"(\d{1,3})|/([^\s/\[\]()<>]{1,40})")
_STREAM = re.compile(rb"/ObjStm\b[^>]{0,200}>>\s*stream\r?\n")
_JOINED = re.compile(r"([A-Za-z](?:_[A-Za-z])+)(?:\.[\w.]{1,20})?")
_UNICODE = re.compile(r"uni((?:[0-9A-F]{4}){2,6})")
TEX_LIGATURES = {
    code + shift: text for shift in (0, 16) for code, text in enumerate(("ff", "fi", "fl", "ffi", "ffl"), 11)
}
"""The ligatures of TeX's text fonts, in its old (OT1) and new (T1) encoding; the new one is only used in part."""


def letters_by_code(file: BinaryIO) -> dict[int, str]:
    """Return the letters that codes from 0 to 255 stand for, where the fonts of the file agree."""
    file.seek(0)
    data = file.read(_MOST_BYTES)
    named: dict[int, set[str]] = {}
    for part in chain((data,), _object_streams(data)):
        for start in islice(_DIFFERENCES.finditer(part), _MOST_ENCODINGS):
            encoding = part[start.end() : start.end() + _LONGEST_ENCODING].partition(b"]")[0]
            code = 0
            for entry in _ENTRY.finditer(encoding):
                if entry[1]:
                    code = int(entry[1])
                else:
                    if text := _text_of(entry[2].decode("latin-1")):
                        named.setdefault(code, set()).add(text)
                    code += 1
    return {code: min(texts) for code, texts in named.items() if len(texts) == 1}


def _object_streams(data: bytes) -> Iterator[bytes]:
    """Yield the streams in which newer files compress the dictionaries of fonts, up to _MOST_EXPANDED bytes in all."""
    view = memoryview(data)
    budget = _MOST_EXPANDED
    for start in islice(_STREAM.finditer(data), _MOST_STREAMS):
        try:
            part = zlib.decompressobj().decompress(view[start.end() : start.end() + budget], budget)
        except zlib.error:
            continue
        yield part
        budget -= len(part)
        if budget <= 0:
            return


def _text_of(name: str) -> str:
    if match := _JOINED.fullmatch(name):
        return match[1].replace("_", "")
    if match := _UNICODE.fullmatch(name):
        text = "".join(chr(int(match[1][at : at + 4], 16)) for at in range(0, len(match[1]), 4))
        return text if text.isalpha() else ""
    return ""
