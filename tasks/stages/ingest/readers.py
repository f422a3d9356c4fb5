"""Streaming readers: a file becomes an iterator of rows and rejections, in memory that does not grow with the file.

A reader keeps in memory at most one line, one CSV row, one element of a JSON array or a few Parquet rows (a file that
is one object is a row). Content over the settings' limits, such as a line of ten gigabytes or a small .gz that expands
to such a line, is skipped without loading it. A damaged file (a truncated .gz, a broken Parquet page) yields the rows
before the damage, and a rejection for the rest.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from schemas.corpus import EVERYTHING_ELSE, CorpusSettings
from schemas.encodings import AUTO, name_of_codec
from tasks.stages.ingest.documents import RejectedRow, SourceRow, WordCounts, clip
from tasks.stages.ingest.formats.decompression import decompressed, refuse_expansion
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError, read_text
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.ingest.formats.front_matter import read_front_matter
from tasks.stages.ingest.formats.json_array import BrokenArrayError, elements
from tasks.stages.ingest.formats.mdx import without_components
from tasks.stages.ingest.formats.record_batches import records_of
from tasks.stages.ingest.formats.text_encoding import SAMPLE, Utf8Stream, as_utf8, encoding_of
from tasks.stages.ingest.formats.title_filter import first_heading, title_of
from tasks.stages.ingest.formats.word_count import count_words, without_targets
from tasks.stages.ingest.globs import is_chosen
from tasks.stages.ingest.memory import lacks_memory
from tasks.stages.ingest.source_files import (
    MISNAMED,
    RECORDS,
    TEXT_KINDS,
    Kind,
    NoCorpusFile,
    SourceFile,
    kind_of,
    open_source,
)
from tasks.stages.ingest.sources.source_interface import Deleted, Until
from tasks.stages.ingest.sources.source_kinds import open_record_source

_CHUNK = 1 << 20
_HEAD = 300
_MAX_COLUMNS = 10_000
_MOST_REFUSED = 100_000
_MOST_FOOTER = 32 << 20
_ROWS, _ROWS_BYTES, _REPEATED = 64, 4 << 20, 256 << 20  # Parquet rows and bytes in memory; the last: repeated texts
_ROW_BYTES = 64  # the overhead of a row, even of an empty row
_BOM = b"\xef\xbb\xbf"
_LONGEST_MARK = 4
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR = re.compile(rb"sep=([\t -~])\r?\n?", re.IGNORECASE)

Rows = Iterator[SourceRow | RejectedRow]
Records = Iterator[SourceRow | RejectedRow | Deleted | Until]


def read(source: SourceFile, settings: CorpusSettings) -> Records:
    """Yield the rows of one file or record source, and a rejection for each row that cannot be read.

    A text file yields one row with the fields of documents.FILE_FIELDS; a record has the fields of its file, and the
    partition columns that the file lacks. Raises SourceError if a record source cannot be read to its end. Errors for
    lack of memory are raised, since another process may be able to read the file.
    """
    if source.kind == RECORDS:
        assert source.place is not None  # noqa: S101 - records come from a source
        yield from open_record_source(source.place, Path(source.scratch)).rows(source.cursor)
        return
    try:
        refused = 0
        columns = {} if source.kind in TEXT_KINDS else source.details
        for row in _READERS.get(source.kind, _extracted)(source, settings):
            yield replace(row, record={**columns, **row.record}) if columns and isinstance(row, SourceRow) else row
            refused = refused + 1 if isinstance(row, RejectedRow) else 0
            if refused == _MOST_REFUSED:
                message = f"{refused:,} consecutive rows are refused; the rest is not read"
                yield RejectedRow(None, None, "unreadable-file", message)
                return
    except NoCorpusFile as error:
        yield RejectedRow(None, None, error.reason, error.detail)
    except UnreadableError as error:
        yield RejectedRow(None, source.document_name, error.reason, error.detail)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError, pa.ArrowException, UnicodeError) as error:
        if lacks_memory(error):
            raise
        yield RejectedRow(None, None, "unreadable-file", f"{type(error).__name__}: {error}")


def _misnamed(source: SourceFile, settings: CorpusSettings) -> Rows:
    yield RejectedRow(None, None, "bad-name", "the file's name, or that of a folder above it, is not UTF-8: rename it")


def _json_lines(source: SourceFile, settings: CorpusSettings) -> Rows:
    first = True
    with _open_records(source, settings)[0] as stream:
        for number, line, beyond in _lines(stream, settings.max_line_bytes, blank=False):
            if beyond is not None:
                yield _overlong(number, line, settings)
                continue
            stripped = line.strip()
            if not stripped:  # only a byte order mark
                continue
            if first and stripped in (b"[", b"{"):
                message = (
                    "the file contains one JSON value over several lines; write one object per line, or name it .json"
                )
                yield RejectedRow(None, None, "not-json", message)
                return
            first = False
            yield _json_row(number, stripped)


def _json_row(number: int, line: bytes, place: str = "") -> SourceRow | RejectedRow:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return RejectedRow(number, None, "not-utf8", place + _place_of(error))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "element" if place else "line"
        return RejectedRow(number, None, "not-json", f"{place}{error}; the {what} begins {clip(text, 120)}")
    if not isinstance(record, dict):
        return RejectedRow(number, None, "not-an-object", f"{place}found {type(record).__name__}: {clip(text, 120)}")
    return SourceRow(number, record, place)


def _json(source: SourceFile, settings: CorpusSettings) -> Rows:
    """Yield the rows of an array, a multi-line object, or JSON Lines, as the first non-blank lines indicate."""
    first = list(islice(_some_lines(source, settings), 2))
    head = first[0] if first else b""
    if head.startswith(b"["):
        element_per_line = len(first) == 2 and _is_json(head)
        yield from _json_lines(source, settings) if element_per_line else _json_array(source, settings)
        return
    if head.startswith(b"{") and not _is_json(head) and (row := _one_object(source, head, settings)) is not None:
        yield row
    else:
        yield from _json_lines(source, settings)


def _some_lines(source: SourceFile, settings: CorpusSettings) -> Iterator[bytes]:
    """Yield the lines that are not blank; lines over the limit are cut to their beginning."""
    with _open_records(source, settings)[0] as stream:
        for _, line, _ in _lines(stream, settings.max_line_bytes, blank=False):
            if stripped := line.strip():
                yield stripped


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _json_array(source: SourceFile, settings: CorpusSettings) -> Rows:
    """Yield the rows of an array, numbered by element, since an array may be one line; details also name the line."""
    with _open_records(source, settings)[0] as stream:
        try:
            for element in elements(stream, settings.max_line_bytes):
                place = f"element {element.number} (line {element.line}): "
                if element.too_large:
                    yield _overlong(element.number, element.data, settings, place)
                else:
                    yield _json_row(element.number, element.data, place)
        except BrokenArrayError as error:
            yield RejectedRow(None, None, "unreadable-file", str(error))


def _one_object(source: SourceFile, head: bytes, settings: CorpusSettings) -> SourceRow | RejectedRow | None:
    """Return the row of a file that is one object, or its rejection; None if the file does not look like one object."""
    with _open_records(source, settings)[0] as stream:
        data = stream.read(settings.max_line_bytes + 1)
    if len(data) <= settings.max_line_bytes:
        row = _json_row(1, data.removeprefix(_BOM).strip())
        return row if isinstance(row, SourceRow) or head == b"{" else None
    return _overlong(None, head, settings) if head == b"{" else None


class _TooLargeError(Exception):
    """A CSV row over the limit."""


class _CsvLines:
    """An iterator over lines for csv.reader.

    A row over the limit is skipped to its end: the first line after which its quotes are balanced.
    """

    def __init__(self, lines: Iterator[tuple[int, bytes, int | None]], limit: int) -> None:
        self._lines, self._limit = lines, limit
        self.begin()

    def begin(self) -> None:
        self.row_line: int | None = None
        self.head = b""
        self._length = self._quotes = 0

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        number, line, beyond = next(self._lines)
        if self.row_line is None:
            self.row_line, self.head = number, line[:_HEAD]
        self._length += len(line)
        self._quotes += line.count(b'"') + (beyond or 0)
        if beyond is not None or self._length > self._limit:
            while self._quotes % 2 and (following := next(self._lines, None)) is not None:
                self._quotes += following[1].count(b'"') + (following[2] or 0)
            raise _TooLargeError
        return line.decode("utf-8", "surrogateescape")


def _csv(source: SourceFile, settings: CorpusSettings) -> Rows:
    """Yield the rows of a CSV file, whose first row names the columns. All values are strings: CSV has no types.

    A first line such as `sep=;`, with which Excel is told the delimiter, is no row. Delimiters at the end of a row may
    be more than those of the first row.
    """
    csv.field_size_limit(max(csv.field_size_limit(), settings.max_line_bytes))
    columns: list[str] | None = None
    stream, codec = _open_records(source, settings)
    encoding = _encoding(codec)
    with stream:
        numbered = _lines(stream, settings.max_line_bytes)
        first = next(numbered, (1, b"", None))
        stated = _SEPARATOR.fullmatch(first[1])
        if stated is None:
            numbered = chain([first], numbered)
        lines = _CsvLines(numbered, settings.max_line_bytes)
        delimiter = "\t" if source.kind == "tsv" else settings.csv_delimiter
        if delimiter == AUTO:
            delimiter = _delimiter(first[1], source, settings) if stated is None else stated[1].decode("ascii")
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        separated = f"separated by {delimiter!r} (corpus.csv_delimiter)"
        while True:
            lines.begin()
            try:
                values = next(reader)
            except StopIteration:
                return
            except _TooLargeError:
                yield _overlong(lines.row_line, lines.head, settings)
                continue
            except csv.Error as error:
                head = lines.head.decode("utf-8", "backslashreplace")
                yield RejectedRow(lines.row_line, None, "not-csv", f"{error}; the row begins {clip(head, 120)}")
                continue
            if not values:
                continue
            if any("\udc80" <= letter <= "\udcff" for value in values if not value.isascii() for letter in value):
                yield RejectedRow(lines.row_line, None, "not-utf8", f"the row begins {lines.head!r}")
                continue
            if columns is None:
                columns = values
                while columns and not columns[-1]:
                    columns.pop()
                hint = f"; columns are {separated}"
                if (problem := _column_problem(columns, source, settings, hint)) is not None:
                    yield RejectedRow(lines.row_line, None, "bad-columns", problem)
                    return
                continue
            while len(values) > len(columns) and not values[-1]:
                values.pop()
            if len(values) != len(columns):
                message = f"{len(values)} columns, {separated}, where the first row has {len(columns)}"
                yield RejectedRow(lines.row_line, None, "bad-columns", f"{message}: {clip(str(values), 150)}")
            else:
                yield SourceRow(lines.row_line, {**encoding, **dict(zip(columns, values, strict=True))})


def _delimiter(header: bytes, source: SourceFile, settings: CorpusSettings) -> str:
    """Return the first delimiter that finds the columns of id and text in the first row, else the most frequent."""
    for delimiter in _DELIMITERS:
        with suppress(csv.Error):
            columns = next(csv.reader([header.decode("utf-8", "replace")], delimiter=delimiter), [])
            if {settings.fields.id, settings.fields.text} <= {*columns, *source.details}:
                return delimiter
    return max(_DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))


def _parquet(source: SourceFile, settings: CorpusSettings) -> Rows:
    # Without a buffer of its own, Arrow reads a whole column of a row group at once.
    with (
        open_source(source) as stream,
        pq.ParquetFile(
            _with_a_footer(stream),
            pre_buffer=False,
            buffer_size=_CHUNK,
            page_checksum_verification=True,
            thrift_container_size_limit=10 * _MAX_COLUMNS,  # a footer of more columns or row groups is not read at all
        ) as file,
    ):
        names = file.schema_arrow.names
        if (problem := _column_problem(names, source, settings)) is not None:
            yield RejectedRow(None, None, "bad-columns", problem)
            return
        number = expanded = 0
        columns = _columns_read(names, settings)
        for batch in file.iter_batches(_rows_at_once(file.metadata), columns=columns, use_threads=False):
            texts = 0  # a column may be read as a dictionary, which stores a text once
            for record in records_of(batch):
                number += 1
                texts += sum(len(value) for value in record.values() if isinstance(value, str))
                yield SourceRow(number, record)
            expanded += max(texts, batch.nbytes) + _ROW_BYTES * batch.num_rows
            refuse_expansion(expanded, stream)


def _with_a_footer(stream: io.BufferedReader) -> io.BufferedReader:
    """Return the rewound stream. Raises OSError if the footer, which Arrow reads in one piece, is too long."""
    stream.seek(-min(8, stream.seek(0, os.SEEK_END)), os.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(0)
    if length > _MOST_FOOTER:
        raise OSError(f"it has a footer of {length:,} bytes; at most {_MOST_FOOTER:,} are read: use larger row groups")
    return stream


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """Return the number of rows to read at once: a few megabytes on average, less if rows may repeat a long text."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    repeated = max((chunk.total_uncompressed_size for chunk in chunks if chunk.has_dictionary_page), default=0)
    average = _ROWS_BYTES * metadata.num_rows // max(1, sum(group.total_byte_size for group in groups))
    rows: int = max(1, min(_ROWS, average, _REPEATED // max(1, repeated)))
    return rows


def _columns_read(names: list[str], settings: CorpusSettings) -> list[str] | None:
    fields = settings.fields
    if fields.metadata == EVERYTHING_ELSE or any("." in name for name in names):  # a dot means a nested column
        return None
    metadata = (fields.metadata,) if isinstance(fields.metadata, str) else fields.metadata
    used = {fields.id, fields.title, fields.text, *fields.source, *metadata}
    return [name for name in names if name in used]


def _column_problem(columns: list[str], source: SourceFile, settings: CorpusSettings, hint: str = "") -> str | None:
    fields = settings.fields
    named = fields.metadata if isinstance(fields.metadata, tuple) else ()
    if len(columns) > _MAX_COLUMNS:
        return f"{len(columns):,} columns; at most {_MAX_COLUMNS:,} are read: leave out those that are not needed"
    times = Counter(columns)
    missing = [name for name in (fields.id, fields.text, *named) if name not in times and name not in source.details]
    if missing:
        return f"no column {', '.join(missing)}; there are {clip(', '.join(columns), 200)}: set the corpus fields{hint}"
    twice = sorted(name for name, count in times.items() if count > 1)
    return f"columns of the same name: {', '.join(twice)}" if twice else None


def _text(source: SourceFile, settings: CorpusSettings) -> Rows:
    text, codec = _whole(source, settings)
    words = WordCounts(count_words(without_targets(text)))
    yield _file_row(source, "", text, _encoding(codec), words)


def _markdown(source: SourceFile, settings: CorpusSettings) -> Rows:
    """Yield the row of a Markdown file: title and metadata from front matter, or the first heading as the title.

    Lines of front matter that cannot be read, such as a template's, are dropped. Text between two rules that is not
    YAML stays text.
    """
    text, codec = _whole(source, settings)
    whole = count_words(without_targets(text))
    front = read_front_matter(text)
    metadata, text, left_out = front or ({}, text, False)
    body = count_words(without_targets(text)) if front else whole
    reasons = {"front-matter": whole - body}
    if source.kind == "mdx":
        text = without_components(text)
        reasons["components"] = body - count_words(without_targets(text))
    title = metadata.pop("title", None)
    title = title_of(title) if isinstance(title, str) else title
    title = first_heading(text) if title in (None, "") else title
    metadata |= _encoding(codec)
    if kind_of(source.document_name) != (source.kind, None):  # the name does not tell that the text is Markdown
        metadata["format"] = "markdown"
    yield _file_row(source, title, text, metadata, WordCounts(whole, reasons), left_out=left_out)


def _extracted(source: SourceFile, settings: CorpusSettings) -> Rows:
    file_format = format_of(source.kind)
    if file_format is None:
        raise ValueError(f"there is no format {source.kind!r}")
    extract = file_format.extractor()
    chosen = settings.extract
    limits = ExtractionLimits(settings.max_document_bytes, chosen.max_pages, chosen.max_expanded_bytes, chosen.ocr)
    with open_source(source) as stream:
        file: BinaryIO = stream
        codec = "utf-8"
        if file_format.is_text:
            file, codec = as_utf8(stream, limits.text_bytes, _fixed_encoding(source, settings), source.charset)
        extracted = extract(file, limits)
    metadata = {**extracted.metadata, **_encoding(codec), "format": file_format.kind}
    title = extracted.title or (source.document_name if file_format.titled_by_path else "")
    left_out = extracted.front_matter_left_out
    row = _file_row(source, title, extracted.text, metadata, extracted.words, left_out=left_out)
    yield replace(row, locations=extracted.locations) if isinstance(row, SourceRow) else row


def _file_row(
    source: SourceFile, title: Any, text: str, metadata: dict[str, Any], words: WordCounts, *, left_out: bool = False
) -> SourceRow | RejectedRow:
    name = source.document_name
    if not text.strip():
        total = words.in_file.total() if isinstance(words.in_file, Counter) else words.in_file or 0
        lost = {reason: number for reason, number in words.left_out.items() if number and reason != "front-matter"}
        if total and lost:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(lost.items()))
            return RejectedRow(None, name, "no-text", f"none of its {total:,} words is content: {reasons}")
        return RejectedRow(None, name, "empty-file", "it has no text")
    record = {"id": name, "title": title, "text": text, "source": name, "metadata": {**source.details, **metadata}}
    return SourceRow(None, record, front_matter_left_out=left_out, words=words)


def _whole(source: SourceFile, settings: CorpusSettings) -> tuple[str, str]:
    """Read the text of a file, and its codec. Raises UnreadableError if it is too long or its encoding is unknown."""
    most = settings.max_document_bytes
    with open_source(source) as stream:
        file, codec = as_utf8(stream, most, _fixed_encoding(source, settings), source.charset)
        try:
            text = read_text(file, most, f"the file has more than {most} bytes")
        except UnreadableError as error:
            if isinstance(error.__cause__, UnicodeDecodeError):
                raise UnreadableError(error.reason, f"{_place_of(error.__cause__)}; see corpus.encoding") from error
            raise
    return text.replace("\r\n", "\n"), codec


def _fixed_encoding(source: SourceFile, settings: CorpusSettings) -> str:
    """Return the encoding that the settings name for a file; `auto` if they name none."""
    by_glob = {"**": settings.encoding} if isinstance(settings.encoding, str) else settings.encoding
    return next((name for glob, name in by_glob.items() if is_chosen(source.document_name, (glob,), ())), AUTO)


def _encoding(codec: str) -> dict[str, str]:
    """Return the metadata about a text's encoding; none for UTF-8."""
    return {} if codec == "utf-8" else {"encoding": name_of_codec(codec)}


def _open_records(source: SourceFile, settings: CorpusSettings) -> tuple[io.BufferedReader, str]:
    """Open a file of records as UTF-8; also return its codec. That of JSON is not detected: it is UTF-8 (RFC 8259)."""
    fixed = _fixed_encoding(source, settings)
    is_json = source.kind.startswith("json")
    with _open_decompressed(source) as stream:
        head = _head(stream, _LONGEST_MARK if is_json else SAMPLE)
    codec, mark = encoding_of(head, "utf-8" if is_json and fixed == AUTO else fixed, source.charset)
    stream = _open_decompressed(source)
    return stream if codec == "utf-8" else io.BufferedReader(Utf8Stream(stream, codec, mark)), codec


def _head(stream: io.BufferedReader, size: int) -> bytes:
    """Return the beginning of a stream, up to the damage if it is damaged."""
    head = bytearray()
    with suppress(OSError, EOFError, zlib.error, zstandard.ZstdError):
        while len(head) < size and (piece := stream.read1(min(_CHUNK, size - len(head)))):
            head += piece
    return bytes(head)


def _open_decompressed(source: SourceFile) -> io.BufferedReader:
    return decompressed(open_source(source), source.compression)


def _lines(stream: io.BufferedReader, limit: int, *, blank: bool = True) -> Iterator[tuple[int, bytes, int | None]]:
    """Yield (number, line, None); for a line over the limit (number, its beginning, the number of quotes in the rest).

    blank: whether to yield blank lines too; skipping many blank lines is much faster.
    """
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if len(line) <= limit or line.endswith(b"\n"):
            if blank or not line.isspace():
                yield number, line, None
                continue
            ahead = stream.peek()
            skipped = stream.read(1 + ahead.rfind(b"\n", 0, len(ahead) - len(ahead.lstrip())))
            number += skipped.count(b"\n")
            continue
        head, quotes = line[:_HEAD], line[_HEAD:].count(b'"')
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
            quotes += line.count(b'"')
        yield number, head, quotes


def _overlong(number: int | None, head: bytes, settings: CorpusSettings, place: str = "") -> RejectedRow:
    shown = head[:120].decode("utf-8", "backslashreplace")
    return RejectedRow(
        number, None, "too-large", f"{place}more than {settings.max_line_bytes} bytes; it begins {shown}"
    )


def _place_of(error: UnicodeDecodeError) -> str:
    around = error.object[max(0, error.start - 20) : error.start + 20]
    return f"{error.reason} at byte {error.start}: {around!r}"


_READERS: dict[Kind, Callable[[SourceFile, CorpusSettings], Rows]] = {
    "json": _json,
    "json-lines": _json_lines,
    "parquet": _parquet,
    "csv": _csv,
    "tsv": _csv,
    "text": _text,
    "markdown": _markdown,
    "mdx": _markdown,
    MISNAMED: _misnamed,
}
