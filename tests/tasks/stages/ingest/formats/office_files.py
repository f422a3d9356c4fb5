"""Files of Office programs and books, part by part, for the tests of their extractors."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from html import escape

import pytest

from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.format_registry import format_of

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
MORE = (
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
    'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex" '
    'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture" '
    'xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing" '
    'xmlns:v="urn:schemas-microsoft-com:vml"'
)
TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    + "".join(f'<!ENTITY {chr(n + 1)} "{f"&{chr(n)};" * 10}">' for n in range(ord("b"), ord("k")))
    + "]>"
)


def archive(entries: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as made:
        for name, data in entries.items():
            made.writestr(zipfile.ZipInfo(name), data, compression)
    return held.getvalue()


def entry(name: bytes, data: bytes, offset: int, *, flags: int = 0, mode: int = 0) -> tuple[bytes, bytes]:
    """The bytes of a stored entry, and its line in the directory."""
    sizes = struct.pack("<III", zipfile.crc32(data), len(data), len(data))
    local = b"PK\x03\x04" + struct.pack("<HHHHH", 20, flags, 0, 0, 33) + sizes + struct.pack("<HH", len(name), 0)
    line = b"PK\x01\x02" + struct.pack("<HHHHHH", 0x0314, 20, flags, 0, 0, 33) + sizes
    line += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, mode << 16, offset) + name
    return local + name + data, line


def of_entries(*entries: tuple[bytes, bytes, int, int], at: int | None = None) -> bytes:
    """An archive of entries of any names; at: where all of them are said to begin."""
    body, lines = b"", b""
    for name, data, flags, mode in entries:
        local, line = entry(name, data, len(body) if at is None else at, flags=flags, mode=mode)
        body, lines = body + local, lines + line
    count = len(entries)
    return body + lines + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, len(lines), len(body), 0)


def relationships(links: Mapping[str, tuple[str, str]], external: Sequence[str] = ()) -> str:
    """The relationships of a part: id -> kind and target. external: the ids of those that lead out."""
    lines = (
        f'<Relationship Id="{name}" Type="{TYPE}{kind}" Target="{escape(target)}"'
        + (' TargetMode="External"/>' if name in external else "/>")
        for name, (kind, target) in links.items()
    )
    return (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        + "".join(lines)
        + "</Relationships>"
    )


def core(**values: str) -> str:
    """The properties of a file: `dc_title="..."`."""
    spaces = (
        'xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/"'
    )
    inner = "".join(f"<{k.replace('_', ':')}>{escape(v)}</{k.replace('_', ':')}>" for k, v in values.items())
    return f"<cp:coreProperties {spaces}>{inner}</cp:coreProperties>"


def paragraph(text: str, style: str = "", properties: str = "") -> str:
    """A paragraph of a Word document."""
    style = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{style}{properties}</w:pPr><w:r><w:t>{escape(text, quote=False)}</w:t></w:r></w:p>"


def docx(
    body: str,
    *,
    styles: str = "",
    numbering: str = "",
    notes: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    related: Mapping[str, tuple[str, str]] | None = None,
    properties: str = "",
    pages: int | None = None,
    more: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """A Word document. notes: `footnotes` and `endnotes`; links: id -> URL; related: id -> kind and target."""
    related = {name: ("hyperlink", target) for name, target in (links or {}).items()} | dict(related or {})
    parts: dict[str, str | bytes] = {
        "word/document.xml": f"<w:document {W} {R} {A} {MORE}><w:body>{body}</w:body></w:document>"
    }
    for name, text in (("styles", styles), ("numbering", numbering), *(notes or {}).items()):
        if text:
            parts[f"word/{name}.xml"] = f"<w:{name} {W} {R} {MORE}>{text}</w:{name}>"
            related[name] = (name, f"{name}.xml")
    parts["word/_rels/document.xml.rels"] = relationships(related, list(links or ()))
    return archive({**_package("word/document.xml", properties, pages), **parts, **(more or {})})


def pptx(
    slides: Sequence[str],
    *,
    layout: str = "",
    master: str = "",
    notes: Mapping[int, str] | None = None,
    links: Mapping[str, tuple[str, str]] | None = None,
    attributes: Mapping[int, str] | None = None,
    properties: str = "",
    more: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """A presentation. slides: the shapes of each; notes, attributes: by slide, from 1."""
    listed = "".join(f'<p:sldId id="{256 + n}" r:id="s{n}"/>' for n in range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": f"<p:presentation {P} {R}><p:sldIdLst>{listed}</p:sldIdLst>"
        '<p:sldSz cx="9144000" cy="6858000"/></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relationships(
            {f"s{n}": ("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1)}
        ),
        "ppt/slideLayouts/layout.xml": (
            f"<p:sldLayout {P} {A}><p:cSld><p:spTree>{layout}</p:spTree></p:cSld></p:sldLayout>"
        ),
        "ppt/slideLayouts/_rels/layout.xml.rels": relationships({"m": ("slideMaster", "../slideMasters/master.xml")}),
        "ppt/slideMasters/master.xml": f"<p:sldMaster {P} {A}>{master}</p:sldMaster>",
    }
    for number, shapes in enumerate(slides, 1):
        about = (attributes or {}).get(number, "")
        tree = f"<p:cSld><p:spTree>{shapes}</p:spTree></p:cSld>"
        parts[f"ppt/slides/slide{number}.xml"] = f"<p:sld {P} {R} {A} {MORE} {about}>{tree}</p:sld>"
        related = {"l": ("slideLayout", "../slideLayouts/layout.xml"), **(links or {})}
        if notes and number in notes:
            related["n"] = ("notesSlide", f"../notesSlides/notes{number}.xml")
            held = shape(notes[number], held='<p:ph type="body" idx="1"/>')
            parts[f"ppt/notesSlides/notes{number}.xml"] = (
                f"<p:notes {P} {A}><p:cSld><p:spTree>{held}</p:spTree></p:cSld></p:notes>"
            )
        external = [name for name, (kind, _) in related.items() if kind == "hyperlink"]
        parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = relationships(related, external)
    return archive({**_package("ppt/presentation.xml", properties, None), **parts, **(more or {})})


def shape(text: str, *, held: str = "", place: tuple[float, float, float, float] | None = None, about: str = "") -> str:
    """A shape of a slide; text: one paragraph, or paragraphs in XML; place: left, top, width, height in points."""
    paragraphs = text if text.startswith("<a:p") else f"<a:p><a:r><a:t>{escape(text, quote=False)}</a:t></a:r></a:p>"
    left, top, width, height = (round(12_700 * one) for one in place or (0, 0, 0, 0))
    placed = f'<a:xfrm><a:off x="{left}" y="{top}"/><a:ext cx="{width}" cy="{height}"/></a:xfrm>' if place else ""
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="x" {about}/><p:cNvSpPr/><p:nvPr>{held}</p:nvPr></p:nvSpPr>'
        f"<p:spPr>{placed}</p:spPr><p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:sp>"
    )


def xlsx(
    sheets: Mapping[str, str],
    *,
    strings: Sequence[str] = (),
    formats: Sequence[str] = (),
    states: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    drawings: Mapping[int, str] | None = None,
    workbook: str = "",
    properties: str = "",
    more: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """A workbook. sheets: name -> rows, and what follows `sheetData`; formats: codes of the styles 1, 2, ...

    drawings: the anchors of a sheet, by its number from 1; they may refer to `charts/chart.xml` as `c`.
    """
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{n}" state="{(states or {}).get(name, "visible")}" r:id="s{n}"/>'
        for n, name in enumerate(sheets, 1)
    )
    codes = "".join(f'<numFmt numFmtId="{200 + n}" formatCode="{escape(one)}"/>' for n, one in enumerate(formats))
    shapes = '<xf numFmtId="0"/>' + "".join(f'<xf numFmtId="{200 + n}"/>' for n in range(len(formats)))
    related = {f"s{n}": ("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)}
    parts: dict[str, str | bytes] = {
        "xl/workbook.xml": f"<workbook {S} {R}>{workbook}<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relationships(
            {**related, "strings": ("sharedStrings", "sharedStrings.xml"), "styles": ("styles", "styles.xml")}
        ),
        "xl/sharedStrings.xml": f"<sst {S}>{''.join(f'<si>{one}</si>' for one in strings)}</sst>",
        "xl/styles.xml": f"<styleSheet {S}><numFmts>{codes}</numFmts><cellXfs>{shapes}</cellXfs></styleSheet>",
    }
    for number, rows in enumerate(sheets.values(), 1):
        data, _, after = rows.partition("|")
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f"<worksheet {S} {R}><sheetData>{data}</sheetData>{after}</worksheet>"
        )
        hyperlinks = {name: ("hyperlink", target) for name, target in (links or {}).items()}
        drawing = {"d": ("drawing", f"../drawings/drawing{number}.xml")} if number in (drawings or {}) else {}
        parts[f"xl/worksheets/_rels/sheet{number}.xml.rels"] = relationships(hyperlinks | drawing, list(hyperlinks))
    for number, anchors in (drawings or {}).items():
        parts[f"xl/drawings/drawing{number}.xml"] = f"<xdr:wsDr {A} {R} {MORE}>{anchors}</xdr:wsDr>"
        parts[f"xl/drawings/_rels/drawing{number}.xml.rels"] = relationships({"c": ("chart", "../charts/chart.xml")})
    return archive({**_package("xl/workbook.xml", properties, None), **parts, **(more or {})})


def chart(series: str, title: str = "") -> str:
    """A chart's part. series: those of a bar chart; title: one paragraph."""
    named = (
        f"<c:title><c:tx><c:rich><a:p><a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title>" if title else ""
    )
    area = f"<c:plotArea><c:barChart>{series}</c:barChart></c:plotArea>"
    return f"<c:chartSpace {A} {MORE}><c:chart>{named}{area}</c:chart></c:chartSpace>"


