"""A change feed: JSON Lines files in which each line is an event, in the order of the events.

`{"op": "upsert", "id": ..., "title": ..., "text": ...}` adds or replaces a document, whose record is the line without
`op`; `{"op": "delete", "id": ...}` deletes a document. Files may grow, be renamed, be compressed, and be deleted once
they have been read to the end.

For each file, the cursor stores the number of decompressed bytes read, and digests of the first and last of these
bytes. A file that does not begin with these bytes was replaced or truncated: the events in between are unknown, so the
source fails rather than lose them. Events are applied in the order of the files' names. Incremental reading must yield
the same as reading from the beginning, so the source also fails for a new event before events already read.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import zstandard

from indexmill.store.regular_files import NotRegular, open_checked
from indexmill.text.printable import is_utf8, utf8_name
from schemas.sources import FeedSettings
from tasks.stages.ingest.documents import RejectedRow, SourceRow, clip
from tasks.stages.ingest.formats.decompression import decompressed
from tasks.stages.ingest.sources.source_interface import Deleted, RecordSource, SourceError, Until, deletion

_SUFFIX = re.compile(r"\.(jsonl|ndjson|json)(\.(gz|zst))?$", re.IGNORECASE)
_MAGIC = re.compile(r"[*?\[]")
_COMPRESSIONS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
_DIGESTED = 1024
"""The number of bytes that each digest covers, at the beginning and at the end of the part already read."""
_CHUNK = 1 << 20
_SHOWN = 120
_BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)
_FULL = "restore it, or read the whole feed with --full"


@dataclass(frozen=True)
class _File:
    """A file of the feed. name: the POSIX path below the feed's folder."""

    name: str
    path: str
    compression: Literal["gzip", "zstd"] | None

    def open(self) -> BufferedReader:
        try:
            return decompressed(open_checked(self.path), self.compression)
        except (OSError, NotRegular) as error:
            raise SourceError(f"{self.path} cannot be read: {_message(error)}: {_FULL}") from error


@dataclass
class _Position:
    """How far a file was read."""

    offset: int = 0
    lines: int = 0
    head: bytes = b""
    tail: bytes = b""
    pending: bool = False  # whether bytes of an incomplete line follow

    def read(self, data: bytes, lines: int) -> None:
        self.head = (self.head + data[:_DIGESTED])[:_DIGESTED]
        self.tail = (self.tail + data[-_DIGESTED:])[-_DIGESTED:]
        self.offset += len(data)
        self.lines += lines

    def mark(self) -> _Mark:
        return _Mark(self.offset, self.lines, _digest(self.head), _digest(self.tail), self.pending)


@dataclass(frozen=True)
class _Mark:
    offset: int
    lines: int
    head: str
    tail: str
    pending: bool

    def position(self, stream: BufferedReader) -> _Position | None:
        """Move a stream to the end of the part already read; return the position, or None if that part changed."""
        position = _Position()
        position.read(stream.read(min(_DIGESTED, self.offset)), 0)
        if _digest(position.head) != self.head:
            return None
        skipped = max(position.offset, self.offset - _DIGESTED)
        if stream.seekable():
            stream.seek(skipped)
            position.offset = skipped
        while remaining := self.offset - position.offset:
            data = stream.read(min(_CHUNK, remaining))
            if not data:
                return None
            position.read(data, 0)
        position.lines = self.lines
        return position if _digest(position.tail) == self.tail else None


Marks = dict[str, _Mark]


