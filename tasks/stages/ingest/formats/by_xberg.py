"""Formats that the library xberg reads: RTF, Outlook messages, PowerPoint 97 to 2003, Org, AsciiDoc, FictionBook, JATS.

xberg (MIT, 160 MB, an extra) is written in Rust. It writes Markdown, reads only the bytes that it is given, does not
use the network, and rejects archives and XML that expand. Of 23 public files of these formats, it reads all.

Of RTF it publishes deleted text, headers and footers, and drops the numbers of lists; so these are removed, or turned
into text, before. Pictures, whose bytes it does not read here, are left out of its Markdown.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, BinaryIO

from indexmill.extras import not_installed
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, is_date, read_whole
from tasks.stages.ingest.formats.markdown_text import clean
from tasks.stages.ingest.formats.title_filter import first_heading, title_of
from tasks.stages.ingest.formats.xml import without_declaration

_TYPES = {
    "asciidoc": "text/asciidoc",
    "fictionbook": "application/x-fictionbook+xml",
    "jats": "application/x-jats+xml",
    "msg": "application/vnd.ms-outlook",
    "org": "text/org",
    "ppt": "application/vnd.ms-powerpoint",
    "rtf": "application/rtf",
}
_STARTS = {"msg": b"\xd0\xcf\x11\xe0", "ppt": b"\xd0\xcf\x11\xe0"}
_WITH_PICTURES = frozenset({"msg", "ppt", "rtf"})
"""Files whose words may be in pictures; a text without words is an empty file."""
_ENTITY = re.compile(rb"<!ENTITY", re.IGNORECASE)
_RULE = re.compile(r"^-----$\n*", re.MULTILINE)
_PICTURE = re.compile(r"!\[([^\[\]\n]{0,1000})\]\([^()\s]{0,200}\)")
_NUMBER = re.compile(r"^(\d{1,3})\\(?=[.)] )", re.MULTILINE)
_BULLET = re.compile(r"^[·•▪‣] +(?=\S)", re.MULTILINE)
_UNDECODED = re.compile(r"\\'|\ufffd")
_RTF = re.compile(
    rb"\\bin(\d{1,9})[ ]?|\\(?:(header|footer|deleted)[lrf]?(?![a-z0-9])|(listtext|pntext)(?![a-z])|.)|[{}]", re.DOTALL
)


def extract(file: BinaryIO, limits: ExtractionLimits, *, dialect: str) -> Extracted:
    """Extract a document; `dialect` names its format. See `Extractor`."""
    data = read_whole(file, limits)
    if not data.startswith(_STARTS.get(dialect, b"")):
        raise UnreadableError("unreadable-file", f"it is not a file of the format {dialect}")
    if _TYPES[dialect].endswith("xml"):
        data = without_declaration(data)
        if _ENTITY.search(data):
            raise UnreadableError("hostile-file", "it declares entities")
    if dialect == "rtf":
        data = _without_deleted(data)
    try:
        document = asyncio.run(_read(data, _TYPES[dialect]))
    except RuntimeError as error:  # of the library, for any file that it cannot read
        reason = "encrypted" if re.search(r"(?i)encrypt|password", str(error)) else "unreadable-file"
        raise UnreadableError(reason, f"it cannot be read: {str(error)[:200]!a}") from error
    text = _PICTURE.sub(lambda picture: f"![{picture[1]}]()" if picture[1] != "image" else "", document.content)
    if dialect == "ppt":
        text = _RULE.sub("", text)  # between slides
    elif dialect == "rtf":
        text = _NUMBER.sub(r"\1", _BULLET.sub("- ", text))
    text = clean(text)
    if not text.strip() and dialect in _WITH_PICTURES:
        raise UnreadableError("no-text", "it has no visible words")
    if len(text.encode("utf-8", "replace")) > limits.text_bytes:
        message = f"its text is over {limits.text_bytes:,} bytes; see corpus.max_document_bytes"
        raise UnreadableError("too-large", message)
    about = document.metadata
    stated = (value for value in (about.title, about.subject) if value and not _UNDECODED.search(value))
    titles = (title_of(value, stated=dialect != "msg") for value in stated)
    metadata: dict[str, Any] = {}
    if about.authors:
        metadata["author"] = ", ".join(map(clean, about.authors))[:1_000]
    if about.created_at and is_date(about.created_at):
        metadata["created"] = about.created_at
    return Extracted(text.strip() + "\n", next(filter(None, titles), "") or first_heading(text), metadata)


async def _read(data: bytes, mime_type: str) -> Any:
    try:
        import xberg  # an extra
    except ImportError as error:
        raise UnreadableError("unreadable-file", str(not_installed("reading it", "xberg", error))) from error
    config = xberg.ExtractionConfig(use_cache=False, disable_ocr=True, output_format="markdown")
    result = await xberg.extract(xberg.ExtractInput(kind="bytes", bytes=data, mime_type=mime_type), config)
    return result.results[0]


def _without_deleted(data: bytes) -> bytes:
    """Remove the groups of deleted text, headers and footers from RTF; make the numbers of lists visible text."""
    shown = bytearray()
    starts: list[tuple[int, bool]] = []  # of the open groups: where they begin in `shown`, and whether to remove them
    at = 0
    while (match := _RTF.search(data, at)) is not None:
        shown += data[at : match.start()]
        at = match.end()
        if match[1] is not None:  # binary data, which may contain braces
            at += int(match[1])
            continue
        if match[3] is not None:
            continue
        if match[2] is not None and starts:
            starts[-1] = starts[-1][0], True
        if match[0] == b"{":
            starts.append((len(shown), False))
        shown += match[0]
        if match[0] == b"}" and starts:
            start, is_removed = starts.pop()
            if is_removed:
                del shown[start:]
    return bytes(shown + data[at:])
