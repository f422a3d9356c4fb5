"""Read an untrusted zip archive within limits: the container of DOCX, PPTX, XLSX and EPUB.

The standard library's `zipfile` reads the directory and decompresses the entries. Before it expands an entry, this
module detects hostile files: paths outside the archive, links, duplicate names, entries that share bytes (the "better
zip bomb", archives that contain themselves), and compression methods other than stored and deflated. It does not trust
the sizes in headers, but counts bytes as they are expanded. It never opens nested archives; of extractors, only `docx`
does, one level deep.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError
from tasks.stages.ingest.memory import lacks_memory

MAX_ENTRIES = 20_000
_MAX_DIRECTORY = 8 << 20
"""The maximum size of the directory at the end of the archive, in bytes."""
_MAX_RATIO = 250
"""The maximum ratio of expanded to stored bytes, for entries over _FREE bytes. Tables of numbers reach 30 to 1."""
_FREE = 4 << 20
_CHUNK = 1 << 18
_HEADER = 30
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED = "EncryptedPackage".encode("utf-16-le")
_SCANNED = 64 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


class Archive:
    """The entries of an archive by name. A name matches exactly, else case-insensitively, as in Office."""

    def __init__(self, archive: zipfile.ZipFile, limits: ExtractionLimits) -> None:
        self._archive = archive
        self._remaining = self._limit = limits.expanded_bytes
        self._entries = _checked(archive)
        self._folded: dict[str, str] = {}
        for name in self._entries:
            self._folded.setdefault(name.casefold(), name)

    def __contains__(self, name: str) -> bool:
        return self._stored_name(name) is not None

    @property
    def expanded_bytes(self) -> int:
        """The number of bytes that the entries read so far expanded to."""
        return self._limit - self._remaining

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(self._entries)

    def read(self, name: str) -> bytes:
        """Return the bytes of an entry. Raises UnreadableError if it is missing, damaged, or expands beyond limits."""
        stored_name = self._stored_name(name)
        if stored_name is None:
            raise UnreadableError("unreadable-file", f"the archive lacks the entry {_shown(name)}")
        entry = self._entries[stored_name]
        data = bytearray()
        with _checking(f"the entry {_shown(name)}"), self._archive.open(entry) as stream:
            while chunk := stream.read(_CHUNK):
                data += chunk
                self._remaining -= len(chunk)
                if len(data) > _FREE and len(data) > _MAX_RATIO * max(entry.compress_size, 1):
                    message = f"the entry {_shown(name)} expands to more than {_MAX_RATIO} times its size"
                    raise UnreadableError("hostile-file", message)
                if self._remaining < 0:
                    message = f"the archive expands to more than {self._limit:,} bytes"
                    raise UnreadableError("too-large", f"{message}; see corpus.extract.max_expanded_bytes")
        return bytes(data)

    def _stored_name(self, name: str) -> str | None:
        return name if name in self._entries else self._folded.get(name.casefold())


@contextmanager
def open_archive(file: BinaryIO, limits: ExtractionLimits, kind: str) -> Iterator[Archive]:
    """Open an archive for a `with` block. kind: the expected kind of file, for messages.

    If a damaged file causes an exception in the block, an UnreadableError that names the exception is raised instead.
    """
    try:
        _refuse_other_files(file, kind)
        with _checking("the archive"), zipfile.ZipFile(_Bounded(file)) as archive:
            yield Archive(archive, limits)
    except UnreadableError:
        raise
    except RecursionError as error:
        raise UnreadableError("hostile-file", "it is nested too deeply") from error
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        raise UnreadableError("unreadable-file", f"it is not {kind} as expected: {type(error).__name__}") from error


@contextmanager
def _checking(what: str) -> Iterator[None]:
    """Raise UnreadableError if the block finds an archive or entry damaged. what: names it in the message."""
    try:
        yield
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError) as error:
        if lacks_memory(error):
            raise
        message = f"{what} is damaged or cut short: {type(error).__name__}"
        raise UnreadableError("unreadable-file", message) from error


def _refuse_other_files(file: BinaryIO, kind: str) -> None:
    head = file.read(len(_COMPOUND))
    if head == _COMPOUND:
        if _holds(file, _LOCKED):
            raise UnreadableError("encrypted", "the file is locked with a password; save it without one")
        message = f"not {kind} but a file of Office 97 to 2003 or another program; save it in a current format"
        raise UnreadableError("unreadable-file", message)
    if not head:
        raise UnreadableError("unreadable-file", "the file is empty")
    if not head.startswith(_ZIP):
        raise UnreadableError("unreadable-file", f"not {kind}: the file is not a zip archive")


def _holds(file: BinaryIO, pattern: bytes) -> bool:
    before, remaining = b"", _SCANNED
    while remaining > 0 and (chunk := file.read(_CHUNK)):
        if pattern in before + chunk:
            return True
        before, remaining = chunk[-len(pattern) :], remaining - len(chunk)
    return False


class _Bounded(io.RawIOBase):
    """A file that rejects reads larger than _MAX_DIRECTORY; `zipfile` reads the whole directory at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise UnreadableError("hostile-file", f"the archive's directory is over {_MAX_DIRECTORY:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _checked(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files by name, with `/` as the separator. Raises UnreadableError for a hostile or locked archive."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise UnreadableError("hostile-file", f"the archive has {len(entries):,} entries; at most {MAX_ENTRIES:,}")
    files: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for entry in sorted(entries, key=lambda info: info.header_offset):
        name = entry.filename.replace("\\", "/")
        if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
            raise UnreadableError("hostile-file", f"an entry points outside the archive: {_shown(name)}")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise UnreadableError("hostile-file", f"an entry is a link: {_shown(name)}")
        if entry.header_offset < end:
            raise UnreadableError("hostile-file", f"two entries share bytes: {_shown(name)} and another")
        end = entry.header_offset + _HEADER + len(entry.filename) + entry.compress_size
        if name in files:
            raise UnreadableError("hostile-file", f"two entries have the same name: {_shown(name)}")
        if entry.flag_bits & 0x1:
            raise UnreadableError("encrypted", "the archive's entries are locked with a password")
        if name.endswith("/"):
            continue
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnreadableError("unreadable-file", f"{_shown(name)} is compressed in a way the format forbids")
        files[name] = entry
    return files


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "...")