def series(name: str, categories: Sequence[str], values: Sequence[str], code: str = "General") -> str:
    """A series of a chart, with the values that the chart stores."""

    def points(texts: Sequence[str]) -> str:
        return "".join(f'<c:pt idx="{n}"><c:v>{escape(text)}</c:v></c:pt>' for n, text in enumerate(texts))

    return (
        f"<c:ser><c:tx><c:strRef><c:strCache>{points([name])}</c:strCache></c:strRef></c:tx>"
        f"<c:cat><c:strRef><c:strCache>{points(categories)}</c:strCache></c:strRef></c:cat>"
        f"<c:val><c:numRef><c:numCache><c:formatCode>{code}</c:formatCode>{points(values)}</c:numCache></c:numRef></c:val>"
        "</c:ser>"
    )


def epub(
    chapters: Mapping[str, str | bytes],
    *,
    metadata: str = "<dc:title>A Book</dc:title>",
    spine: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    after: str = "",
    more: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """A book. chapters: name -> body, or a whole file; spine: the names in order, all by default."""
    items = "".join(
        f'<item id="{name}" href="{name}" media-type="application/xhtml+xml" '
        f'properties="{(properties or {}).get(name, "")}"/>'
        for name in chapters
    )
    listed = "".join(f'<itemref idref="{name}"/>' for name in (chapters if spine is None else spine))
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/">{metadata}</metadata>'
        f"<manifest>{items}</manifest><spine>{listed}</spine>{after}</package>",
    }
    for name, text in chapters.items():
        whole = isinstance(text, bytes) or text.lstrip().startswith(("<?xml", "<!DOCTYPE", "<html"))
        page = '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        parts[f"OEBPS/{name}"] = text if whole else f"{page}<head><title>x</title></head><body>{text!s}</body></html>"
    return archive({**parts, **(more or {})})


