"""The letters of a PDF: those that no font names, those that nobody sees, and those that were typed onto the page."""

from __future__ import annotations

import pytest

from tasks.stages.ingest.file_counts import counts_of
from tasks.stages.ingest.formats.word_count import count_words
from tests.tasks.stages.ingest.formats.pdf_files import (
    CATALOG,
    FONT,
    SHOW,
    Paper,
    objects,
    one_page,
    prose,
    read_pdf,
    refused,
    stream,
)

JOINED = (
    b"<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+Joined /Encoding << /Type /Encoding "
    b"/Differences [8 /f_f_i 9 /uni00660066.alt /T_h.liga 16 /g16 /uni21B5] >> >>"
)
NAMELESS = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+Nameless /Encoding /Identity-H /DescendantFonts [<< /Type /Font "
    b"/Subtype /CIDFontType2 /BaseFont /ABCDEF+Nameless /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) "
    b"/Supplement 0 >> /FontDescriptor << /Type /FontDescriptor /FontName /ABCDEF+Nameless /Flags 4 >> >>] >>"
)
SCRAMBLED = NAMELESS.replace(b"/Encoding", b"/ToUnicode 6 0 R /Encoding")


def shown(*lines: bytes) -> bytes:
    return stream(b"BT /F1 9 Tf 11 TL 20 700 Td %b ET" % b" ".join(b"%b Tj T*" % line for line in lines))


def glyphs(text: str) -> bytes:
    """The text as numbers of glyphs, as most fonts count them: a space is 3, an A is 36."""
    return b"<%b>" % b"".join(b"%04x" % (ord(letter) - 29) for letter in text)


def test_letters_are_read_by_the_names_of_their_glyphs_or_counted() -> None:
    found = read_pdf(one_page(shown(b"(di\010culties e\010cient o\021-the-shelf \012e q\020r)"), font=JOINED))
    assert found.text == "difficulties efficient off-the-shelf The q r\n"
    assert found.metadata["letters_unmapped"] == 1


def test_ligatures_of_tex_are_read_within_words_only() -> None:
    plain = FONT.replace(b" >>", b" /Encoding << /Differences [11 /g11 /g12 /g13] >> >>")
    found = read_pdf(one_page(shown(b"(e\013ect de\014ne \013 + \014 = 1)"), font=plain))
    assert found.text == "effect define + = 1\n"
    assert found.metadata["letters_unmapped"] == 2


def test_numbers_of_glyphs_are_no_text() -> None:
    error = refused(one_page(shown(glyphs("Lorem ipsum dolor sit")), font=NAMELESS))
    assert error.reason == "unreadable-text"
    assert "set corpus.extract.ocr" in str(error)


def test_a_wrong_map_of_letters_is_refused_and_a_right_one_read() -> None:
    lines = [glyphs(line.lower()) for line in prose(12)]

    def mapped(shift: int) -> bytes:
        codes = b"".join(b"<%04x> <%04x> " % (code - 29, code + shift) for code in range(97, 123))
        cmap = (
            b"1 begincodespacerange <0000> <ffff> endcodespacerange 27 beginbfchar <0003> <0020> %b endbfchar" % codes
        )
        return one_page(shown(*lines), font=SCRAMBLED, more=[stream(cmap)])

    assert "the pump moves water" in read_pdf(mapped(0)).text
    assert refused(mapped(1)).reason == "unreadable-text"


def test_a_page_whose_letters_are_a_cipher_is_left_out_and_counted() -> None:
    paper = Paper()
    next_letters = str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza")
    readable, cipher = prose(12), [line.lower().translate(next_letters) for line in prose(12)]
    for lines in (readable, cipher, readable):
        paper.lines(60, 100, lines)
        paper.page()
    document = read_pdf(paper.data())
    assert " ".join(cipher)[:20] not in document.text.replace("\n", " ")
    assert [location.page for location in document.locations] == [1, 3]
    counts = counts_of(document.words, document.text)
    assert counts.left_out == {"unreadable-letters": count_words(" ".join(cipher))}


