"""Turn a record into a document, or reject it with a reason: a pure function of the record and the settings.

A document depends neither on the order of records in a file nor on the file, except that the names of partition folders
give columns (`lake_folders`): `source` comes from the record itself. Texts stay unchanged, except that Windows line
endings become LF, and that invisible characters which would hide a word are dropped; locations are adjusted
accordingly.

Page locations are as untrusted as the text. An invalid box (a side that is not a finite number, or sides in the wrong
order) is dropped, since the page alone suffices for a citation. Starts that do not ascend or are beyond the text, and
pages below 1, can only come from a faulty extractor: the document is rejected rather than cited wrongly.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from indexmill.retrieve.rights import Access, groups_of
from indexmill.store.canonical import canonical_json, digest_of_texts
from indexmill.text.normalise import HIDDEN
from schemas.corpus import EVERYTHING_ELSE, AccessSettings, FieldNames

REASONS: dict[str, str] = {
    "bad-access": "the field that says who may read the document is missing, or names no group; see corpus.access",
    "bad-columns": "a CSV or Parquet file lacks the columns of id or text, or has too many; or a CSV row has others",
    "bad-id": "the id is neither a string nor a number, or is longer than 1024 bytes",
    "bad-metadata": "metadata that is not an object, or that JSON cannot hold, such as whole numbers of 14,001 bits",
    "bad-name": "the file's name, or that of a folder above it, is not UTF-8",
    "bad-op": "an event of a change feed is neither an upsert nor a delete",
    "duplicate-id": "another row has this id and another content; the smallest content hash is kept",
    "empty-file": "the file has no text, such as a page of front matter alone; it does not count as a failure",
    "encrypted": "the file is locked with a password",
    "hostile-file": "entities that expand, entries that lead outside of their archive, or the like: see the detail",
    "link-outside": "the file is a link that leads outside the corpus; see corpus.follow_links",
    "lone-surrogate": "half of a surrogate pair, which no text can contain",
    "no-id": "the record has no id",
    "no-text": "the record has no text, or only spaces",
    "no-text-layer": "the pages are pictures without text; see corpus.extract.ocr",
    "not-a-file": "a pipe, a device or a socket with the name of a corpus file",
    "not-an-object": "the line, or the element of an array, is JSON but not an object",
    "not-csv": "quotes that are not closed, or are where none may be",
    "not-json": "the line, or the element of an array, is not JSON; or the file is not JSON Lines",
    "not-text": "the text is not a string",
    "not-utf8": "bytes that are not UTF-8, and whose encoding is unknown; see corpus.encoding",
    "nul": "a NUL character",
    "old-format": "a Word file of 1997 to 2003, which is not read: convert it; it does not count as a failure",
    "reader-failed": "reading it crashes, or takes more than max_reading_memory_bytes; the rows before are kept",
    "too-large": "the document is over the limit of max_document_bytes, or its title is over 4096 bytes",
    "too-slow": "reading it takes longer than max_document_seconds; the rows before are kept",
    "unreadable-file": "the file cannot be opened, breaks off, or is over a limit; the rows before are kept",
    "unreadable-text": "the fonts do not say which letters they show; see corpus.extract.ocr",
}
"""The reasons why a row or a file is rejected: the values of `reason` in the quarantine table."""

FILE_FIELDS = FieldNames(source=("source",), metadata="metadata")
"""The fields of the records that readers return for text files."""

_MAX_ID_BYTES = 1024
MAX_DEPTH = 64
"""The maximum nesting depth of metadata."""
MAX_TITLE_BYTES = 4096
"""The maximum size of a title in UTF-8: it is indexed with each passage of its document."""
_MAX_INTEGER_BITS = 14_000  # Python converts at most 4,300 digits
_MAX_PAGE = (1 << 31) - 1  # the largest int32
_FARTHEST = 100_000.0  # the largest side of a box, in points: 35 m, beyond any page
_DETAIL = 300

_DROPPED = re.compile(rf"\r(?=\n)|{HIDDEN.pattern}")
"""Characters that are not part of a document's text."""


