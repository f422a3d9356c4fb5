"""E-mail messages (.eml): sender, recipients, date, the text and the names of attachments.

Of alternatives, the plain text is read unless the web page has far more words. Attachments, also attached messages, are
named and counted, but not read. Headers are decoded leniently, since many programs write invalid ones.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from email import policy
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats import html
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, read_whole
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clean
from tasks.stages.ingest.formats.text_encoding import encoding_of
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words, words_of

_MAX_DEPTH = 50
_MAX_PARTS = 10_000
_MAX_HEADER = 20_000
_RICHER = 2
"""The web page is read if it has this many times the words of the plain text."""
_SHOWN = {"From": "author", "To": "to", "Cc": "cc", "Date": "date"}


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a message. See `Extractor`."""
    data = read_whole(file, limits)
    codec, mark = encoding_of(data, "utf-8")
    if codec != "utf-8":
        data = data[mark:].decode(codec, "replace").encode("utf-8", "replace")
    try:
        mail = BytesParser(policy=policy.compat32).parsebytes(data.removeprefix(BOM_UTF8))
        return _Mail(mail, limits).read()
    except RecursionError as error:
        raise UnreadableError("hostile-file", "its parts are nested too deeply") from error
    except (MessageError, LookupError, ValueError, AttributeError, TypeError) as error:
        raise UnreadableError("unreadable-file", f"it is not a message: {type(error).__name__}") from error


class _Mail:
    def __init__(self, message: Message, limits: ExtractionLimits) -> None:
        self._message, self._limits = message, limits
        self._attachments: list[str] = []
        self._parts = 0

    def read(self) -> Extracted:
        headers = {name: self._header(name) for name in ("Subject", *_SHOWN)}
        if not any(headers.values()):
            raise UnreadableError("unreadable-file", "it has none of the headers of a message")
        body = self._text(self._message, 0)
        lines = [f"{name}: {headers[name]}" for name in _SHOWN if headers[name]]
        words = _words([body, Extracted("", words=WordCounts(words_of("\n".join(lines))))])
        if self._attachments:
            lines.append(f"Attachments, not read: {', '.join(self._attachments)}")
        text = "\n\n".join(filter(None, ("\n".join(self._markdown(line) for line in lines), body.text)))
        metadata: dict[str, Any] = {key: headers[name] for name, key in _SHOWN.items() if headers[name]}
        try:
            metadata["date"] = parsedate_to_datetime(headers["Date"]).isoformat()
        except (TypeError, ValueError, IndexError, OverflowError):
            metadata.pop("date", None)
        if self._attachments:
            metadata["unread"] = {"attachments": len(self._attachments)}
        return Extracted(text, title_of(headers["Subject"]), metadata, words=words)

    def _text(self, part: Message, depth: int) -> Extracted:
        """Return the text of a part as Markdown, with its words, and record attachments."""
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise UnreadableError("hostile-file", "its parts are nested too deeply, or too many")
        kind = part.get_content_type()
        payload = part.get_payload()
        name = _decoded(part.get_filename(""))
        if kind.startswith("multipart/") and isinstance(payload, list):
            parts = [inner for inner in payload if isinstance(inner, Message)]
            texts = [(inner.get_content_type(), self._text(inner, depth + 1)) for inner in parts]
            texts = [(inner, text) for inner, text in texts if text.text]
            if kind != "multipart/alternative" or not texts:
                read = [text for _, text in texts]
                return Extracted("\n\n".join(text.text for text in read), words=_words(read))
            rich = texts[-1][1]
            plain = next((text for inner, text in texts if inner == "text/plain"), rich)
            return rich if count_words(rich.text) > _RICHER * count_words(plain.text) else plain
        if kind not in ("text/plain", "text/html") or part.get_content_disposition() == "attachment" or name:
            self._attachments.append(one_line(clean(name)) or kind)
            return Extracted("")
        data = part.get_payload(decode=True)
        return self._body(data, part.get_content_charset(""), kind) if isinstance(data, bytes) else Extracted("")

    def _body(self, data: bytes, charset: str, kind: str) -> Extracted:
        codec, mark = encoding_of(data, stated=charset)
        text = data[mark:].decode(codec, "replace").replace("\r\n", "\n").replace("\x00", "")
        if kind == "text/html":
            return html.extract(io.BytesIO(text.encode("utf-8", "replace")), self._limits)
        writer = MarkdownWriter(self._limits)
        for paragraph in text.split("\n\n"):
            writer.paragraph(Inline(paragraph).markdown())
        return Extracted(writer.result()[0], words=WordCounts(words_of(text)))

    def _header(self, name: str) -> str:
        return one_line(clean(_decoded(self._message.get(name, ""))))

    def _markdown(self, line: str) -> str:
        return one_line(Inline(line).markdown())


def _words(parts: Sequence[Extracted]) -> WordCounts:
    """Add up the words of parts; those of a part whose words are not counted are none."""
    in_file, left_out = Counter[str](), Counter[str]()
    for part in parts:
        if isinstance(part.words.in_file, Counter):
            in_file.update(part.words.in_file)
            left_out.update(part.words.left_out)
    return WordCounts(in_file, left_out)


def _decoded(value: Any) -> str:
    """Return a header's value with encoded words such as `=?utf-8?q?...?=` decoded."""
    text = str(value)[:_MAX_HEADER]
    try:
        return str(make_header(decode_header(text)))
    except (MessageError, LookupError, ValueError):
        return text
