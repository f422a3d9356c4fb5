"""The formats that xberg reads, and what is mended before and after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks.stages.ingest.formats.office_files import extracted, refused

pytest.importorskip("xberg", reason="xberg is an extra: pip install 'indexmill[formats]'")


def test_rtf_without_deleted_text_headers_and_hidden_text_but_with_list_numbers() -> None:
    data = (
        r"{\rtf1\ansi\ansicpg1251{\info{\title About}}{\header {\b SECRET}\par}\pard\outlinelevel0 Part\par"
        r"\pard Seen{\deleted SEC{\b RET}}{\v SECRET} \'e4\'e0{\*\bin5 }}}}}}\par"
        r"{\listtext 2.\tab}item\par{\listtext\'b7\tab}point\par"
        r"\trowd\cellx1\cellx2\intbl a\cell b\cell\row\pard{\footer SECRET}}"
    )
    found = extracted("rtf", data.encode())
    assert found.title == "About"
    assert found.text == "# Part\n\nSeen да\n\n2. item\n\n- point\n\n| a | b |\n| --- | --- |\n"


def test_asciidoc_and_org_become_markdown() -> None:
    text = "= Guide\n\nThe *server*.\n\n== Install\n\n. first\n* point\n\n----\ncode\n----\n\ninclude::/etc/passwd[]\n"
    found = extracted("asciidoc", text.encode())
    assert found.title == "Guide"
    assert all(part in found.text for part in ("# Guide", "## Install", "1. first", "- point", "```\ncode\n```"))
    assert "root:" not in found.text
    assert "## Part\n\n- point" in extracted("org", b"* Guide\n** Part\n- point\n#+INCLUDE: /etc/passwd\n").text


def test_a_text_without_words_is_an_empty_file() -> None:
    assert extracted("asciidoc", b"// a comment\n").text.strip() == ""
    assert refused("rtf", b"{\\rtf1 }").reason == "no-text"


def test_fictionbook_is_read_and_entities_are_refused() -> None:
    book = '<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><body><section><title><p>Ein</p></title>'
    book += "<p>Schöner Text.</p></section></body></FictionBook>"
    assert extracted("fictionbook", f'<?xml version="1.0" encoding="cp1251"?>{book}'.encode()).text.endswith(
        "Ein\n\nSchöner Text.\n"
    )
    assert refused("fictionbook", b'<!DOCTYPE a [<!ENTITY a "b">]>' + book.encode()).reason == "hostile-file"


def test_without_the_extra_files_are_passed_over_or_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "b.rtf").write_text("{")
    monkeypatch.setitem(sys.modules, "xberg", None)
    assert "pip install 'indexmill[formats]'" in str(refused("rtf", b"{\\rtf1 x}"))
    program = (
        "import sys; sys.modules['xberg'] = None\nfrom schemas.corpus import CorpusSettings\n"
        "from tasks.stages.ingest.source_files import find\n"
        "listing = find(CorpusSettings(paths=(sys.argv[1],)))\n"
        "print([file.name for file in listing.files], *listing.summary.partition('to read')[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "['a.md'] to read  .rtf: pip install 'indexmill[formats]'\n"


def test_other_files_are_refused() -> None:
    for kind in ("msg", "ppt"):
        assert refused(kind, b"MessageText = 1").reason == "unreadable-file"
        assert refused(kind, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(3_000)).reason == "unreadable-file"
    assert refused("rtf", b"").reason in ("no-text", "unreadable-file")