_ODF_SPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in (
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("style", "style"),
        ("draw", "drawing"),
        ("svg", "svg-compatible"),
    )
)
_ODF_STYLES = (
    '<style:style style:name="H" style:family="text"><style:text-properties text:display="none"/></style:style>'
    '<style:style style:name="P1" style:family="paragraph" style:parent-style-name="Title"/>'
    '<style:style style:name="T" style:family="table"><style:table-properties table:display="false"/></style:style>'
    '<text:list-style style:name="L"><text:list-level-style-number text:level="1" style:num-format="1"/>'
    '<text:list-level-style-bullet text:level="2"/></text:list-style>'
)


def opendocument(body: str, kind: str = "text", before: str = "", **parts: str) -> bytes:
    content = (
        f"{before}<office:document-content {_ODF_SPACES} xmlns:xlink='http://www.w3.org/1999/xlink'>"
        f"<office:automatic-styles>{_ODF_STYLES}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    about = f"<m {_ODF_SPACES} xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:title>About</dc:title></m>"
    return archive({"content.xml": content, "meta.xml": about, **parts})


def extracted(kind: str, data: bytes, limits: ExtractionLimits | None = None) -> Extracted:
    """What the extractor of a kind makes of a file."""
    file_format = format_of(kind)
    assert file_format is not None
    return file_format.extractor()(io.BytesIO(data), limits or ExtractionLimits())


def refused(kind: str, data: bytes, limits: ExtractionLimits | None = None) -> UnreadableError:
    """Why the extractor of a kind refuses a file."""
    with pytest.raises(UnreadableError) as caught:
        extracted(kind, data, limits)
    return caught.value


def _package(main: str, properties: str, pages: int | None) -> dict[str, str | bytes]:
    related = {"main": ("officeDocument", main)}
    parts: dict[str, str | bytes] = {}
    if properties:
        related["core"] = ("core-properties", "docProps/core.xml")
        parts["docProps/core.xml"] = properties
    if pages is not None:
        related["app"] = ("extended-properties", "docProps/app.xml")
        space = "http://schemas.openxmlformats.org/officeDocument/2006/extended-properties"
        parts["docProps/app.xml"] = f'<Properties xmlns="{space}"><Pages>{pages}</Pages></Properties>'
    return {"[Content_Types].xml": "<Types/>", "_rels/.rels": relationships(related), **parts}
