"""The encodings of text that are read, by the labels that settings, servers and pages give them."""

from __future__ import annotations

import codecs

AUTO = "auto"
"""The value of `corpus.encoding` that decides the encoding of each file by its bytes."""

_CODECS = frozenset(
    """
    utf-8 utf-16-le utf-16-be utf-32-le utf-32-be cp437 cp850 cp852 cp866 cp874 cp932 cp949 cp1250 cp1251
    cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7
    iso8859-8 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r koi8-u mac-roman mac-cyrillic euc_jp
    iso2022_jp gb18030 big5hkscs
    """.split()  # noqa: SIM905
)
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "utf-8-sig": "utf-8",
    "utf-16": "utf-16-le",
    "utf-32": "utf-32-le",
}
"""Codecs that are read as a superset, as browsers do (https://encoding.spec.whatwg.org/#names-and-labels)."""
_LABELS = {"x-sjis": "cp932", "windows-31j": "cp932", "ks_c_5601-1987": "cp949", "windows-949": "cp949"}
_NAMES = {"cp932": "shift_jis", "cp949": "euc-kr", "cp874": "windows-874", "big5hkscs": "big5", "euc_jp": "euc-jp"}


def codec_of(label: str) -> str:
    """Return the Python codec for an encoding's label such as `Shift_JIS`. Raises LookupError for any other text."""
    label = label.strip().lower()
    if not (label.isascii() and label.isprintable()):
        raise LookupError(f"unknown encoding: {label!a}")
    name = _LABELS.get(label) or codecs.lookup(label).name
    name = _SUPERSETS.get(name, name)
    if name not in _CODECS:
        raise LookupError(f"unknown encoding: {label}")
    return name


def name_of_codec(codec: str) -> str:
    """Return the usual name of a codec's encoding, such as `windows-1252` for `cp1252`."""
    return _NAMES.get(codec, codec.replace("cp125", "windows-125").replace("iso8859", "iso-8859"))