@dataclass(frozen=True, slots=True)
class Location:
    """The position in the file of the text from `start` to the next location.

    start: the offset in the document's text, in code points. page: the page, slide or notebook cell, counted from 1.
    box: left, top, right and bottom of the block on its page, in points from the upper left corner; None if unknown.
    Documents store it to two decimals.
    """

    start: int
    page: int
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class WordCounts:
    """The words of a file that becomes one document; see `file_counts`.

    in_file: the number of each word, counted apart from the text; the total, for a text whose words are all read or
    left out; None if it cannot be counted. left_out: the numbers of words by reason, a key of `file_counts.LEFT_OUT`.
    pages: (page, words, words of the text) of each page that lost words or has no text.
    """

    in_file: Counter[str] | int | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    pages: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One record of a file.

    line: the line, Parquet row or array element, counted from 1; None for a whole file. place: the beginning of a
    rejection's detail if `line` alone does not identify the record. front_matter_left_out: True if the front matter, or
    some of its lines, cannot be read. locations: the locations of an extracted text. words: those of the file; None
    for a record.
    """

    line: int | None
    record: Mapping[str, Any]
    place: str = ""
    front_matter_left_out: bool = False
    locations: tuple[Location, ...] = ()
    words: WordCounts | None = None


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A rejected row or, if `line` is None, the rejected file or rest of a file. `detail` is at most 300 characters."""

    line: int | None
    document_id: str | None
    reason: str
    detail: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"unknown reason {self.reason!r}; expected one of {sorted(REASONS)}")
        object.__setattr__(self, "detail", clip(self.detail))
        if self.document_id is not None:
            object.__setattr__(self, "document_id", clip(self.document_id))


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the corpus: a row of the schema DOCUMENTS, with its UTF-8 size in bytes."""

    document_id: str
    title: str
    text: str
    source: str | None
    metadata: str  # canonical JSON object
    content_hash: str  # SHA-256 of title, text, source, metadata and the locations, if any; 64 hex digits
    size: int  # bytes of title and text
    locations: tuple[Location, ...] = ()  # of an extracted text, ascending
    metadata_left_out: bool = False  # whether metadata, or some values, were left out


class _RefusedError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def document_of(
    row: SourceRow, fields: FieldNames, max_document_bytes: int, access: AccessSettings | None = None
) -> Document | RejectedRow:
    """Turn a record into a document. access: if set, the document must have valid access groups."""
    document_id: str | None = None
    try:
        document_id = _identifier(row.record, fields.id)
        text = _text(row.record, fields.text)
        locations = _locations(row.locations, row.record[fields.text]) if row.locations else ()
        title = _title(row.record.get(fields.title)) if fields.title is not None else ""
        source_field, source = _source(row.record, fields.source)
        metadata, lost = _metadata(row.record, fields, source_field, max_document_bytes)
        title_size = len(_encoded(title, "title"))
        if title_size > MAX_TITLE_BYTES:
            raise _RefusedError("too-large", f"the title is {title_size:,} bytes; the limit is {MAX_TITLE_BYTES:,}")
        size = title_size + len(_encoded(text, "text"))
        whole = size + len(metadata.encode("utf-8"))
        if whole > max_document_bytes:
            sizes = f"{whole} bytes of title, text and metadata"
            raise _RefusedError("too-large", f"{sizes}; the limit is {max_document_bytes}")
        if access is not None:
            _check_access(metadata, access, row, lost)
    except _RefusedError as refused:
        return RejectedRow(row.line, document_id, refused.reason, row.place + refused.detail)
    places = [json.dumps([(at.start, at.page, at.box) for at in locations])] if locations else []
    content_hash = digest_of_texts(title, text, source or "", metadata, *places)
    left_out = row.front_matter_left_out or bool(lost)
    return Document(document_id, title, text, source, metadata, content_hash, size, locations, left_out)


def with_language(document: Document) -> Document:
    """Add the language to a document's metadata, unless it states one or the language cannot be detected."""
    from tasks.text.language import language_of  # few corpora ask for languages

    metadata = json.loads(document.metadata)
    language = None if metadata.get("language") else language_of(document.text)
    if language is None:
        return document
    stated = canonical_json({**metadata, "language": language}).decode("utf-8").removesuffix("\n")
    content_hash = digest_of_texts(document.title, document.text, document.source or "", stated)
    return replace(document, metadata=stated, content_hash=content_hash)


def clip(text: str, most: int = _DETAIL) -> str:
    """Return a text that any table can store: shortened, and without lone surrogates and NUL."""
    shown = text[:most].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
    if len(text) <= most and len(shown) <= most:
        return shown
    return shown[: most - 3] + "..."


