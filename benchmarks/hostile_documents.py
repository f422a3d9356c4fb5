"""Hostile files of document formats, one for each kind of attack, and two honest files: see `hostile_files`."""

from __future__ import annotations

import io
import json
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from tests.tasks.stages.ingest.formats.office_files import (
    LAUGHS,
    archive,
    docx,
    epub,
    of_entries,
    paragraph,
    pptx,
    relationships,
    shape,
    xlsx,
)
from tests.tasks.stages.ingest.formats.pdf_files import CATALOG, FONT, SHOW, objects, one_page, stream

WORDS = "Plain words"
"""The text of every file that is readable in spite of its attack."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What no document may reach: a file outside the corpus, the system's list of users, and a URL."""

    secret: Path
    passwd: str
    url: str


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile file.

    what: its description in the table. make: its bytes; for a link its target. expected: `document`, or a reason of
    quarantine; several if it depends on a library's version. says: text that the document must contain. seconds: the
    CPU time limit, if the attack is meant to reach it. ocr: the setting, which needs tesseract.
    """

    name: str
    what: str
    make: Callable[[Outside], bytes]
    expected: tuple[str, ...]
    says: str = WORDS
    seconds: float | None = None
    ocr: str = ""
    written_as: Literal["file", "link", "pipe"] = "file"


def _pdf(name: str, what: str, data: bytes | Callable[[], bytes], *expected: str, says: str = WORDS) -> Attack:
    def make(_: Outside) -> bytes:
        return data if isinstance(data, bytes) else data()

    return Attack(f"{name}.pdf", what, make, expected or ("document",), says)


def _file(name: str, what: str, make: Callable[[], bytes], *expected: str, says: str = WORDS) -> Attack:
    return Attack(name, what, lambda _: make(), expected or ("document",), says)


# PDF.


def _locked() -> bytes:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt=StandardEncryption("secret", strength=128), invariant=1)
    canvas.drawString(72, 700, WORDS)
    canvas.save()
    return buffer.getvalue()


def _pages(count: int) -> bytes:
    kids = b" ".join(b"%d 0 R" % number for number in range(3, count + 3))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    return objects(CATALOG, b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count), *[page] * count)


def _swelling_stream() -> bytes:
    """Return 10 kB that decompress to two gigabytes of spaces."""
    once = zlib.compressobj(9)
    block = bytes(1 << 20).replace(b"\0", b" ")
    inner = b"".join(once.compress(block) for _ in range(2048)) + once.flush()
    return one_page(stream(zlib.compress(inner, 9), b"/Filter [/FlateDecode /FlateDecode]"))


def _with_forms(*forms: bytes) -> bytes:
    """Return a page whose forms, from object 6 on, may draw each other as X6, X7, ..."""
    names = b" ".join(b"/X%d %d 0 R" % (number, number) for number in range(6, 6 + len(forms)))
    resources = b"/Resources << /Font << /F1 5 0 R >> /XObject << %b >> >>" % names
    entries = b"/Type /XObject /Subtype /Form /BBox [0 0 612 792] " + resources
    return objects(
        CATALOG,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R %b >>" % resources,
        stream(SHOW + b" /X6 Do"),
        FONT,
        *(stream(form, entries) for form in forms),
    )


def _outline_round() -> bytes:
    return objects(
        b"<< /Type /Catalog /Pages 2 0 R /Outlines 6 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        stream(SHOW),
        FONT,
        b"<< /Type /Outlines /First 7 0 R /Last 7 0 R >>",
        b"<< /Title (Round) /Parent 6 0 R /Next 8 0 R /First 7 0 R >>",
        b"<< /Title (Again) /Parent 7 0 R /Next 7 0 R /First 6 0 R >>",
    )


def _actions(outside: Outside) -> bytes:
    """Return a file with scripts, programs to start, and a page whose contents are in another file."""
    passwd, url = outside.passwd.encode(), outside.url.encode()
    return objects(
        b"<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /Launch /F (/bin/sh) /Next << /S /JavaScript "
        b"/JS (app.launchURL\\('%b'\\)) >> >> /AA << /WC << /S /URI /URI (%b) >> >> >>" % (url, url),
        b"<< /Type /Pages /Kids [3 0 R 6 0 R] /Count 2 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        stream(SHOW),
        FONT,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 7 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        stream(b"", b"/F (%b) /FFilter []" % passwd),
    )


_CMAP = stream(
    b"begincmap 1 begincodespacerange <00000000> <ffffffff> endcodespacerange 100 beginbfrange "
    + b"<00000000> <ffffffff> <0041> " * 100
    + b"endbfrange endcmap"
)
_BROKEN_FONT = b"<< /Type /Font /Subtype /TrueType /BaseFont /X /FontDescriptor 6 0 R >>"
_DESCRIPTOR = b"<< /Type /FontDescriptor /FontName /X /Flags 4 /FontFile2 7 0 R >>"
_GLYPHS = b"\0\1\0\0\xff\xff" + bytes(6) + b"glyf" + b"\xff" * 4000
_PICTURE = stream(
    zlib.compress(bytes(4_000_000), 9),
    b"/Type /XObject /Subtype /Image /Width 200000 /Height 200000 /ColorSpace /DeviceGray /BitsPerComponent 8 "
    b"/Filter /FlateDecode",
)


def _giant_picture(side: int) -> bytes:
    """Return a page of `side` by `side` points that only shows a picture."""
    return objects(
        CATALOG,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents 4 0 R "
        b"/Resources << /XObject << /I 5 0 R >> >> >>" % (side, side),
        stream(b"q %d 0 0 %d 0 0 cm /I Do Q" % (side, side)),
        _PICTURE,
    )


_DIES = ("reader-failed", "too-slow")
"""PDFium draws a form as often as the page requests; only the limits stop that."""

_PDFS = (
    _pdf("pages", "10,000 pages", lambda: _pages(10_000), "too-large"),
    _pdf("bomb", "a stream that swells to 2 GiB", _swelling_stream, "reader-failed", "unreadable-file", "hostile-file"),
    _pdf(
        "letters",
        "1.5 million letters on a page",
        lambda: one_page(stream(b"BT /F1 1 Tf " + b"(%b) Tj " % (b"a" * 1000) * 1500 + b"ET")),
        "too-large",
    ),
    _pdf(
        "tree",
        "a page tree that leads to itself",
        objects(CATALOG, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>", FONT),
        "unreadable-file",
    ),
    _pdf("outline", "bookmarks that lead to themselves", _outline_round),
    _pdf(
        "tables",
        "a table of places that leads to itself",
        one_page(stream(SHOW)).replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev 9"),
        "document",
        "unreadable-file",
    ),
    _pdf("count", "a number of pages that is a lie", one_page(stream(SHOW)).replace(b"/Count 1", b"/Count 2000000000")),
    _pdf("giant", "a page of 1e30 points", one_page(stream(SHOW), box=b"[-1e30 -1e30 1e30 1e30]")),
    _pdf("picture", "a picture of 200,000 by 200,000 pixels", _giant_picture(800), "no-text-layer"),
    Attack(
        "picture-ocr.pdf",
        "the same on a page of 1e9 points, with tesseract",
        lambda _: _giant_picture(1_000_000_000),
        ("no-text-layer", "unreadable-file"),
        ocr="eng",
    ),
    _pdf("arrays", "a million arrays in arrays", lambda: one_page(stream(SHOW + b"[" * 1_000_000))),
    _pdf(
        "objects",
        "50,000 dictionaries in dictionaries",
        lambda: objects(b"<< /A " * 50_000 + b">>" * 50_000),
        "unreadable-file",
    ),
    _pdf(
        "filters",
        "500 filters upon each other",
        one_page(stream(SHOW, b"/Filter [" + b"/ASCIIHexDecode " * 500 + b"]")),
        "document",
        "no-text",
        "unreadable-file",
    ),
    _pdf(
        "font",
        "an embedded font of noise",
        one_page(stream(SHOW), font=_BROKEN_FONT, more=[_DESCRIPTOR, stream(_GLYPHS)]),
    ),
    _pdf(
        "drawn-font",
        "a font that draws itself",
        one_page(
            stream(SHOW),
            font=b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] /FirstChar 32 "
            b"/LastChar 120 /Widths [1] /CharProcs << /a 6 0 R >> /Encoding << /Differences [32 /a] >> "
            b"/Resources << /Font << /F1 5 0 R >> >> >>",
            more=[stream(SHOW)],
        ),
        "document",
        "no-text",
        says="",
    ),
    _pdf(
        "letters-map",
        "a map of letters over four billion codes",
        one_page(stream(SHOW), font=FONT.replace(b" >>", b" /ToUnicode 6 0 R >>"), more=[_CMAP]),
        "document",
        "no-text",
        says="",
    ),
    _pdf("form", "a form that draws itself", _with_forms(SHOW + b" /X6 Do /X6 Do"), *_DIES),
    _pdf(
        "forms",
        "ten forms, each drawing the next ten times",
        _with_forms(*(b" ".join([b"/X%d Do" % number] * 10) for number in range(7, 16)), SHOW),
        *_DIES,
    ),
    Attack("actions.pdf", "a script, a program to start, contents in /etc/passwd", _actions, ("document",)),
    _pdf("locked", "locked with a password", _locked, "encrypted"),
    _pdf("truncated", "half of a file", lambda: one_page(stream(SHOW))[:300], "unreadable-file"),
    _pdf("picture-by-name", "a GIF by the name of a PDF", b"GIF89a" + bytes(100), "unreadable-file"),
)


# Archives and XML.


def _bomb(size: int) -> bytes:
    """Return a Word document whose text is `size` spaces."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx(paragraph(WORDS)))) as honest, zipfile.ZipFile(buffer, "w") as copy:
        for name in honest.namelist():
            with copy.open(zipfile.ZipInfo(name), "w") if name != "word/document.xml" else _deflated(copy, name) as out:
                data = honest.read(name)
                head, mark, tail = data.partition(WORDS.encode())
                out.write(head + mark)
                for _ in range(size >> 20 if mark else 0):
                    out.write(b" " * (1 << 20))
                out.write(tail)
    return buffer.getvalue()


