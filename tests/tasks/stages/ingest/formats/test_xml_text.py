"""XML that the corpus asks for."""

from __future__ import annotations

import pytest

from tests.tasks.stages.ingest.formats.office_files import extracted, refused


def test_records_are_paragraphs_of_fields_and_mixed_content_is_one_paragraph() -> None:
    data = b"<a><c><name>Canada</name><sport/><capital>Ottawa &lt;b></capital></c><p>One <b>two</b> three.</p></a>"
    data = b'<?xml version="1.0" encoding="UTF-16"?>' + data
    assert extracted("xml", data).text == "name: Canada\ncapital: Ottawa \\<b>\n\nOne two three."


def test_articles_and_pages_are_read_as_such() -> None:
    page = b'<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>A</h1><p>B</p></body></html>'
    assert extracted("xml", page).text == "# A\n\nB"
    pytest.importorskip("xberg")
    article = (
        b'<!DOCTYPE article PUBLIC "-//NLM//DTD JATS" "file:///etc/passwd"><article><front><article-meta><title-group>'
        b"<article-title>Zinc</article-title></title-group></article-meta></front><body><sec><title>Aim</title>"
        b"<p>Text.</p></sec></body></article>"
    )
    assert extracted("xml", article).text == "# Zinc\n\n## Aim\n\nText.\n"


def test_hostile_and_empty_files_are_refused() -> None:
    assert refused("xml", b"<!DOCTYPE a><a>x</a>").reason == "hostile-file"
    assert refused("xml", b'<!DOCTYPE article [<!ENTITY a "b">]><article>JATS &a;</article>').reason == "hostile-file"
    assert refused("xml", b"<a>" * 100_000).reason == "hostile-file"
    assert refused("xml", b"<a><b/></a>").reason == "no-text"
    assert refused("xml", b"text").reason == "unreadable-file"
