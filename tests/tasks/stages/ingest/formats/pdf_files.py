"""PDFs written by hand, object by object, for the tests of their extractor."""

from __future__ import annotations

from collections.abc import Sequence


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