def _deflated(copy: zipfile.ZipFile, name: str) -> io.BufferedIOBase:
    about = zipfile.ZipInfo(name)
    about.compress_type = zipfile.ZIP_DEFLATED
    return copy.open(about, "w", force_zip64=True)  # type: ignore[return-value]


def _overlapping() -> bytes:
    """Return entries that share the bytes of one, as the "better zip bomb" does."""
    return of_entries(
        *((b"word/document.xml" if n == 0 else b"%d" % n, bytes(10_000), 0, 0) for n in range(1_000)), at=0
    )


def _nested() -> bytes:
    """Return archives in archives, ten deep with ten in each; no reader should open them."""
    inner = archive({"a.txt": b" " * 10_000_000})
    for _ in range(10):
        inner = archive({f"{n}.zip": inner for n in range(10)}, zipfile.ZIP_DEFLATED)
    return docx(paragraph(WORDS), more={"word/embeddings/inner.zip": inner})


def _with_entry(name: bytes, data: bytes = b"x", mode: int = 0) -> bytes:
    """Return a Word document with one more entry, of any name."""
    with zipfile.ZipFile(io.BytesIO(docx(paragraph(WORDS)))) as honest:
        entries = [(entry.encode(), honest.read(entry), 0, 0) for entry in honest.namelist()]
    return of_entries(*entries, (name, data, 0, mode))


