"""What a place can do: list files and read them, or read records, perhaps only those that changed.

A place of files says of each file what changes whenever its bytes do (`Entry.token`), so that an unchanged file is not
read again. A place of records returns, with the records, the cursor at which the next version goes on; the build keeps
it with the version, and hands it back to the next build only if that version was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, runtime_checkable

from indexmill.errors import BadInput
from tasks.stages.ingest.documents import Refusal, Row


class PlaceError(BadInput):
    """A place cannot be listed or read: it is not there, or refuses. The message says what to do.

    A file alone that cannot be read raises OSError, and is refused.
    """


class ChangedError(OSError):
    """A file is another than the one that was listed. The build lists it once more, and reads it then.

    Its new bytes are not read under the old token: if the old bytes came back before the next listing, what was read
    meanwhile would stay in the index.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as a place lists it. Names are relative to the place, POSIX, and become the ids of documents.

    size: in bytes, None where the place cannot tell. token: changes whenever the bytes do; empty where the place cannot
    tell, and the file is read by every build. modified: seconds since 1970. details: owner, groups and the like, as
    values of JSON, for `corpus.file_metadata`.
    """

    name: str
    size: int | None = None
    token: str = ""
    modified: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class FilePlace(Protocol):
    """A place of files, as a bucket, a repository or a plug-in is. It is opened anew in each process.

    warnings: what people should know of the last listing, a sentence each, in the order of its discovery; `list` fills
    it while it is read. It names what was left out on purpose, such as pages that a site asks not to read.
    """

    warnings: list[str]

    def list(self, known: Mapping[str, str]) -> Iterable[Entry]:
        """Every file, in any order. Raises PlaceError where some could be missing: an incomplete listing would read
        as the deletion of documents.

        known: the tokens of the last version, by name, for places that ask whether a file has changed since; empty
        where there was none, or where everything is to be read again.
        """
        ...

    def read(self, name: str, token: str) -> BinaryIO:
        """The bytes of a listed file, as it was when it was listed: a real file at its start, for the caller to close.

        token: that of its entry. Raises OSError if the file cannot be read, ChangedError if it is another by now, and
        PlaceError if nothing can be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Deleted:
    """A document is gone. Its id is that of the record, as the field of ids holds it."""

    document_id: str


@dataclass(frozen=True, slots=True)
class Until:
    """The last value that `rows` yields: where the next reading goes on, as plain values of JSON.

    whole: True if the rows before were all of the place; False if they are changes since the cursor. cursor: None for a
    place that is read whole every time, and has no cursor.
    """

    cursor: Any
    whole: bool


class RecordPlace(Protocol):
    """A place of records, as a database is."""

    def token(self) -> str:
        """Changes whenever a reading would give other rows; empty where the place cannot tell without reading."""
        ...

    def rows(self, cursor: Any) -> Iterator[Row | Refusal | Deleted | Until]:
        """The rows since a cursor, or all for None; the last is an `Until`. Memory does not grow with their number.

        For a place with a cursor, a later row of an id replaces an earlier one. Raises PlaceError.
        """
        ...
