"""The rows of a database query: all of them, or those that changed since a cursor.

`:cursor` is bound as a parameter, never written into the query. The first build (and `--full`) has no cursor yet. A
query that handles this itself, `:cursor IS NULL OR updated_at > :cursor`, gets NULL. Any other query gets a constant of
the column's type below all its values, such as minus infinity for a timestamp. So the same condition selects the rows
in the first and in later builds, and no build reads rows whose column is NULL.

The next cursor is the greatest value of the column that was read. It would miss a transaction with an earlier time that
commits later, so `overlap_seconds` makes every query start earlier, and reading rows again changes nothing. A cursor
belongs to its query: if the query changes, everything is read.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from schemas.sources import SqlSettings
from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.sources import cursor_value
from tasks.stages.ingest.sources.cursor_value import CursorError
from tasks.stages.ingest.sources.source_interface import Deleted, RecordSource, SourceError, Until, deletion
from tasks.stages.ingest.sources.sql_databases import Connection, Reading, Record, open_database
from tasks.stages.ingest.sources.sql_query import Query


class SqlSource(RecordSource):
    """The rows of a query."""

    def __init__(self, settings: SqlSettings, scratch: Path) -> None:
        """Raises SourceError, or ModelUnavailable if a package is missing."""
        self._settings = settings
        self._query = Query.of(settings.query)
        if settings.cursor is not None and not self._query.has_cursor:
            raise SourceError(
                "the query has :cursor only in a string or a comment: compare the cursor's column with it"
            )
        self._database = open_database(settings.url, scratch)
        shape = [settings.query, settings.cursor, settings.deleted, settings.id]
        self._shape = hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]

    def token(self) -> str:
        """Return an empty token: only running the query shows changes."""
        return ""

    def rows(self, cursor: Any) -> Iterator[SourceRow | RejectedRow | Deleted | Until]:
        """Yield the rows of the query; with a cursor, only the rows after it. Raises SourceError."""
        column = self._settings.cursor
        since = None if column is None else self._since(cursor)
        with self._database.connected() as connection:
            reading, with_least = self._started(connection, since)
            self._check(reading.columns)
            greatest, count = since, 0
            with closing(reading.rows) as records:
                for count, record in enumerate(records, 1):
                    row, value = self._row_of(count, record)
                    yield row
                    if value is not None:
                        greatest = value if greatest is None else self._checked(cursor_value.greater, value, greatest)
        if with_least and not count:
            raise SourceError(
                f"{self._database.shown}: the first run of the query returns no row. If the table has rows, the "
                f"condition rejects them for the least `:cursor`: write `:cursor IS NULL OR {column} > :cursor`"
            )
        if column is None:
            yield Until(None, whole=True)
            return
        if greatest is None:
            yield Until(None, whole=since is None)
            return
        # So that an error is raised now rather than by the next build.
        self._checked(cursor_value.earlier, greatest, self._settings.overlap_seconds)
        yield Until({**self._checked(cursor_value.to_json, greatest), "query": self._shape}, whole=since is None)

    def _since(self, cursor: Any) -> Any:
        if not isinstance(cursor, dict) or cursor.get("query") != self._shape:
            return None
        return self._checked(cursor_value.from_json, cursor)

    def _started(self, connection: Connection, since: Any) -> tuple[Reading, bool]:
        """Start the query. Returns it, and whether a constant below all values replaces `:cursor`."""
        query = self._query
        column = self._settings.cursor
        if column is None or not query.has_cursor:
            return connection.run(query.with_literal("NULL")), False
        if since is not None:
            start = self._checked(cursor_value.earlier, since, self._settings.overlap_seconds)
            return connection.run(*connection.bound(query, start)), False
        if query.handles_null:
            return connection.run(query.with_literal("NULL")), False
        least = connection.least(query, column)
        if least is None:
            raise SourceError(
                f"{self._database.shown}: no constant below every value of the column {column} is known, or the query "
                f"has no such column: write `:cursor IS NULL OR {column} > :cursor` for the first run"
            )
        return connection.run(query.with_literal(least)), True

    def _check(self, columns: tuple[str, ...]) -> None:
        settings, times = self._settings, Counter(columns)
        requested = [name for name in (settings.id, settings.cursor, settings.deleted) if name is not None]
        if missing := [name for name in requested if name not in times]:
            raise SourceError(
                f"{self._database.shown}: the query has no column {', '.join(missing)}; it has {', '.join(columns)}: "
                "name it there (`AS`), or set id, cursor and deleted to its columns"
            )
        if twice := sorted(name for name, count in times.items() if count > 1):
            raise SourceError(
                f"{self._database.shown}: several columns are named {', '.join(twice)}: rename them (`AS`)"
            )

    def _row_of(self, number: int, record: Record) -> tuple[SourceRow | RejectedRow | Deleted, Any]:
        """Convert a row. Returns it and the value of its cursor column; None if there is no such column."""
        if isinstance(record, Exception):
            return RejectedRow(number, None, "bad-metadata", f"{type(record).__name__}: {record}"), None
        settings = self._settings
        value = None
        if settings.cursor is not None:
            value = record[settings.cursor]
            value = bytes(value) if isinstance(value, memoryview | bytearray) else value
            wrong = self._no_cursor(value)
            if wrong:
                return RejectedRow(number, deletion(None, record[settings.id]).document_id, "bad-metadata", wrong), None
        if any(isinstance(field, str) and not field.isascii() and _is_escaped(field) for field in record.values()):
            return RejectedRow(number, None, "not-utf8", "a column contains bytes that are not UTF-8"), value
        if settings.deleted is None:
            return SourceRow(number, record), value
        deleted = record.pop(settings.deleted)
        if isinstance(deleted, str):
            raise SourceError(
                f"{self._database.shown}: the column {settings.deleted} contains a string, which does not say whether "
                "a document is deleted: make it a condition in the query"
            )
        if deleted is None or deleted is False or deleted == 0:
            return SourceRow(number, record), value
        return deletion(number, record[settings.id]), value

    def _no_cursor(self, value: Any) -> str:
        """Return why later builds would miss changes because of this cursor value; empty if they would not."""
        column = self._settings.cursor
        if value is None and self._query.handles_null:
            return (
                f"the column {column} is NULL, so no later build would find changes of this row; use COALESCE in the "
                "query"
            )
        if isinstance(value, str) and value.lstrip("-") == "infinity":
            return f"the column {column} contains {value}: no later value could be greater"
        return ""

    def _checked(self, function: Any, *arguments: Any) -> Any:
        """Call a function, and convert its CursorError to a SourceError."""
        try:
            return function(*arguments)
        except CursorError as error:
            raise SourceError(f"{self._database.shown}: in the column {self._settings.cursor}, {error}") from None


def _is_escaped(text: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in text)