def test_what_nobody_sees_is_left_out_and_counted() -> None:
    paper = Paper()
    paper.put(60, 100, "Seen words")
    paper.put(60, 300, "Tiny words", 1)
    paper.put(-300, 300, "Words beyond the edge")
    paper.put(560, 140, "A line over the edge")
    paper.canvas.setFillGray(1)
    paper.put(60, 200, "White words")
    paper.canvas.setFillGray(0.2)
    paper.canvas.rect(50, paper.height - 410, 200, 30, stroke=0, fill=1)
    paper.canvas.setFillGray(1)
    paper.put(60, 400, "Light on dark")
    hidden = paper.canvas.beginText(60, 300)
    hidden.setTextRenderMode(3)
    hidden.textLine("Invisible words")
    paper.canvas.drawText(hidden)
    found = read_pdf(paper.data())
    assert found.text == "Seen words\n\nA line over the edge\n\nLight on dark\n"
    assert found.metadata["words_hidden"] == 10


def test_the_invisible_text_of_a_drawing_is_read_where_there_is_no_other() -> None:
    paper = Paper()
    paper.canvas.rect(50, 50, 20, 20)
    hidden = paper.canvas.beginText(60, 300)
    hidden.setTextRenderMode(3)
    hidden.textLine("Words of an outline")
    paper.canvas.drawText(hidden)
    assert read_pdf(paper.data()).text == "Words of an outline\n"


def test_values_of_fields_and_notes_with_text_stand_beside_their_labels() -> None:
    notes = (
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (a) /V (Ragnhild) /Rect [160 696 300 712] /F 4 >>",
        b"<< /Type /Annot /Subtype /Widget /Parent 8 0 R /Rect [72 600 300 616] /F 4 >>",
        b"<< /FT /Tx /T (b) /V (Value of a parent) /Kids [7 0 R] >>",
        b"<< /Type /Annot /Subtype /FreeText /Contents (Note on the page) /Rect [72 500 300 516] /F 4 >>",
        b"<< /Type /Annot /Subtype /Text /Contents (Behind an icon) /Rect [72 400 92 420] /F 4 >>",
        b"<< /Type /Annot /Subtype /FreeText /Contents (Hidden note) /Rect [72 300 300 316] /F 2 >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /Ff 8192 /T (c) /V (Password) /Rect [72 200 300 216] /F 4 >>",
    )
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> "
        b"/Annots [6 0 R 7 0 R 9 0 R 10 0 R 11 0 R 12 0 R] >>"
    )
    catalog = CATALOG.replace(b" >>", b" /AcroForm << /Fields [6 0 R 8 0 R 12 0 R] /DA (/F1 0 Tf) >> >>")
    data = objects(catalog, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page, stream(SHOW), FONT, *notes)
    assert read_pdf(data).text == "Plain words Ragnhild\n\nValue of a parent\n\nNote on the page\n"


def test_an_initial_over_several_lines_belongs_to_its_word() -> None:
    paper = Paper()
    paper.put(60, 124, "O", 36)
    paper.put(90, 101, "nce upon a time the light stood dark,")
    paper.put(90, 113, "and no ship came near it for many years,")
    paper.lines(60, 125, ["which is why the keeper had gone away to sea", "for good."])
    text = read_pdf(paper.data()).text
    assert text.startswith("Once upon a time the light stood dark, and no ship came near it for many years, which is")


@pytest.mark.parametrize(
    "stated", ["(anonymous)", "Dokument7", "Untitled-1", "Präsentation 2", "Microsoft Word - a.doc"]
)
def test_a_title_that_a_program_wrote_is_none(stated: str) -> None:
    paper = Paper()
    paper.canvas.setTitle(stated)
    paper.canvas.setAuthor("anonymous")
    paper.put(60, 60, "The Water Works", 20)
    paper.lines(60, 130, prose(5))
    found = read_pdf(paper.data())
    assert (found.title, found.metadata) == ("The Water Works", {"pages": 1, "created": "2000-01-01"})


def test_korean_lines_are_joined_with_a_space_and_chinese_ones_without() -> None:
    from tasks.stages.ingest.formats.page_layout import joined

    assert joined(["보안 기술", "도출"], ()) == "보안 기술 도출"
    assert joined(["爆破方", "案优化"], ()) == "爆破方案优化"
