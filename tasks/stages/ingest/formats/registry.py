"""The formats whose files are documents each, in one list. Those of records are in `readers`."""

from __future__ import annotations

from tasks.stages.ingest.formats.extraction import Format

__all__ = ["FORMATS", "format_of"]

FORMATS: tuple[Format, ...] = (Format("pdf", (".pdf",), 1, "pdf", ("pypdfium2",)),)


def format_of(kind: str) -> Format | None:
    """The format of this kind; None for formats of records, and for text, Markdown and HTML."""
    return _BY_KIND.get(kind)


_BY_KIND = {one.kind: one for one in FORMATS}
