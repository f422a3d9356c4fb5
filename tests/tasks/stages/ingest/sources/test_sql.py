"""Rows of SQLite, DuckDB and PostgreSQL: all, or those since a cursor."""

# ruff: noqa: S608 - queries of the tests themselves

from __future__ import annotations

import datetime
import decimal
import json
import random
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.errors import ModelUnavailable
from schemas.corpus import FieldNames
from schemas.sources import SqlSettings
from tasks.stages.ingest.documents import Document, SourceRow, document_of
from tasks.stages.ingest.sources import cursor_value
from tasks.stages.ingest.sources.cursor_value import CursorError
from tasks.stages.ingest.sources.source_interface import RecordSource, SourceError
from tasks.stages.ingest.sources.sql import SqlSource
from tasks.stages.ingest.sources.sql_databases import expanded
from tasks.stages.ingest.sources.sql_query import Query
from tests.flows.postgres import database
from tests.paths import ROOT
from tests.tasks.stages.ingest.sources.reading import Read, read

SECRET = "s3cr:t/w@rd"  # noqa: S105 - of a database that ends with the test
ALL = "SELECT * FROM documents"
CHANGED = f"{ALL} WHERE updated_at > :cursor"


class Sqlite:
    """A database file, and places that read it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "a b%.db"
        self.connection = sqlite3.connect(self.file, isolation_level=None)

    def run(self, sql: str, *values: Any) -> None:
        self.connection.execute(sql, values)

    def place(self, query: str = ALL, **settings: Any) -> RecordSource:
        return SqlSource(SqlSettings(url=f"sqlite:///{self.file}", query=query, **settings), self.folder)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    made = Sqlite(tmp_path)
    made.run("CREATE TABLE documents (id TEXT, title TEXT, text TEXT, updated_at TEXT, gone INTEGER DEFAULT 0)")
    yield made
    made.connection.close()


def add(base: Sqlite, identity: str, updated: str, gone: int = 0) -> None:
    base.run("DELETE FROM documents WHERE id = ?", identity)
    base.run("INSERT INTO documents VALUES (?, 'T', ?, ?, ?)", identity, f"Text of {identity}.", updated, gone)


def test_without_a_cursor_all_rows_are_read_each_time(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    place = sqlite.place()
    first = read(place)
    assert first.records == [{"id": "a", "title": "T", "text": "Text of a.", "updated_at": "2026-01-01", "gone": 0}]
    assert first.until is not None
    assert (first.cursor, first.until.whole, place.token()) == (None, True, "")
    assert read(place, first.cursor).ids == ["a"]


def test_only_what_changed_since_the_cursor_is_read(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    add(sqlite, "b", "2026-01-02")
    place = sqlite.place(CHANGED, cursor="updated_at")
    first = read(place)
    assert (sorted(first.ids), first.until and first.until.whole) == (["a", "b"], True)
    add(sqlite, "a", "2026-01-03")
    add(sqlite, "c", "2026-01-03")
    second = read(place, json.loads(json.dumps(first.cursor)))
    assert (sorted(second.ids), second.until and second.until.whole) == (["a", "c"], False)
    nothing = read(place, second.cursor)
    assert (nothing.ids, nothing.cursor) == ([], second.cursor)
    assert sorted(read(place).ids) == ["a", "b", "c"]


def test_nothing_new_keeps_the_cursor_even_if_the_newest_row_is_gone(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-05")
    place = sqlite.place(f"{ALL} WHERE updated_at >= :cursor", cursor="updated_at")
    cursor = read(place).cursor
    sqlite.run("DELETE FROM documents")
    assert read(place, cursor).cursor == cursor


@pytest.mark.parametrize(
    "kind", ["TEXT", "INTEGER", "REAL", "NUMERIC", "TIMESTAMP", "BLOB", ""], ids=lambda kind: kind or "none"
)
def test_a_first_reading_of_sqlite_has_every_value_of_a_column_of_any_affinity(sqlite: Sqlite, kind: str) -> None:
    sqlite.run(f"CREATE TABLE others (id TEXT, text TEXT, seen {kind})")
    values = [-(2**63), -1.5, 0, 7, "", " ", "!", "-1", "2026-01-01 00:00:00", "zebra", "Ärger"]
    for number, value in enumerate(values):
        sqlite.run("INSERT INTO others VALUES (?, 't', ?)", str(number), value)
        place = sqlite.place("SELECT * FROM others WHERE seen > :cursor AND id = " + f"'{number}'", cursor="seen")
        assert read(place).ids == [str(number)]


def test_rows_without_a_value_of_the_cursor_are_in_no_reading(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    sqlite.run("INSERT INTO documents (id, text) VALUES ('b', 'B.')")
    place = sqlite.place(CHANGED, cursor="updated_at")
    first = read(place)
    assert (first.ids, read(place, first.cursor).ids) == (["a"], [])


def test_a_query_that_asks_for_null_gets_null_and_refuses_what_no_later_reading_would_find(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    sqlite.run("INSERT INTO documents (id, text) VALUES ('b', 'B.')")
    place = sqlite.place(f"{ALL} WHERE (:cursor IS NULL OR updated_at > :cursor)", cursor="updated_at")
    first = read(place)
    assert first.ids == ["a"]
    assert [(one.document_id, one.reason) for one in first.refusals] == [("b", "bad-metadata")]
    assert "COALESCE" in first.refusals[0].detail
    add(sqlite, "c", "2026-01-02")
    assert read(place, first.cursor).ids == ["c"]


def test_an_empty_first_reading_is_an_error_rather_than_an_empty_corpus(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    place = sqlite.place(f"{ALL} WHERE updated_at > datetime(:cursor, '-1 hour')", cursor="updated_at")
    with pytest.raises(SourceError, match=r":cursor IS NULL OR updated_at > :cursor"):
        read(place)


def test_a_cursor_of_another_query_reads_everything(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    cursor = read(sqlite.place(CHANGED, cursor="updated_at")).cursor
    other = read(sqlite.place(CHANGED.replace("*", "id, text, updated_at"), cursor="updated_at"), cursor)
    assert (other.ids, other.until and other.until.whole) == (["a"], True)


@pytest.mark.parametrize("kept", ["2026-01-01", {"type": "timestamp", "value": "yesterday"}, {"type": "mood"}])
def test_a_damaged_cursor_is_told_or_ignored(sqlite: Sqlite, kept: Any) -> None:
    add(sqlite, "a", "2026-01-01")
    place = sqlite.place(CHANGED, cursor="updated_at")
    shape = read(place).cursor["query"]
    if isinstance(kept, dict):
        with pytest.raises(SourceError, match="damaged"):
            read(place, {**kept, "query": shape})
    else:
        assert read(place, kept).ids == ["a"]


def test_deleted_rows_delete_documents_by_their_ids_as_documents_have_them(sqlite: Sqlite) -> None:
    sqlite.run("CREATE TABLE numbered (id, text TEXT, seen INTEGER, gone)")
    rows = [(1, None), (2.0, 1), (3, 0), ("x", "2026-01-01")]
    for number, (identity, gone) in enumerate(rows):
        sqlite.run("INSERT INTO numbered VALUES (?, 't', ?, ?)", identity, number, gone)
    place = sqlite.place("SELECT * FROM numbered WHERE seen > :cursor AND seen < 3", cursor="seen", deleted="gone")
    found = read(place)
    assert (found.ids, found.deleted) == ([1, 3], ["2"])
    assert "gone" not in found.records[0]
    with pytest.raises(SourceError, match="gone contains a string"):
        read(sqlite.place("SELECT * FROM numbered WHERE seen > :cursor", cursor="seen", deleted="gone"))


def test_a_deleted_row_without_an_id_is_refused(sqlite: Sqlite) -> None:
    sqlite.run("INSERT INTO documents VALUES (NULL, 'T', 't', '2026', 1)")
    assert read(sqlite.place(deleted="gone")).reasons == [(1, "no-id")]


def test_a_file_is_opened_for_reading_alone(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    with pytest.raises(SourceError):
        read(sqlite.place("DELETE FROM documents RETURNING *"))
    assert read(sqlite.place()).ids == ["a"]


def test_texts_that_are_not_utf8_are_refused_and_the_others_kept(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    sqlite.run("INSERT INTO documents (id, text, updated_at) VALUES ('b', CAST(x'ff61' AS TEXT), '2026-01-02')")
    add(sqlite, "c", "2026-01-03")
    found = read(sqlite.place(f"{ALL} ORDER BY id"))
    assert (found.ids, found.reasons) == (["a", "c"], [(2, "not-utf8")])


def test_bytes_are_left_out_of_the_metadata(sqlite: Sqlite) -> None:
    sqlite.run("INSERT INTO documents (id, text, title) VALUES ('b', 'B.', 'B')")
    found = read(sqlite.place("SELECT id, text, x'00ff' AS picture FROM documents"))
    document = document_of(SourceRow(1, found.records[0]), FieldNames(), 10_000)
    assert isinstance(document, Document)
    assert (document.metadata, document.metadata_left_out) == ("{}", True)


@pytest.mark.parametrize(
    ("query", "settings", "message"),
    [
        ("SELEC * FROM documents", {}, 'refuses the query: near "SELEC": syntax error'),
        ("SELECT text FROM documents", {}, "the query has no column id; it has text"),
        ("SELECT 1 AS id, text AS a, title AS a FROM documents", {}, "several columns are named a"),
        (f"{ALL} WHERE gone > :cursor", {"cursor": "stamp"}, "no column stamp"),
        (f"{ALL} -- WHERE updated_at > :cursor", {"cursor": "updated_at"}, "only in a string or a comment"),
        ("SELECT * FROM nowhere", {}, "no such table: nowhere"),
    ],
)
def test_a_query_that_cannot_be_read_says_why(sqlite: Sqlite, query: str, settings: Any, message: str) -> None:
    add(sqlite, "a", "2026-01-01")
    with pytest.raises(SourceError) as raised:
        read(sqlite.place(query, **settings))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("query", "settings", "message"),
    [
        (CHANGED, {}, "set `cursor` to the column"),
        (ALL, {"cursor": "updated_at"}, "the query lacks :cursor"),
        (ALL, {"overlap_seconds": 3}, "for a query with :cursor"),
    ],
)
def test_settings_that_do_not_fit_are_refused(query: str, settings: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SqlSettings(url="sqlite:///x", query=query, **settings)


def test_a_file_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    for scheme in ("sqlite", "duckdb"):
        place = SqlSource(SqlSettings(url=f"{scheme}:///{tmp_path}/none.db", query="SELECT 1 AS id"), tmp_path)
        with pytest.raises(SourceError, match="no such database file"):
            read(place)
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all, but long enough" * 100)
    for scheme in ("sqlite", "duckdb"):
        place = SqlSource(SqlSettings(url=f"{scheme}:///{tmp_path}/x.db", query="SELECT 1 AS id FROM a"), tmp_path)
        with pytest.raises(SourceError):
            read(place)


def test_texts_and_integers_in_one_column_of_cursors_are_told(sqlite: Sqlite) -> None:
    sqlite.run("CREATE TABLE mixed (id TEXT, text TEXT, seen)")
    sqlite.run("INSERT INTO mixed VALUES ('a', 't', 1), ('b', 't', '2026')")
    with pytest.raises(SourceError, match=r"in the column seen, found .* beside"):
        read(sqlite.place("SELECT * FROM mixed WHERE seen > :cursor", cursor="seen"))


def test_an_overlap_needs_times(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01")
    with pytest.raises(SourceError, match="found str, from which no seconds can be subtracted"):
        read(sqlite.place(CHANGED, cursor="updated_at", overlap_seconds=60))


def test_colons_and_percent_signs_of_a_query_stay(sqlite: Sqlite) -> None:
    add(sqlite, "a", "2026-01-01 12:30:15")
    query = "SELECT *, '100% of 12:30 :cursor' AS said FROM documents WHERE title LIKE '%T%' AND updated_at > :cursor ;"
    place = sqlite.place(query, cursor="updated_at")
    first = read(place)
    assert first.records[0]["said"] == "100% of 12:30 :cursor"
    add(sqlite, "b", "2026-01-02 12:30:15")
    assert read(place, first.cursor).ids == ["b"]


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("a > :cursor", "a > ?"),
        ("a::text > :cursor::text", "a::text > ?::text"),
        ("'it''s :cursor' || \":cursor\" || :cursor", "'it''s :cursor' || \":cursor\" || ?"),
        ("-- :cursor\n/* :cursor */ :cursor", "-- :cursor\n/* :cursor */ ?"),
        ("$$ :cursor $$ $a$ :cursor $$ $a$ :cursor", "$$ :cursor $$ $a$ :cursor $$ $a$ ?"),
        (r"E'\' :cursor' :cursor", r"E'\' :cursor' ?"),
        (":cursors :cursor", ":cursors ?"),
        ("::cursor :cursor", "::cursor ?"),
    ],
)
def test_a_cursor_is_found_outside_of_texts_names_and_comments(sql: str, bound: str) -> None:
    assert Query.of(sql).bound(1, "qmark") == (bound, (1,))


@pytest.mark.parametrize(
    ("style", "bound"),
    [
        ("qmark", ("a % 2 > ? OR ?", (1, 1))),
        ("named", ("a % 2 > :cursor OR :cursor", {"cursor": 1})),
        ("dollar", ("a % 2 > $cursor OR $cursor", {"cursor": 1})),
        ("pyformat", ("a %% 2 > %(cursor)s OR %(cursor)s", {"cursor": 1})),
        ("format", ("a %% 2 > %s OR %s", (1, 1))),
        ("numeric_dollar", ("a % 2 > $1 OR $1", (1,))),
    ],
)
def test_a_cursor_is_bound_in_the_style_of_each_driver(style: str, bound: tuple[str, Any]) -> None:
    assert Query.of("a % 2 > :cursor OR :cursor").bound(1, style) == bound


@pytest.mark.parametrize(
    ("sql", "asks"),
    [
        (":cursor IS NULL OR a > :cursor", True),
        (":cursor::timestamptz is null or a > :cursor", True),
        ("CAST(:cursor AS timestamp with time zone) IS NULL OR a > :cursor", True),
        ("a > coalesce(:cursor, 0)", True),
        ("a > COALESCE(CAST(:cursor AS int), 0)", True),
        ("a > :cursor", False),
        ("a > :cursor AND b IS NULL", False),
    ],
)
def test_a_query_that_handles_null_is_recognised(sql: str, asks: bool) -> None:
    assert Query.of(sql).handles_null is asks


ZONE = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 1, 2, 3, 4, 5, 678901),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, ZONE),
        datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 2),
        2**70,
        0.1,
        decimal.Decimal("1.2300"),
        "Ärger",
        uuid.UUID(int=7),
        b"\x00\xff",
    ],
    ids=str,
)
def test_a_cursor_is_restored_exactly(value: Any) -> None:
    restored = cursor_value.from_json(json.loads(json.dumps(cursor_value.to_json(value))))
    assert restored == value
    assert type(restored) is type(value)
    if isinstance(value, datetime.datetime):
        assert (restored.tzinfo is None) is (value.tzinfo is None)


@pytest.mark.parametrize(
    "value", [None, True, float("nan"), decimal.Decimal("NaN"), [1], datetime.timedelta(1)], ids=str
)
def test_other_values_are_no_cursors(value: Any) -> None:
    with pytest.raises(CursorError):
        cursor_value.to_json(value)


def test_an_overlap_is_taken_from_times() -> None:
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert cursor_value.earlier(moment, 1.5) == moment - datetime.timedelta(seconds=1.5)
    assert cursor_value.earlier(datetime.date(2026, 1, 2), 1) == datetime.date(2026, 1, 1)
    assert cursor_value.earlier(datetime.datetime.min, 1) == datetime.datetime.min
    assert cursor_value.earlier("text", 0) == "text"


def test_variables_of_the_environment_are_put_in_and_escaped_in_front_of_the_host() -> None:
    environment = {"WHO": "me", "WORD": SECRET, "PLACE": "db:5433"}
    url = "postgresql://$WHO:${WORD}@$PLACE/x?a=$$b"
    assert expanded(url, environment) == "postgresql://me:s3cr%3At%2Fw%40rd@db:5433/x?a=$b"
    assert expanded("$ALL", {"ALL": "sqlite:///x"}) == "sqlite:///x"
    with pytest.raises(SourceError, match="variable NONE, to which the URL of a database refers, is not set"):
        expanded("postgresql://u:$NONE@h/x", {})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush-hush@127.0.0.1:1/x",
        "postgresql://u@127.0.0.1:1/x?password=hush-hush",
        "postgresql://u:hush-hush@no.such.host.invalid/x",
        "postgresql://u:hush-hush@h:port/x",
        "postgresql://u:hush-hush@127.0.0.1:1/x?no_such_option=1",
        "nonsense://u:hush-hush@h/x",
        "hush-hush",
        "sqlite:///hush-hush-none.db?password=hush-hush",
    ],
)
def test_a_password_is_in_no_message(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="not installed: psycopg (pip install 'indexmill[sql]')")
    monkeypatch.chdir(tmp_path)
    settings = SqlSettings(url=url, query="SELECT 1 AS id")
    with pytest.raises(SourceError) as raised:
        read(SqlSource(settings, tmp_path))
    told: BaseException | None = raised.value
    while told is not None:
        assert "hush-hush" not in str(told).replace("hush-hush-none.db", "")
        assert told.__suppress_context__ or told.__context__ is None
        told = told.__cause__
    assert "hush" not in repr(settings)


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModelUnavailable, match=r"indexmill\[sql\]"):
        SqlSource(SqlSettings(url="postgresql://u@h/x", query="SELECT 1"), tmp_path)
    monkeypatch.setitem(sys.modules, "cx_Oracle", None)
    with pytest.raises(SourceError, match="needs the driver cx_Oracle"):
        SqlSource(SqlSettings(url="oracle+cx_oracle://u:p@h/x", query="SELECT 1"), tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModelUnavailable, match=r"indexmill\[sql\]"):
        read(SqlSource(SqlSettings(url="duckdb:///x", query="SELECT 1"), tmp_path))


# DuckDB


@pytest.fixture
def duck(tmp_path: Path) -> Path:
    duckdb = pytest.importorskip("duckdb", reason="not installed: DuckDB (pip install 'indexmill[sql]')")
    path = tmp_path / "some.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            """CREATE TABLE documents AS SELECT * FROM (VALUES
            ('a', 'A.', TIMESTAMPTZ '2026-01-01 10:00:00.123456+02',
             ['x', 'y'], '{"k": [1]}'::JSON, 1.50::DECIMAL(9,2)),
            ('b', 'B.', TIMESTAMPTZ '2026-01-02 10:00:00+02', NULL, NULL, NULL)
            ) t(id, text, updated_at, groups, extra, price)"""
        )
    return path


def duck_place(path: Path, query: str, **settings: Any) -> RecordSource:
    return SqlSource(SqlSettings(url=f"duckdb:///{path}", query=query, **settings), path.parent)


def test_duckdb_is_read_with_its_types_and_by_a_cursor(duck: Path) -> None:
    import duckdb

    place = duck_place(duck, CHANGED, cursor="updated_at")
    first = read(place)
    record = next(one for one in first.records if one["id"] == "a")
    assert (record["groups"], record["extra"], record["price"]) == (["x", "y"], {"k": [1]}, decimal.Decimal("1.50"))
    assert record["updated_at"].isoformat() == "2026-01-01T08:00:00.123456+00:00"
    assert first.cursor["value"] == "2026-01-02T08:00:00+00:00"
    with duckdb.connect(str(duck)) as connection:
        connection.execute(
            "INSERT INTO documents (id, text, updated_at) VALUES ('c', 'C.', '2026-01-02 08:00:00.000001Z')"
        )
    assert read(place, first.cursor).ids == ["c"]
    late = duck_place(duck, CHANGED, cursor="updated_at", overlap_seconds=3_600.0)
    assert sorted(read(late, read(late).cursor).ids) == ["b", "c"]


@pytest.mark.parametrize(
    "expression",
    [
        "TIMESTAMP '0001-01-01'", "DATE '1970-01-01'", "'-170141183460469231731687303715884105726'::HUGEINT",
        "0::UBIGINT", "-5::TINYINT", "-1e300::DOUBLE", "-5.5::DECIMAL(9,2)", "'!'::VARCHAR",
        "TIMESTAMP_NS '1970-01-01'",
    ],
)  # fmt: skip
def test_a_first_reading_of_duckdb_has_the_least_values(duck: Path, expression: str) -> None:
    query = f"SELECT * FROM (SELECT 1 AS id, 't' AS text, {expression} AS seen) WHERE seen > :cursor"
    assert read(duck_place(duck, query, cursor="seen")).ids == [1]


def test_a_column_whose_least_value_is_unknown_asks_for_null(duck: Path) -> None:
    query = "SELECT 1 AS id, 't' AS text, [1] AS seen WHERE seen > :cursor"
    with pytest.raises(SourceError, match=":cursor IS NULL OR seen > :cursor"):
        read(duck_place(duck, query, cursor="seen"))


def test_bad_sql_of_duckdb_is_told(duck: Path) -> None:
    for query in ("SELEC 1", "SELECT * FROM nowhere", "CREATE TABLE x (a INT)", "SELECT 1/x AS id FROM documents"):
        with pytest.raises(SourceError):
            read(duck_place(duck, query))


def test_an_error_of_duckdb_midway_is_no_end(duck: Path) -> None:
    query = "SELECT i AS id, CAST(CASE WHEN i = 90000 THEN 'x' ELSE '1' END AS INT) AS text FROM range(100000) t(i)"
    with pytest.raises(SourceError, match=r"failed after [\d,]+ rows"):
        read(duck_place(duck, query))


# PostgreSQL


class Postgres:
    """A server, and places that read it."""

    def __init__(self, port: int, folder: Path) -> None:
        import psycopg

        self.port, self.folder = port, folder
        self.connection = psycopg.connect(
            host="127.0.0.1", port=port, user="reader", password=SECRET, dbname="reader", autocommit=True
        )

    def run(self, sql: str, *values: Any) -> None:
        self.connection.execute(sql, values)

    def place(self, query: str, **settings: Any) -> RecordSource:
        url = f"postgresql://reader:$INDEXMILL_TEST_WORD@127.0.0.1:{self.port}/reader"
        return SqlSource(SqlSettings(url=url, query=query, **settings), self.folder)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    pytest.importorskip("psycopg", reason="not installed: psycopg (pip install 'indexmill[sql]')")
    with database("reader", SECRET) as port:
        yield port


@pytest.fixture
def postgres(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    monkeypatch.setenv("INDEXMILL_TEST_WORD", SECRET)
    made = Postgres(server, tmp_path)
    made.run("DROP TABLE IF EXISTS documents")
    made.run(
        "CREATE TABLE documents (id text PRIMARY KEY, text text, updated_at timestamptz, gone boolean DEFAULT false)"
    )
    yield made
    made.connection.close()


def put(base: Postgres, identity: str, updated: str, gone: bool = False) -> None:
    base.run(
        "INSERT INTO documents VALUES (%s, 'T.', %s, %s) ON CONFLICT (id) DO UPDATE SET updated_at = "
        "excluded.updated_at, gone = excluded.gone",
        identity, updated, gone,
    )  # fmt: skip


@pytest.mark.slow
def test_postgres_is_read_by_a_cursor_to_the_microsecond(postgres: Postgres) -> None:
    put(postgres, "a", "2026-01-01 00:00:00.000001+02")
    put(postgres, "b", "2026-01-01 00:00:00.000002+02")
    place = postgres.place(CHANGED, cursor="updated_at", deleted="gone")
    first = read(place)
    assert (sorted(first.ids), first.until and first.until.whole) == (["a", "b"], True)
    assert first.cursor["value"] == "2025-12-31T22:00:00.000002+00:00"
    put(postgres, "c", "2026-01-01 00:00:00.000003+02")
    put(postgres, "a", "2026-01-01 00:00:00.000004+02", gone=True)
    second = read(place, json.loads(json.dumps(first.cursor)))
    assert (second.ids, second.deleted) == (["c"], ["a"])
    assert read(place, second.cursor).records == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least", "greater"),
    [
        ("timestamptz", "4713-01-01 00:00:00+00 BC", "2026-01-01"),
        ("timestamp", "0001-01-01", "2026-01-01"),
        ("date", "0001-01-01", "2026-01-01"),
        ("smallint", "-32768", "1"),
        ("bigint", "-9223372036854775807", "1"),
        ("numeric", "-1e900", "1.5"),
        ("double precision", "-1e300", "1.5"),
        ("text", "!", "z"),
        ("varchar(10)", "!", "z"),
        ("uuid", "00000000-0000-0000-0000-000000000001", "10000000-0000-0000-0000-000000000001"),
    ],
)
@pytest.mark.parametrize("form", ["seen > :cursor", ":cursor IS NULL OR seen > :cursor", "seen >= :cursor"])
def test_every_type_of_a_column_serves_as_cursor(
    postgres: Postgres, kind: str, least: str, greater: str, form: str
) -> None:
    postgres.run("DROP TABLE IF EXISTS others")
    postgres.run(f"CREATE TABLE others (id text, text text, seen {kind})")
    place = postgres.place(f"SELECT * FROM others WHERE {form}", cursor="seen")
    if "BC" not in least:
        postgres.run("INSERT INTO others VALUES ('least', 't', %s)", least)
    postgres.run("INSERT INTO others VALUES ('a', 't', %s)", greater)
    first = read(place)
    assert {"a", "least"} - set(first.ids) == ({"least"} if "BC" in least else set())
    again = read(place, first.cursor)
    assert again.ids == (["a"] if ">=" in form else [])
    assert again.cursor == first.cursor


@pytest.mark.slow
def test_a_row_of_a_transaction_that_commits_late_is_found_by_the_overlap(postgres: Postgres) -> None:
    import psycopg

    place = postgres.place(CHANGED, cursor="updated_at", overlap_seconds=3600)
    strict = postgres.place(CHANGED, cursor="updated_at")
    with psycopg.connect(postgres.connection.info.dsn, password=SECRET) as slow:
        slow.execute("INSERT INTO documents VALUES ('late', 'T.', '2026-01-01 10:00:00+00')")
        put(postgres, "early", "2026-01-01 10:30:00+00")
        first, first_strict = read(place), read(strict)
        assert first.ids == first_strict.ids == ["early"]
        slow.commit()
    assert read(strict, first_strict.cursor).ids == []  # what the overlap is for
    assert sorted(read(place, first.cursor).ids) == ["early", "late"]


@pytest.mark.slow
def test_a_reading_sees_one_state_and_changes_nothing(postgres: Postgres) -> None:
    for number in range(2000):
        put(postgres, f"{number:04d}", "2026-01-01")
    rows = postgres.place(f"{ALL} ORDER BY id").rows(None)
    next(rows)
    postgres.run("DELETE FROM documents WHERE id > '1000'")
    postgres.run("INSERT INTO documents VALUES ('9999', 'T.')")
    assert sum(isinstance(one, SourceRow) for one in rows) == 1999
    postgres.run("CREATE SEQUENCE IF NOT EXISTS numbers")
    changing = ("DELETE FROM documents RETURNING *", "SELECT nextval('numbers') AS id", "COMMIT")
    for query in (*changing, "WITH gone AS (DELETE FROM documents RETURNING *) SELECT * FROM gone"):
        with pytest.raises(SourceError):
            read(postgres.place(query))
    assert len(read(postgres.place(ALL)).ids) == 1002


@pytest.mark.slow
def test_values_of_postgres_become_plain_metadata(postgres: Postgres) -> None:
    query = """SELECT 7::bigint AS id, 't' AS text, ARRAY['legal', 'board'] AS groups,
        '{"a": [1, null]}'::jsonb AS extra,
        1.50::numeric AS price, '2026-01-01 12:00+02'::timestamptz AS seen, 'infinity'::timestamptz AS until,
        '0044-03-15 BC'::date AS ides, '10.0.0.1'::inet AS host, int4range(1, 5) AS pages, NULL AS nothing,
        '00000000-0000-0000-0000-000000000007'::uuid AS key, '90 minutes'::interval AS took, true AS good,
        '100%' AS share"""
    postgres.run("ALTER ROLE reader SET timezone = 'Asia/Tokyo'")
    postgres.run("ALTER ROLE reader SET datestyle = 'SQL, DMY'")
    try:
        found = read(postgres.place(query))
    finally:
        postgres.run("ALTER ROLE reader RESET ALL")
    made = document_of(SourceRow(1, found.records[0]), FieldNames(), 10_000)
    assert isinstance(made, Document), made
    assert made.document_id == "7"
    assert json.loads(made.metadata) == {
        "groups": ["legal", "board"], "extra": {"a": [1, None]}, "price": "1.50", "seen": "2026-01-01T10:00:00+00:00",
        "until": "infinity", "ides": "0044-03-15 BC", "host": "10.0.0.1", "pages": "[1,5)", "nothing": None,
        "key": "00000000-0000-0000-0000-000000000007", "took": 5400.0, "good": True, "share": "100%",
    }  # fmt: skip


@pytest.mark.slow
def test_an_infinite_time_is_no_cursor(postgres: Postgres) -> None:
    put(postgres, "a", "2026-01-01+00")
    put(postgres, "b", "infinity")
    first = read(postgres.place(CHANGED, cursor="updated_at"))
    assert (first.ids, [one.document_id for one in first.refusals]) == (["a"], ["b"])
    assert first.cursor["value"] == "2026-01-01T00:00:00+00:00"


@pytest.mark.slow
def test_a_connection_that_is_killed_midway_is_no_end(postgres: Postgres) -> None:
    query = "SELECT i AS id, repeat('x', 10000) AS text FROM generate_series(1, 20000) i"
    rows = postgres.place(query).rows(None)
    for _ in range(100):
        next(rows)
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'indexmill'")
    with pytest.raises(SourceError, match=r"failed after [\d,]+ rows \(.*; build again") as raised:
        list(rows)
    assert SECRET not in str(raised.value)


@pytest.mark.slow
def test_a_timeout_of_a_statement_is_told(postgres: Postgres) -> None:
    url = (
        f"postgresql://reader:$INDEXMILL_TEST_WORD@127.0.0.1:{postgres.port}/reader?options=-c%20statement_timeout=300"
    )
    place = SqlSource(SqlSettings(url=url, query="SELECT 1 AS id, pg_sleep(20)::text AS text"), postgres.folder)
    with pytest.raises(SourceError, match="statement timeout"):
        read(place)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["wr0ng-w@rd", SECRET])
def test_passwords_of_postgres_are_in_no_message(
    postgres: Postgres, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDEXMILL_TEST_WORD", word)
    with pytest.raises(SourceError) as raised:
        read(postgres.place("SELECT nothing FROM nowhere"))
    assert word not in str(raised.value)
    assert "%40" not in str(raised.value)
    assert ("password authentication failed" in str(raised.value)) is (word != SECRET)


@pytest.mark.slow
def test_a_constant_of_a_first_reading_suits_what_is_made_of_the_cursor(postgres: Postgres) -> None:
    put(postgres, "a", "2026-01-01")
    place = postgres.place(f"{ALL} WHERE updated_at > :cursor - interval '1 hour'", cursor="updated_at")
    first = read(place)
    assert first.ids == ["a"]
    assert read(place, first.cursor).ids == ["a"]


@pytest.mark.slow
def test_changes_that_are_read_piece_by_piece_are_those_that_are_read_at_once(postgres: Postgres) -> None:
    chance = random.Random(7)  # noqa: S311 - test data
    place = postgres.place(CHANGED, cursor="updated_at", deleted="gone")
    held: dict[str, Any] = {}
    cursor = None

    def apply(found: Read) -> None:
        held.update({record["id"]: record for record in found.records})
        for identity in found.deleted:
            held.pop(identity, None)

    for step in range(40):
        put(postgres, f"d{chance.randrange(12)}", f"2026-01-01 00:00:{step:02d}+00", gone=chance.random() < 0.3)
        if chance.random() < 0.4:
            found = read(place, cursor)
            cursor = found.cursor
            apply(found)
    apply(read(place, cursor))
    assert held == {record["id"]: record for record in read(place).records}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "sqlite", "duckdb"])
def test_memory_is_flat_over_a_million_rows(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    rows = 1_000_000
    series = "SELECT i AS id, repeat('x', 1000) AS text, i AS seen FROM generate_series(1, {0}) t(i)"
    if kind == "postgres":
        base = request.getfixturevalue("postgres")
        url, source = f"postgresql://reader:$INDEXMILL_TEST_WORD@127.0.0.1:{base.port}/reader", series.format(rows)
    elif kind == "duckdb":
        url, source = "duckdb://", series.format(rows)
    else:
        sqlite3.connect(tmp_path / "a.db").close()
        url = f"sqlite:///{tmp_path}/a.db"
        source = (
            f"WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < {rows}) "
            "SELECT i AS id, hex(zeroblob(500)) AS text, i AS seen FROM t"
        )
    query = f"SELECT * FROM ({source}) rows WHERE seen > :cursor"
    program = f"""
import resource
from pathlib import Path
from schemas.sources import SqlSettings
from tasks.stages.ingest.sources.sql import SqlSource
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
settings = SqlSettings(url={url!r}, query={query!r}, cursor="seen")
place = SqlSource(settings, Path({str(tmp_path)!r}))
early = 0
for number, one in enumerate(place.rows(None), 1):
    if number == 100_000:
        early = most()
print(number - 1, one.cursor["value"], most() - early)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    read_rows, cursor, grown = map(int, done.stdout.split())
    assert (read_rows, cursor) == (rows, rows)
    assert grown < 100
