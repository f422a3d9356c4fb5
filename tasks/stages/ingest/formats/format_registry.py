"""The formats in which each file is one document. Formats of records are in `readers`."""

from __future__ import annotations

from tasks.stages.ingest.formats.code import LANGUAGES
from tasks.stages.ingest.formats.extraction import Format

_PAGES = ("chardet", "lxml", "trafilatura")
_CODE = tuple(
    Format(
        name,
        language.suffixes,
        2,
        "code",
        language.libraries,
        dialect=name,
        by_default=False,
        titled_by_path=True,
        is_text=True,
    )
    for name, language in LANGUAGES.items()
)

FORMATS: tuple[Format, ...] = (
    Format("pdf", (".pdf",), 3, "pdf", libraries=("pypdfium2",), has_pictures=True),
    Format("notebook", (".ipynb",), 3, "notebook", libraries=("docutils",)),
    Format("restructured-text", (".rst",), 3, "restructured_text", libraries=("docutils",), is_text=True),
    Format("docx", (".docx", ".docm"), 3, "docx", libraries=("chardet", "lxml")),
    Format("pptx", (".pptx", ".pptm"), 3, "pptx"),
    Format("xlsx", (".xlsx", ".xlsm"), 3, "xlsx"),
    Format("epub", (".epub",), 3, "epub", libraries=("chardet", "lxml")),
    Format("html", (".html", ".htm", ".xhtml", ".xht"), 1, "html", libraries=_PAGES, is_text=True),
    Format("opendocument-text", (".odt", ".ott"), 1, "opendocument"),
    Format("opendocument-spreadsheet", (".ods", ".ots"), 1, "opendocument"),
    Format("opendocument-presentation", (".odp", ".otp"), 1, "opendocument"),
    Format("email", (".eml",), 1, "eml", libraries=_PAGES),
    Format("xls", (".xls", ".xlt"), 1, "old_office", ("python-calamine", *_PAGES), dialect="xls"),
    Format("doc", (".doc", ".dot"), 1, "old_office", ("xberg", *_PAGES), dialect="doc"),
    Format("xml", (".xml",), 1, "xml_text", ("xberg", *_PAGES), by_default=False, is_text=True),
    *(
        Format(name, suffixes, 1, "by_xberg", libraries=("xberg",), dialect=name, is_text=is_text, extra="xberg")
        for name, suffixes, is_text in (
            ("rtf", (".rtf",), False),
            ("msg", (".msg",), False),
            ("ppt", (".ppt", ".pps"), False),
            ("org", (".org",), True),
            ("asciidoc", (".adoc", ".asciidoc"), True),
            ("fictionbook", (".fb2",), True),
            ("jats", (".nxml",), True),
        )
    ),
    *_CODE,
)


def format_of(kind: str) -> Format | None:
    """Return the format of this kind; None for formats of records, and for text and Markdown."""
    return _BY_KIND.get(kind)


_BY_KIND = {one.kind: one for one in FORMATS}
