"""The interfaces of sources: file sources list and read files, and record sources read all or only changed records.

A file source returns a version token for each file (`FileEntry.token`), so that an unchanged file is not read again. A
record source returns, after the records, the cursor from which the next version continues. The build stores it with the
version, so that the next build gets it only if that version was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, runtime_checkable

from indexmill.errors import BadInput
from schemas.corpus import FieldNames
from tasks.stages.ingest.documents import RejectedRow, SourceRow, document_of

_IDS = FieldNames(title=None, source=(), metadata=())


class SourceError(BadInput):
    """A source cannot be listed or read (a single file raises OSError instead). The message says what to do."""


class ChangedError(OSError):
    """A file was replaced after it was listed. The build lists the file again, and then reads it.

    The new bytes must not be read under the old token: if the file is restored before the next listing, its token is
    the old token again, and the new bytes would remain in the index.
    """


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in the listing of a source. Names are POSIX paths relative to the source, and become document ids.

    size: in bytes; None if unknown. token: a string that changes whenever the bytes do; if empty, every build reads the
    file. modified: seconds since 1970. details: owner, groups etc. as JSON values, for `corpus.file_metadata`. charset:
    the encoding that the source states for a text; empty if it states none.
    """

    name: str
    size: int | None = None
    token: str = ""
    modified: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    charset: str = ""


@runtime_checkable
class FileSource(Protocol):
    """A file source, such as a bucket, a repository or a plug-in. Each process opens its own instance.

    warnings: sentences for the user about the last listing, in the order of discovery; `list` adds them while its
    result is consumed. They name files omitted on purpose, such as pages that a site's robots.txt disallows.
    """

    warnings: list[str]

    def list(self, tokens: Mapping[str, str]) -> Iterable[FileEntry]:
        """List every file, in any order.

        tokens: the previous version's tokens by name, for sources that request only changed files; empty without a
        previous version, or to read everything again. Raises SourceError if some files could be missing: an incomplete
        listing would look like the deletion of documents.
        """
        ...

    def read(self, name: str, token: str) -> BinaryIO:
        """Open the listed version of a file. Returns a real file positioned at its start, which the caller closes.

        token: the token of the file's entry in the listing. Raises OSError if the file cannot be read, ChangedError if
        it was replaced since it was listed, SourceError if nothing can be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted document. document_id: the value of the record's id field."""

    document_id: str


def deletion(line: int | None, identifier: Any) -> Deleted | RejectedRow:
    """Return the deletion of the document with an id; a RejectedRow if the id is invalid."""
    document = document_of(SourceRow(line, {"id": identifier, "text": "-"}), _IDS, 1 << 20)
    return document if isinstance(document, RejectedRow) else Deleted(document.document_id)


@dataclass(frozen=True, slots=True)
class Until:
    """The last value that `rows` yields: the point from which the next build continues.

    whole: True if all rows of the source were yielded; False for only the changes since the cursor. cursor: plain JSON
    values; None for a source without a cursor, which is read completely every time.
    """

    cursor: Any
    whole: bool


class RecordSource(Protocol):
    """A record source, such as a database."""

    def token(self) -> str:
        """Return a string that changes whenever `rows` would yield different rows; empty if this cannot be known."""
        ...

    def rows(self, cursor: Any) -> Iterator[SourceRow | RejectedRow | Deleted | Until]:
        """Yield the rows since a cursor, or all rows if it is None, and then an `Until`. Memory is bounded.

        With a cursor, a later row replaces an earlier row with the same id. Raises SourceError.
        """
        ...
