"""The words that files have and their documents lack, with the reasons."""

from __future__ import annotations

import io
import json
import zipfile

from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.file_counts import FileCounts, counts_of, table_of
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.ingest.formats.office_words import words_in_part
from tasks.stages.ingest.formats.word_count import count_words, words_of
from tests.deep import examples
from tests.tasks.stages.ingest.formats.office_files import (
    S,
    docx,
    extracted,
    paragraph,
    pptx,
    relationships,
    shape,
    xlsx,
)
from tests.tasks.stages.ingest.formats.pdf_files import Paper, prose, read_pdf

WORDS = st.lists(st.sampled_from(["Fenna", "Rook", "Vell", "\u6c34", "caf\u00e9"]), max_size=9).map(" ".join)


@examples(50, deep=500)
@given(WORDS, WORDS, st.integers(0, 5))
def test_no_word_is_lost_without_a_reason(in_file: str, text: str, hidden: int) -> None:
    counts = counts_of(WordCounts(words_of(in_file), {"hidden": hidden}), text)
    assert counts.words is not None
    assert counts.text_words is not None
    assert counts.words + counts.added == counts.text_words + sum(counts.left_out.values())
    missing = (words_of(in_file) - words_of(text)).total()
    assert counts.left_out.get("unexplained", 0) == max(0, missing - hidden)
    (row,) = table_of({"a": counts}).to_pylist()
    assert FileCounts.of_row(row) == counts


def test_words_are_counted_in_every_script() -> None:
    texts = {
        "Fenna_Rook's 2nd": 4,
        "\u6c34\u8def": 2,
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e": 2,
        "\u0628\u0650\u0633\u0652\u0645\u0650": 1,
        "cafe\u0301 soft\u00adhyphen": 2,
    }
    assert {text: count_words(text) for text in texts} == texts


def test_a_part_is_read_by_its_tags_whatever_they_enclose() -> None:
    part = (
        b"<w:p><w:r><w:t>Fen</w:t></w:r><w:t>na</w:t><w:tab/><w:t xml:space='preserve'/><w:t>Rook</w:t></w:p><w:p>"
        b"<w:t>left</w:t></w:p><w:moveFrom w:id='1'><w:t>moved</w:t></w:moveFrom><w:delText>gone</w:delText>"
        b"<mc:Fallback><w:t>again</w:t></mc:Fallback><w:moveFromRangeStart/><w:t>Vell &amp; co</w:t>"
    )
    words, deleted = words_in_part(part)
    assert (dict(words), deleted.total()) == (dict.fromkeys(("Fenna", "Rook", "left", "Vell", "co"), 1), 1)
    words, _ = words_in_part(b"<mc:Fallback><w:moveFrom >" * 50_000 + b"<w:t>a</w:t>")
    assert not words


def left_out(extracted: Extracted) -> dict[str, int]:
    return dict(counts_of(extracted.words, extracted.text).left_out)


def read(kind: str, data: str) -> Extracted:
    file_format = format_of(kind)
    assert file_format is not None
    return file_format.extractor()(io.BytesIO(data.encode()), ExtractionLimits())


def test_a_web_page_loses_its_menus_and_what_is_hidden() -> None:
    page = (
        "<html><head><title>Vell</title><script>var a</script></head><body><nav>Home page</nav><header>Site</header>"
        "<main><p>Fenna Rook left Vell.</p><button>Copy</button><p hidden>later</p><p style='display:none'>not now</p>"
        "</main><footer>Imprint</footer></body></html>"
    )
    assert left_out(read("html", page)) == {"hidden": 3, "navigation": 5}


def test_an_article_loses_what_is_around_it() -> None:
    text = "Fenna Rook left Vell for the bay of Orrin before the winter came, and never wrote again. " * 5
    head = "<html><head><meta property='og:type' content='article'></head><body>"
    page = f"{head}<article><h1>Vell</h1><p>{text}</p></article><div>More news</div></body></html>"
    assert left_out(read("html", page)) == {"beside-article": 2}


def test_a_word_document_loses_headers_remarks_deletions_and_contents() -> None:
    contents = (
        '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent>{paragraph('Part one')}</w:sdtContent></w:sdt>"
    )
    hidden = "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r></w:p>"
    deleted = "<w:p><w:del><w:r><w:delText>or</w:delText><w:t> not</w:t></w:r></w:del></w:p>"
    found = extracted("docx", docx(contents + hidden + paragraph("Fenna left") + deleted))
    assert left_out(found) == {"contents": 2, "deleted": 2, "hidden": 1}


