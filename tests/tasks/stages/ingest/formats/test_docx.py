"""A Word document's text as a reader sees it, its pages, and what is refused."""

from __future__ import annotations

import io
import time
import zipfile
from typing import Any

import docx as made_by
import pytest
from docx.enum.text import WD_BREAK

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import ExtractionLimits
from tests.tasks.stages.ingest.formats.office_files import (
    LAUGHS,
    MORE,
    A,
    archive,
    chart,
    core,
    docx,
    extracted,
    paragraph,
    refused,
    relationships,
    series,
    xlsx,
)

STYLES = """
<w:docDefaults><w:rPrDefault><w:rPr><w:lang w:val="de-CH"/></w:rPr></w:rPrDefault></w:docDefaults>
<w:style w:type="paragraph" w:default="1" w:styleId="Standard"><w:name w:val="Normal"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/>
  <w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Chapter"/><w:basedOn w:val="berschrift1"/></w:style>
<w:style w:type="paragraph" w:styleId="Lo2"><w:name w:val="Überschrift 2"/></w:style>
<w:style w:type="paragraph" w:styleId="Body"><w:name w:val="Body"/><w:basedOn w:val="Own"/>
  <w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="T"><w:name w:val="Title"/></w:style>
<w:style w:type="paragraph" w:styleId="S"><w:name w:val="Subtitle"/><w:basedOn w:val="T"/></w:style>
<w:style w:type="paragraph" w:styleId="TOC1"><w:name w:val="toc 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="Source Code"/></w:style>
<w:style w:type="paragraph" w:styleId="L"><w:name w:val="List Bullet"/>
  <w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr></w:style>
<w:style w:type="character" w:styleId="Gone"><w:name w:val="Gone"/><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type="paragraph" w:styleId="A"><w:name w:val="a"/><w:basedOn w:val="B"/></w:style>
<w:style w:type="paragraph" w:styleId="B"><w:name w:val="b"/><w:basedOn w:val="A"/></w:style>
"""


def _level(level: int, form: str, text: str) -> str:
    return f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'


NUMBERING = (
    f'<w:abstractNum w:abstractNumId="0">{_level(0, "decimal", "%1.")}{_level(1, "lowerLetter", "%2)")}'
    f"{_level(2, 'upperRoman', '%3.')}</w:abstractNum>"
    f'<w:abstractNum w:abstractNumId="1">{_level(0, "bullet", "")}{_level(1, "bullet", "o")}</w:abstractNum>'
    f'<w:abstractNum w:abstractNumId="2">{_level(0, "decimal", "%1")}'
    f"{_level(1, 'decimal', '%1.%2')}</w:abstractNum>"
    '<w:abstractNum w:abstractNumId="3"><w:numStyleLink w:val="Kept"/></w:abstractNum>'
    f'<w:abstractNum w:abstractNumId="4"><w:styleLink w:val="Kept"/>{_level(0, "decimal", "§ %1")}</w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
    '<w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num><w:num w:numId="5"><w:abstractNumId w:val="3"/></w:num>'
    '<w:num w:numId="4"><w:abstractNumId w:val="0"/>'
    '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride></w:num>'
)


def _item(text: str, number: int, level: int = 0, style: str = "") -> str:
    place = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return paragraph(text, style, place)


def _text(body: str, **parts: Any) -> str:
    return extracted("docx", docx(body, **parts)).text


