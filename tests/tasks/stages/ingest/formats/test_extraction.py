"""What extractors have in common."""

from __future__ import annotations

import sys

import pytest

from indexmill.errors import ModelUnavailable
from tasks.stages.ingest.formats.registry import FORMATS, format_of


def test_a_format_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = format_of("pdf")
    assert known is not None
    for name in [one for one in sys.modules if one.startswith("tasks.stages.ingest.formats.pdf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    monkeypatch.setitem(sys.modules, "pypdfium2.raw", None)
    with pytest.raises(ModelUnavailable, match=r"reading pdf needs the package pypdfium2, .*indexmill\[pipeline\]"):
        known.extractor()


def test_kinds_and_suffixes_belong_to_one_format_each() -> None:
    kinds, suffixes = [one.kind for one in FORMATS], [suffix for one in FORMATS for suffix in one.suffixes]
    assert len(set(kinds)) == len(kinds)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)