def _identifier(record: Mapping[str, Any], field: str) -> str:
    value = _readable(record, field)
    if value is None:
        raise _RefusedError("no-id", f"field {field!r} is missing or null; found {clip(', '.join(record), 150)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float | decimal.Decimal | uuid.UUID):
        raise _RefusedError("bad-id", f"expected a string or a number in field {field!r}, found {type(value).__name__}")
    name = _number(value, "bad-id") if isinstance(value, int | float | decimal.Decimal) else str(value)
    if not name.strip():
        raise _RefusedError("no-id", f"field {field!r} is empty")
    if len(_encoded(name, field)) > _MAX_ID_BYTES:
        raise _RefusedError("bad-id", f"the id is over {_MAX_ID_BYTES} bytes: {clip(name, 100)}")
    return name


def _readable(record: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field that a document needs. Raises for a value that is an error of its reader."""
    value = record.get(field)
    if isinstance(value, Exception):
        reason = "not-utf8" if isinstance(value, UnicodeDecodeError) else "bad-metadata"
        raise _RefusedError(reason, f"field {field!r}: {type(value).__name__}: {value}")
    return value


def _number(value: int | float | decimal.Decimal, reason: str) -> str:
    """Return a number as decimal digits, for an id. 7 and 7.0 give the same id, as JSON does not distinguish them."""
    if isinstance(value, int):
        return str(value)
    if not _is_finite(value):
        raise _RefusedError(reason, f"{value} is not a number that JSON can hold")
    if value == int(value):
        return str(int(value))
    return format(decimal.Decimal(repr(value)) if isinstance(value, float) else value, "f")


def _is_finite(value: float | decimal.Decimal) -> bool:
    return value.is_finite() if isinstance(value, decimal.Decimal) else isinstance(value, int) or math.isfinite(value)


def _text(record: Mapping[str, Any], field: str) -> str:
    value = _readable(record, field)
    if value is None:
        raise _RefusedError("no-text", f"field {field!r} is missing or null; found {clip(', '.join(record), 150)}")
    if not isinstance(value, str):
        raise _RefusedError("not-text", f"expected a string in field {field!r}, found {type(value).__name__}")
    text = _shown(value)
    if not text.strip():
        raise _RefusedError("no-text", f"field {field!r} is empty")
    return text


def _shown(text: str) -> str:
    return text.replace("\r\n", "\n") if text.isascii() else _DROPPED.sub("", text)


def _locations(locations: Sequence[Location], raw: str) -> tuple[Location, ...]:
    """Adjust locations to dropped characters; of several with one start, the last counts. raw: the original text."""
    dropped = [match.start() for match in _DROPPED.finditer(raw)] if "\r" in raw or not raw.isascii() else []
    before = 0
    valid: list[Location] = []
    for location in locations:
        if not before <= location.start <= len(raw):
            what = f"one at {location.start} after {before}, in a text of {len(raw)}"
            raise _RefusedError("unreadable-file", f"the locations of the text are invalid: {what}")
        if not 1 <= location.page <= _MAX_PAGE:
            raise _RefusedError("unreadable-file", f"a location names page {location.page}, which cannot exist")
        before = location.start
        place = Location(location.start - bisect_left(dropped, location.start), location.page, _box(location.box))
        if valid and valid[-1].start == place.start:
            valid.pop()
        if location.start < len(raw) and not (valid and (valid[-1].page, valid[-1].box) == (place.page, place.box)):
            valid.append(place)
    return tuple(valid)


def _box(box: Sequence[float] | None) -> tuple[float, float, float, float] | None:
    """Return a box rounded to two decimals; None if it is invalid."""
    if box is None or len(box) != 4 or not all(abs(side) <= _FARTHEST for side in box):  # false for NaN
        return None
    left, top, right, bottom = (round(float(side), 2) + 0.0 for side in box)  # -0.0 is 0.0
    return (left, top, right, bottom) if left <= right and top <= bottom else None


def _title(value: Any) -> str:
    if isinstance(value, bool):
        return ""
    if isinstance(value, int | float | decimal.Decimal):
        return _number(value, "bad-metadata") if _is_finite(value) else ""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return _shown(value).strip() if isinstance(value, str) else ""


def _source(record: Mapping[str, Any], fields: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return the first source field that contains text, and its value; (None, None) if there is none."""
    for name in fields:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            _encoded(value, name)
            return name, value
    return None, None


def _metadata(
    record: Mapping[str, Any], fields: FieldNames, source_field: str | None, most_bytes: int
) -> tuple[str, frozenset[str]]:
    """Return the metadata as canonical JSON, and the names of the fields of which values were left out."""
    used = {fields.id, fields.title, fields.text, source_field}
    if fields.metadata == EVERYTHING_ELSE:
        values = {name: value for name, value in record.items() if name not in used}
        lifted = values.get("metadata")
        if isinstance(lifted, Mapping) and not (values.keys() - {"metadata"}) & lifted.keys():
            del values["metadata"]
            values.update(lifted)
    elif isinstance(fields.metadata, str):
        values = _object(record.get(fields.metadata), fields.metadata)
    else:
        values = {name: record[name] for name in fields.metadata if name in record}
    if not values:
        return "{}", frozenset()
    try:
        plain_values = _Plain(most_bytes)
        metadata = canonical_json(plain_values.value(values, 0)).decode("utf-8").removesuffix("\n")
        return metadata, frozenset(plain_values.left_out)
    except UnicodeEncodeError as error:
        raise _RefusedError("lone-surrogate", f"in the metadata: {error.reason}") from error


def _check_access(metadata: str, access: AccessSettings, row: SourceRow, lost: Collection[str]) -> None:
    if row.front_matter_left_out:
        raise _RefusedError("bad-access", "the front matter, which may say who may read the document, cannot be read")
    if access.field in lost:
        raise _RefusedError("bad-access", f"field {access.field!r} has a value that JSON cannot hold")
    try:
        groups_of(json.loads(metadata), Access(access.field, access.required))
    except ValueError as error:
        raise _RefusedError("bad-access", str(error)) from error


def _object(value: Any, field: str) -> dict[str, Any]:
    """Return the value of a metadata field as a dict; CSV and Parquet may store the object as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError) as error:
            raise _RefusedError("bad-metadata", f"field {field!r} is not JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _RefusedError("bad-metadata", f"expected an object in field {field!r}, found {type(value).__name__}")
    return dict(value)


def plain(metadata: Mapping[Any, Any], most: int) -> tuple[dict[str, Any], bool]:
    """Return metadata as plain JSON, and whether values were left out.

    Raises ValueError if it is impossible, or for more than `most` values and characters.
    """
    plain_values = _Plain(most)
    try:
        return plain_values.value(metadata, 0), bool(plain_values.left_out)
    except _RefusedError as refused:
        raise ValueError(refused.detail) from refused


_LEFT_OUT = object()


class _Plain:
    """Converts metadata to plain JSON values, up to a limit: YAML's aliases can stand for billions of values.

    Numbers that JSON lacks, such as NaN, become null. Values that JSON cannot represent, such as bytes and errors of
    a reader, are left out.
    left_out: the outermost keys of their fields.
    """

    def __init__(self, most: int) -> None:
        self._remaining = most
        self._field = ""
        self.left_out: set[str] = set()

    def value(self, value: Any, depth: int) -> Any:
        self._remaining -= 1
        if self._remaining < 0:
            raise _RefusedError("too-large", "the metadata is over the limit")
        if depth > MAX_DEPTH:
            raise _RefusedError("bad-metadata", f"nested more than {MAX_DEPTH} deep")
        if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
            raise _RefusedError("bad-metadata", f"a whole number of {value.bit_length():,} bits")
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            self._remaining -= len(value)
            if "\x00" in value:
                raise _RefusedError("nul", "in the metadata")
            return value
        if isinstance(value, float | decimal.Decimal) and not _is_finite(value):
            return None
        if isinstance(value, float):
            return value
        if isinstance(value, Mapping):
            plain: dict[str, Any] = {}
            for key, inner in value.items():
                name = self._key(key)
                self._field = self._field if depth else name
                if name in plain:
                    raise _RefusedError("bad-metadata", "two keys are equal as strings")
                plain[name] = self.value(inner, depth + 1)
            return {name: inner for name, inner in plain.items() if inner is not _LEFT_OUT}
        if isinstance(value, list | tuple):
            items = [self.value(inner, depth + 1) for inner in value]
            return [item for item in items if item is not _LEFT_OUT]
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        if isinstance(value, decimal.Decimal | uuid.UUID):
            return str(value)
        self.left_out.add(self._field)
        return _LEFT_OUT

    def _key(self, key: Any) -> str:
        if isinstance(key, bool) or not isinstance(key, str | int | datetime.date):
            raise _RefusedError("bad-metadata", f"expected a string as a key, found {type(key).__name__}")
        self._remaining -= 1
        if isinstance(key, int) and key.bit_length() > _MAX_INTEGER_BITS:
            raise _RefusedError("bad-metadata", f"a whole number of {key.bit_length():,} bits as key")
        if isinstance(key, datetime.date):
            return key.isoformat()
        if "\x00" in str(key):
            raise _RefusedError("nul", "in a key of the metadata")
        return str(key)


def _encoded(text: str, field: str) -> bytes:
    if "\x00" in text:
        raise _RefusedError("nul", f"at character {text.index(chr(0))} of field {field!r}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        detail = f"U+{ord(text[error.start]):04X} at character {error.start} of field {field!r}"
        raise _RefusedError("lone-surrogate", detail) from error
