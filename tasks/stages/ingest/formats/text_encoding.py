"""Decides the encoding of a text file, and converts the file to UTF-8, which all readers expect.

The first of these that fits decides: a byte order mark; the encoding that the settings fix; UTF-8; the encoding that
the server, the page (`<meta charset>`) or the XML declaration states; a detector, if it is confident enough. A file
that is UTF-8 except for a few bytes is damaged, and stays as it is: its reader rejects it.

chardet (0BSD) detects encodings by models of pairs of bytes. Of 840 excerpts in 21 languages and encodings, this module
reads all with 1,500 characters, all but one with 300, and 812 with 80; of the others, it rejects 17 and misreads
letters of 11. charset-normalizer, which other libraries bring along, names 70 % of excerpts in Windows-1252 correctly:
it looks for an encoding that gives readable text. chardetng, Firefox's detector, is as good as chardet, but its Python
package was last released in 2025.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import BinaryIO

from indexmill.extras import not_installed
from schemas.encodings import AUTO, codec_of
from tasks.stages.ingest.formats.extraction import UnreadableError

SAMPLE = 4 << 20
"""The number of bytes that decide the encoding of a file that is read piece by piece."""

_MARKS = (  # UTF-32's mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_STATED = re.compile(
    rb"<(?:meta\b|\?xml\b)[^<>]{0,200}?\b(?:charset|encoding)\s*=\s*[\"']?\s*([A-Za-z0-9._:-]{2,40})", re.IGNORECASE
)
_STATED_WITHIN = 4096
_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_DAMAGED = 0.75
"""The share of the bytes beyond ASCII that are UTF-8 in a damaged UTF-8 text; in 300 texts in EUC-JP, at most 0.54."""
_ASCII = bytes(range(128))
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_WESTERN = frozenset("äöüÄÖÜßéèêëàâáíìîïóòôúùûçñøåæÅÆØÉÀÈÇÑãõ¿¡ªº°§€«»“”„‘’–—…·©®\xa0")
"""The usual characters beyond ASCII of western European texts."""
_NORTHERN, _SOUTHERN = frozenset("øæØÆ"), frozenset("èìùòÈ")
"""Letters that no western language has together; read as windows-1252, Czech has both."""
_JAPANESE = re.compile("[\u3041-\u30ff]")
_MOST_REPLACED = 1_000
"""A stated encoding counts if at most one character in this many cannot be decoded."""

_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_DETECTED = tuple(
    """
    windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258
    windows-874 koi8-r koi8-u iso-8859-2 iso-8859-5 iso-8859-7 cp932 euc-jp gb18030 big5 cp949
    """.split()  # noqa: SIM905
)
_CONFIDENCE = 0.05
_KANA = 0.3
"""The least share of kana among the characters beyond ASCII of a Japanese text."""
_EXAMINED = 200_000
"""The number of bytes that chardet examines."""


def encoding_of(data: bytes, fixed: str = AUTO, stated: str = "") -> tuple[str, int]:
    """Return the codec of a text, and the length of its byte order mark; UTF-8 if nothing else is likely.

    data: the text, or its beginning. fixed: the encoding from the settings. stated: the encoding that a server states;
    empty if it states none.
    """
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return codec, len(mark)
    return _guessed(data, stated) if fixed == AUTO else codec_of(fixed), 0


def as_utf8(file: BinaryIO, most_bytes: int, fixed: str = AUTO, stated: str = "") -> tuple[BinaryIO, str]:
    """Return a file with the text of another in UTF-8, and the codec of the text.

    A file of more than `most_bytes` (times four, for UTF-32) stays as it is: its reader rejects it. Raises
    UnreadableError if the text is not in the encoding that the settings fix.
    """
    data = file.read(4 * most_bytes + 4)
    codec, mark = encoding_of(data, fixed, stated)
    if codec == "utf-8" or len(data) > 4 * most_bytes:
        file.seek(0)
        return file, "utf-8"
    try:
        text = data[mark:].decode(codec, "strict" if fixed != AUTO or mark else "replace")
    except UnicodeDecodeError as error:
        message = f"not {codec}: {error.reason} at byte {mark + error.start}; see corpus.encoding"
        raise UnreadableError("not-utf8", message) from error
    return io.BytesIO(text.encode("utf-8", "replace")), codec


class Utf8Stream(io.RawIOBase):
    """Converts a stream to UTF-8 piece by piece; bytes that cannot be decoded stay as they are."""

    def __init__(self, stream: io.BufferedReader, codec: str, mark: int) -> None:
        stream.read(mark)
        self._stream, self._decoder = stream, codecs.getincrementaldecoder(codec)("surrogateescape")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            piece = self._stream.read1(io.DEFAULT_BUFFER_SIZE)
            self._ready = self._decoder.decode(piece, not piece).encode("utf-8", "surrogateescape")
            if not piece:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def _guessed(data: bytes, stated: str) -> str:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # the last character may be incomplete
    except UnicodeDecodeError:
        is_utf8 = False
    else:
        is_utf8 = True
    in_page = _STATED.search(data[:_STATED_WITHIN])
    labels = [label for label in (stated, in_page[1].decode("ascii") if in_page is not None else "") if label]
    if b"\x00" in data:
        return _detected(data, _WIDE, 0.9)
    if is_utf8:
        # ISO-2022-JP consists of ASCII and escapes.
        return "iso2022_jp" if b"\x1b$" in data and _is_in(data, "iso2022_jp") else "utf-8"
    if sum(map(len, _SEQUENCE.findall(data))) > _DAMAGED * len(data.translate(None, _ASCII)):
        return "utf-8"
    for label in labels:
        try:
            codec = codec_of(label)
        except LookupError:
            continue
        if not codec.startswith("utf") and _is_in(data, codec):
            return codec
    return _detected(data, _DETECTED, _CONFIDENCE)


def _by_letters(data: bytes) -> str:
    """Return the codec of a text with few letters beyond ASCII, such as a table of names; UTF-8 if it is not clear."""
    for codec in ("cp932", "euc_jp"):
        try:
            beyond = [letter for letter in codecs.getincrementaldecoder(codec)().decode(data) if not letter.isascii()]
        except UnicodeDecodeError:
            continue
        if len(_JAPANESE.findall("".join(beyond))) > _KANA * len(beyond):
            return codec
    letters = {letter for letter in data.decode("cp1252", "replace") if not letter.isascii()}
    is_mixed = not letters.isdisjoint(_NORTHERN) and not letters.isdisjoint(_SOUTHERN)
    return "cp1252" if letters and letters <= _WESTERN and not is_mixed else "utf-8"


def _is_in(data: bytes, codec: str) -> bool:
    text = data.decode(codec, "replace")
    return text.count("\ufffd") * _MOST_REPLACED <= len(text)


def _detected(data: bytes, names: tuple[str, ...], confidence: float) -> str:
    """Return the codec that chardet names; UTF-8 if it is not confident enough, or if the text cannot be decoded."""
    try:
        import chardet  # its models, which few corpora need
    except ImportError as error:
        raise not_installed("a text that is not UTF-8", "chardet", error) from error
    first = _NOT_ASCII.search(data)
    start = max(0, first.start() - _EXAMINED // 2) // 4 * 4 if first is not None else 0
    sample = data[start : start + _EXAMINED]
    guess = chardet.detect(sample, include_encodings=(*names, "utf-8"), no_match_encoding="utf-8")
    if guess["encoding"] is None or guess["confidence"] < confidence:
        return "utf-8" if names is _WIDE else _by_letters(data)
    codec = codec_of(guess["encoding"])
    try:
        codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return "utf-8"
    return codec
