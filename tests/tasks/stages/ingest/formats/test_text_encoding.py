"""The encoding of a text: marks, what is stated, and what is detected."""

from __future__ import annotations

import io
import time

import pytest

from schemas.encodings import codec_of, name_of_codec
from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.text_encoding import Utf8Stream, as_utf8, encoding_of

GERMAN = "Die Bürger der Stadt fahren im Sommer über die Brücke, um am Fluss den Schützenkönig zu grüßen. "
RUSSIAN = "Жители города летом переходят через мост, чтобы посмотреть на праздник у реки и поздравить друг друга. "
JAPANESE = "町の人々は夏になると橋を渡り、川辺の祭りを見に行きます。子供たちは花火を楽しみにしています。"
CHINESE = "每年夏天，城里的居民都会走过大桥，到河边参加传统的节日，孩子们最喜欢看烟花。"
KOREAN = "여름이 되면 도시의 주민들은 다리를 건너 강가의 축제를 보러 갑니다. 아이들은 불꽃놀이를 기다립니다. "


def read(data: bytes, fixed: str = "auto", stated: str = "") -> tuple[str, str]:
    file, codec = as_utf8(io.BytesIO(data), 10_000, fixed, stated)
    return file.read().decode("utf-8"), codec


@pytest.mark.parametrize(
    ("text", "encoding", "codec"),
    [
        (GERMAN, "cp1252", "cp1252"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (RUSSIAN, "cp1251", "cp1251"),
        (JAPANESE, "shift_jis", "cp932"),
        (JAPANESE, "euc_jp", "euc_jp"),
        (JAPANESE, "iso2022_jp", "iso2022_jp"),
        (CHINESE, "gbk", "gb18030"),
        (KOREAN, "euc_kr", "cp949"),
        (GERMAN, "utf-16-le", "utf-16-le"),
        (GERMAN, "utf-16-be", "utf-16-be"),
    ],
)
def test_an_encoding_is_detected(text: str, encoding: str, codec: str) -> None:
    assert read(text.encode(encoding)) == (text, codec)


@pytest.mark.parametrize(
    ("names", "encoding", "codec"),
    [
        (["M\u00fcller", "J\u00f6rg Wei\u00df", "Anna Schmidt", "Otto Braun"], "cp1252", "cp1252"),
        (["H\u00e9l\u00e8ne Dupr\u00e9", "Jean Petit", "No\u00ebl"], "cp1252", "cp1252"),
        (["\u6771\u4eac\u30bf\u30ef\u30fc", "\u3055\u304f\u3089", "\u30ab\u30e1\u30e9"], "shift_jis", "cp932"),
    ],
)
@pytest.mark.parametrize("rows", [5, 300])
def test_tables_with_few_letters_beyond_ascii_are_read(names: list[str], encoding: str, codec: str, rows: int) -> None:
    table = "id;name;text\n" + "".join(f"{row};{names[row % len(names)]};A row of the list\n" for row in range(rows))
    assert as_utf8(io.BytesIO(table.encode(encoding)), 1_000_000)[1] == codec


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_decides_before_anything_else(encoding: str) -> None:
    assert read(f"\ufeff{GERMAN}".encode(encoding), fixed="gbk", stated="koi8-r") == (GERMAN, encoding)


def test_utf8_is_not_converted_whatever_is_stated() -> None:
    page = f'<meta charset="latin-1">{GERMAN}'
    assert read(page.encode()) == (page, "utf-8")
    assert encoding_of(page.encode(), stated="windows-1251") == ("utf-8", 0)
    assert encoding_of("ü".encode()[:1]) == ("utf-8", 0)  # the beginning of a file may end within a character


@pytest.mark.parametrize(
    ("head", "stated"),
    [
        ('<html><head><meta charset="windows-1251">', ""),
        ("<META http-equiv=content-type content='text/html; charset=cp1251'>", ""),
        ('<?xml version="1.0" encoding="windows-1251"?>', ""),
        ('<meta charset="koi8-r">', "windows-1251"),
    ],
)
def test_a_page_or_its_server_states_its_encoding(head: str, stated: str) -> None:
    assert read(f"{head}Да".encode("cp1251"), stated=stated) == (f"{head}Да", "cp1251")


def test_a_text_that_fits_no_encoding_stays_as_it_is() -> None:
    for data in (b"caf\xe9", GERMAN.encode() + b"\xff", bytes(range(256)) * 8, b"<meta charset=zlib>caf\xe9"):
        file, codec = as_utf8(io.BytesIO(data), 10_000)
        assert (file.read(), codec) == (data, "utf-8")


def test_a_fixed_encoding_must_fit() -> None:
    assert read(b"caf\xe9", fixed="latin-1") == ("café", "cp1252")
    with pytest.raises(UnreadableError, match=r"not cp932: .* at byte 3; see corpus\.encoding"):
        read(b"caf\xe9", fixed="shift_jis")


def test_a_stream_is_converted_piece_by_piece_and_other_bytes_stay() -> None:
    data = (JAPANESE * 1_000).encode("euc_jp") + b"\xff\n"
    stream = io.BufferedReader(Utf8Stream(io.BufferedReader(io.BytesIO(data)), "euc_jp", 0))
    assert stream.read() == (JAPANESE * 1_000).encode() + b"\xff\n"


def test_labels_are_those_of_browsers() -> None:
    assert [codec_of(label) for label in ("Latin1", "GB2312", "x-sjis", "UTF-16", "ks_c_5601-1987")] == [
        "cp1252",
        "gb18030",
        "cp932",
        "utf-16-le",
        "cp949",
    ]
    assert [name_of_codec(name) for name in ("cp1252", "cp932", "iso8859-2")] == [
        "windows-1252",
        "shift_jis",
        "iso-8859-2",
    ]
    for label in ("zlib", "rot13", "utf-7", "unicode_escape", "ümlaut", "\x00"):
        with pytest.raises(LookupError):
            codec_of(label)


def test_long_texts_are_decided_in_linear_time() -> None:
    started = time.process_time()
    for data in (b"\xe9" * 2_000_000, b"<meta " * 300_000 + b"\xe9", (b"x" * 1_000 + b"\xff\xfe") * 2_000):
        encoding_of(data)
    assert time.process_time() - started < 5