def test_a_presentation_loses_hidden_slides_shapes_and_footers() -> None:
    footers = "".join(shape("no", held=f'<p:ph type="{kind}"/>') for kind in ("dt", "ftr", "sldNum"))
    slides = [shape("not shown"), shape("yes") + footers + shape("gone", about='hidden="1"')]
    read_slides = extracted("pptx", pptx(slides, attributes={1: 'show="0"'}, notes={2: "Say this."}))
    assert left_out(read_slides) == {"header-footer": 3, "hidden": 3}


def test_a_workbook_loses_hidden_sheets_shapes_and_remarks() -> None:
    own = '<c r="B1" t="inlineStr"><is><r><t>own</t> </r><r><t>words</t></r></is></c><c r="D1"><v>7</v></c>'
    formula = '<c r="C1" s="1"/><c r="E1" t="str"><f>A1</f><v>made here</v></c>'
    shared = '<c r="A1" t="s"><v>0</v></c>'
    rows = f'<row r="1">{shared}{own}{formula}</row><row r="2">{shared.replace("A1", "A2")}</row>'
    shapes = (
        f'<xdr:oneCellAnchor><xdr:sp><xdr:nvSpPr><xdr:cNvPr id="1" name="x" {about}/></xdr:nvSpPr>'
        f"<xdr:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:oneCellAnchor>"
        for about, text in (("", "box"), ('hidden="1"', "not shown"))
    )
    remark = f"<comments {S}><commentList><comment><text><t>a secret</t></text></comment></commentList></comments>"
    remarks = {"d": ("drawing", "../drawings/drawing1.xml"), "r": ("comments", "../comments1.xml")}
    data = xlsx(
        {"A": rows, "B": rows},
        strings=["<t>Fenna Rook</t>"],
        states={"B": "hidden"},
        drawings={1: "".join(shapes)},
        more={
            "xl/worksheets/_rels/sheet1.xml.rels": relationships(remarks),
            "xl/comments1.xml": remark,
        },
    )
    workbook = extracted("xlsx", data)
    counts = counts_of(workbook.words, workbook.text)
    assert counts.left_out == {"hidden": 7 + 2, "comment": 2}
    assert (counts.words, counts.text_words, counts.added) == (19, 10, 2)  # the name of the sheet, and 7


def test_a_damaged_hidden_sheet_costs_itself() -> None:
    rows = '<row r="1"><c r="A1" t="inlineStr"><is><t>Fenna Rook left Vell</t></is></c></row>'
    data = bytearray(xlsx({"A": rows, "B": rows.replace("Vell", "Orrin")}, states={"B": "hidden"}))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        entry = archive.getinfo("xl/worksheets/sheet2.xml")
    start = entry.header_offset + 30 + len(entry.filename)
    data[start : start + entry.compress_size] = b"\xff" * entry.compress_size
    workbook = extracted("xlsx", bytes(data))
    assert (left_out(workbook), "Fenna Rook left Vell" in workbook.text) == ({}, True)


def test_an_e_mail_loses_the_hidden_text_of_its_page() -> None:
    page = "<p>Fenna Rook left Vell in spring and sailed on.</p><p hidden>secret</p>"
    head = "From: ada@vell.example\nSubject: News\nContent-Type: multipart/alternative; boundary=x\n\n"
    plain, rich = (
        f"--x\nContent-Type: text/{kind}\n\n{text}\n" for kind, text in (("plain", "See below"), ("html", page))
    )
    message = read("email", f"{head}{plain}{rich}--x--\n")
    counts = counts_of(message.words, message.text)
    assert (counts.words, counts.text_words, counts.added, counts.left_out) == (14, 13, 0, {"hidden": 1})


def test_a_notebook_loses_its_front_matter_and_warnings() -> None:
    warning = {"output_type": "stream", "name": "stderr", "text": "be careful"}
    cells = [
        {"cell_type": "markdown", "source": "---\ntitle: Vell\n---\n\nFenna left."},
        {"cell_type": "code", "source": "f()", "outputs": [warning]},
    ]
    found = read("notebook", json.dumps({"nbformat": 4, "cells": cells, "metadata": {}}))
    assert left_out(found) == {"front-matter": 2, "output": 2}


def test_restructured_text_loses_nothing_but_comments() -> None:
    text = "Vell\n====\n\n.. a comment\n\nFenna :ref:`left <x>` **Vell**.\n\n.. note:: Never again.\n\n* one\n* two\n"
    found = read("restructured-text", text)
    assert (left_out(found), counts_of(found.words, found.text).words) == ({}, 8)


def test_a_page_of_a_pdf_loses_running_heads_and_is_listed_if_it_loses_much() -> None:
    paper = Paper()
    for number in range(1, 7):
        paper.put(60, 40, "Annual report of the water works")
        paper.lines(60, 100, prose(30, number, 470) if number > 1 else ["Begin."])
        paper.page()
    found = read_pdf(paper.data())
    assert left_out(found) == {"running-head": 36}
    assert found.words.pages == ((1, 7, 1),)
