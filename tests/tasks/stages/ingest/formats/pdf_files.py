"""PDFs for the tests of their extractor: drawn on paper, or written by hand, object by object."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence

import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas

from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.pdf import extract


def objects(*bodies: bytes, root: int = 1, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1, with a table of their places."""
    out, places = b"%PDF-1.7\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root %d 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, root, trailer, start)
    return out


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream, with what its dictionary says besides the length."""
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(data), entries, data)


FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
SHOW = b"BT /F1 12 Tf 72 700 Td (Plain words) Tj ET"


def one_page(
    content: bytes,
    *,
    font: bytes = FONT,
    box: bytes = b"[0 0 612 792]",
    resources: bytes = b"",
    catalog: bytes = CATALOG,
    more: Sequence[bytes] = (),
) -> bytes:
    """A PDF of one page; its contents are the object 4, its font F1 is the object 5, and more begins with 6."""
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox %b /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> %b >> >>" % (
        box,
        resources,
    )
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return objects(catalog, pages, page, content, font, *more)


WIDTH, HEIGHT = 595.0, 842.0
WORDS = tuple(
    word
    for line in (
        "the pump moves water from the lower basin to the upper one while the gate stays closed and its valve holds",
        "the pressure that the engineers have measured at noon on every day of the week since the station was opened",
    )
    for word in line.split()
)


class Paper:
    """A PDF under construction: text at places counted from the upper left corner."""

    def __init__(
        self, width: float = WIDTH, height: float = HEIGHT, *, encrypt: StandardEncryption | None = None
    ) -> None:
        self._sink = io.BytesIO()
        self.height = height
        self.canvas = Canvas(self._sink, pagesize=(width, height), invariant=1, encrypt=encrypt, pageCompression=0)

    def put(self, x: float, y: float, text: str, size: float = 10, font: str = "Times-Roman") -> None:
        self.canvas.setFont(font, size)
        self.canvas.drawString(x, self.height - y, text)

    def lines(self, x: float, y: float, texts: Sequence[str], size: float = 10, font: str = "Times-Roman") -> float:
        """Put lines below each other; returns the place of the line after them."""
        for text in texts:
            self.put(x, y, text, size, font)
            y += 1.2 * size
        return y

    def page(self) -> None:
        self.canvas.showPage()

    def data(self) -> bytes:
        self.canvas.save()
        return self._sink.getvalue()


@functools.cache
def _width(word: str, size: float) -> float:
    return pdfmetrics.stringWidth(word, "Times-Roman", size)


def prose(count: int, first: int = 0, width: float = 220, size: float = 10, start: str = "The") -> list[str]:
    """So many full lines of words, each as wide as a column."""
    lines, at, words = [], first, [start]
    for _ in range(count):
        length = sum(_width(word, size) + _width(" ", size) for word in words)
        while (length := length + _width(WORDS[at % len(WORDS)], size) + _width(" ", size)) < width:
            words.append(WORDS[at % len(WORDS)])
            at += 1
        lines.append(" ".join(words))
        words = []
    return lines


def read_pdf(data: bytes, **limits: int | str) -> Extracted:
    return extract(io.BytesIO(data), ExtractionLimits(**limits))  # type: ignore[arg-type]


def refused(data: bytes, **limits: int | str) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        read_pdf(data, **limits)
    return caught.value


def made(draw: Callable[[Paper], object]) -> bytes:
    paper = Paper()
    draw(paper)
    return paper.data()