def _runs(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def _run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def test_headings_go_by_outline_levels_that_styles_inherit_and_by_localised_names() -> None:
    body = (
        paragraph("One", "berschrift1")
        + paragraph("Own", "Own")
        + paragraph("Two", "Lo2")
        + paragraph("Body", "Body")
        + paragraph("Direct", "", '<w:outlineLvl w:val="2"/>')
        + paragraph("Undeclared", "Heading4")
    )
    assert _text(body, styles=STYLES) == "# One\n\n# Own\n\n## Two\n\nBody\n\n### Direct\n\n#### Undeclared"


def test_the_title_is_the_one_that_is_seen_then_that_of_the_properties_then_the_first_heading() -> None:
    heading = paragraph("A heading", "berschrift1")
    properties = core(dc_title="Of the file", dc_creator="A. N. Author", dcterms_created="2024-02-03T04:05:06Z")
    seen = extracted("docx", docx(paragraph("Seen", "T") + heading, styles=STYLES, properties=properties))
    assert (seen.title, seen.text) == ("Seen", "# Seen\n\n# A heading")
    assert seen.metadata == {"author": "A. N. Author", "created": "2024-02-03T04:05:06Z", "language": "de-CH"}
    assert extracted("docx", docx(heading, styles=STYLES, properties=properties)).title == "Of the file"
    template = core(dc_title="Microsoft Word - Document1", dcterms_created="yesterday")
    unnamed = extracted("docx", docx(heading, styles=STYLES, properties=template))
    assert (unnamed.title, unnamed.metadata) == ("A heading", {"language": "de-CH"})
    subtitle = extracted("docx", docx(paragraph("x", "S"), styles=STYLES))
    assert (subtitle.title, subtitle.text) == ("", "x")


def test_lists_have_the_numbers_that_word_shows() -> None:
    first = [_item("a", 1), _item("b", 1, 1), _item("c", 1, 1), _item("d", 1, 2), _item("e", 1), _item("f", 1, 1)]
    then = [paragraph("between"), _item("g", 1), _item("h", 4), _item("i", 4), _item("k", 2), _item("l", 2, 1)]
    body = "".join(first + then)
    assert _text(body, numbering=NUMBERING) == (
        "1. a\n   - a) b\n   - b) c\n     - I. d\n2. e\n   - a) f\n\nbetween\n\n3. g\n7. h\n8. i\n- k\n  - l"
    )


def test_sections_are_numbered_as_in_contracts() -> None:
    body = (
        _item("Scope", 3, 0, "berschrift1")
        + _item("The goods", 3, 1)
        + _item("The place", 3, 1)
        + _item("Price", 3, 0, "berschrift1")
        + _item("In euro", 3, 1)
        + _item("Law", 5)
    )
    assert _text(body, numbering=NUMBERING, styles=STYLES) == (
        "# 1 Scope\n\n1.1 The goods\n\n1.2 The place\n\n# 2 Price\n\n2.1 In euro\n\n§ 1 Law"
    )


def test_a_style_can_be_that_of_a_list_and_a_paragraph_can_leave_it() -> None:
    body = paragraph("in", "L") + paragraph("out", "L", '<w:numPr><w:numId w:val="0"/></w:numPr>')
    assert _text(body, numbering=NUMBERING, styles=STYLES) == "- in\n\nout"


def _cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def test_tables_are_tables_with_merged_cells_repeated_downwards() -> None:
    rows = (
        _cell("Region") + _cell("Sales", '<w:gridSpan w:val="2"/>'),
        _cell("North", '<w:vMerge w:val="restart"/>') + _cell("1") + _cell("2|3"),
        _cell("", "<w:vMerge/>") + _cell("4") + f"<w:tc>{paragraph('5')}{paragraph('6')}</w:tc>",
    )
    body = "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"
    assert _text(body) == "| Region | Sales |  |\n| --- | --- | --- |\n| North | 1 | 2\\|3 |\n| North | 4 | 5 6 |"


def test_a_table_within_a_cell_is_written_in_its_line_and_a_frame_is_no_table() -> None:
    inner = f"<w:tbl><w:tr>{_cell('a')}{_cell('b')}</w:tr><w:tr>{_cell('c')}{_cell('d')}</w:tr></w:tbl>"
    body = f"<w:tbl><w:tr>{_cell('x')}<w:tc>{inner}{paragraph('y')}</w:tc></w:tr></w:tbl>"
    assert _text(body) == "| x | a, b; c, d; y |\n| --- | --- |"
    framed = f"<w:tbl><w:tr><w:tc>{paragraph('Head', 'Heading1')}{paragraph('text')}</w:tc></w:tr></w:tbl>"
    assert _text(framed) == "# Head\n\ntext"


def test_changes_that_are_tracked_are_taken_as_accepted() -> None:
    body = (
        _runs(
            _run("kept "),
            f'<w:ins w:id="1">{_run("new")}</w:ins>',
            '<w:del w:id="2"><w:r><w:delText>old</w:delText><w:t>old</w:t></w:r></w:del>',
            f"<w:moveFrom>{_run('from')}</w:moveFrom><w:moveTo>{_run(' to')}</w:moveTo>",
        )
        + f"<w:p><w:pPr><w:rPr><w:del w:id='3'/></w:rPr></w:pPr>{_run('joined ')}</w:p>"
        + _runs(_run("line"))
        + f"<w:tbl><w:tr><w:trPr><w:del w:id='4'/></w:trPr>{_cell('gone')}{_cell('x')}</w:tr>"
        + f"<w:tr>{_cell('a')}{_cell('b')}</w:tr></w:tbl>"
    )
    assert _text(body) == "kept new to\n\njoined line\n\n| a | b |\n| --- | --- |"


def test_hidden_text_is_left_out_whether_the_run_or_its_style_hides_it() -> None:
    runs = (
        _run("a"),
        _run("b", "<w:vanish/>"),
        _run("c", '<w:vanish w:val="0"/>'),
        _run("d", '<w:rStyle w:val="Gone"/>'),
    )
    assert _text(_runs(*runs), styles=STYLES) == "ac"


def _field(code: str, result: str) -> str:
    char = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    return (
        f"{char.format('begin')}<w:r><w:instrText>{code}</w:instrText></w:r>"
        f"{char.format('separate')}{_run(result)}{char.format('end')}"
    )


def test_fields_show_their_results_and_links_their_targets() -> None:
    body = _runs(
        _run("Page "),
        _field(" PAGE ", "7"),
        _run(", "),
        _field(' HYPERLINK "https://example.org/x" ', "there"),
        f'<w:hyperlink r:id="l1">{_run(" and here")}</w:hyperlink>',
        f'<w:hyperlink w:anchor="x">{_run(" within")}</w:hyperlink>',
        f'<w:fldSimple w:instr=" DATE ">{_run(" today")}</w:fldSimple>',
        f'<w:hyperlink r:id="l2">{_run(" no")}</w:hyperlink>',
    )
    links = {"l1": "https://example.org/a?b", "l2": "file:///etc/passwd"}
    assert _text(body, links=links) == (
        "Page 7, [there](https://example.org/x) [and here](https://example.org/a?b) within today no"
    )


def test_a_field_that_does_not_end_hides_no_more_than_its_paragraph() -> None:
    begun = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    assert _text(_runs(begun, _run("code")) + paragraph("text")) == "text"


def test_notes_stand_behind_what_refers_to_them_and_endnotes_at_the_end() -> None:
    footnotes = (
        '<w:footnote w:id="-1" w:type="separator"><w:p/></w:footnote>'
        f'<w:footnote w:id="2">{paragraph("A *note*.")}</w:footnote>'
        f'<w:footnote w:id="3">{paragraph("Other.")}</w:footnote>'
    )
    endnotes = f'<w:endnote w:id="1">{paragraph("The end.")}</w:endnote>'
    refer = '<w:r><w:{}Reference w:id="{}"/></w:r>'
    body = (
        _runs(
            _run("Text"),
            refer.format("endnote", 1),
            _run(" more"),
            refer.format("footnote", 3),
            refer.format("footnote", 9),
        )
        + _runs(_run("Again"), refer.format("footnote", 2), refer.format("footnote", 3))
        + paragraph("Last")
    )
    assert _text(body, notes={"footnotes": footnotes, "endnotes": endnotes}) == (
        "Text[^e1] more[^1]\n\n[^1] Other.\n\nAgain[^2][^1]\n\n[^2] A \\*note\\*.\n\nLast\n\n[^e1] The end."
    )


def test_text_boxes_and_alternative_texts_of_pictures_are_read_once() -> None:
    box = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    drawing = (
        "<w:r><mc:AlternateContent><mc:Choice><w:drawing><wp:inline><wp:docPr descr='A chart of sales'/>"
        f"<wps:txbx>{box}</wps:txbx></wp:inline></w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )
    unnamed = "<w:r><w:drawing><wp:inline><wp:docPr descr='image7.png'/></wp:inline></w:drawing></w:r>"
    assert _text(_runs(_run("before "), drawing, unnamed)) == "before ![A chart of sales]()\n\nin the box"


def test_tables_of_contents_headers_comments_and_placeholders_are_left_out() -> None:
    contents = (
        '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent>{paragraph('Contents')}</w:sdtContent></w:sdt>"
    )
    placeholder = (
        f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{_run('Click here')}</w:sdtContent></w:sdt>"
    )
    filled = f"<w:sdt><w:sdtContent>{_run('filled')}</w:sdtContent></w:sdt>"
    body = (
        contents
        + paragraph("One ... 1", "TOC1")
        + _runs(placeholder, filled, '<w:r><w:commentReference w:id="0"/></w:r>')
    )
    assert _text(body, styles=STYLES, more={"word/header1.xml": "<x>", "word/comments.xml": LAUGHS}) == "filled"


def test_code_is_fenced_line_by_line_and_formulas_are_a_line() -> None:
    code = paragraph("def f(x):", "Code") + paragraph("    return *x", "Code")
    formula = (
        "<w:p><m:oMath><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
        "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></w:p>"
    )
    assert _text(code + formula, styles=STYLES) == "```\ndef f(x):\n    return *x\n```\n\n(a+b)/2x^2"


def test_charts_and_diagrams_follow_their_paragraph_also_within_cells() -> None:
    def drawing(inner: str) -> str:
        return f"<w:r><w:drawing><wp:inline><a:graphicData>{inner}</a:graphicData></wp:inline></w:drawing></w:r>"

    point = "<dgm:pt><dgm:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p></dgm:t></dgm:pt>"
    more = {
        "word/charts/chart1.xml": chart(series("2024", ["North", "South"], ["0.5", "7"], "0%"), "Sales"),
        "word/diagrams/data1.xml": f"<dgm:dataModel {A} {MORE}><dgm:ptLst>{point}</dgm:ptLst></dgm:dataModel>",
    }
    related = {
        "c": ("chart", "charts/chart1.xml"),
        "d": ("diagramData", "diagrams/data1.xml"),
        "x": ("chart", "gone.xml"),
    }
    plotted = drawing('<c:chart r:id="c"/>')
    drawings = plotted + drawing('<dgm:relIds r:dm="d"/>') + drawing('<c:chart r:id="x"/>')
    cells = f"<w:tbl><w:tr>{_cell('a')}<w:tc>{_runs(plotted)}</w:tc></w:tr></w:tbl>"
    found = extracted("docx", docx(_runs(_run("before"), drawings) + cells, related=related, more=more))
    assert found.text == (
        "before\n\nSales\n\n|  | 2024 |\n| --- | --- |\n| North | 50% |\n| South | 700% |\n\n- Plan\n\n"
        "| a | Sales; 2024; North, 50%; South, 700% |\n| --- | --- |"
    )
    assert found.metadata["unread"] == {"charts": 1}


def test_web_pages_and_texts_in_a_document_are_read_where_they_stand_and_other_chunks_are_counted() -> None:
    types = {"htm": "text/html", "txt": "text/plain", "rtf": "application/rtf"}
    declared = "".join(f'<Default Extension="{name}" ContentType="{kind}"/>' for name, kind in types.items())
    more: dict[str, str | bytes] = {
        "[Content_Types].xml": f"<Types>{declared}</Types>",
        "word/a.htm": "<html><head><title>no</title></head><body><h2>Findings</h2><ul><li>one</li></ul></body></html>",
        "word/b.txt": "First *line*\nsecond\n\nnext",
        "word/c.rtf": "{\\rtf no}",
        "word/d.htm": b"\xff\xfe\xff",
        "word/e.htm": b'<meta charset="windows-1252"><p>M\xfcllbridge</p>',
    }
    related = {name[5]: ("aFChunk", f"/{name}") for name in more if name.startswith("word/")}
    chunks = "".join(f'<w:altChunk r:id="{name}"/>' for name in "abcdez")
    cells = f"<w:tbl><w:tr>{_cell('x')}<w:tc><w:altChunk r:id='b'/></w:tc></w:tr></w:tbl>"
    found = extracted("docx", docx(paragraph("before") + chunks + cells, related=related, more=more))
    assert found.text == (
        "before\n\n## Findings\n\n- one\n\nFirst \\*line\\*\nsecond\n\nnext\n\nMüllbridge\n\n"
        "| x | First \\*line\\* second next |\n| --- | --- |"
    )
    assert found.metadata["unread"] == {"chunks": 3}
    only = docx('<w:altChunk r:id="c"/>', related=related, more=more)
    assert "not read: chunks (1)" in str(refused("docx", only))


def test_a_document_within_a_document_is_read_and_one_within_that_is_counted() -> None:
    types = '<Types><Default Extension="docx" ContentType="application/x.wordprocessingml.document.main+xml"/></Types>'
    chunk, related = '<w:altChunk r:id="a"/>', {"a": ("aFChunk", "a.docx")}

    def around(inner: bytes, body: str) -> bytes:
        more: dict[str, str | bytes] = {"[Content_Types].xml": types, "word/a.docx": inner}
        return docx(body, related=related, more=more, styles=STYLES)

    inner = around(docx(paragraph("innermost")), paragraph("Part", "berschrift1") + _item("one", 1) + chunk)
    found = extracted("docx", around(inner, paragraph("before") + chunk + paragraph("after")))
    assert (found.title, found.text) == ("Part", "before\n\n# Part\n\none\n\nafter")
    assert found.metadata["unread"] == {"chunks": 1}
    large = around(docx(paragraph("a" * 60_000)), chunk * 3)
    assert extracted("docx", large, ExtractionLimits(expanded_bytes=200_000)).text.count("a") == 180_000
    assert refused("docx", large, ExtractionLimits(expanded_bytes=100_000)).reason == "too-large"
    assert "chunks (1)" in str(refused("docx", around(b"PK no archive", chunk)))


def test_a_hostile_chunk_makes_the_document_hostile() -> None:
    more = {
        "[Content_Types].xml": '<Types><Override PartName="/word/a" ContentType="text/html"/></Types>',
        "word/a": "<p>x</p>" * 3_000,
    }
    data = docx('<w:altChunk r:id="a"/>', related={"a": ("aFChunk", "a")}, more=more)
    assert refused("docx", data, ExtractionLimits(text_bytes=1_000)).reason == "too-large"


def test_notes_have_formulas_symbols_boxes_and_what_is_within_other_elements() -> None:
    inner = (
        _run("By ")
        + "<m:oMath><m:r><m:t>U=RI</m:t></m:r></m:oMath>"
        + '<w:r><w:lastRenderedPageBreak/><w:sym w:font="Symbol" w:char="F068"/></w:r>'
        + f"<w:customXml>{_run(' custom')}</w:customXml>"
        + f"<mc:AlternateContent><mc:Choice>{_run(' chosen')}</mc:Choice><mc:Fallback>{_run('no')}</mc:Fallback>"
        + "</mc:AlternateContent>"
        + '<w:r><w:footnoteReference w:id="2"/></w:r>'
    )
    notes = {"footnotes": f'<w:footnote w:id="2">{_runs(inner)}{paragraph("Next")}</w:footnote>'}
    found = extracted("docx", docx(_runs(_run("Text"), '<w:r><w:footnoteReference w:id="2"/></w:r>'), notes=notes))
    assert found.text == "Text[^1]\n\n[^1] By U=RIη custom chosen Next"
    assert "pages" not in found.metadata


def test_forms_show_the_chosen_entry_and_their_check_boxes() -> None:
    def form(inner: str) -> str:
        begin = f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{inner}</w:ffData></w:fldChar></w:r>'
        return begin + '<w:r><w:fldChar w:fldCharType="end"/></w:r>'

    entries = '<w:listEntry w:val="red"/><w:listEntry w:val="blue"/>'
    body = _runs(
        _run("Colour: "),
        form(f'<w:ddList><w:result w:val="1"/>{entries}</w:ddList>'),
        form(f"<w:ddList>{entries}</w:ddList>"),
        form('<w:ddList><w:result w:val="9"/></w:ddList>'),
        form('<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>'),
        form('<w:checkBox><w:default w:val="0"/></w:checkBox>'),
        form("<w:textInput/>"),
    )
    assert _text(body) == "Colour: bluered☒☐"


def test_pictures_without_a_text_and_objects_are_counted() -> None:
    def picture(text: str) -> str:
        inner = f"<pic:pic><pic:nvPicPr><pic:cNvPr descr='{text}'/></pic:nvPicPr></pic:pic>"
        return f"<w:r><w:drawing><wp:docPr descr='{text}'/><a:graphicData>{inner}</a:graphicData></w:drawing></w:r>"

    shapes = "<w:r><w:pict><v:shape alt='A map'><v:imagedata/></v:shape></w:pict></w:r><w:r><w:object/></w:r>"
    shapes += "<w:r><w:pict><v:shape><v:textpath string=' Art'/></v:shape></w:pict></w:r>"
    found = extracted("docx", docx(_runs(picture("A tree"), picture("image3.png"), shapes)))
    assert found.text == "![A tree]()![A map]() Art"
    assert found.metadata["unread"] == {"objects": 1, "pictures": 1}


def test_texts_in_symbol_fonts_are_what_the_fonts_show() -> None:
    fonts = '<w:rFonts w:ascii="{0}" w:hAnsi="{0}"/>'
    body = _runs(
        _run("a\uf062", fonts.format("Symbol")),
        _run(" J\uf0e0", fonts.format("Wingdings")),
        _run(" a", fonts.format("Arial")),
    )
    assert _text(body) == "αβ ☺→ a"


def test_special_characters_are_what_they_look_like() -> None:
    body = (
        "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t><w:softHyphen/><w:br/><w:t># d</w:t>"
        '<w:sym w:font="Wingdings" w:char="F0FC"/><w:sym w:char="20AC"/><w:sym w:char="D800"/>'
        '<w:sym w:font="Wingdings 3" w:char="F0FC"/></w:r></w:p>'
    )
    assert _text(body) == "a b-c\n\\# d✓€"


RENDERED = "<w:r><w:lastRenderedPageBreak/></w:r>"
BREAK = '<w:r><w:br w:type="page"/></w:r>'


def test_pages_are_those_that_word_has_rendered() -> None:
    body = (
        paragraph("one")
        + _runs(_run("still one, "), RENDERED, _run("two"))
        + _runs(BREAK)
        + _runs(RENDERED, _run("three"))
    )
    found = extracted("docx", docx(body, pages=9))
    assert found.text == "one\n\nstill one, two\n\nthree"
    assert found.locations == (Location(0, 1), Location(16, 2), Location(21, 3))
    assert found.metadata["pages"] == 3


def test_pages_are_counted_by_breaks_where_nothing_has_been_rendered() -> None:
    section = "<w:pPr><w:sectPr><w:type w:val='nextPage'/></w:sectPr></w:pPr>"
    flowing = "<w:sectPr><w:type w:val='continuous'/></w:sectPr>"
    body = (
        f"<w:p>{section}{_run('one')}</w:p>"
        f"<w:p><w:pPr>{flowing}</w:pPr>{_run('still one')}</w:p>"
        + paragraph("two", "", "<w:pageBreakBefore/>")
        + _runs(BREAK, _run("three"))
        + "<w:sectPr><w:type w:val='continuous'/></w:sectPr>"
    )
    found = extracted("docx", docx(body))
    assert [(one.page, found.text[one.start :].split("\n")[0]) for one in found.locations] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert extracted("docx", docx(body, pages=2)).locations == found.locations


def test_no_pages_are_guessed_where_the_file_has_more_than_its_breaks_tell() -> None:
    found = extracted("docx", docx(paragraph("one") + _runs(BREAK, _run("two")), pages=40))
    assert (found.locations, found.metadata["pages"]) == ((), 40)
    assert extracted("docx", docx(paragraph("one"))).locations == ()


def test_what_python_docx_writes_is_read() -> None:
    made = made_by.Document()
    made.core_properties.author = "Ann"
    made.add_heading("The report", 0)
    made.add_heading("Sales", 1)
    made.add_paragraph("First point", style="List Bullet")
    made.add_paragraph("Second point", style="List Number")
    table = made.add_table(2, 2)
    for row in range(2):
        for column in range(2):
            table.cell(row, column).text = f"{row}{column}"
    made.add_paragraph("End").add_run().add_break(WD_BREAK.PAGE)
    made.add_paragraph("After")
    held = io.BytesIO()
    made.save(held)
    found = extracted("docx", held.getvalue())
    assert found.text == (
        "# The report\n\n# Sales\n\n- First point\n1. Second point\n\n"
        "| 00 | 01 |\n| --- | --- |\n| 10 | 11 |\n\nEnd\n\nAfter"
    )
    assert (found.title, found.metadata["author"]) == ("The report", "Ann")


def test_the_same_bytes_give_the_same_text_and_are_not_changed() -> None:
    data = docx(paragraph("a", "berschrift1") + _item("b", 1), styles=STYLES, numbering=NUMBERING)
    assert extracted("docx", data) == extracted("docx", bytes(data))


# What is refused.


def test_a_document_without_words_has_no_text() -> None:
    assert refused("docx", docx("<w:p/>")).reason == "no-text"


def test_another_kind_of_file_is_told() -> None:
    assert "expected <w:document>" in str(refused("docx", xlsx({"a": ""})))
    assert refused("docx", archive({"a.txt": "x"})).reason == "unreadable-file"


@pytest.mark.parametrize("part", ["word/document.xml", "word/styles.xml", "_rels/.rels", "docProps/core.xml"])
def test_entities_are_hostile_in_any_part_that_is_read(part: str) -> None:
    data = docx(paragraph("a"), styles=STYLES, properties=core(dc_title="x"))
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        entries = {name: opened.read(name) for name in opened.namelist()}
    entries[part] = LAUGHS.encode() + entries[part]
    assert refused("docx", archive(entries)).reason == "hostile-file"


def test_deep_nesting_is_hostile() -> None:
    deep = "<w:tbl><w:tr><w:tc>" * 40_000 + "</w:tc></w:tr></w:tbl>" * 40_000
    assert refused("docx", docx(deep)).reason == "hostile-file"
    nested = "<w:tbl><w:tr><w:tc>" * 60 + paragraph("in") + "</w:tc></w:tr></w:tbl>" * 60
    assert _text(nested) == "in"
    crossed = "<w:tbl><w:tr><w:tc/><w:tc>" * 60 + paragraph("in") + "</w:tc></w:tr></w:tbl>" * 60
    assert "in" in _text(crossed)


@pytest.mark.slow
def test_circles_of_styles_lists_and_relationships_end() -> None:
    numbering = (
        '<w:abstractNum w:abstractNumId="0"><w:numStyleLink w:val="X"/><w:styleLink w:val="X"/></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    )
    assert _text(paragraph("a", "A") + _item("b", 1), styles=STYLES, numbering=numbering) == "a\n\nb"
    chain = "".join(
        f'<w:style w:styleId="s{n}"><w:name w:val="n{n}"/><w:basedOn w:val="s{n + 1}"/></w:style>' for n in range(5_000)
    )
    assert _text("".join(paragraph("a", f"s{n}") for n in range(3_000)), styles=chain).count("a") == 3_000


def test_millions_of_styles_are_hostile() -> None:
    styles = "".join(f'<w:style w:styleId="s{n}"/>' for n in range(50_002))
    assert refused("docx", docx(paragraph("a"), styles=styles)).reason == "hostile-file"


def test_numbers_out_of_all_bounds_do_no_harm() -> None:
    numbering = (
        f'<w:abstractNum w:abstractNumId="0">{_level(0, "upperRoman", "%1.")}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    ).replace('w:start w:val="1"', 'w:start w:val="999999999999"')
    body = _item("a", 1, 0) + _item("b", 1, 99999) + paragraph("c", "", '<w:outlineLvl w:val="-5"/>')
    assert "a" in _text(body, numbering=numbering)
    span = '<w:gridSpan w:val="999999999"/>'
    rows = f"<w:tr>{_cell('x', span)}{_cell('y', span)}</w:tr>" * 2_000
    start = time.perf_counter()
    assert _text(f"<w:tbl>{rows}</w:tbl>").startswith("| x | y |")
    assert time.perf_counter() - start < 20


@pytest.mark.slow
def test_time_does_not_grow_with_the_square_of_a_paragraph_or_a_table() -> None:
    start = time.process_time()
    assert _text(_runs(*["<w:r><w:rPr/><w:t>abcdefghij</w:t></w:r>"] * 60_000)).count("j") == 60_000
    changed = "<w:t>a</w:t>" + "<w:rPrChange>gone</w:rPrChange>x" * 60_000
    assert _text(f"<w:p><w:r>{changed}</w:r></w:p>") == "a"
    assert time.process_time() - start < 20
    span = '<w:gridSpan w:val="64"/>'
    wide = f"<w:tbl><w:tr>{_cell('x', span)}{_cell('y', span)}</w:tr></w:tbl>" * 2
    assert refused("docx", docx(wide), ExtractionLimits(text_bytes=300)).reason == "too-large"


def test_limits_of_text_and_pages_are_kept() -> None:
    long = docx(paragraph("word " * 1_000))
    assert refused("docx", long, ExtractionLimits(text_bytes=1_000)).reason == "too-large"
    table = docx(f"<w:tbl><w:tr>{_cell('a' * 900)}{_cell('b' * 900)}</w:tr></w:tbl>")
    assert refused("docx", table, ExtractionLimits(text_bytes=1_000)).reason == "too-large"
    breaks = docx(_runs(*[BREAK] * 10, _run("x")))
    assert refused("docx", breaks, ExtractionLimits(pages=5)).reason == "too-large"
    assert (
        refused("docx", docx(paragraph("a" * 500_000)), ExtractionLimits(expanded_bytes=100_000)).reason == "too-large"
    )


def test_macros_embedded_files_and_outside_relationships_are_never_opened() -> None:
    related = relationships(
        {
            "v": ("vbaProject", "vbaProject.bin"),
            "t": ("attachedTemplate", "http://127.0.0.1:9/evil.dotm"),
            "s": ("styles", "http://127.0.0.1:9/styles.xml"),
            "o": ("oleObject", "../../../../etc/passwd"),
        },
        ["t", "s"],
    )
    more = {
        "word/vbaProject.bin": b"\xd0\xcf\x11\xe0 macro",
        "word/embeddings/a.docx": archive({"../x": "y"}),
        "word/_rels/document.xml.rels": related,
    }
    assert _text(paragraph("safe"), more=more) == "safe"


def test_half_a_file_is_unreadable() -> None:
    data = docx(paragraph("a"), styles=STYLES)
    assert refused("docx", data[: len(data) // 2]).reason == "unreadable-file"
    cut = docx("", more={"word/document.xml": "<w:document><w:body>"})
    assert refused("docx", cut).reason == "unreadable-file"
