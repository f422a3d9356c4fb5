"""A book's chapters in the order of reading, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tasks.stages.ingest.formats.extraction import ExtractionLimits
from tests.tasks.stages.ingest.formats.office_files import LAUGHS, docx, epub, extracted, refused

DTD = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">'


def _text(body: str | bytes, **parts: Any) -> str:
    return extracted("epub", epub({"a.xhtml": body}, **parts)).text


def test_chapters_are_read_in_the_order_of_the_spine_and_are_the_pages() -> None:
    chapters = {"b.xhtml": "<p>two</p>", "a.xhtml": "<h1>One</h1>", "c.xhtml": "<p>not in the spine</p>"}
    found = extracted("epub", epub(chapters, spine=["a.xhtml", "none", "b.xhtml", "a.xhtml"]))
    assert found.text == "# One\n\ntwo"
    assert [(one.start, one.page) for one in found.locations] == [(0, 1), (7, 3)]


def test_metadata_are_those_of_the_package() -> None:
    about = (
        "<dc:title>The *Title*</dc:title><dc:title>Other</dc:title><dc:creator>A. Author</dc:creator>"
        "<dc:creator>B. Author</dc:creator><dc:language>en-GB</dc:language><dc:date>2020-01-02</dc:date>"
        "<dc:publisher>House</dc:publisher><dc:date>long ago</dc:date><dc:language>no such</dc:language>"
        '<meta property="dcterms:modified">2021-02-03T04:05:06Z</meta>'
    )
    found = extracted("epub", epub({"a.xhtml": "<p>x</p>"}, metadata=about))
    assert found.title == "The *Title*"
    assert found.metadata == {
        "author": "A. Author, B. Author",
        "created": "2020-01-02",
        "language": "en-GB",
        "modified": "2021-02-03T04:05:06Z",
        "publisher": "House",
    }


def test_paragraphs_headings_quotations_and_text_between_blocks() -> None:
    body = (
        "loose <div>in a div<p>a  paragraph\nof two lines<br/>and a break</p> behind</div>"
        "<section><h2>A <em>head</em> line #</h2><blockquote><p>said</p></blockquote></section><hr/>"
        "<p>a*b <b>bold</b> <q>quoted</q> &lt;tag&gt; &amp;amp;</p>"
    )
    assert _text(body) == (
        "loose\n\nin a div\n\na paragraph of two lines\nand a break\n\nbehind\n\n## A head line \\#\n\nsaid\n\n"
        "a\\*b bold “quoted” \\<tag> \\&amp;"
    )


def test_lists_are_nested_and_numbered() -> None:
    body = (
        "<ul><li>a<ul><li><p>b</p><p>b2</p></li></ul></li><li><p>c</p></li></ul>"
        '<ol start="3"><li>d</li><li value="7">e<ol><li>f</li></ol></li></ol>'
    )
    assert _text(body) == "- a\n  - b\n\nb2\n\n- c\n3. d\n7. e\n   1. f"


def test_tables_have_spans_and_a_table_of_one_column_is_a_frame() -> None:
    body = (
        "<table><caption>Sales</caption><thead><tr><th colspan='2'>Region</th><th>Sum</th></tr></thead>"
        "<tbody><tr><td rowspan='2'>North</td><td>a|b</td><td>1</td></tr><tr><td>c</td><td><p>2</p><p>3</p></td></tr>"
        "</tbody></table><table><tr><td>frame</td></tr></table>"
    )
    assert _text(body) == (
        "Sales\n\n| Region |  | Sum |\n| --- | --- | --- |\n| North | a\\|b | 1 |\n| North | c | 2 3 |\n\nframe"
    )


def test_code_keeps_its_lines_and_its_marks() -> None:
    body = "<p>Use <code>a_*b*</code>:</p><pre><code>if x &lt; 1:\n    y()<br/>z</code></pre>"
    assert _text(body) == "Use `a_*b*`:\n\n```\nif x < 1:\n    y()\nz\n```"


def test_links_pictures_and_formulas() -> None:
    body = (
        '<p><a href="https://example.org/a">there</a>, <a href="b.xhtml#x">within</a>, '
        '<a href="javascript:alert(1)">no</a> <img src="x.png" alt="A map"/> <img src="y.png"/>'
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><mi>x</mi><mo>+</mo><mn>1</mn></math></p>'
    )
    assert _text(body) == "[there](https://example.org/a), within, no ![A map]() x+1"


def test_contents_scripts_and_what_is_hidden_are_left_out() -> None:
    links = "".join(f'<li><a href="c{n}.xhtml">Chapter {n}</a></li>' for n in range(9))
    chapters = {
        "nav.xhtml": "<p>navigation</p>",
        "toc.xhtml": f"<h1>Contents</h1><ol>{links}</ol>",
        "old.xhtml": "<p>old contents</p>",
        "a.xhtml": "<script>x</script><style>y</style><p hidden=''>z</p><nav><p>n</p></nav>"
        "<section epub:type='toc'><p>t</p></section><p>text</p><svg xmlns='http://www.w3.org/2000/svg'><text>s</text></svg>",
    }
    guide = '<guide><reference type="toc" href="old.xhtml"/></guide>'
    found = extracted("epub", epub(chapters, properties={"nav.xhtml": "nav"}, after=guide))
    assert (found.text, found.locations[0].page) == ("text", 4)


def test_a_document_type_and_named_characters_are_read_without_being_declared() -> None:
    page = f'<?xml version="1.0"?>\n<!-- x -->{DTD}<html xmlns="http://www.w3.org/1999/xhtml"><body><p>a&nbsp;&eacute;'
    assert _text(page + "&mdash;&nosuch;&amp;</p></body></html>") == "a é—\\&nosuch;&"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
def test_chapters_are_read_in_their_encoding(encoding: str) -> None:
    stated = {"latin-1": ' encoding="iso-8859-1"', "utf-16": ' encoding="utf-16"'}.get(encoding, "")
    page = f'<?xml version="1.0"{stated}?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>café</p></body></html>'
    assert _text(page.encode(encoding)) == "café"


def test_a_chapter_that_is_not_xml_is_read_as_a_browser_would() -> None:
    assert _text("<html><body><p>one<p>two <b>bold<br>line</p><ul><li>a<li>b</ul>&copy; x < y</body>") == (
        "one\n\ntwo bold\nline\n\n- a\n- b\n\n© x < y"
    )


ENCRYPTION = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
    '<e:EncryptedData><e:EncryptionMethod Algorithm="{}"/><e:CipherData><e:CipherReference URI="OEBPS/{}"/>'
    "</e:CipherData></e:EncryptedData></encryption>"
)


def test_a_locked_book_is_encrypted_and_obfuscated_fonts_are_no_lock() -> None:
    locked = ENCRYPTION.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "a.xhtml")
    found = refused("epub", epub({"a.xhtml": b"\x01\x02"}, more={"META-INF/encryption.xml": locked}))
    assert (found.reason, "locked by the publisher" in str(found)) == ("encrypted", True)
    fonts = ENCRYPTION.format("http://www.idpf.org/2008/embedding", "font.otf")
    assert _text("<p>x</p>", more={"META-INF/encryption.xml": fonts}) == "x"


def test_the_same_bytes_give_the_same_text() -> None:
    data = epub({"a.xhtml": "<p>a</p><ul><li>b</li></ul>", "b.xhtml": "<p>c<p>"})
    assert extracted("epub", data) == extracted("epub", bytes(data))


# What is refused.


def test_a_book_without_words_and_another_kind_of_file_are_told() -> None:
    assert refused("epub", epub({"a.xhtml": "<p> </p>"})).reason == "no-text"
    assert "META-INF/container.xml" in str(refused("epub", docx("<w:p/>")))
    lost = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles/></container>'
    assert refused("epub", epub({"a.xhtml": "x"}, more={"META-INF/container.xml": lost})).reason == "unreadable-file"


@pytest.mark.parametrize(
    "part", ["META-INF/container.xml", "OEBPS/book.opf", "OEBPS/a.xhtml", "META-INF/encryption.xml"]
)
def test_entities_are_hostile_in_any_part_that_is_read(part: str) -> None:
    hostile = LAUGHS + '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>&k;</p></body></html>'
    assert refused("epub", epub({"a.xhtml": "x"}, more={part: hostile})).reason == "hostile-file"


@pytest.mark.parametrize(
    "kind",
    [
        '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        "<!DOCTYPE html PUBLIC '-//x' \"[\" [<!ENTITY x 'y'>]>",
        "<!doctype html [<!ENTITY x 'y'>]>",
        "<!-- a --><?b c?> \n<!DOCTYPE html [<!ENTITY x 'y'>]>",
    ],
)
def test_a_document_type_that_declares_anything_is_hostile(kind: str) -> None:
    page = kind + '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>safe &x;</p></body></html>'
    found = refused("epub", epub({"a.xhtml": page.encode()}))
    assert found.reason == "hostile-file"


@pytest.mark.parametrize("well_formed", [True, False])
def test_deep_nesting_is_hostile_whether_it_is_xml_or_not(well_formed: bool) -> None:
    deep = "<div>" * 100_000 + "x" + ("</div>" * 100_000 if well_formed else "<p>")
    assert refused("epub", epub({"a.xhtml": deep})).reason == "hostile-file"


def test_names_that_lead_out_of_the_book_are_not_followed() -> None:
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        '<item id="a" href="../../../etc/passwd" media-type="application/xhtml+xml"/>'
        '<item id="b" href="http://127.0.0.1:9/b.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="c" href="%2e%2e/%2e%2e/x.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="d" href="a%2Exhtml?q#f" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/><itemref idref="d"/></spine></package>'
    )
    assert _text("<p>safe</p>", more={"OEBPS/book.opf": package}) == "safe"


def test_limits_of_chapters_text_and_tables_are_kept() -> None:
    chapters = {f"{n}.xhtml": f"<p>{n}</p>" for n in range(6)}
    assert refused("epub", epub(chapters), ExtractionLimits(pages=5)).reason == "too-large"
    assert (
        refused("epub", epub({"a.xhtml": f"<p>{'word ' * 500}</p>"}), ExtractionLimits(text_bytes=1_000)).reason
        == "too-large"
    )
    wide = "<table>" + "<tr><td colspan='99999'>x</td><td rowspan='99999'>y</td></tr>" * 3_000 + "</table>"
    assert refused("epub", epub({"a.xhtml": wide})).reason == "too-large"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "<!--" * 50_000,
        "<!DOCTYPE " * 50_000,
        "&" * 200_000,
        "<p " * 100_000,
        "&amp;" * 300_000 + "<p",
        "<a href='" * 50_000,
        "<table>" * 150,
    ],
)
def test_time_does_not_grow_with_the_square_of_a_chapter(body: str) -> None:
    start = time.process_time()
    try:
        _text(f"<html><body><p>x</p>{body}".encode())
        _text(body.encode())
    except Exception as error:
        assert type(error).__name__ == "UnreadableError"  # noqa: PT017
    assert time.process_time() - start < 10
