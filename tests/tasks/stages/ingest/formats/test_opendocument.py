"""OpenDocument: what is shown of a text, a spreadsheet and a presentation, and nothing that is hidden."""

from __future__ import annotations

from tasks.stages.ingest.file_counts import counts_of
from tests.tasks.stages.ingest.formats.office_files import archive, extracted, opendocument, refused


def text(body: str) -> str:
    return extracted("opendocument-text", opendocument(body)).text


def row(*cells: str, more: str = "") -> str:
    inner = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
    return f"<table:table-row {more}>{inner}</table:table-row>"


def test_headings_lists_links_notes_and_spaces() -> None:
    body = (
        '<text:p text:style-name="P1">Handbook</text:p><text:h text:outline-level="2">Part</text:h>'
        '<text:p>a<text:s text:c="2"/>b<text:tab/>c <text:a xlink:href="https://x.org">link</text:a>'
        "<text:note><text:note-citation>7</text:note-citation><text:note-body><text:p>noted</text:p></text:note-body>"
        '</text:note></text:p><text:list text:style-name="L"><text:list-item><text:p>one</text:p><text:list>'
        "<text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item><text:list-item>"
        "<text:p>two</text:p></text:list-item></text:list>"
    )
    assert text(body) == (
        "# Handbook\n\n## Part\n\na  b c [link](https://x.org)[^1]\n\n[^1] noted\n\n1. one\n   - deep\n2. two"
    )
    assert extracted("opendocument-text", opendocument(body)).title == "About"


def test_hidden_and_deleted_text_comments_and_contents_are_left_out() -> None:
    hidden = "<text:p>SECRET</text:p>"
    body = (
        f"<text:tracked-changes>{hidden}</text:tracked-changes><text:table-of-content>{hidden}</text:table-of-content>"
        f'<text:section text:display="none">{hidden}</text:section><text:p>seen <text:span text:style-name="H">SECRET'
        f"</text:span><office:annotation>{hidden}</office:annotation>and read</text:p>"
    )
    read = extracted("opendocument-text", opendocument(body))
    assert (read.text, read.metadata["unread"]) == ("seen and read", {"comments": 1})
    counts = counts_of(read.words, read.text)
    assert (counts.words, counts.text_words) == (8, 3)
    assert counts.left_out == {"comment": 1, "contents": 1, "deleted": 1, "hidden": 2}


def test_tables_repeat_merged_cells_and_pictures_have_their_descriptions() -> None:
    body = (
        f"<table:table><table:table-header-rows>{row('Name', 'Value')}</table:table-header-rows><table:table-row>"
        '<table:table-cell table:number-rows-spanned="2"><text:p>x</text:p><text:p>y</text:p></table:table-cell>'
        "<table:table-cell><text:p>1</text:p></table:table-cell></table:table-row><table:table-row>"
        "<table:covered-table-cell/><table:table-cell><text:p>2</text:p></table:table-cell></table:table-row>"
        "</table:table><text:p><draw:frame><draw:image/><svg:title>A map</svg:title></draw:frame><draw:frame>"
        "<draw:image/><svg:title>image1.png</svg:title></draw:frame><draw:frame>"
        "<draw:text-box><text:p>Boxed</text:p></draw:text-box></draw:frame></text:p>"
    )
    read = extracted("opendocument-text", opendocument(body))
    assert read.text == "| Name | Value |\n| --- | --- |\n| x y | 1 |\n| x y | 2 |\n\n![A map]()\n\nBoxed"
    assert read.metadata["unread"] == {"pictures": 1}


def test_sheets_are_sections_whose_empty_rows_separate_tables() -> None:
    empty = '<table:table-row table:number-rows-repeated="1048500"><table:table-cell/></table:table-row>'
    twice = 'table:number-rows-repeated="2"'
    body = (
        f'<table:table table:name="Prices">{row("a", "b")}{row("1", "2 €")}{empty}{row("alone")}{empty}</table:table>'
        f'<table:table table:name="Hidden" table:style-name="T">{row("SECRET")}</table:table>'
        f'<table:table table:name="Last">{row("c", "d", more=twice)}</table:table>'
    )
    found = extracted("opendocument-spreadsheet", opendocument(body, "spreadsheet"))
    assert found.text == (
        "## Prices\n\n| a | b |\n| --- | --- |\n| 1 | 2 € |\n\nalone\n\n## Last\n\n| c | d |\n| --- | --- |\n| c | d |"
    )
    assert [place.page for place in found.locations] == [1, 3]
    assert found.metadata["unread"] == {"hidden_sheets": 1}


def test_properties_are_metadata_and_titles_of_programs_are_none() -> None:
    about = (
        "<m xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:meta='urn:oasis:names:tc:opendocument:xmlns:meta:1.0'>"
        "<dc:title>Untitled 1</dc:title><meta:initial-creator>Ada</meta:initial-creator><dc:creator>Bo</dc:creator>"
        "<meta:creation-date>2024-05-01</meta:creation-date><dc:date>never</dc:date></m>"
    )
    found = extracted("opendocument-text", opendocument("<text:h>Part</text:h>", **{"meta.xml": about}))
    assert (found.title, found.metadata) == ("Part", {"author": "Ada", "created": "2024-05-01"})


def test_slides_are_pages() -> None:
    page = "<draw:page><draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame></draw:page>"
    data = opendocument(page.format("First") + page.format("Second"), "presentation")
    found = extracted("opendocument-presentation", data)
    assert (found.text, [place.page for place in found.locations]) == ("First\n\nSecond", [1, 2])


def test_locked_hostile_and_empty_files_are_refused() -> None:
    locked = {"META-INF/manifest.xml": "<encryption-data/>"}
    assert refused("opendocument-text", opendocument("<text:p>x</text:p>", **locked)).reason == "encrypted"
    entity = opendocument("<text:p>&a;</text:p>", before='<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>')
    assert refused("opendocument-text", entity).reason == "hostile-file"
    assert refused("opendocument-text", opendocument("<text:p/>")).reason == "no-text"
    assert refused("opendocument-text", archive({"a": "b"})).reason == "unreadable-file"
    wide = '<table:table-cell table:number-columns-repeated="9999999"><text:p>x</text:p></table:table-cell>'
    rows = f'<table:table-row table:number-rows-repeated="9999999">{wide}</table:table-row>' * 30
    data = opendocument(f"<table:table>{rows}</table:table>", "spreadsheet")
    assert refused("opendocument-spreadsheet", data).reason == "too-large"
