"""The interface of extractors: a file of a format such as PDF becomes one document in Markdown.

An extractor is a module of this folder with a function

    extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted

and a line in `tasks.stages.ingest.formats.format_registry`. It is a pure function of the bytes and the limits. It runs
in a process that may crash, and that is killed if it exceeds a limit of time or memory. Even so it rejects the files
whose faults it can detect, with a reason that says what is wrong with the file.

The text is Markdown: `#` headings, tables with `|`, fenced code, lists. The visible words are unchanged. Characters
with a meaning in Markdown are escaped where they would change the visible text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO, cast

from indexmill.extras import not_installed
from tasks.core.environment import library_versions
from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats.tesseract import tesseract_versions

_CHUNK = 1 << 20
_BOM = "\ufeff"
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?)?)?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,4}")


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """The limits of an extractor, and its OCR languages.

    text_bytes: the maximum size of the text in UTF-8. pages: the maximum number of pages. expanded_bytes: the maximum
    expanded size of an archive. ocr: tesseract's languages, such as `eng+deu`; empty for no OCR.
    """

    text_bytes: int = 10_000_000
    pages: int = 5_000
    expanded_bytes: int = 256 << 20
    ocr: str = ""

    def check_pages(self, count: int, units: str) -> None:
        """Raise UnreadableError for a document with too many pages. units: the word for pages, such as `chapters`."""
        if count > self.pages:
            message = f"it has {count:,} {units}; at most {self.pages:,} are read, see corpus.extract.max_pages"
            raise UnreadableError("too-large", message)


@dataclass(frozen=True, slots=True)
class Extracted:
    """The content of a file. text: Markdown. metadata: JSON values. locations: ascending; empty without pages.

    title: see `title_filter.title_of`. front_matter_left_out: whether lines of front matter cannot be read. words:
    those of the file, and those that are left out.
    """

    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locations: tuple[Location, ...] = ()
    front_matter_left_out: bool = False
    words: WordCounts = field(default_factory=WordCounts)


class UnreadableError(Exception):
    """A file was rejected. reason: a key of `documents.REASONS`; detail: what is wrong, without text from the file."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)  # the arguments for unpickling
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return self.detail


Extractor = Callable[[BinaryIO, ExtractionLimits], Extracted]
"""Extracts a file. Raises UnreadableError if it is in the wrong format, damaged, locked or hostile, or over a limit."""


def read_bytes(file: BinaryIO, most_bytes: int, too_large: str) -> bytearray:
    """Read a file. Memory grows only with the file's size.

    too_large: the message if the file is larger than `most_bytes`. Raises UnreadableError if it is.
    """
    data = bytearray()
    while len(data) <= most_bytes and (chunk := file.read(min(_CHUNK, most_bytes + 1 - len(data)))):
        data += chunk
    if len(data) > most_bytes:
        raise UnreadableError("too-large", too_large)
    return data


def read_whole(file: BinaryIO, limits: ExtractionLimits) -> bytes:
    """Read a file that is not a text. Raises UnreadableError if it is larger than an archive may expand to."""
    most = limits.expanded_bytes
    return bytes(read_bytes(file, most, f"it is over {most:,} bytes; see corpus.extract.max_expanded_bytes"))


def read_text(file: BinaryIO, most_bytes: int, too_large: str) -> str:
    """Read a UTF-8 file without its byte order mark, with its line endings; too_large: as for `read_bytes`.

    Raises UnreadableError if the file is larger, or is not UTF-8; in the latter case its cause is the
    UnicodeDecodeError.
    """
    data = read_bytes(file, most_bytes, too_large)
    try:
        return data.decode("utf-8").removeprefix(_BOM)  # `utf-8-sig` would not count the mark in error offsets
    except UnicodeDecodeError as error:
        raise UnreadableError("not-utf8", f"{error.reason} at byte {error.start}") from error


def is_date(value: str) -> bool:
    """Return whether a value is an ISO 8601 date, with or without a time, such as `2024` or `2024-05-01T12:00Z`."""
    return _DATE.fullmatch(value) is not None


def is_language(value: str) -> bool:
    """Return whether a value is a language tag, such as `en` or `de-CH`."""
    return _LANGUAGE.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Format:
    """A format in which each file is one document.

    kind: the format's name, stored in the metadata as `format`. version: increased whenever the same bytes yield a new
    text. libraries: the packages that determine the text. has_pictures: whether pages may be pictures, which tesseract
    reads if `corpus.extract.ocr` is set. dialect: the third argument of `extract`, if the module reads several formats.
    by_default: False for files that are read only if `corpus.include` or the path names their suffix, since a folder of
    documents may also contain code. titled_by_path: whether a file without a title gets its path as title. is_text:
    whether the file is a text, which is converted to UTF-8 (`text_encoding`) before it is extracted. extra: a
    package that an extra of indexmill installs; without it, files of the format are passed over.
    """

    kind: str
    suffixes: tuple[str, ...]
    version: int
    module: str
    libraries: tuple[str, ...] = ()
    has_pictures: bool = False
    dialect: str = ""
    by_default: bool = True
    titled_by_path: bool = False
    is_text: bool = False
    extra: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the package of an extra is installed, if the format needs one."""
        return not self.extra or find_spec(self.extra) is not None

    def versions(self, ocr: str) -> dict[str, str]:
        """Return the versions of the packages and programs that determine the text. ocr: as in `ExtractionLimits`."""
        libraries = (*self.libraries, "chardet") if self.is_text else self.libraries
        return library_versions(*libraries) | (tesseract_versions(ocr) if self.has_pictures else {})

    def extractor(self) -> Extractor:
        """Return the format's `extract` function. Raises an error that says what to install if a package is missing."""
        name = f"tasks.stages.ingest.formats.{self.module}"
        try:
            module = import_module(name)
        except OSError as error:  # from ctypes: a shared library cannot be loaded, for example for lack of memory
            raise ImportError(str(error), name=name) from error
        except ImportError as error:
            raise not_installed(f"reading {self.kind}", error.name or self.module, error) from error
        return cast("Extractor", partial(module.extract, dialect=self.dialect) if self.dialect else module.extract)
