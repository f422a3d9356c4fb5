"""The databases of SQL sources: those supported by SQLAlchemy, and DuckDB through its own interface.

SQLAlchemy rather than ADBC is used, because it has a dialect for nearly every database, returns the driver's values of
arrays, JSON, numerics and UUIDs, streams with a server-side cursor, and comes with Prefect in any case. ADBC fetches
Arrow columns faster, but each document costs far more than its fetch; it has drivers for few databases, and returns
PostgreSQL's numerics as strings and ranges as opaque bytes. DuckDB streams Arrow batches itself, and its SQLAlchemy
dialect lags behind its releases.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from indexmill.extras import not_installed
from indexmill.models.secrets import redacted
from tasks.stages.ingest.formats.record_batches import records_of
from tasks.stages.ingest.sources.source_interface import SourceError
from tasks.stages.ingest.sources.sql_query import Query

if TYPE_CHECKING:
    import sqlalchemy

_FETCHED = 4 << 20
"""The average number of bytes to fetch at a time."""
_MOST_ROWS = 256
_DUCKDB_MEMORY = "512MiB"
_HIDDEN = "***"
_NAME_OF_A_SECRET = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")

Record = dict[str, Any] | Exception
"""A row as values by column, or the error raised because Python cannot represent the row."""


@dataclass(frozen=True)
class Reading:
    """A running query: the names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: Generator[Record]


class Connection(Protocol):
    """A connection in a read-only transaction, which sees a single state of the database."""

    def bound(self, query: Query, value: Any) -> tuple[str, Any]:
        """Return the query with a value for `:cursor`, as SQL and parameters."""
        ...

    def least(self, query: Query, column: str) -> str | None:
        """Return an SQL constant below every value of a column of the query; None if unknown."""
        ...

    def run(self, sql: str, parameters: Any = None) -> Reading:
        """Start a query; rows are fetched while they are read. Raises SourceError."""
        ...


class Database(Protocol):
    """A database to connect to. shown: its URL without secrets."""

    shown: str

    def connected(self) -> AbstractContextManager[Connection]:
        """Return a context with a connection. Raises SourceError."""
        ...


@dataclass(frozen=True)
class _Secrets:
    """Strings that must not appear in messages."""

    words: tuple[str, ...] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        for word in sorted(self.words, key=len, reverse=True):
            for written in {word, quote(word, safe=""), repr(word)[1:-1]}:
                text = text.replace(written, _HIDDEN)
        return redacted(text)


