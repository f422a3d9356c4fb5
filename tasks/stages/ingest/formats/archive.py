"""A zip archive of a stranger, read within limits: what DOCX, PPTX, XLSX and EPUB are.

The standard library's `zipfile` reads the directory and inflates; what makes a file hostile is decided here, before a
byte of an entry is expanded: entries that lead outside, links, two entries of one name, entries that share bytes (the
"better zip bomb" and archives that hold themselves), and methods other than stored and deflated. Sizes that headers
state are never trusted: bytes are counted as they are expanded. Archives inside are never opened.
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

from tasks.stages.ingest.formats.extraction import Limits, UnreadableError
from tasks.stages.ingest.memory import lacks_memory

MAX_ENTRIES = 20_000
_MAX_DIRECTORY = 8 << 20
"""The maximum size of the directory at the end of the archive, in bytes."""
_MAX_RATIO = 250
"""Of expanded to stored bytes of an entry of more than _FREE bytes. Tables of numbers reach 30."""
_FREE = 4 << 20
_CHUNK = 1 << 18
_HEADER = 30
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED = "EncryptedPackage".encode("utf-16-le")
_SCANNED = 64 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


class Archive:
    """The entries of an archive by name. Names are compared exactly first, then without case, as Office does."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive = archive
        self._left = self._limit = limits.expanded_bytes
        self._entries = _checked(archive)
        self._folded: dict[str, str] = {}
        for name in self._entries:
            self._folded.setdefault(name.casefold(), name)

    def __contains__(self, name: str) -> bool:
        return self._known(name) is not None

    def names(self) -> list[str]:
        """The names of all entries, sorted."""
        return sorted(self._entries)

    def read(self, name: str) -> bytes:
        """The bytes of an entry.

        Raises:
            UnreadableError: there is no such entry, it is damaged, or it expands to more than the limits allow.
        """
        known = self._known(name)
        if known is None:
            raise UnreadableError("unreadable-file", f"the archive lacks the entry {_shown(name)}")
        entry = self._entries[known]
        data = bytearray()
        with self._archive.open(entry) as stream:
            while chunk := stream.read(_CHUNK):
                data += chunk
                self._left -= len(chunk)
                if len(data) > _FREE and len(data) > _MAX_RATIO * max(entry.compress_size, 1):
                    found = f"the entry {_shown(name)} expands to more than {_MAX_RATIO} times its size"
                    raise UnreadableError("hostile-file", found)
                if self._left < 0:
                    found = f"the archive expands to more than {self._limit:,} bytes"
                    raise UnreadableError("too-large", f"{found}; see corpus.extract.max_expanded_bytes")
        return bytes(data)

    def _known(self, name: str) -> str | None:
        return name if name in self._entries else self._folded.get(name.casefold())


@contextmanager
def open_archive(file: BinaryIO, limits: Limits, kind: str) -> Iterator[Archive]:
    """An archive for the time of a `with` block; kind: what the file should be, for messages.

    Whatever the block raises of damage becomes an UnreadableError that names the exception.
    """
    try:
        _refuse_other_files(file, kind)
        with zipfile.ZipFile(_Bounded(file)) as archive:
            yield Archive(archive, limits)
    except UnreadableError:
        raise
    except RecursionError as error:
        raise UnreadableError("hostile-file", "it is nested too deep") from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError) as error:
        if lacks_memory(error):
            raise
        raise UnreadableError(
            "unreadable-file", f"the archive is damaged or cut short: {type(error).__name__}"
        ) from error
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        raise UnreadableError("unreadable-file", f"not {kind} as expected: {type(error).__name__}") from error


def _refuse_other_files(file: BinaryIO, kind: str) -> None:
    head = file.read(len(_COMPOUND))
    if head == _COMPOUND:
        if _holds(file, _LOCKED):
            raise UnreadableError("encrypted", "the file is locked with a password; save it without one")
        found = f"not {kind} but a file of Office 97 to 2003, or of another program; save it in a format of today"
        raise UnreadableError("unreadable-file", found)
    if not head:
        raise UnreadableError("unreadable-file", "the file is empty")
    if not head.startswith(_ZIP):
        raise UnreadableError("unreadable-file", f"not {kind}: the file is no zip archive")


def _holds(file: BinaryIO, wanted: bytes) -> bool:
    before, left = b"", _SCANNED
    while left > 0 and (chunk := file.read(_CHUNK)):
        if wanted in before + chunk:
            return True
        before, left = chunk[-len(wanted) :], left - len(chunk)
    return False


class _Bounded(io.RawIOBase):
    """A file that is never asked for more at once than a directory may have: `zipfile` reads all of it together."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY:
            raise UnreadableError("hostile-file", f"an archive whose directory has more than {_MAX_DIRECTORY:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _checked(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries that are files, by name with `/`. Raises UnreadableError for an archive that is out to harm."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise UnreadableError("hostile-file", f"an archive of {len(entries):,} entries; at most {MAX_ENTRIES:,}")
    kept: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for entry in sorted(entries, key=lambda one: one.header_offset):
        name = entry.filename.replace("\\", "/")
        if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
            raise UnreadableError("hostile-file", f"an entry that leads outside of the archive: {_shown(name)}")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise UnreadableError("hostile-file", f"an entry that is a link: {_shown(name)}")
        if entry.header_offset < end:
            raise UnreadableError("hostile-file", f"entries that share bytes: {_shown(name)} and another")
        end = entry.header_offset + _HEADER + len(entry.filename) + entry.compress_size
        if name in kept:
            raise UnreadableError("hostile-file", f"two entries of one name: {_shown(name)}")
        if entry.flag_bits & 0x1:
            raise UnreadableError("encrypted", "the entries of the archive are locked with a password")
        if name.endswith("/"):
            continue
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnreadableError("unreadable-file", f"{_shown(name)} is compressed in a way that the format forbids")
        kept[name] = entry
    return kept


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "...")
