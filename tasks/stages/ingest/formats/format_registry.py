"""The formats in which each file is one document. Formats of records are in `readers`."""

from __future__ import annotations

from tasks.stages.ingest.formats.code import LANGUAGES
from tasks.stages.ingest.formats.extraction import Format

_CODE = tuple(
    Format(name, language.suffixes, 1, "code", language.libraries, dialect=name, by_default=False, titled_by_path=True)
    for name, language in LANGUAGES.items()
)

FORMATS: tuple[Format, ...] = (
    Format("pdf", (".pdf",), 3, "pdf", libraries=("pypdfium2",), has_pictures=True),
    Format("notebook", (".ipynb",), 2, "notebook", libraries=("docutils",)),
    Format("restructured-text", (".rst",), 2, "restructured_text", libraries=("docutils",)),
    Format("docx", (".docx", ".docm"), 2, "docx"),
    Format("pptx", (".pptx", ".pptm"), 2, "pptx"),
    Format("xlsx", (".xlsx", ".xlsm"), 2, "xlsx"),
    Format("epub", (".epub",), 2, "epub", libraries=("lxml",)),
    Format("html", (".html", ".htm"), 1, "html", libraries=("trafilatura", "lxml")),
    *_CODE,
)


def format_of(kind: str) -> Format | None:
    """Return the format of this kind; None for formats of records, and for text and Markdown."""
    return _BY_KIND.get(kind)


_BY_KIND = {one.kind: one for one in FORMATS}
