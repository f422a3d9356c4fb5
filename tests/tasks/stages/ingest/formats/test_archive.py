"""Archives of strangers are read within limits, and refused where they are out to harm."""

from __future__ import annotations

import io
import stat
import struct
import time
import tracemalloc
import warnings
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.ingest.formats import archive as tested
from tasks.stages.ingest.formats.archive import Archive, open_archive
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError
from tests.deep import examples
from tests.tasks.stages.ingest.formats.office_files import archive, entry, of_entries


def _refused(data: bytes, limits: ExtractionLimits | None = None, *, read: str = "a") -> UnreadableError:
    with (
        pytest.raises(UnreadableError) as caught,
        open_archive(io.BytesIO(data), limits or ExtractionLimits(), "a file") as opened,
    ):
        opened.read(read)
    return caught.value


def test_entries_are_found_by_name_and_without_case_where_none_has_it() -> None:
    data = archive({"Word/Document.xml": b"1", "word/document.xml": b"2", "b": b"3", "folder/": b""})
    with open_archive(io.BytesIO(data), ExtractionLimits(), "a file") as opened:
        assert (opened.read("word/document.xml"), opened.read("WORD/DOCUMENT.XML")) == (b"2", b"1")
        assert opened.names() == ["Word/Document.xml", "b", "word/document.xml"]
        assert ("B" in opened, "c" in opened) == (True, False)
        with pytest.raises(UnreadableError, match="lacks the entry 'c'"):
            opened.read("c")


@pytest.mark.parametrize("name", [b"/etc/passwd", b"../a", b"a/../../b", b"C:\\a", b"..\\a"])
def test_an_entry_that_leads_outside_is_hostile(name: bytes) -> None:
    assert _refused(of_entries((name, b"x", 0, 0))).reason == "hostile-file"


def test_an_entry_that_is_a_link_is_hostile() -> None:
    found = _refused(of_entries((b"a", b"/etc/passwd", 0, stat.S_IFLNK | 0o777)))
    assert (found.reason, str(found)) == ("hostile-file", "an entry is a link: 'a'")


def test_two_entries_of_one_name_are_hostile() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _refused(of_entries((b"a", b"x", 0, 0), (b"a", b"y", 0, 0))).reason == "hostile-file"
        assert _refused(of_entries((b"a/b", b"x", 0, 0), (b"a\\b", b"y", 0, 0))).reason == "hostile-file"


def test_entries_that_share_bytes_are_hostile() -> None:
    found = _refused(of_entries((b"a", b"x" * 100, 0, 0), (b"b", b"x" * 100, 0, 0), at=0))
    assert (found.reason, "share bytes" in str(found)) == ("hostile-file", True)


def test_an_entry_with_a_password_is_encrypted() -> None:
    assert _refused(of_entries((b"a", b"x", 1, 0))).reason == "encrypted"


def test_too_many_entries_are_hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "MAX_ENTRIES", 3)
    assert _refused(archive({str(n): b"" for n in range(4)})).reason == "hostile-file"


def test_a_directory_of_millions_is_refused_before_it_is_read() -> None:
    lines = b"".join(entry(f"{n:07d}".encode(), b"", 0)[1] for n in range(160_000))
    data = b"PK\x03\x04" + lines + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 65_535, 65_535, len(lines), 4, 0)
    tracemalloc.start()
    found = _refused(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.reason, peak < 1 << 20) == ("hostile-file", True)


def test_what_an_archive_expands_to_is_counted_over_all_entries_that_are_read() -> None:
    data = archive({"a": bytes(range(256)) * 300, "b": bytes(range(256)) * 300}, zipfile.ZIP_STORED)
    with open_archive(io.BytesIO(data), ExtractionLimits(expanded_bytes=100_000), "a file") as opened:
        opened.read("a")
        with pytest.raises(UnreadableError, match="expands to more than 100,000 bytes") as caught:
            opened.read("b")
    assert caught.value.reason == "too-large"


def test_a_bomb_is_hostile_whatever_its_headers_state() -> None:
    data = bytearray(archive({"a": bytes(64 << 20)}))
    tracemalloc.start()
    assert _refused(bytes(data)).reason == "hostile-file"
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)  # the size that the directory states
    assert _refused(bytes(data)).reason == "hostile-file"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 20
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    assert _refused(bytes(data)).reason == "unreadable-file"  # the checksum is that of all


def test_methods_that_the_formats_forbid_are_not_expanded() -> None:
    found = _refused(archive({"a": b"x" * 1000}, zipfile.ZIP_BZIP2))
    assert (found.reason, "compressed in a way" in str(found)) == ("unreadable-file", True)


def test_a_locked_office_file_is_encrypted_and_an_old_one_is_unreadable() -> None:
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(262_100)
    locked = _refused(head + "EncryptedPackage".encode("utf-16-le") + bytes(100))
    assert (locked.reason, str(locked)) == ("encrypted", "the file is locked with a password; save it without one")
    old = _refused(head + "WordDocument".encode("utf-16-le"))
    assert (old.reason, "Office 97" in str(old)) == ("unreadable-file", True)


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"PK", b"PK\x03\x04" + bytes(100), b"PK\x05\x06" + bytes(17)])
def test_what_is_no_archive_is_unreadable(data: bytes) -> None:
    assert _refused(data).reason == "unreadable-file"


@given(st.data())
@examples(30, deep=150)
def test_a_damaged_archive_is_told_as_such(data: st.DataObject) -> None:
    whole = bytearray(archive({"a": b"text " * 50, "word/b.xml": b"<x/>"}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_archive(io.BytesIO(bytes(whole)), ExtractionLimits(), "a file") as opened:
                for name in opened.names():
                    opened.read(name)
    except UnreadableError as error:
        assert error.reason in {"unreadable-file", "hostile-file", "encrypted", "too-large"}  # noqa: PT017


def test_errors_of_the_reader_name_the_exception_and_not_the_text() -> None:
    def fails(_: Archive) -> None:
        raise KeyError("a secret")

    with (
        pytest.raises(UnreadableError) as caught,
        open_archive(io.BytesIO(archive({"a": b""})), ExtractionLimits(), "a file") as it,
    ):
        fails(it)
    assert (caught.value.reason, str(caught.value)) == ("unreadable-file", "it is not a file as expected: KeyError")


def test_thousands_of_entries_take_no_time() -> None:
    data = archive({f"folder/{n}": b"" for n in range(6_000)})
    start = time.perf_counter()
    with open_archive(io.BytesIO(data), ExtractionLimits(), "a file") as opened:
        assert len(opened.names()) == 6_000
    assert time.perf_counter() - start < 5
