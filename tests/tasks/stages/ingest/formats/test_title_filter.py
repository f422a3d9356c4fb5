"""One filter decides for all formats what a title is."""

from __future__ import annotations

import pytest

from tasks.stages.ingest.formats.title_filter import first_heading, title_of


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Crew shares", "Crew shares"),
        ("  Two\nlines ", "Two lines"),
        ("Install {#install}", "Install"),
        ("Configure {#configure-loom .unnumbered key='v'}", "Configure"),
        ("Module frob¶", "Module frob"),
        ("Set {a, b}", "Set {a, b}"),
        ("(anonymous)", ""),
        ("untitled", ""),
        ("Untitled-2", ""),
        ("Sans titre", ""),
        ("無題", ""),
        ("Untitled Goose Game", "Untitled Goose Game"),
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, ""),
        ("Document", "Document"),
        ("Book 2", "Book 2"),
        ("robots.txt", "robots.txt"),
    ],
)
def test_a_title_of_the_author_is_kept_unless_it_names_nothing(title: str, expected: str) -> None:
    assert title_of(title) == expected


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Microsoft Word - Annual report", "Annual report"),
        ("Microsoft Word - x.doc", ""),
        ("Annual report final.docx", ""),
        ("C:\\Users\\ann\\report", ""),
        ("Dokument7", ""),
        ("Document1", ""),
        ("Documento sin título", ""),
        ("Untitled document", ""),
        ("PowerPoint Presentation", ""),
        ("PowerPoint-Präsentation", ""),
        ("Présentation PowerPoint", ""),
        ("Presentación de PowerPoint", ""),
        ("Mappe1", ""),
        ("Slide 1", ""),
        ("Nouveau document Microsoft Word", ""),
        ("新建 Microsoft Word 文档", ""),
        ("PowerPoint プレゼンテーション", ""),
        ("Presentation1 [Compatibility Mode]", ""),
        ("Scanned Document", ""),
        ("about:blank", ""),
        ("Scan of the valley", "Scan of the valley"),
        ("Title", ""),
        ("Document 2024", "Document 2024"),
        ("Parsing index.html", "Parsing index.html"),
        ("Booking", "Booking"),
        ("Node.js", "Node.js"),
        ("Docket", "Docket"),
    ],
)
def test_a_title_of_a_program_is_none(title: str, expected: str) -> None:
    assert title_of(title, stated=True) == expected


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("# [Install](a.md) the `loom`", "Install the loom"),
        ("# Untitled\n## Named", "Named"),
        ("```\n# no\n```\n\nUnder\n---", "Under"),
        ("- item\n---\n", ""),
        ("**Bold**\n===", "Bold"),
        ("text\n\n---\n", ""),
    ],
)
def test_the_first_heading_is_what_a_reader_sees_of_it(markdown: str, title: str) -> None:
    assert first_heading(markdown) == title
