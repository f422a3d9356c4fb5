"""Hostile files of document formats: each attack by the name of its file, and honest files of every format."""

from __future__ import annotations

import functools
import io
import itertools
import json
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from tests.tasks.stages.ingest.formats import office_files as office
from tests.tasks.stages.ingest.formats.office_files import (
    archive,
    docx,
    epub,
    opendocument,
    paragraph,
    pptx,
    shape,
    xlsx,
)
from tests.tasks.stages.ingest.formats.pdf_files import CATALOG, FONT, SHOW, objects, one_page, stream

WORDS = "Plain words"
"""The text of every file that is readable in spite of its attack."""


class Outside(NamedTuple):
    """What no document may reach: a file outside the corpus, the system's list of users, and a URL."""

    secret: Path
    passwd: str
    url: str


Content = bytes | Callable[[Outside], bytes]

# PDF. PDFium draws a form as often as the page requests; only the limits of the process stop that.


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
    """10 kB that decompress to two gigabytes of spaces."""
    once = zlib.compressobj(9)
    inner = b"".join(once.compress(b" " * (1 << 20)) for _ in range(2048)) + once.flush()
    return one_page(stream(zlib.compress(inner, 9), b"/Filter [/FlateDecode /FlateDecode]"))


def _with_forms(*forms: bytes) -> bytes:
    """A page whose forms, from object 6 on, may draw each other as X6, X7, ..."""
    names = b"/XObject << %b >>" % b" ".join(b"/X%d %d 0 R" % (number, number) for number in range(6, 6 + len(forms)))
    entries = b"/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> %b >>" % names
    return one_page(stream(SHOW + b" /X6 Do"), resources=names, more=[stream(form, entries) for form in forms])


def _picture(side: int) -> bytes:
    """A page of `side` by `side` points that only shows a picture of 200,000 by 200,000 pixels."""
    entries = b"/Type /XObject /Subtype /Image /Width 200000 /Height 200000 /ColorSpace /DeviceGray /BitsPerComponent 8"
    picture = stream(zlib.compress(bytes(4_000_000), 9), entries + b" /Filter /FlateDecode")
    show = stream(b"q %d 0 0 %d 0 0 cm /I Do Q" % (side, side))
    return one_page(show, resources=b"/XObject << /I 6 0 R >>", box=b"[0 0 %d %d]" % (side, side), more=[picture])


_ROUND_OUTLINE = (
    b"<< /Type /Outlines /First 7 0 R /Last 7 0 R >>",
    b"<< /Title (Round) /Parent 6 0 R /Next 8 0 R /First 7 0 R >>",
    b"<< /Title (Again) /Parent 7 0 R /Next 7 0 R /First 6 0 R >>",
)
_ACTIONS = (
    b"<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /Launch /F (/bin/sh) /Next << /S /JavaScript "
    b"/JS (app.launchURL\\('URL'\\)) >> >> /AA << /WC << /S /URI /URI (URL) >> >> >>"
)
_DRAWN_FONT = (
    b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] /FirstChar 32 /LastChar 120 "
    b"/Widths [1] /CharProcs << /a 6 0 R >> /Encoding << /Differences [32 /a] >> "
    b"/Resources << /Font << /F1 5 0 R >> >> >>"
)
_OUTLINED = b"<< /Type /Catalog /Pages 2 0 R /Outlines 6 0 R >>"
_OWN_PARENT = b"<< /Type /Page /Parent 3 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>"
_MAPPED_FONT = FONT.replace(b" >>", b" /ToUnicode 6 0 R >>")
_DESCRIPTOR = b"<< /Type /FontDescriptor /FontName /X /Flags 4 /FontFile2 7 0 R >>"
_BROKEN_FONT = b"<< /Type /Font /Subtype /TrueType /BaseFont /X /FontDescriptor 6 0 R >>"
_GLYPHS = stream(b"\0\1\0\0\xff\xff" + bytes(6) + b"glyf" + b"\xff" * 4000)
_CMAP = stream(
    b"begincmap 1 begincodespacerange <00000000> <ffffffff> endcodespacerange 100 beginbfrange "
    + b"<00000000> <ffffffff> <0041> " * 100
    + b"endbfrange endcmap"
)
_PLAIN = one_page(stream(SHOW))