def expanded(url: str, environment: Mapping[str, str]) -> str:
    """Replace variables in a URL, written $NAME or ${NAME}, with their values; $$ is a dollar sign.

    In the user and password, before an @, values are escaped. Raises SourceError for a variable that is not set.
    """
    user = re.match(r"[\w+.-]+://[^/@]*@", url)
    cut = user.end() if user else 0

    def value(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name = match["name"] or match["braced"]
        if name not in environment:
            raise SourceError(
                f"the environment variable {name}, to which the URL of a database refers, is not set: set it"
            )
        return quote(environment[name], safe="") if match.start() < cut else environment[name]

    return _VARIABLE.sub(value, url)


def open_database(url: str, scratch: Path) -> Database:
    """Return the database of a URL, without connecting yet. scratch: a folder for temporary files.

    Raises SourceError, or ModelUnavailable if a package is missing.
    """
    url = expanded(url, os.environ)
    if url.startswith("duckdb:"):
        return _DuckDB(url, scratch)
    return _SqlAlchemy(url)


class _DuckDB:
    def __init__(self, url: str, scratch: Path) -> None:
        self.shown = redacted(url)
        self._scratch = scratch
        self._path = unquote(url.removeprefix("duckdb:").removeprefix("//").removeprefix("/").partition("?")[0])

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        try:
            import duckdb
        except ImportError as error:
            raise not_installed("reading a DuckDB file", "duckdb", error) from error
        in_memory = self._path in ("", ":memory:")
        if not in_memory and not Path(self._path).is_file():
            raise SourceError(
                f"{self.shown}: no such database file; use duckdb:///FILE, or duckdb:////FILE for an absolute path"
            )
        try:
            connection = duckdb.connect(
                ":memory:" if in_memory else self._path,
                read_only=not in_memory,
                config={
                    "memory_limit": _DUCKDB_MEMORY,
                    "temp_directory": str(self._scratch / "duckdb"),
                    "threads": 2,
                },
            )
        except duckdb.Error as error:
            raise SourceError(
                f"{self.shown} cannot be opened: {_first_line(error)}: end the process that has it open for writing, "
                "or give a copy"
            ) from None
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_progress_bar = false")
            yield _DuckDBConnection(connection, self.shown)
        finally:
            connection.close()


class _DuckDBConnection:
    def __init__(self, connection: Any, shown: str) -> None:
        self._connection, self._shown = connection, shown

    def bound(self, query: Query, value: Any) -> tuple[str, Any]:
        return query.bound(value, "dollar")

    def least(self, query: Query, column: str) -> str | None:
        relation = self._relation(query.with_literal("NULL"))
        kind = dict(zip(relation.columns, map(str, relation.types), strict=True)).get(column, "")
        if kind.startswith("TIMESTAMP") or kind == "DATE":
            return f"'-infinity'::{kind}"
        if kind.endswith("INT") or kind == "INTEGER":
            return "'-170141183460469231731687303715884105727'::HUGEINT"
        if kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL"):
            return "'-infinity'::DOUBLE"
        return {"VARCHAR": "''::VARCHAR", "UUID": "'00000000-0000-0000-0000-000000000000'::UUID"}.get(kind)

    def run(self, sql: str, parameters: Any = None) -> Reading:
        relation = self._relation(sql, parameters)
        columns = tuple(relation.columns)
        of_json = frozenset(name for name, kind in zip(columns, relation.types, strict=True) if str(kind) == "JSON")
        return Reading(columns, self._rows(relation, of_json))

    def _relation(self, sql: str, parameters: Any = None) -> Any:
        """Prepare a query, which runs when its rows are fetched."""
        import duckdb

        try:
            relation = self._connection.sql(sql, params=parameters)
        except duckdb.Error as error:
            raise SourceError(f"{self._shown} refuses the query: {_first_line(error)}: correct the query") from None
        if relation is None:
            raise SourceError(f"{self._shown}: the query returns no rows: write a SELECT")
        return relation

    def _rows(self, relation: Any, of_json: frozenset[str]) -> Generator[Record]:
        import duckdb

        count = 0
        try:
            for batch in relation.to_arrow_reader(_MOST_ROWS):
                for record in records_of(batch):
                    count += 1
                    yield _with_json(record, of_json)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            _raise_midway(self._shown, count, _first_line(error))


def _with_json(record: Record, columns: frozenset[str]) -> Record:
    """Parse the JSON columns of a record, which are strings in Arrow."""
    if not columns or isinstance(record, Exception):
        return record
    try:
        parsed = {name: json.loads(record[name]) for name in columns if record[name] is not None}
    except (ValueError, RecursionError) as error:
        return ValueError(f"a JSON column contains invalid JSON: {error}")
    return record | parsed


class _SqlAlchemy:
    def __init__(self, url: str) -> None:
        import sqlalchemy

        try:
            parsed = sqlalchemy.make_url(url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise SourceError(
                "a database URL is invalid: write it as postgresql://USER:$PASSWORD@HOST:PORT/DATABASE with the "
                "password in an environment variable, or escape @ : / in the password as %40 %3A %2F"
            ) from None
        named = [str(value) for name, value in parsed.query.items() if _NAME_OF_A_SECRET.search(name)]
        password = [] if parsed.password is None else [str(parsed.password)]
        self._secrets = _Secrets(tuple(word for word in (*password, *named) if word))
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self._url = parsed
        self.shown = self._secrets.hide(parsed.render_as_string(hide_password=True))
        self._engine = self._engine_of()

    def _engine_of(self) -> sqlalchemy.Engine:
        import sqlalchemy

        options: dict[str, Any] = {"poolclass": sqlalchemy.pool.NullPool, "hide_parameters": True}
        if self._url.get_backend_name() == "sqlite":
            options["creator"] = self._open_sqlite
        elif self._is_psycopg:
            defaults = {
                "application_name": "indexmill",
                "client_encoding": "utf8",
                "connect_timeout": 30,
                "keepalives_idle": 60,
                "keepalives_interval": 15,
                "keepalives_count": 4,
            }
            options["connect_args"] = {name: value for name, value in defaults.items() if name not in self._url.query}
        try:
            return sqlalchemy.create_engine(self._url, **options)
        except ModuleNotFoundError as error:
            if self._is_psycopg:
                raise not_installed("reading PostgreSQL", "psycopg", error) from None
            raise SourceError(
                f"{self.shown} needs the driver {error.name}, which is not installed: install it with pip"
            ) from None
        except (sqlalchemy.exc.SQLAlchemyError, TypeError) as error:
            raise SourceError(
                f"{self.shown} does not name a known database: {self._message(error)}: "
                "install its dialect for SQLAlchemy"
            ) from None

    @property
    def _is_psycopg(self) -> bool:
        return self._url.drivername == "postgresql+psycopg"

    def _open_sqlite(self) -> Any:
        path = Path(self._url.database or "")
        if not path.is_file():
            raise SourceError(
                f"{self.shown}: no such database file; use sqlite:///FILE, or sqlite:////FILE for an absolute path"
            )
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=30, check_same_thread=False)
        # SQLite strings may contain any bytes: invalid UTF-8 becomes lone surrogates.
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return connection

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        import sqlalchemy

        options: dict[str, Any] = {"no_parameters": True}
        postgres = self._url.get_backend_name() == "postgresql"
        if postgres:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            connection = self._engine.connect().execution_options(**options)
        except (sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            raise SourceError(
                f"cannot connect to {self.shown}: {self._message(error)}: check host, port, user, password and "
                "network; for a password, PGPASSWORD and $NAME in the URL are read from the environment"
                if postgres
                else f"cannot connect to {self.shown}: {self._message(error)}"
            ) from None
        try:
            opened = _SqlAlchemyConnection(connection, self.shown, self._message)
            if postgres:
                opened.prepare_postgres()
            yield opened
        finally:
            with suppress(sqlalchemy.exc.SQLAlchemyError):
                connection.close()  # rolls back

    def _message(self, error: Exception) -> str:
        """Return the driver's message, without the query and without secrets."""
        return self._secrets.hide(_first_line(getattr(error, "orig", None) or error))


class _SqlAlchemyConnection:
    def __init__(self, connection: sqlalchemy.Connection, shown: str, message: Any) -> None:
        self._connection, self._shown, self._message = connection, shown, message

    def prepare_postgres(self) -> None:
        """Set fixed formats of values, whatever the server's settings are, and load extreme values as strings."""
        import sqlalchemy
        from psycopg.types.string import TextLoader

        adapters = self._driver_connection().adapters
        for name, loader in _lenient_loaders().items():
            adapters.register_loader(name, loader)
        for name in _AS_TEXT:
            adapters.register_loader(name, TextLoader)
        try:
            for setting in ("TIME ZONE 'UTC'", "datestyle = 'ISO'", "intervalstyle = 'postgres'"):
                self._connection.exec_driver_sql(f"SET LOCAL {setting}")
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise SourceError(f"{self._shown} cannot be read: {self._message(error)}") from None

    def bound(self, query: Query, value: Any) -> tuple[str, Any]:
        dialect = self._connection.dialect
        untyped = dialect.name == "postgresql" and isinstance(value, str)  # PostgreSQL cannot test it for NULL
        return query.bound(value, dialect.paramstyle, "::text" if untyped else "")

    def least(self, query: Query, column: str) -> str | None:
        backend = self._connection.dialect.name
        if backend == "sqlite":  # below any number and any string, whatever the column's affinity
            return "CAST(-9e999 AS REAL)"
        return self._least_of_postgres(query, column) if backend == "postgresql" else None

    def _least_of_postgres(self, query: Query, column: str) -> str | None:
        """Return a constant below all values of the column's type; None if unknown. Raises SourceError.

        The server reports the type for the query with NULL in place of `:cursor`.
        """
        import psycopg

        raw, first = self._driver_connection(), None
        for null in ("NULL", *(f"NULL::{kind}" for kind in _LEAST_OF_POSTGRES)):
            try:
                with raw.transaction(), raw.cursor() as cursor:  # a savepoint; the query is planned, but not run
                    cursor.execute(f"DECLARE indexmill_columns NO SCROLL CURSOR FOR {query.with_literal(null)}")
                    cursor.execute("FETCH 0 FROM indexmill_columns")
                    codes = {described.name: described.type_code for described in cursor.description or ()}
                    cursor.execute("CLOSE indexmill_columns")
            except psycopg.Error as error:
                first = first or error
                continue
            type_info = raw.adapters.types.get(codes.get(column, 0))
            return None if type_info is None else _LEAST_OF_POSTGRES.get(type_info.name)
        raise SourceError(f"{self._shown} refuses the query: {self._message(first)}: correct the query") from None

    def run(self, sql: str, parameters: Any = None) -> Reading:
        import sqlalchemy

        try:
            result = self._connection.exec_driver_sql(sql, parameters, {"stream_results": True})
            if not result.returns_rows:
                raise SourceError(f"{self._shown}: the query returns no rows: write a SELECT")
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise SourceError(f"{self._shown} refuses the query: {self._message(error)}: correct the query") from None
        columns = tuple(result.keys())
        return Reading(columns, self._rows(result, columns))

    def _rows(self, result: sqlalchemy.CursorResult[Any], columns: tuple[str, ...]) -> Generator[Record]:
        import sqlalchemy

        count, at_once = 0, 1
        try:
            while rows := result.fetchmany(at_once):
                size = 0
                for row in rows:
                    count += 1
                    size += sum(len(value) for value in row if isinstance(value, str | bytes))
                    yield dict(zip(columns, row, strict=True))
                at_once = max(1, min(2 * at_once, _MOST_ROWS, _FETCHED * len(rows) // max(1, size)))
        except (sqlalchemy.exc.SQLAlchemyError, ValueError, ArithmeticError, OSError) as error:
            _raise_midway(self._shown, count, self._message(error))
        finally:
            with suppress(sqlalchemy.exc.SQLAlchemyError):
                result.close()

    def _driver_connection(self) -> Any:
        return self._connection.connection.driver_connection


_LEAST_OF_POSTGRES = {
    **{name: f"'-infinity'::{name}" for name in ("timestamptz", "timestamp", "date")},
    **dict.fromkeys(("int2", "int4", "int8"), "'-9223372036854775808'::bigint"),
    **dict.fromkeys(("float4", "float8"), "'-Infinity'::float8"),
    **dict.fromkeys(("text", "varchar", "bpchar"), "''::text"),
    "numeric": "'-1e1000'::numeric",
    "uuid": "'00000000-0000-0000-0000-000000000000'::uuid",
}

_RANGES = ("int4", "int8", "num", "date", "ts", "tstz")
_AS_TEXT = ("inet", "cidr", *(f"{name}{kind}" for name in _RANGES for kind in ("range", "multirange")))
"""Types that psycopg loads as objects that metadata cannot represent."""


def _lenient_loaders() -> dict[str, type]:
    """Return loaders that return dates and times beyond Python's range (`infinity`, years B.C.) as strings, by type."""
    from psycopg import DataError
    from psycopg.types import datetime as loaders

    def lenient(base: Any) -> type:
        class Lenient(base):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except DataError:
                    return bytes(data).decode()

        return Lenient

    names = {"date": "DateLoader", "timestamp": "TimestampLoader", "timestamptz": "TimestamptzLoader"}
    return {name: lenient(getattr(loaders, loader)) for name, loader in names.items()}


def _first_line(error: object) -> str:
    """Return the first line of a message, without the query excerpt that drivers print below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500].rstrip(".:")


def _raise_midway(shown: str, count: int, message: str) -> NoReturn:
    raise SourceError(
        f"{shown} failed after {count:,} rows ({message}): these rows are not used; build again"
    ) from None