def _document(xml: str) -> bytes:
    """Return a Word document with this main part."""
    return (
        docx("", more={}).join([b"", b""]) if not xml else _replaced(docx(paragraph(WORDS)), "word/document.xml", xml)
    )


def _replaced(data: bytes, part: str, text: str | bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        parts = {name: source.read(name) for name in source.namelist()}
    return archive({**parts, part: text})


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def _word(head: str, text: str) -> bytes:
    body = f"<w:document {_W}><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
    return _replaced(docx(paragraph(WORDS)), "word/document.xml", head + body)


def _links_out(outside: Outside) -> bytes:
    """Return a Word document with templates, pictures and frames that a program would fetch."""
    links = {
        "t": ("attachedTemplate", outside.url),
        "i": ("image", f"file://{outside.secret}"),
        "f": ("frame", f"file://{outside.passwd}"),
        "h": ("header", f"file://{outside.passwd}"),
        "n": ("footnotes", "../../../../../../.." + outside.passwd),
    }
    rels = relationships(links, ["t", "i", "f", "h"])
    return _replaced(docx(paragraph(WORDS)), "word/_rels/document.xml.rels", rels)


_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ROUND_STYLES = (
    '<w:style w:type="paragraph" w:styleId="A"><w:basedOn w:val="B"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="B"><w:basedOn w:val="A"/><w:next w:val="B"/></w:style>'
)
_ROUND_NUMBERS = (
    '<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="L"/></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num>'
)
_LIST_STYLE = (
    '<w:style w:type="numbering" w:styleId="L"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
)
_MACRO = 'Attribute VB_Name = x\r\nSub AutoOpen()\r\nShell "touch ran"\r\nEnd Sub\r\n'


def _tables(depth: int) -> str:
    cell = paragraph(WORDS)
    for _ in range(depth):
        cell = f"<w:tbl><w:tr><w:tc>{cell}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr></w:tbl>"
    return cell


_WORD = (
    _file("bomb.docx", "a part that swells to 1 GiB", lambda: _bomb(1 << 30), "hostile-file"),
    _file("overlapping.docx", "1,000 entries that share their bytes", _overlapping, "hostile-file"),
    _file("nested.docx", "10,000,000,000 archives in archives, embedded", _nested),
    _file(
        "entries.docx",
        "25,000 entries",
        lambda: docx(paragraph(WORDS), more={f"x/{number}": b"" for number in range(25_000)}),
        "hostile-file",
    ),
    _file("path.docx", "an entry ../../../ran", lambda: _with_entry(b"../../../ran"), "hostile-file"),
    _file("absolute.docx", "an entry /tmp/ran", lambda: _with_entry(b"/tmp/ran"), "hostile-file"),
    Attack(
        "link.docx",
        "an entry that is a link to /etc/passwd",
        lambda outside: _with_entry(b"word/footnotes.xml", outside.passwd.encode(), stat.S_IFLNK | 0o777),
        ("hostile-file",),
    ),
    _file("laughs.docx", "a billion laughs", lambda: _word(LAUGHS, "&k;"), "hostile-file"),
    _file(
        "blowup.docx",
        "an entity of 100 kB, 100,000 times",
        lambda: _word(f'<!DOCTYPE x [<!ENTITY a "{"a" * 100_000}">]>', "&a;" * 100_000),
        "hostile-file",
    ),
    Attack(
        "entity.docx",
        "an entity that is /etc/passwd",
        lambda outside: _word(
            f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{outside.passwd}"><!ENTITY % b SYSTEM "{outside.url}"> %b;]>',
            "&a;",
        ),
        ("hostile-file",),
    ),
    Attack("relations.docx", "a template, pictures and notes that lie outside", _links_out, ("document",)),
    _file(
        "deep.docx",
        "100,000 elements in each other",
        lambda: _word("", "<w:x>" * 100_000 + "</w:x>" * 100_000),
        "hostile-file",
    ),
    _file("tables.docx", "60 tables in each other", lambda: docx(_tables(60)), "document", "hostile-file"),
    _file(
        "tag.docx",
        "a tag with a million attributes",
        lambda: _word("", "<w:x " + " ".join(f'a{number}=""' for number in range(1_000_000)) + "/>" + WORDS),
        "hostile-file",
    ),
    _file("styles.docx", "styles that rest on each other", lambda: docx(paragraph(WORDS, "A"), styles=_ROUND_STYLES)),
    _file(
        "lists.docx",
        "lists that lead to themselves",
        lambda: docx(
            paragraph(WORDS, "", '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'),
            styles=_LIST_STYLE,
            numbering=_ROUND_NUMBERS,
        ),
    ),
    _file(
        "macros.docm",
        "a macro that runs when opened",
        lambda: docx(paragraph(WORDS), more={"word/vbaProject.bin": _COMPOUND + _MACRO.encode()}),
    ),
    _file(
        "locked.docx",
        "locked with a password",
        lambda: _COMPOUND + bytes(4_000) + "EncryptedPackage".encode("utf-16-le") + bytes(4_000),
        "encrypted",
    ),
    _file(
        "old.docx",
        "a file of Word 97 by the name of a new one",
        lambda: _COMPOUND + bytes(4_000) + "WordDocument".encode("utf-16-le") + bytes(4_000),
        "unreadable-file",
    ),
    _file("truncated.docx", "half of a file", lambda: docx(paragraph(WORDS))[:700], "unreadable-file"),
    _file(
        "book-by-name.docx", "a PDF by the name of a Word document", lambda: one_page(stream(SHOW)), "unreadable-file"
    ),
)

_ROWS = 1_000_000


def _rows(count: int) -> str:
    return "".join(f'<row r="{n}" s="1" customFormat="1"><c r="A{n}" s="1"/></row>' for n in range(2, count + 2))


def _inline(place: str, text: str) -> str:
    row = place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{place}" t="inlineStr"><is><t>{text}</t></is></c></row>'


_SHEETS = (
    _file(
        "rows.xlsx",
        "a million styled rows without a value",
        lambda: xlsx({"One": _inline("A1", WORDS) + _rows(_ROWS)}, formats=["0.00"]),
    ),
    _file(
        "corners.xlsx",
        "two cells, of the first and the last row and column",
        lambda: xlsx({"One": _inline("A1", WORDS) + _inline("XFD1048576", "b")}),
    ),
    _file(
        "merged.xlsx",
        "17 billion cells merged into one",
        lambda: xlsx({"One": _inline("A1", WORDS) + '|<mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>'}),
    ),
    _file(
        "strings.xlsx",
        "one text of 1 MB in 20,000 cells",
        lambda: xlsx(
            {"One": "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 20_001))},
            strings=[f"<t>{'a ' * 500_000}</t>"],
        ),
        "too-large",
    ),
    _file(
        "laughs.xlsx",
        "a billion laughs among the texts",
        lambda: _replaced(
            xlsx({"One": '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'}),
            "xl/sharedStrings.xml",
            LAUGHS + "<sst>&k;</sst>",
        ),
        "hostile-file",
    ),
    _file(
        "macros.xlsm",
        "a macro, and a formula that starts a program",
        lambda: xlsx(
            {
                "One": _inline("A1", WORDS)
                + '<row r="2"><c r="A2"><f>CALL("Shell32","ShellExecuteA",0,"open","ran")</f><v>1</v></c></row>'
            },
            more={"xl/vbaProject.bin": _COMPOUND + _MACRO.encode()},
        ),
    ),
)


def _slides(count: int) -> bytes:
    """Return a presentation that shows one slide `count` times."""
    presentation = pptx([shape(WORDS)])
    with zipfile.ZipFile(io.BytesIO(presentation)) as opened:
        text = opened.read("ppt/presentation.xml").decode()
    head, slide, tail = text.partition('<p:sldId id="257" r:id="s1"/>')
    if not slide:
        raise ValueError("pptx() no longer lists slides as this benchmark expects")
    return _replaced(presentation, "ppt/presentation.xml", head + slide * count + tail)


def _round_layouts() -> bytes:
    back = relationships({"m": ("slideMaster", "layout.xml"), "l": ("slideLayout", "../slides/slide1.xml")})
    return _replaced(pptx([shape(WORDS)]), "ppt/slideLayouts/_rels/layout.xml.rels", back)


def _groups(depth: int) -> str:
    return "<p:grpSp>" * depth + shape(WORDS) + "</p:grpSp>" * depth


_PRESENTATIONS = (
    _file("slides.pptx", "one slide, 100,000 times", lambda: _slides(100_000), "too-large"),
    _file("layouts.pptx", "layouts that lead to themselves", _round_layouts),
    _file("groups.pptx", "10,000 groups in each other", lambda: pptx([_groups(10_000)]), "hostile-file"),
)


# Books.

_PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{}</body></html>'


def _container(path: str) -> bytes:
    return _replaced(
        epub({"a.xhtml": f"<p>{WORDS}</p>"}),
        "META-INF/container.xml",
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        f'<rootfile full-path="{path}" media-type="application/oebps-package+xml"/></rootfiles></container>',
    )


def _spine_outside(outside: Outside) -> bytes:
    book = epub({"a.xhtml": f"<p>{WORDS}</p>", "b.xhtml": "<p>b</p>"})
    with zipfile.ZipFile(io.BytesIO(book)) as opened:
        text = opened.read("OEBPS/book.opf").decode()
    return _replaced(book, "OEBPS/book.opf", text.replace('href="b.xhtml"', f'href="../../../..{outside.passwd}"'))


_DRM = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
    'xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/>'
    "</EncryptedData></encryption>"
)

_BOOKS = (
    _file(
        "spine.epub",
        "one chapter, 100,000 times",
        lambda: epub({"a.xhtml": f"<p>{WORDS}</p>"}, spine=["a.xhtml"] * 100_000),
        "too-large",
    ),
    _file(
        "round.epub",
        "one chapter, 1,000 times",
        lambda: epub({"a.xhtml": f"<p>{WORDS}</p>"}, spine=["a.xhtml"] * 1_000),
    ),
    _file(
        "laughs.epub",
        "a billion laughs in a chapter",
        lambda: epub({"a.xhtml": LAUGHS + _PAGE.format("<p>&k;</p>")}),
        "hostile-file",
    ),
    Attack(
        "entity.epub",
        "an entity in a chapter that is /etc/passwd",
        lambda outside: epub(
            {"a.xhtml": f'<!DOCTYPE html [<!ENTITY a SYSTEM "file://{outside.passwd}">]>' + _PAGE.format("<p>&a;</p>")}
        ),
        ("hostile-file",),
    ),
    Attack(
        "doctype.epub",
        "a document type that has to be fetched",
        lambda outside: epub({"a.xhtml": f'<!DOCTYPE html SYSTEM "{outside.url}">' + _PAGE.format(f"<p>{WORDS}</p>")}),
        ("document",),
    ),
    Attack(
        "pictures.epub",
        "pictures, frames and scripts from outside",
        lambda outside: epub(
            {
                "a.xhtml": f'<p>{WORDS}</p><img src="file://{outside.secret}" alt=""/>'
                f'<iframe src="{outside.url}"></iframe>'
                f'<script src="{outside.url}"></script><object data="file://{outside.passwd}"></object>'
            }
        ),
        ("document",),
    ),
    _file(
        "deep.epub",
        "100,000 elements in each other",
        lambda: epub({"a.xhtml": "<div>" * 100_000 + WORDS + "</div>" * 100_000}),
        "hostile-file",
        "document",
    ),
    _file(
        "unclosed.epub",
        "200,000 tags that do not end",
        lambda: epub({"a.xhtml": f"<p>{WORDS}</p>" + "<b><i><table><a>" * 50_000}),
        "hostile-file",
        "document",
    ),
    Attack("spine-outside.epub", "a chapter ../../../../etc/passwd", _spine_outside, ("document",)),
    Attack(
        "container.epub",
        "a package that is /etc/passwd",
        lambda outside: _container(outside.passwd),
        ("unreadable-file",),
    ),
    _file(
        "drm.epub",
        "locked by its publisher",
        lambda: epub({"a.xhtml": f"<p>{WORDS}</p>"}, more={"META-INF/encryption.xml": _DRM}),
        "encrypted",
    ),
)


# Notebooks.


def _notebook(*cells: dict[str, object]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _text(source: str, kind: str = "markdown") -> dict[str, object]:
    return {"cell_type": kind, "metadata": {}, "source": source}


def _printing(text: str) -> dict[str, object]:
    output = {"output_type": "stream", "name": "stdout", "text": text}
    return {"cell_type": "code", "metadata": {}, "source": "run()", "outputs": [output]}


def _including(outside: Outside) -> str:
    """Return reStructuredText that includes files and URLs from outside."""
    return (
        f"{WORDS}\n===========\n\n.. include:: {outside.passwd}\n\n.. include:: {outside.passwd}\n   :literal:\n\n"
        f".. literalinclude:: {outside.passwd}\n\n.. raw:: html\n   :file: {outside.passwd}\n\n"
        f".. raw:: html\n   :url: {outside.url}\n\n.. csv-table::\n   :file: {outside.passwd}\n\n"
        f".. csv-table::\n   :url: {outside.url}\n\n.. include:: {outside.secret}\n\n"
        f".. |secret| include:: {outside.secret}\n\n|secret| and more.\n"
    )


_NOTEBOOKS = (
    _file(
        "numbers.ipynb",
        "NaN and Infinity among the outputs",
        lambda: _notebook(
            _text(WORDS), {**_printing("a"), "execution_count": float("nan"), "metadata": {"x": float("-inf")}}
        ),
    ),
    _file(
        "deep.ipynb",
        "JSON, a million deep",
        lambda: b'{"nbformat": 4, "metadata": ' + b'{"a": ' * 1_000_000 + b"1" + b"}" * 1_000_000 + b', "cells": []}',
        "hostile-file",
    ),
    _file(
        "digits.ipynb",
        "a number of a million digits",
        lambda: b'{"cells": [], "nbformat": 4, "metadata": {"a": ' + b"9" * 1_000_000 + b"}}",
        "unreadable-file",
    ),
    _file(
        "outputs.ipynb",
        "100 MB that a cell printed",
        lambda: _notebook(_text(WORDS), _printing("0123456789 " * 9_000_000 + "\r\x1b[")),
    ),
    _file(
        "large.ipynb", "300 MB of a picture", lambda: _notebook(_text(WORDS), _printing("a" * 300_000_000)), "too-large"
    ),
    _file("cells.ipynb", "200,000 cells", lambda: _notebook(*[_text("a")] * 200_000), "too-large"),
    Attack(
        "raw.ipynb",
        "a raw cell that includes /etc/passwd",
        lambda outside: _notebook(_text(_including(outside), "raw")),
        ("document",),
    ),
    _file("truncated.ipynb", "half of a file", lambda: _notebook(_text(WORDS))[:60], "unreadable-file"),
    _file("picture.ipynb", "a PNG by the name of a notebook", lambda: b"\x89PNG\r\n\x1a\n" + bytes(100), "not-utf8"),
)


# reStructuredText.


def _chain(count: int) -> str:
    lines = [".. |a0| replace:: ha ha ha ha ha ha ha ha\n"]
    lines += [f".. |a{n}| replace:: " + f"|a{n - 1}| " * 10 + "\n" for n in range(1, count)]
    return f"{WORDS}\n\n" + "\n".join(lines) + f"\n|a{count - 1}|\n"


def _grid(rows: int) -> str:
    line = "+--" * 40 + "+\n"
    return f"{WORDS}\n\n" + line + ("| a" * 40 + "|\n" + line).replace(" a", "a ") * rows


def _lines(texts: Iterable[str]) -> bytes:
    return "\n".join(texts).encode()


_PROSE = (
    Attack("include.rst", "includes of /etc/passwd", lambda outside: _including(outside).encode(), ("document",)),
    _file(
        "substitutions.rst", "substitutions that stand for 10 others each", lambda: _chain(12).encode(), "hostile-file"
    ),
    _file(
        "quotes.rst", "1,500 quotes in quotes", lambda: _lines(" " * n + "a\n" for n in range(1_500)), "hostile-file"
    ),
    _file(
        "stars.rst",
        "200,000 stars that do not end",
        lambda: (f"{WORDS}\n\n" + ("*a **b `c |d " * 100 + "\n") * 500).encode(),
        "document",
        "too-slow",
    ),
    _file("grid.rst", "a table of 40 by 2,000 cells", lambda: _grid(2_000).encode(), "document", "too-slow"),
    _file(
        "roles.rst",
        "roles that run code",
        lambda: (
            f"{WORDS}\n\n.. role:: raw-html(raw)\n   :format: html\n\n:raw-html:`<script>x</script>`\n\n.. exec::\n\n"
            "   import os; os.system('touch ran')\n"
        ).encode(),
    ),
    _file("large.rst", "2.5 MB", lambda: b"words and more of them\n" * 110_000, "too-large"),
    _file("line.rst", "a line of a million letters", lambda: b"a " * 500_000, "too-large"),
    Attack(
        "slow.rst",
        "1.9 MB of references, with a limit of 2 s",
        lambda _: b"see `this`_ and *that* and |these| at once\n\n" * 43_000,
        ("too-slow",),
        seconds=2,
    ),
)


# Code.

_CODE = (
    _file("minified.js", "minified", lambda: b"var a=function(b){return b+1};" * 20_000, "too-large"),
    _file(
        "brackets.py",
        "100,000 brackets in each other",
        lambda: f'"""{WORDS}"""\n\na = \\\n'.encode() + (b"(" * 100 + b"\n") * 1_000 + (b")" * 100 + b"\n") * 1_000,
    ),
    _file(
        "blocks.c",
        "20,000 blocks in each other",
        lambda: f"/* {WORDS} */\nint main() {{\n".encode() + b"if (a) {\n" * 20_000 + b"}\n" * 20_001,
    ),
    _file(
        "classes.java",
        "5,000 classes in each other",
        lambda: f"// {WORDS}\n".encode() + b"class A {\n" * 5_000 + b"}\n" * 5_000,
    ),
    _file(
        "program.py",
        "a program by the name of its source",
        lambda: b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40,
        "not-utf8",
    ),
    _file("nul.py", "a NUL in the code", lambda: b"a = 1\0\n", "nul"),
    _file("large.sql", "4 MB of INSERT", lambda: b"INSERT INTO a VALUES (1, 'b');\n" * 130_000, "too-large"),
    _file("open.ts", "30,000 types that do not end", lambda: f"// {WORDS}\n".encode() + b"type A = B<C<\n" * 30_000),
)

_PLACES = (
    Attack(
        "link.pdf",
        "a link to /etc/passwd",
        lambda outside: outside.passwd.encode(),
        ("link-outside",),
        written_as="link",
    ),
    Attack("pipe.docx", "a pipe that nobody writes to", lambda _: b"", ("not-a-file",), written_as="pipe"),
)

ATTACKS: tuple[Attack, ...] = (
    *_PDFS, *_WORD, *_SHEETS, *_PRESENTATIONS, *_BOOKS, *_NOTEBOOKS, *_PROSE, *_CODE, *_PLACES
)  # fmt: skip


def _honest_pdf() -> bytes:
    return one_page(stream(SHOW))


HONEST: tuple[tuple[str, Callable[[], bytes]], ...] = (
    ("0 honest.docx", lambda: docx(paragraph(WORDS))),
    ("z honest.pdf", _honest_pdf),
)
"""Files read before and after each hostile one."""
