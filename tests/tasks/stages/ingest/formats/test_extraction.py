"""What extractors have in common."""

from __future__ import annotations

import io
import sys
import tracemalloc

import pytest

from indexmill.errors import ModelUnavailable
from tasks.stages.ingest.formats import extraction
from tasks.stages.ingest.formats.extraction import UnreadableError, read_text
from tasks.stages.ingest.formats.format_registry import FORMATS, format_of


def test_a_format_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = format_of("pdf")
    assert known is not None
    for name in [one for one in sys.modules if one.startswith("tasks.stages.ingest.formats.pdf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    monkeypatch.setitem(sys.modules, "pypdfium2.raw", None)
    with pytest.raises(ModelUnavailable, match=r"reading pdf needs the package pypdfium2, .*indexmill\[pipeline\]"):
        known.extractor()


def test_a_shared_library_that_cannot_be_mapped_is_no_fault_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise OSError(f"libpdfium.so of {name}: failed to map segment from shared object")  # as ctypes does

    monkeypatch.setattr(extraction, "import_module", import_module)
    known = format_of("pdf")
    assert known is not None
    with pytest.raises(ImportError, match="failed to map segment") as caught:
        known.extractor()
    assert caught.value.name == "tasks.stages.ingest.formats.pdf"


def test_kinds_and_suffixes_belong_to_one_format_each() -> None:
    kinds, suffixes = [one.kind for one in FORMATS], [suffix for one in FORMATS for suffix in one.suffixes]
    assert len(set(kinds)) == len(kinds)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)


def test_text_is_read_without_its_byte_order_mark_and_with_its_line_ends() -> None:
    assert read_text(io.BytesIO(b"\xef\xbb\xbfone\r\ntwo\xc3\xa9"), 20, "too long") == "one\r\ntwo\xe9"


def test_text_up_to_the_limit_is_read_and_a_byte_more_is_refused() -> None:
    assert read_text(io.BytesIO(b"x" * 3_000_000), 3_000_000, "too long") == "x" * 3_000_000
    with pytest.raises(UnreadableError, match="too long") as caught:
        read_text(io.BytesIO(b"x" * 3_000_001), 3_000_000, "too long")
    assert caught.value.reason == "too-large"


@pytest.mark.parametrize(("data", "byte"), [(b"abc\xffd", 3), (b"\xef\xbb\xbfabc\xffd", 6)])
def test_bytes_that_are_not_utf8_are_counted_from_the_beginning_of_the_file(data: bytes, byte: int) -> None:
    with pytest.raises(UnreadableError) as caught:
        read_text(io.BytesIO(data), 20, "too long")
    assert (caught.value.reason, caught.value.detail) == ("not-utf8", f"invalid start byte at byte {byte}")
    cause = caught.value.__cause__
    assert isinstance(cause, UnicodeDecodeError)
    assert cause.object[cause.start] == 0xFF


def test_a_high_limit_takes_no_memory_for_a_short_file() -> None:
    tracemalloc.start()
    try:
        read_text(io.BufferedReader(io.BytesIO(b"short")), 1 << 30, "too long")  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
