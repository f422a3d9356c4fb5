"""The few words that a message has for refused rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from schemas.tables import QUARANTINE
from tasks.stages.ingest.refused import example_of, failed_files, reasons_of, unread_files


def refused(*rows: tuple[str, int | None, str, str], document_ids: Sequence[str | None] | None = None) -> pa.Table:
    names = ("file", "line", "reason", "detail", "document_id")
    whole = [(*row, one) for row, one in zip(rows, document_ids or [None] * len(rows), strict=True)]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in whole], schema=QUARANTINE)


def test_the_most_frequent_reasons_come_first_and_the_rare_ones_are_added_up() -> None:
    frequent = [("a.jsonl", n, reason, "") for reason, count in (("nul", 1), ("no-text", 3)) for n in range(count)]
    assert reasons_of(refused(*frequent)) == "3 no-text, 1 nul"
    rare = [("a.jsonl", 9, reason, "") for reason in ("bad-id", "no-id", "not-csv", "not-json")]
    assert reasons_of(refused(*frequent, *rare)) == "3 no-text, 1 bad-id, 1 no-id, 1 not-csv, 2 for other reasons"
    assert reasons_of(refused()) == ""


def test_the_example_is_the_first_row_of_the_most_frequent_reason() -> None:
    rows = [
        ("a.jsonl", 1, "nul", "at character 3"),
        ("b.jsonl", 4, "not-json", "Expecting value;\nthe line begins \x1b[31m"),
        ("b.jsonl", 9, "not-json", "another"),
    ]
    assert example_of(refused(*rows)) == "b.jsonl:4 (not-json)"
    assert example_of(refused(("a\x1b[31m.md", None, "too-large", "the file"))) == "a\ufffd[31m.md (too-large)"
    assert example_of(refused()) == ""


def test_rows_without_the_named_fields_point_to_the_setting() -> None:
    found = example_of(refused(("a.jsonl", 1, "no-id", "field 'id' is missing")))
    assert found == "a.jsonl:1 (no-id); `corpus.fields` names the fields of a record"


def test_a_text_file_that_failed_holds_nothing_further_and_a_file_of_records_may() -> None:
    reasons = {"a.md": "reader-failed", "b.jsonl": "too-slow", "c.jsonl": "unreadable-file", "d.jsonl": "no-id"}
    rows = [(file, None, reason, "") for file, reason in reasons.items()]
    table = refused(*rows, document_ids=["a.md", None, None, None])
    assert failed_files(table) == ["a.md", "b.jsonl"]
    assert unread_files(table) == ["b.jsonl", "c.jsonl"]
    assert failed_files(refused()) == unread_files(refused()) == []