class FeedSource(RecordSource):
    """The events in the files of a change feed."""

    def __init__(self, settings: FeedSettings, scratch: Path) -> None:
        """scratch: not used."""
        self._settings = settings

    def token(self) -> str:
        """Return a digest of the files' sizes and times, which changes with every line written; empty on OSError."""
        hashed = hashlib.sha256(json.dumps([self._settings.paths, self._settings.id]).encode())
        for path in self._settings.paths:
            for file in _files(path):
                try:
                    status = os.stat(file.path)  # noqa: PTH116 - many files
                except OSError:
                    return ""
                hashed.update(repr((file.name, status.st_size, status.st_mtime_ns, status.st_ino)).encode())
        return hashed.hexdigest()

    def rows(self, cursor: Any) -> Iterator[SourceRow | RejectedRow | Deleted | Until]:
        """Yield the events since a cursor, or all events without a cursor. Raises SourceError."""
        earlier = self._marks_of(cursor)
        positions: list[dict[str, Any]] = []
        for path in self._settings.paths:
            files = _files(path)
            marks = earlier.get(path, {})
            if not files and not marks:
                raise SourceError(f"no file of a change feed is in {path}: give a file, a folder of .jsonl, or a glob")
            now: Marks = {}
            yield from self._events(path, files, marks, now)
            positions.append({"path": path, "files": {name: asdict(mark) for name, mark in sorted(now.items())}})
        yield Until({"paths": positions, "id": self._settings.id}, whole=not earlier)

    def _marks_of(self, cursor: Any) -> dict[str, Marks]:
        """Return a cursor's marks by path; empty if everything must be read, for example after a path was removed."""
        if not isinstance(cursor, dict) or cursor.get("id") != self._settings.id:
            return {}
        try:
            marks = {
                feed["path"]: {name: _Mark(**mark) for name, mark in feed["files"].items()} for feed in cursor["paths"]
            }
            return marks if tuple(marks) == self._settings.paths[: len(marks)] else {}
        except (KeyError, TypeError, AttributeError) as error:
            raise SourceError("the cursor of a change feed is damaged: read the whole feed with --full") from error

    def _events(
        self, path: str, files: list[_File], marks: Marks, now: Marks
    ) -> Iterator[SourceRow | RejectedRow | Deleted]:
        """Yield the new events in the files of one path, and add the marks after these events to `now`."""
        places = _placed(files, marks)
        gone = sorted(set(marks) - set(places.values()))
        fresh = any(file.name not in marks for file in files)
        for name in gone:
            if marks[name].pending and (marks[name].offset or not fresh):
                raise SourceError(f"{name} of the change feed {path} is missing, and was not read to its end: {_FULL}")
            now[name] = marks[name]
        begun = max((*places, *gone), default="")
        for number, file in enumerate(files):
            is_last = number == len(files) - 1
            mark = marks.get(places.get(file.name, ""))
            with file.open() as stream:
                position = _Position()
                if mark is not None:
                    end = _read(file, mark.position, stream)
                    if end is None:
                        raise SourceError(
                            f"{file.path} no longer begins with the bytes already read: it was replaced or truncated, "
                            f"and the events in between are unknown: {_FULL}"
                        )
                    position = end
                offset, before = position.offset, file.name < begun
                yield from self._lines(file, stream, position, is_last=is_last)
            if before and position.offset > offset:
                raise SourceError(
                    f"{file.path} has new events, but {begun}, which comes after it, was already read: events are read "
                    "in the order of the files' names. Append only to the last file, or give files with different "
                    "documents as separate paths; then read the whole feed with --full"
                )
            now[file.name] = position.mark()

    def _lines(
        self, file: _File, stream: BufferedReader, position: _Position, *, is_last: bool
    ) -> Iterator[SourceRow | RejectedRow | Deleted]:
        """Yield the events after a position, and move it to the end of the last complete line.

        A last line without a newline counts as incomplete in the feed's last file, unless that file is compressed.
        """
        most = self._settings.max_line_bytes
        while True:
            try:
                line = stream.readline(most + 1)
            except _BROKEN as error:
                if is_last and isinstance(error, EOFError):  # the file is being written
                    position.pending = True
                    return
                raise SourceError(
                    f"{file.path} is damaged after line {position.lines}: {_message(error)}: {_FULL}"
                ) from error
            if not line:
                return
            if not line.endswith(b"\n"):
                start = replace(position)
                ended = len(line) > most and _skip(file, stream, position, line)
                if not ended and is_last and file.compression is None:
                    position.offset, position.lines, position.head = start.offset, start.lines, start.head
                    position.tail, position.pending = start.tail, True
                    return
                if len(line) > most:
                    shown = line[:_SHOWN].decode("utf-8", "backslashreplace")
                    yield self._refusal(file, position.lines, "too-large", f"over {most} bytes; it begins {shown}")
                    continue
            first = position.offset == 0
            position.read(line, 1)
            text = (line.removeprefix(b"\xef\xbb\xbf") if first else line).strip()
            if text:
                yield self._event(file, position.lines, text)

    def _event(self, file: _File, number: int, line: bytes) -> SourceRow | RejectedRow | Deleted:
        try:
            record = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            return self._refusal(file, number, "not-utf8", f"{error.reason} at byte {error.start}")
        except (ValueError, RecursionError) as error:
            shown = clip(line.decode("utf-8", "replace"), _SHOWN)
            return self._refusal(file, number, "not-json", f"{error}; the line begins {shown}")
        if not isinstance(record, dict):
            return self._refusal(file, number, "not-an-object", f"found {type(record).__name__}")
        op = record.pop("op", None)
        if op == "upsert":
            return SourceRow(number, record, f"{file.name}: ")
        deleted = deletion(number, record.get(self._settings.id))
        if op == "delete":
            if isinstance(deleted, RejectedRow):
                detail = f"field {self._settings.id!r}: {deleted.detail}"
                return self._refusal(file, number, deleted.reason, detail)
            return deleted
        detail = f'expected "op": "upsert" or "delete", found {clip(json.dumps(op), _SHOWN)}'
        return self._refusal(file, number, "bad-op", detail, deleted.document_id)

    def _refusal(
        self, file: _File, number: int, reason: str, detail: str, document_id: str | None = None
    ) -> RejectedRow:
        return RejectedRow(number, document_id, reason, f"{file.name}: {detail}")


