"""The formats whose files are documents each, in one list. Those of records are in `readers`."""

from __future__ import annotations

from tasks.stages.ingest.formats.extraction import Format

__all__ = ["FORMATS", "format_of"]

FORMATS: tuple[Format, ...] = (
    Format("docx", (".docx", ".docm"), 1, "docx"),
    Format("pptx", (".pptx", ".pptm"), 1, "pptx"),
    Format("xlsx", (".xlsx", ".xlsm"), 1, "xlsx"),
    Format("epub", (".epub",), 1, "epub", ("lxml",)),
)


def format_of(kind: str) -> Format | None:
    """The format of this kind; None for formats of records, and for text, Markdown and HTML."""
    return _BY_KIND.get(kind)


_BY_KIND = {one.kind: one for one in FORMATS}