# Archives and XML: what is hostile in one format is so in all.


def _sheet(place: str, text: str = WORDS) -> str:
    row = place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{place}" t="inlineStr"><is><t>{text}</t></is></c></row>'


ARCHIVES = {
    ".docx": (docx(paragraph(WORDS)), "word/document.xml"),
    ".pptx": (pptx([shape(WORDS)]), "ppt/slides/slide1.xml"),
    ".xlsx": (xlsx({"One": _sheet("A1")}), "xl/worksheets/sheet1.xml"),
    ".epub": (epub({"a.xhtml": f"<p>{WORDS}</p>"}), "OEBPS/a.xhtml"),
    ".odt": (opendocument(f"<text:p>{WORDS}</text:p>"), "content.xml"),
}
"""By suffix: an honest file, and the part that has its text."""


def _parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def _replaced(data: bytes, part: str, text: str | bytes) -> bytes:
    return archive({**_parts(data), part: text})


def _edited(data: bytes, part: str, before: str, after: str) -> bytes:
    """A file with some text of a part replaced. Raises ValueError if it is not there."""
    head, text, tail = _parts(data)[part].decode().partition(before)
    if not text:
        raise ValueError(f"{part} has no {before}")
    return _replaced(data, part, head + after + tail)


def _bomb(data: bytes, part: str, _: Outside) -> bytes:
    """A file whose text is a GiB of spaces."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as copy:
        for name, content in _parts(data).items():
            with copy.open(name, "w", force_zip64=True) as out:
                head, words, tail = content.partition(WORDS.encode())
                out.write(head + words)
                for _ in range(1024 if words and name == part else 0):
                    out.write(b" " * (1 << 20))
                out.write(tail)
    return buffer.getvalue()


def _overlapping(data: bytes, part: str, _: Outside) -> bytes:
    """Entries that share the bytes of one, as the "better zip bomb" does."""
    return office.of_entries(
        *((part.encode() if n == 0 else b"%d" % n, bytes(10_000), 0, 0) for n in range(1_000)), at=0
    )


@functools.cache
def _archives_in_archives() -> bytes:
    """Ten deep with ten in each; no reader should open them."""
    inner = archive({"a.txt": b" " * 10_000_000})
    for _ in range(10):
        inner = archive({f"{n}.zip": inner for n in range(10)})
    return inner


def _with_entry(name: bytes, mode: int, data: bytes, part: str, outside: Outside) -> bytes:
    """A file with one more entry of any name; its content is a path."""
    entries = [(entry.encode(), content, 0, 0) for entry, content in _parts(data).items()]
    return office.of_entries(*entries, (name, outside.passwd.encode(), 0, mode))


def _in_xml(head: Callable[[Outside], str], text: str, data: bytes, part: str, outside: Outside) -> bytes:
    """A file whose text is replaced by other XML, with something before it."""
    edited = _edited(data, part, WORDS, text)
    return _replaced(edited, part, head(outside).encode() + _parts(edited)[part])


def _entity(outside: Outside) -> str:
    return f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{outside.passwd}"><!ENTITY % b SYSTEM "{outside.url}"> %b;]>'


def _attributes() -> str:
    return "<x " + " ".join(f'a{number}=""' for number in range(1_000_000)) + "/>" + WORDS


_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4_000)
_BLOWUP = f'<!DOCTYPE x [<!ENTITY a "{"a" * 100_000}">]>'
_IN_ARCHIVES: dict[str, dict[str, Callable[[bytes, str, Outside], bytes]]] = {
    "hostile-file": {
        "a part that swells to 1 GiB": _bomb,
        "1,000 entries that share their bytes": _overlapping,
        "25,000 entries": lambda data, *_: archive({**_parts(data), **{f"x/{n}": b"" for n in range(25_000)}}),
        "an entry in a folder above": functools.partial(_with_entry, b"../../../ran", 0),
        "an entry at an absolute path": functools.partial(_with_entry, b"/tmp/ran", 0),
        "an entry that is a link": functools.partial(_with_entry, b"x/y.xml", stat.S_IFLNK | 0o777),
        "a billion laughs": functools.partial(_in_xml, lambda _: office.LAUGHS, "&k;"),
        "an entity of 100 kB, 100,000 times": functools.partial(_in_xml, lambda _: _BLOWUP, "&a;" * 100_000),
        "an entity that is a file outside": functools.partial(_in_xml, _entity, "&a;"),
        "100,000 elements in each other": functools.partial(_in_xml, lambda _: "", "<x>" * 100_000 + "</x>" * 100_000),
        "a tag with a million attributes": lambda *rest: _in_xml(lambda _: "", _attributes(), *rest),
    },
    "document": {
        "archives in archives": lambda data, *_: _replaced(data, "embedded/inner.zip", _archives_in_archives()),
    },
    "encrypted": {"locked": lambda *_: _COMPOUND + "EncryptedPackage".encode("utf-16-le") + bytes(4_000)},
    "unreadable-file": {
        "old by a new name": lambda *_: _COMPOUND + "WordDocument".encode("utf-16-le") + bytes(4_000),
        "half of a file": lambda data, *_: data[: len(data) // 2],
        "a PDF by name": lambda *_: _PLAIN,
    },
}


def _links_out(outside: Outside) -> bytes:
    """A Word document with templates, pictures and frames that a program would fetch."""
    links = {
        "t": ("attachedTemplate", outside.url),
        "i": ("image", f"file://{outside.secret}"),
        "f": ("frame", f"file://{outside.passwd}"),
        "h": ("header", f"file://{outside.passwd}"),
        "n": ("footnotes", "../../../../../../.." + outside.passwd),
    }
    return _replaced(
        ARCHIVES[".docx"][0], "word/_rels/document.xml.rels", office.relationships(links, ["t", "i", "f", "h"])
    )


def _chunks_out(outside: Outside) -> bytes:
    """A Word document with a page that refers to files outside, and with a chunk that lies outside."""
    links = {"a": ("aFChunk", "a.html"), "b": ("aFChunk", "../../../../../../.." + outside.passwd)}
    page = (
        f'<img src="file://{outside.secret}"><iframe src="{outside.url}"></iframe><script src="{outside.url}"></script>'
    )
    types = '<Types><Default Extension="html" ContentType="text/html"/></Types>'
    chunks = '<w:altChunk r:id="a"/><w:altChunk r:id="b"/>'
    return docx(
        paragraph(WORDS) + chunks, related=links, more={"[Content_Types].xml": types, "word/a.html": page + "<p>x</p>"}
    )


_ROUND_STYLES = (
    '<w:style w:type="paragraph" w:styleId="A"><w:basedOn w:val="B"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="B"><w:basedOn w:val="A"/><w:next w:val="B"/></w:style>'
)
_ROUND_LISTS = docx(
    paragraph(WORDS, "", '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'),
    styles='<w:style w:type="numbering" w:styleId="L"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>',
    numbering='<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="L"/></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num>',
)
_MACRO = _COMPOUND + b'Attribute VB_Name = x\r\nSub AutoOpen()\r\nShell "touch ran"\r\nEnd Sub\r\n'
_CALL = '<row r="2"><c r="A2"><f>CALL("Shell32","ShellExecuteA",0,"open","ran")</f><v>1</v></c></row>'
_MERGED = '|<mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>'
_LAYOUTS = ARCHIVES[".pptx"][0], "ppt/slideLayouts/_rels/layout.xml.rels"
_ROUND_LAYOUTS = {"m": ("slideMaster", "layout.xml"), "l": ("slideLayout", "../slides/slide1.xml")}
_CHAPTER = {"a.xhtml": f"<p>{WORDS}</p>"}


def _styled_row(number: int) -> str:
    return f'<row r="{number}" s="1" customFormat="1"><c r="A{number}" s="1"/></row>'


def _pictures(outside: Outside) -> bytes:
    return epub(
        {
            "a.xhtml": f'<p>{WORDS}</p><img src="file://{outside.secret}" alt=""/>'
            f'<iframe src="{outside.url}"></iframe>'
            f'<script src="{outside.url}"></script><object data="file://{outside.passwd}"></object>'
        }
    )


def _tables(depth: int) -> str:
    cell = paragraph(WORDS)
    for _ in range(depth):
        cell = f"<w:tbl><w:tr><w:tc>{cell}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr></w:tbl>"
    return cell


def _slides(count: int) -> bytes:
    slide = '<p:sldId id="257" r:id="s1"/>'
    return _edited(ARCHIVES[".pptx"][0], "ppt/presentation.xml", slide, slide * count)


_BOOK = ARCHIVES[".epub"][0]
_TWO_CHAPTERS = epub({"a.xhtml": f"<p>{WORDS}</p>", "b.xhtml": "<p>b</p>"})
_DRM = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
    'xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/>'
    "</EncryptedData></encryption>"
)

# Notebooks and reStructuredText.


def _notebook(*cells: dict[str, object]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _cell(source: str, kind: str = "markdown") -> dict[str, object]:
    return {"cell_type": kind, "metadata": {}, "source": source}


def _printing(text: str) -> dict[str, object]:
    return {**_cell("run()", "code"), "outputs": [{"output_type": "stream", "name": "stdout", "text": text}]}


def _including(outside: Outside) -> str:
    """reStructuredText that includes files and URLs from outside."""
    return (
        f"{WORDS}\n===========\n\n.. include:: {outside.passwd}\n\n.. include:: {outside.passwd}\n   :literal:\n\n"
        f".. literalinclude:: {outside.passwd}\n\n.. raw:: html\n   :file: {outside.passwd}\n\n"
        f".. raw:: html\n   :url: {outside.url}\n\n.. csv-table::\n   :file: {outside.passwd}\n\n"
        f".. csv-table::\n   :url: {outside.url}\n\n.. include:: {outside.secret}\n\n"
        f".. |secret| include:: {outside.secret}\n\n|secret| and more.\n"
    )


_NUMBERS = {**_printing("a"), "execution_count": float("nan"), "metadata": {"x": float("-inf")}}


def _chain(count: int) -> str:
    lines = [".. |a0| replace:: ha ha ha ha ha ha ha ha\n"]
    lines += [f".. |a{n}| replace:: " + f"|a{n - 1}| " * 10 + "\n" for n in range(1, count)]
    return f"{WORDS}\n\n" + "\n".join(lines) + f"\n|a{count - 1}|\n"


def _grid(rows: int) -> str:
    line = "+--" * 40 + "+\n"
    return f"{WORDS}\n\n" + line + ("| a" * 40 + "|\n" + line).replace(" a", "a ") * rows


_ROLES = (
    f"{WORDS}\n\n.. role:: raw-html(raw)\n   :format: html\n\n:raw-html:`<script>x</script>`\n\n.. exec::\n\n"
    "   import os; os.system('touch ran')\n"
)

_CONTAINER = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4_000)
_REPEATED = (
    '<table:table-row table:number-rows-repeated="9999999"><table:table-cell table:number-columns-repeated="9999999">'
    f"<text:p>{WORDS}</text:p></table:table-cell></table:table-row>"
)


def _mail(part: bytes) -> bytes:
    start = b"Subject: a\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n"
    return start + WORDS.encode() + b"\n--b\n" + part + b"\n--b--\n"


def _article(inner: str) -> bytes:
    return f'<article article-type="x"><body><p>{WORDS}</p>{inner}</body></article>'.encode()


_FILES: dict[str, dict[str, Content]] = {
    "document": {
        "a page whose parent is itself.pdf": objects(
            CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1 /Parent 3 0 R >>", _OWN_PARENT, stream(SHOW), FONT
        ),
        "bookmarks that lead to themselves.pdf": one_page(stream(SHOW), catalog=_OUTLINED, more=_ROUND_OUTLINE),
        "a number of pages that is a lie.pdf": _PLAIN.replace(b"/Count 1", b"/Count 2000000000"),
        "a negative number of pages.pdf": _PLAIN.replace(b"/Count 1", b"/Count -7"),
        "a page of 1e30 points.pdf": one_page(stream(SHOW), box=b"[-1e30 -1e30 1e30 1e30]"),
        "a page of no size.pdf": one_page(stream(SHOW), box=b"[0 0 0 0]"),
        "a page whose size is no number.pdf": one_page(stream(SHOW), box=b"[/a /b (c) null]"),
        "letters far away.pdf": one_page(stream(b"BT /F1 1e9 Tf 1e30 0 0 1e30 1e30 -1e30 Tm (x) Tj ET " + SHOW)),
        "a million arrays in arrays.pdf": lambda _: one_page(stream(SHOW + b"[" * 1_000_000)),
        "an unknown filter.pdf": one_page(stream(SHOW, b"/Filter /Nonsense")),
        "a stream that is too short.pdf": one_page(b"<< /Length 99999999 >>\nstream\n" + SHOW + b"\nendstream"),
        "an embedded font of noise.pdf": one_page(stream(SHOW), font=_BROKEN_FONT, more=[_DESCRIPTOR, _GLYPHS]),
        "a script, a program to start, contents in a file outside.pdf": lambda outside: one_page(
            stream(SHOW, b"/F (%b) /FFilter []" % outside.passwd.encode()),
            catalog=_ACTIONS.replace(b"URL", outside.url.encode()),
        ),
        "relations that lie outside.docx": _links_out,
        "chunks that lie outside.docx": _chunks_out,
        "styles that rest on each other.docx": docx(paragraph(WORDS, "A"), styles=_ROUND_STYLES),
        "lists that lead to themselves.docx": _ROUND_LISTS,
        "a macro that runs when opened.docm": docx(paragraph(WORDS), more={"word/vbaProject.bin": _MACRO}),
        "a million styled rows without a value.xlsx": lambda _: xlsx(
            {"One": _sheet("A1") + "".join(map(_styled_row, range(2, 1_000_002)))}, formats=["0.00"]
        ),
        "the first and the last cell.xlsx": xlsx({"One": _sheet("A1") + _sheet("XFD1048576", "b")}),
        "17 billion cells merged into one.xlsx": xlsx({"One": _sheet("A1") + _MERGED}),
        "a macro, and a formula that starts a program.xlsm": xlsx(
            {"One": _sheet("A1") + _CALL}, more={"xl/vbaProject.bin": _MACRO}
        ),
        "layouts that lead to themselves.pptx": _replaced(*_LAYOUTS, office.relationships(_ROUND_LAYOUTS)),
        "one chapter, 1,000 times.epub": lambda _: epub(_CHAPTER, spine=["a.xhtml"] * 1_000),
        "a document type that has to be fetched.epub": lambda outside: _in_xml(
            lambda _: f'<!DOCTYPE html SYSTEM "{outside.url}">', WORDS, *ARCHIVES[".epub"], outside
        ),
        "pictures, frames and scripts from outside.epub": _pictures,
        "a chapter outside.epub": lambda outside: _edited(
            _TWO_CHAPTERS, "OEBPS/book.opf", 'href="b.xhtml"', f'href="../../../..{outside.passwd}"'
        ),
        "NaN and Infinity among the outputs.ipynb": _notebook(_cell(WORDS), _NUMBERS),
        "100 MB that a cell printed.ipynb": lambda _: _notebook(
            _cell(WORDS), _printing("0123456789 " * 9_000_000 + "\r\x1b[")
        ),
        "a raw cell that includes files.ipynb": lambda outside: _notebook(_cell(_including(outside), "raw")),
        "includes of files outside.rst": lambda outside: _including(outside).encode(),
        "roles that run code.rst": _ROLES.encode(),
        "100,000 brackets in each other.py": f'"""{WORDS}"""\n\na = \\\n'.encode()
        + (b"(" * 100 + b"\n") * 1_000
        + (b")" * 100 + b"\n") * 1_000,
        "20,000 blocks in each other.c": f"/* {WORDS} */\nint main() {{\n".encode()
        + b"if (a) {\n" * 20_000
        + b"}\n" * 20_001,
        "5,000 classes in each other.java": f"// {WORDS}\n".encode() + b"class A {\n" * 5_000 + b"}\n" * 5_000,
        "a part outside.eml": lambda outside: _mail(
            b"Content-Type: message/external-body; access-type=local-file; name=%b\n\n" % outside.passwd.encode()
        ),
        "a picture outside.odp": lambda outside: opendocument(
            f'<text:p>{WORDS}</text:p><draw:image xlink:href="{outside.url}"/>', "presentation"
        ),
        "a file included.org": lambda outside: f"{WORDS}\n\n#+INCLUDE: {outside.secret}\n".encode(),
        "a file included.adoc": lambda outside: f"{WORDS}\n\ninclude::{outside.secret}[]\n".encode(),
        "a file included.nxml": lambda outside: _article(
            f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" parse="text" href="{outside.secret}"/>'
        ),
        "a picture and a frame outside.html": lambda outside: (
            f'<p>{WORDS}</p><img src="{outside.url}"><iframe src="file://{outside.secret}"></iframe>'.encode()
        ),
        "a picture outside.rtf": lambda outside: (
            rb"{\rtf1 %b {\field{\*\fldinst INCLUDETEXT \"%b\"}}}" % (WORDS.encode(), outside.passwd.encode())
        ),
        "30,000 types that do not end.ts": f"// {WORDS}\n".encode() + b"type A = B<C<\n" * 30_000,
    },
    "document no-text": {
        "a font below itself.pdf": one_page(
            stream(SHOW), font=b"<< /Type /Font /Subtype /Type0 /DescendantFonts [5 0 R] >>"
        ),
        "a font that draws itself.pdf": one_page(stream(SHOW), font=_DRAWN_FONT, more=[stream(SHOW)]),
        "a map of letters over four billion codes.pdf": one_page(stream(SHOW), font=_MAPPED_FONT, more=[_CMAP]),
        "500 filters upon each other.pdf": one_page(stream(SHOW, b"/Filter [%b]" % (b"/ASCIIHexDecode " * 500))),
    },
    "no-text": {"a broken stream.pdf": one_page(stream(b"x\x9c" + b"\xff" * 500, b"/Filter /FlateDecode"))},
    "no-text-layer": {"a giant picture.pdf": lambda _: _picture(800)},
    "no-text-layer unreadable-file": {"a giant picture with OCR.pdf": lambda _: _picture(1_000_000_000)},
    "document unreadable-file": {
        "a table of places that leads to itself.pdf": _PLAIN.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev 9"),
    },
    "document hostile-file": {
        "60 tables in each other.docx": docx(_tables(60)),
        "200,000 tags that do not end.epub": lambda _: epub(
            {"a.xhtml": f"<p>{WORDS}</p>" + "<b><i><table><a>" * 50_000}
        ),
    },
    "document too-slow": {
        "200,000 stars that do not end.rst": f"{WORDS}\n\n".encode() + (b"*a **b `c |d " * 100 + b"\n") * 500,
        "a table of 40 by 2,000 cells.rst": lambda _: _grid(2_000).encode(),
    },
    "too-slow": {
        "1.9 MB of references, in 2 s.rst": b"see `this`_ and *that* and |these| at once\n\n" * 43_000,
    },
    "reader-failed too-slow": {
        "a form that draws itself.pdf": _with_forms(SHOW + b" /X6 Do /X6 Do"),
        "ten forms, each drawing the next ten times.pdf": _with_forms(
            *(b" ".join([b"/X%d Do" % number] * 10) for number in range(7, 16)), SHOW
        ),
    },
    "reader-failed unreadable-file hostile-file": {"a stream that swells to 2 GiB.pdf": lambda _: _swelling_stream()},
    "hostile-file": {
        "a billion laughs among the texts.xlsx": _replaced(
            xlsx({"One": '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'}),
            "xl/sharedStrings.xml",
            office.LAUGHS + "<sst>&k;</sst>",
        ),
        "10,000 groups in each other.pptx": pptx(["<p:grpSp>" * 10_000 + shape(WORDS) + "</p:grpSp>" * 10_000]),
        "a billion laughs.fb2": (office.LAUGHS + "<FictionBook>&k;</FictionBook>").encode(),
        "a billion laughs.xml": (office.LAUGHS + "<a>&k;</a>").encode(),
        "parts in each other.eml": b"Subject: a\n"
        + b"".join(b"Content-Type: multipart/mixed; boundary=%d\n\n--%d\n" % (n, n) for n in range(300)),
        "JSON, a million deep.ipynb": lambda _: (
            b'{"nbformat": 4, "metadata": ' + b'{"a": ' * 1_000_000 + b"1" + b"}" * 1_000_000 + b', "cells": []}'
        ),
        "substitutions that stand for 10 others each.rst": _chain(12).encode(),
        "1,500 quotes in quotes.rst": lambda _: "\n".join(" " * n + "a\n" for n in range(1_500)).encode(),
    },
    "too-large": {
        "10,000 pages.pdf": lambda _: _pages(10_000),
        "1.5 million letters on a page.pdf": lambda _: one_page(
            stream(b"BT /F1 1 Tf " + b"(%b) Tj " % (b"a" * 1000) * 1500 + b"ET")
        ),
        "one text of 1 MB in 20,000 cells.xlsx": lambda _: xlsx(
            {"One": "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 20_001))},
            strings=[f"<t>{'a ' * 500_000}</t>"],
        ),
        "cells that repeat.ods": opendocument(f"<table:table>{_REPEATED * 30}</table:table>", "spreadsheet"),
        "one slide, 100,000 times.pptx": lambda _: _slides(100_000),
        "one chapter, 100,000 times.epub": lambda _: epub(_CHAPTER, spine=["a.xhtml"] * 100_000),
        "300 MB of a picture.ipynb": lambda _: _notebook(_cell(WORDS), _printing("a" * 300_000_000)),
        "200,000 cells.ipynb": lambda _: _notebook(*[_cell("a")] * 200_000),
        "2.5 MB.rst": b"words and more of them\n" * 110_000,
        "a line of a million letters.rst": b"a " * 500_000,
        "minified.js": b"var a=function(b){return b+1};" * 20_000,
        "4 MB of INSERT.sql": b"INSERT INTO a VALUES (1, 'b');\n" * 130_000,
    },
    "unreadable-file": {
        "a page tree that leads to itself.pdf": objects(CATALOG, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"),
        "50,000 dictionaries in dictionaries.pdf": objects(b"<< /A " * 50_000 + b">>" * 50_000),
        "half of a file.pdf": _PLAIN[:300],
        "a picture by name.pdf": b"GIF89a" + bytes(100),
        **{f"an empty container{suffix}": _CONTAINER for suffix in (".doc", ".xls", ".ppt", ".msg")},
        "a package outside.epub": lambda outside: _edited(
            _BOOK, "META-INF/container.xml", 'full-path="OEBPS/book.opf"', f'full-path="{outside.passwd}"'
        ),
        "a number of a million digits.ipynb": b'{"cells": [], "nbformat": 4, "metadata": {"a": %b}}'
        % (b"9" * 1_000_000),
        "half of a file.ipynb": _notebook(_cell(WORDS))[:60],
    },
    "encrypted": {
        "locked.pdf": lambda _: _locked(),
        "locked by its publisher.epub": _replaced(_BOOK, "META-INF/encryption.xml", _DRM),
    },
    "not-utf8": {
        "a picture by name.ipynb": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "a program by name.py": b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40,
    },
    "nul": {"a NUL.py": b"a = 1\0\n"},
}

ATTACKS: dict[str, tuple[Content, str]] = {
    **{name: (content, outcomes) for outcomes, files in _FILES.items() for name, content in files.items()},
    **{
        f"{name}{suffix}": (functools.partial(make, *ARCHIVES[suffix]), outcomes)
        for (outcomes, makers), suffix in itertools.product(_IN_ARCHIVES.items(), ARCHIVES)
        for name, make in makers.items()
    },
}
"""By the name of the file: its content, and its possible outcomes, `document` or reasons of quarantine."""
SETTINGS = {
    "a giant picture with OCR.pdf": {"extract": {"ocr": "eng"}},
    "1.9 MB of references, in 2 s.rst": {"max_document_seconds": 2.0},
}
HONEST = {"honest.pdf": _PLAIN, **{f"honest{suffix}": data for suffix, (data, _) in ARCHIVES.items()}}