def _skip(file: _File, stream: BufferedReader, position: _Position, line: bytes) -> bool:
    """Skip an overlong line, in bounded memory; return False if the file ends before the line does."""
    position.read(line, 1)
    while line and not line.endswith(b"\n"):
        line = _read(file, stream.readline, _CHUNK)
        position.read(line, 0)
    return bool(line)


def _read(file: _File, function: Any, argument: Any) -> Any:
    try:
        return function(argument)
    except _BROKEN as error:
        raise SourceError(f"{file.path} is damaged: {_message(error)}: {_FULL}") from error


def _placed(files: list[_File], marks: Marks) -> dict[str, str]:
    """Return the names that files have in the cursor, by their current names, for files that were read before.

    A new file is a renamed file if it begins with the read part of a file that no longer exists or was replaced.
    """
    placed = {file.name: file.name for file in files if file.name in marks}
    fresh = [file for file in files if file.name not in marks]
    if not fresh or not marks:
        return placed
    by_name = {file.name: file for file in files}
    for file in fresh:
        beginnings = _beginnings(file)
        for name, mark in sorted(marks.items()):
            if not mark.offset or mark.head not in beginnings or (name in placed.values() and name not in by_name):
                continue
            in_order = all((marked < name) == (marked < file.name) for marked in marks if marked != name)
            if not in_order or not _fits(file, mark) or (name in by_name and _fits(by_name[name], mark)):  # a copy
                continue
            placed.pop(name, None)  # another file now has the old name
            placed[file.name] = name
            break
    return placed


def _beginnings(file: _File) -> set[str]:
    """Return all digests that a cursor may have for a file's beginning: of `_DIGESTED` bytes, or of its first lines."""
    try:
        with file.open() as stream:
            data = stream.read(_DIGESTED)
    except _BROKEN:
        return set()
    return {_digest(data), *(_digest(data[: match.end()]) for match in re.finditer(b"\n", data))}


def _fits(file: _File, mark: _Mark) -> bool:
    try:
        with file.open() as stream:
            return mark.position(stream) is not None
    except _BROKEN:
        return False


def _files(path: str) -> list[_File]:
    """Return the files of a path, sorted by name. Raises SourceError if the path cannot be listed."""
    absolute = Path(path).expanduser().absolute()
    if absolute.is_dir():
        named_files = [
            (file.relative_to(absolute).as_posix(), file) for file in _below(absolute) if _SUFFIX.search(file.name)
        ]
        root = absolute
    elif _MAGIC.search(path):
        root = Path(*takewhile(lambda part: not _MAGIC.search(part), absolute.parts))  # before its first wildcard
        if not root.is_dir():
            raise SourceError(f"the folder {root} of a change feed does not exist: mount it, or correct {path}")
        matches = (Path(match) for match in glob.glob(str(absolute), recursive=True))  # noqa: PTH207 - hidden names stay out
        named_files = [(match.relative_to(root).as_posix(), match) for match in matches if not match.is_dir()]
    else:
        if not absolute.parent.is_dir():
            raise SourceError(
                f"the folder {absolute.parent} of a change feed does not exist: mount it, or correct {path}"
            )
        return [_file(absolute.name, absolute)] if absolute.exists() else []
    within = os.path.realpath(root)
    for name, file in named_files:
        if not is_utf8(name):
            raise SourceError(f"the name {utf8_name(name)} in the change feed {path} is not UTF-8: rename the file")
        if not os.path.realpath(file).startswith(within.rstrip(os.sep) + os.sep):
            raise SourceError(
                f"{name} of the change feed {path} is a link to a file outside: give the path of its target"
            )
    return sorted((_file(name, file) for name, file in named_files), key=lambda file: file.name)


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise SourceError(f"cannot list the folder {error.filename} of a change feed: {error.strerror}") from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in files if not name.startswith("."))


def _file(name: str, path: Path) -> _File:
    return _File(name, str(path), _COMPRESSIONS.get(path.suffix.lower()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _message(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__} {error}".strip()
