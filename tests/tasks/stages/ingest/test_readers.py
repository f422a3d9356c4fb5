"""Readers stream: every format, every way in which a file can be broken, in bounded memory."""

from __future__ import annotations

import csv
import datetime
import errno
import gzip
import io
import json
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from schemas.corpus import CorpusSettings, FieldNames
from tasks.stages.ingest import readers
from tasks.stages.ingest.documents import FILE_FIELDS, Document, RejectedRow, SourceRow, document_of
from tasks.stages.ingest.formats.json_array import elements
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find
from tests.deep import examples

MEGABYTE = 1 << 20


def stream(path: Path, **settings: Any) -> Iterator[SourceRow | RejectedRow]:
    chosen = CorpusSettings(paths=(str(path),), **settings)
    (file,) = find(chosen).files
    return read(file, chosen)


def rows(path: Path, **settings: Any) -> list[SourceRow]:
    found = list(stream(path, **settings))
    assert not [row for row in found if isinstance(row, RejectedRow)], found
    return [row for row in found if isinstance(row, SourceRow)]


def outcome(path: Path, **settings: Any) -> list[tuple[int | None, str]]:
    """(line, id or reason) of each row."""
    return [
        (row.line, row.reason if isinstance(row, RejectedRow) else str(row.record["id"]))
        for row in stream(path, **settings)
    ]


def numbered(path: Path, first: int = 1, **settings: Any) -> str:
    """The ids and reasons of the rows, whose lines follow one another."""
    found = outcome(path, **settings)
    assert [line for line, _ in found] == list(range(first, first + len(found)))
    return " ".join(name for _, name in found)


def refusal(path: Path, **settings: Any) -> RejectedRow:
    """The one refusal that a file makes."""
    (found,) = stream(path, **settings)
    assert isinstance(found, RejectedRow)
    return found


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    return path


def lines(count: int, size: int = 10) -> bytes:
    return b"".join(
        json.dumps({"id": f"d{n}", "title": "t", "text": f"{n} " + "x" * size}).encode() + b"\n" for n in range(count)
    )


def document(row: SourceRow, fields: FieldNames = FILE_FIELDS) -> Document:
    found = document_of(row, fields, 10_000_000)
    assert isinstance(found, Document), found
    return found


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


# JSON Lines


@pytest.mark.parametrize("suffix", PACK)
def test_json_lines_plain_and_compressed_also_in_several_pieces(tmp_path: Path, suffix: str) -> None:
    packed = PACK[suffix](lines(300, 500)) + PACK[suffix](lines(4))
    found = rows(write(tmp_path / f"a.jsonl{suffix}", packed))
    assert [row.line for row in found] == list(range(1, 305))
    assert found[299].record["id"] == "d299"


def test_json_lines_of_which_the_first_is_an_array_lose_that_alone(tmp_path: Path) -> None:
    assert numbered(write(tmp_path / "a.json", b"[1, 2]\n" + lines(2))) == "not-an-object d0 d1"


def test_marks_line_ends_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"id": 1, "text": "a"}\r\n\r\n  \n{"id": 2, "text": "b"}'
    assert outcome(write(tmp_path / "a.ndjson", data)) == [(1, "1"), (4, "2")]


def test_each_broken_line_is_refused_with_its_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    data = b"\n".join(
        [
            b'{"id": "a", "text": "good"}',
            b'{"id": "b", "text": "caf\xe9"}',
            b'{"id": "c", "text": ',
            b'["id", "text"]',
            b"7",
            b"[" * 100_000,
            b'{"id": ' + b"9" * 5000 + b"}",
            b'{"id": "z", "text": "good"}',
        ]
    )
    found = numbered(write(tmp_path / "a.jsonl", data))
    assert found == "a not-utf8 not-json not-an-object not-an-object not-json not-json z"


def test_escaped_surrogates_and_nan_are_left_for_the_document(tmp_path: Path) -> None:
    data = '{"id": "a", "text": "\\ud83d\\ude00"}\n{"id": "b", "text": "\\ud83d"}\n{"id": "c", "text": "t", "x": NaN}'
    made = [document_of(row, FieldNames(), 1000) for row in rows(write(tmp_path / "a.jsonl", data))]
    found = [one.text if isinstance(one, Document) else one.reason for one in made]
    assert found == ["\U0001f600", "lone-surrogate", "t"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (json.dumps([{"id": 1}, {"id": 2}], indent=2).encode(), "not-json"),
        (json.dumps({"id": 1, "text": "t"}, indent=2).encode(), "not-json"),
    ],
)
def test_a_file_that_is_not_json_lines_is_refused_once(tmp_path: Path, data: bytes, reason: str) -> None:
    assert outcome(write(tmp_path / "a.jsonl", data)) == [(None, reason)]


@pytest.mark.slow
def test_a_file_of_nothing_but_bad_rows_is_not_read_to_its_end(tmp_path: Path) -> None:
    for name, data in (("a.jsonl", b"1\n" * 150_000), ("a.json", b"[" + b"," * 150_000 + b"]")):
        found = outcome(write(tmp_path / name, data))
        assert len(found) == 100_001
        assert found[-1] == (None, "unreadable-file")
    mixed = (b"1\n" * 60_000 + lines(1)) * 2
    assert outcome(write(tmp_path / "a.jsonl", mixed))[-1] == (120_002, "d0")


# JSON


def test_a_json_array_is_read_element_by_element(tmp_path: Path) -> None:
    """Compact or over several lines, with text that holds quotes, brackets, commas and line ends."""
    records = [
        {"id": n, "text": f'a "quoted\\" text, [with] {{brackets}}\n\\ {n}', "more": [{"x": [n]}]} for n in range(4)
    ]
    for indent, suffix in product((None, 2), PACK):
        data = "\ufeff \n" + json.dumps(records, indent=indent) + "\r\n \n"
        found = rows(write(tmp_path / f"a.json{suffix}", PACK[suffix](data.encode())))
        assert [row.record for row in found] == records
        assert [row.line for row in found] == [1, 2, 3, 4]
    assert rows(write(tmp_path / "a.json", " [ \n ] ")) == []


def test_each_bad_element_is_refused_with_its_number_and_line_and_the_rest_is_read(tmp_path: Path) -> None:
    data = b"""[
  {"id": "a", "text": "good"},
  {"id": "b" "text": "no comma"},
  ["id", "text"], 7,
  {"id": "c", "text": "caf\xe9"},

  ,
  {"id": "d", "text": "wrong bracket"],
  {"id": "e",
   "text": "good"},
  {"id": "f"}
]"""
    path = write(tmp_path / "a.json", data)
    assert numbered(path) == "a not-json not-an-object not-an-object not-utf8 not-json not-json e f"
    details = {row.line: row.detail for row in stream(path) if isinstance(row, RejectedRow)}
    assert details[2].startswith("element 2 (line 3): Expecting ',' delimiter")
    assert details[3] == 'element 3 (line 4): found list: ["id", "text"]'
    assert details[7].startswith("element 7 (line 8): ")
    (last,) = [row for row in stream(path) if isinstance(row, SourceRow) and row.line == 9]
    refused = document_of(last, FieldNames(), 1000)
    assert isinstance(refused, RejectedRow)
    assert refused.detail.startswith("element 9 (line 11): field 'text' is missing")


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        ('[{"id": 1}, {"id": 2, "text": "never closed}]', "ends before its array does, in element 2"),
        ('[{"id": 1}, {"id": 2', "ends before its array does, in element 2"),
        ('[{"id": 1}] {"id": 2}', 'followed by more text: {"id": 2}'),
    ],
)
def test_an_array_that_breaks_off_keeps_the_elements_before(tmp_path: Path, data: str, detail: str) -> None:
    first, last = stream(write(tmp_path / "a.json", data))
    assert isinstance(first, SourceRow)
    assert isinstance(last, RejectedRow)
    assert (last.line, last.reason) == (None, "unreadable-file")
    assert detail in last.detail


def test_a_json_file_may_hold_one_object_or_one_object_a_line(tmp_path: Path) -> None:
    one = {"id": 1, "text": "t"}
    assert [row.record for row in rows(write(tmp_path / "a.json", json.dumps(one)))] == [one]
    assert [row.record for row in rows(write(tmp_path / "a.json", json.dumps(one, indent=2)))] == [one]
    assert len(rows(write(tmp_path / "a.json", lines(3)))) == 3
    broken = b'{"id": "a", "text": \n' + lines(2)
    assert numbered(write(tmp_path / "a.json", broken)) == "not-json d0 d1"
    assert outcome(write(tmp_path / "a.json", '{\n "id": 1,\n "text" "t"\n}')) == [(1, "not-json")]
    assert outcome(write(tmp_path / "a.json", '{"id": 1}\n'.encode("utf-16"))) == [(1, "1")]


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=12),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=8,
)


@given(st.lists(_VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans(), st.integers(1, 9))
def test_the_elements_of_an_array_are_those_of_the_parsed_array(
    values: list[Any], indent: int | None, escape: bool, size: int
) -> None:
    """However the bytes arrive: an escape, a string or a bracket may stand on the edge of two reads."""

    class Trickle(io.BytesIO):
        def read1(self, _: int | None = -1) -> bytes:
            return super().read1(size)

    data = json.dumps(values, indent=indent, ensure_ascii=escape).encode("utf-8", "backslashreplace")
    found = list(elements(Trickle(data), 1 << 20))
    assert [json.loads(element.data) for element in found] == values
    assert [element.number for element in found] == list(range(1, len(values) + 1))


@pytest.mark.slow
def test_memory_does_not_grow_with_a_json_array(tmp_path: Path) -> None:
    """An element over the limit is passed over; the others are read."""
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.write(b"[" + b",".join(lines(6000, 5000).splitlines()))
        file.write(b',{"id": "large", "text": "' + b"x" * 40 * MEGABYTE + b'"}, {"id": "last"}]')
    peak, reasons = peak_of(stream(path, max_document_bytes=100_000))
    assert reasons == ["too-large"]
    assert peak < 4 * MEGABYTE
    assert outcome(path, max_document_bytes=100_000)[-2:] == [(6001, "too-large"), (6002, "last")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_file_keeps_the_rows_before(tmp_path: Path, suffix: str) -> None:
    data = "".join(json.dumps({"id": n, "text": f"{n * n * 7919 % 100_003}" * 9}) + "\n" for n in range(5000)).encode()
    packed = PACK[suffix](data)
    found = outcome(write(tmp_path / f"a.jsonl{suffix}", packed[: len(packed) * 2 // 3]))
    assert found[-1] == (None, "unreadable-file")
    assert [line for line, _ in found[:-1]] == list(range(1, len(found)))
    assert len(found) > 1000
    assert outcome(write(tmp_path / f"a.jsonl{suffix}", packed[:-3]))[-1] == (None, "unreadable-file")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_file_of_another_format_is_unreadable(tmp_path: Path, name: str) -> None:
    assert outcome(write(tmp_path / name, b"plain text, nothing else" * 10)) == [(None, "unreadable-file")]


def test_a_file_that_vanishes_is_unreadable(tmp_path: Path) -> None:
    settings = CorpusSettings(paths=(str(write(tmp_path / "a.jsonl", lines(1))),))
    (file,) = find(settings).files
    Path(file.path).unlink()
    assert [row.reason for row in read(file, settings) if isinstance(row, RejectedRow)] == ["unreadable-file"]


@given(
    st.binary(max_size=400),
    st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.jsonl.gz", "a.jsonl.zst", "a.md", "a.txt"]),
)
def test_no_bytes_can_break_a_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    for row in stream(write(folder / name, data)):
        assert isinstance(row, SourceRow | RejectedRow)


# Memory


def peak_of(rows: Iterator[SourceRow | RejectedRow]) -> tuple[int, list[str]]:
    """The memory that reading took at most, and the reasons of the refusals."""
    tracemalloc.start()
    try:
        reasons = [row.reason for row in rows if isinstance(row, RejectedRow)]
        return tracemalloc.get_traced_memory()[1], reasons
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peak, reasons = peak_of(stream(write(tmp_path / "a.jsonl", lines(6000, 5000))))
    assert not reasons
    assert peak < 2 * MEGABYTE


@pytest.mark.slow
def test_a_gigantic_line_is_refused_without_being_held(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(2))
    with path.open("r+b") as file:
        file.truncate(256 * MEGABYTE)  # a sparse file: NULs without a line end
        file.seek(0, io.SEEK_END)
        file.write(b"\n" + lines(1))
    peak, reasons = peak_of(stream(path, max_document_bytes=100_000))
    assert reasons == ["too-large"]
    assert peak < 8 * MEGABYTE
    assert [line for line, _ in outcome(path, max_document_bytes=100_000)] == [1, 2, 3, 4]


def _opened_for_writing(path: Path) -> Any:
    return gzip.open(path, "wb") if path.suffix == ".gz" else zstandard.open(path, "wb")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_small_file_that_swells_is_refused_without_being_held(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb.jsonl{suffix}"
    with _opened_for_writing(path) as file:
        for _ in range(100):
            file.write(b" " * MEGABYTE)
        file.write(b"\n" + lines(1))
    assert path.stat().st_size < MEGABYTE
    peak, reasons = peak_of(stream(path, max_document_bytes=100_000))
    assert reasons == ["too-large"]
    assert peak < 40 * MEGABYTE


@pytest.mark.parametrize("suffix", [pytest.param(".gz", marks=pytest.mark.slow), ".zst"])
@pytest.mark.parametrize("filler", [b"\n", b" \n", b" "])
def test_a_file_that_expands_out_of_all_proportion_is_not_read_to_its_end(
    tmp_path: Path, suffix: str, filler: bytes
) -> None:
    """Blank lines are passed over many at a time."""
    path = tmp_path / f"bomb.jsonl{suffix}"
    with _opened_for_writing(path) as file:
        file.write(lines(1))
        for _ in range(300):
            file.write(filler * (MEGABYTE // len(filler)))
    began = time.process_time()
    first, *_, last = list(stream(path))
    assert time.process_time() - began < 60
    assert isinstance(first, SourceRow)
    assert isinstance(last, RejectedRow)
    assert (last.line, last.reason) == (None, "unreadable-file")
    assert "it expands to more than 268 MB, the maximum for its size" in last.detail


def test_lines_after_many_blank_ones_have_their_numbers(tmp_path: Path) -> None:
    blank = b"\n \r\n\t\n" * 50_000
    data = blank + lines(1) + blank + b"  " + lines(1) + blank
    assert outcome(write(tmp_path / "a.jsonl", data)) == [(150_001, "d0"), (300_002, "d0")]


# CSV


def test_csv_rows_have_the_columns_of_the_first_row(tmp_path: Path) -> None:
    data = '\ufeffid;text;lang\r\n1;"a ""quoted"" text;\r\nover two lines";en\r\n\r\n2;b;\r\n'
    found = rows(write(tmp_path / "a.csv", data), csv_delimiter=";")
    assert [row.record for row in found] == [
        {"id": "1", "text": 'a "quoted" text;\r\nover two lines', "lang": "en"},
        {"id": "2", "text": "b", "lang": ""},
    ]
    assert [row.line for row in found] == [2, 5]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", "id;text\n1;a, b\n"),
        ("a.csv", "id\ttext\n1\ta, b\n"),
        ("a.csv", "id|text\n1|a, b\n"),
        ("a.csv", "SEP=;\r\nid;text\r\n1;a, b\r\n"),
        ("a.csv", 'id,text,,\n1,"a, b",\n'),
        ("a.csv", 'id,text\n1,"a, b",\n'),
        ("a.tsv", "id\ttext\n1\ta, b\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_delimiter_of_csv_is_that_of_the_columns(tmp_path: Path, name: str, data: str, encoding: str) -> None:
    (row,) = rows(write(tmp_path / name, data.encode(encoding)))
    assert (row.record["id"], row.record["text"], row.record.get("encoding")) == (
        "1",
        "a, b",
        "utf-16-le" if encoding == "utf-16" else None,
    )


def test_rows_with_other_columns_name_the_setting(tmp_path: Path) -> None:
    found = refusal(write(tmp_path / "a.csv", "id;text\n1;a;b\n"))
    assert (found.reason, "separated by ';' (corpus.csv_delimiter)" in found.detail) == ("bad-columns", True)
    found = refusal(write(tmp_path / "a.csv", "key;body\n1;a\n"))
    assert found.detail.startswith("no column id, text; there are key, body: set the corpus fields; columns are")
    found = refusal(write(tmp_path / "a.csv", "id:text\n1:a\n"))
    assert found.detail == (
        "no column id, text; there are id:text: set the corpus fields; columns are separated by ',' "
        "(corpus.csv_delimiter)"
    )


def test_a_text_in_another_encoding_says_so(tmp_path: Path) -> None:
    text = "Die Bürger fahren über die Brücke, um den Schützenkönig am Fluss zu grüßen."
    for name in ("a.txt", "a.md", "a.html", "a.rst"):
        (row,) = rows(write(tmp_path / name, text.encode("cp1252")))
        assert (row.record["text"].strip(), row.record["metadata"]["encoding"]) == (text, "windows-1252")
    fixed = {"*.csv": "gbk", "a.*": "latin-1"}
    assert rows(write(tmp_path / "a.txt", b"caf\xe9"), encoding=fixed)[0].record["text"] == "café"
    (row,) = rows(write(tmp_path / "a.jsonl", b'{"id": 1, "text": "caf\xe9"}\n'), encoding=fixed)
    assert row.record["text"] == "café"
    data = f'id,text\n1,"{text}"\n'.encode("cp1252") + b"2,\x81\n"
    assert outcome(write(tmp_path / "b.csv", data), encoding="cp1252") == [(2, "1"), (3, "not-utf8")]


def test_a_mapped_markdown_file_says_that_it_is_markdown(tmp_path: Path) -> None:
    (row,) = rows(write(tmp_path / "a.log", "# Title\n\nText."), formats={".log": "markdown"})
    assert (row.record["title"], row.record["metadata"]) == ("Title", {"format": "markdown"})


def test_each_broken_csv_row_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    damaged = b"4,caf\xe9 caf\xc3\xa9 \xc3\xa9t\xc3\xa9\n"
    data = b"id,text\n1,a\n2\n3,b,c\n" + damaged + b'5,"x"y\n6,"a,b"\n7,5" pipe\n8,"never closed\n9,z\n'
    found = numbered(write(tmp_path / "a.csv", data), first=2)
    assert found == "1 bad-columns bad-columns not-utf8 not-csv 6 7 not-csv"


def test_missing_columns_are_said_once_with_those_that_exist(tmp_path: Path) -> None:
    found = refusal(write(tmp_path / "a.csv", "key,body\n1,a\n2,b\n"))
    assert (found.line, found.reason) == (1, "bad-columns")
    assert "id, text" in found.detail
    assert "key, body" in found.detail
    assert numbered(write(tmp_path / "a.csv", "id,text,id\n1,a,2\n")) == "bad-columns"
    assert numbered(write(tmp_path / "a.csv", "id,text\n1,a\n"), fields=FieldNames(metadata=("x",))) == "bad-columns"


@pytest.mark.parametrize("repeated", [True, False])
def test_a_file_of_very_many_columns_is_refused_at_once(tmp_path: Path, repeated: bool) -> None:
    columns = ["id", "text", *(["x", "y"] * 100_000 if repeated else map(str, range(200_000)))]
    began = time.process_time()
    found = refusal(write(tmp_path / "a.csv", ",".join(columns) + "\n1,a\n"))
    assert time.process_time() - began < 10
    assert found.reason == "bad-columns"
    assert found.detail == "200,002 columns; at most 10,000 are read: leave out those that are not needed"


@pytest.mark.slow
def test_as_many_columns_as_are_read_may_be_there(tmp_path: Path) -> None:
    names = ["id", "text", *map(str, range(9_998))]
    assert outcome(write(tmp_path / "a.csv", ",".join(names) + "\n" + ",".join(["1"] * 10_000))) == [(2, "1")]
    names.append("x")
    assert refusal(write(tmp_path / "a.csv", ",".join(names))).reason == "bad-columns"
    pq.write_table(pa.table([pa.array(["x"])] * len(names), names=names), tmp_path / "a.parquet", use_dictionary=False)
    assert refusal(tmp_path / "a.parquet").reason == "bad-columns"


def test_a_csv_field_of_megabytes_is_read_and_one_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    long = "x, y\n" * 60_000  # over the library's own limit of 131,072
    too_long = 'say ""x""\n' * 60_000
    endless = "y" * 600_000
    path = tmp_path / "a.csv"
    write(path, f'id,text\n1,"{long}"\n2,"{too_long}"\n3,b\n4,{endless}\n5,"{endless}\n"\n6,c\n')
    found = " ".join(name for _, name in outcome(path, max_document_bytes=150_000))
    assert found == "1 too-large 3 too-large too-large 6"


@examples(20, deep=100)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00")), min_size=1, max_size=5))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((number, text) for number, text in enumerate(texts))])
    assert [row.record["text"] for row in rows(path)] == texts


# Parquet


def test_parquet_rows_keep_their_types(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 5, 1, 12, 30, 0, 5, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "text": pa.array(["a", None], pa.large_string()),
            "when": pa.array([moment, None], pa.timestamp("ns", "UTC")),
            "day": pa.array([moment.date(), None]),
            "tags": pa.array([["x"], None], pa.list_(pa.string())),
            "more": pa.array([{"k": 1.5}, None]),
            "pairs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "title": pa.array(["T", "U"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    first, second = rows(tmp_path / "a.parquet")
    made = document(first, FieldNames())
    assert (made.document_id, made.title) == ("1", "T")
    assert json.loads(made.metadata) == {
        "when": "2024-05-01T12:30:00.000005+00:00",
        "day": "2024-05-01",
        "tags": ["x"],
        "more": {"k": 1.5},
        "pairs": {"a": 1},
    }
    assert second.line == 2
    refused = document_of(second, FieldNames(), 1000)
    assert isinstance(refused, RejectedRow)
    assert refused.reason == "no-text"


@pytest.mark.slow
def test_the_memory_of_parquet_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    texts = [random.Random(number).randbytes(4000).hex() for number in range(5000)]  # noqa: S311 - to fill space
    pq.write_table(pa.table({"id": range(5000), "text": texts}), tmp_path / "a.parquet", row_group_size=5000)
    before = pa.total_allocated_bytes()
    assert max(pa.total_allocated_bytes() - before for _ in stream(tmp_path / "a.parquet")) < 20 * MEGABYTE


def test_parquet_reads_the_columns_it_needs_and_names_missing_ones(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": ["t"], "big": ["b"]}), tmp_path / "a.parquet")
    (row,) = rows(tmp_path / "a.parquet", fields=FieldNames(metadata=()))
    assert set(row.record) == {"id", "text"}
    found = refusal(tmp_path / "a.parquet", fields=FieldNames(text="body"))
    assert found.reason == "bad-columns"
    assert "id, text, big" in found.detail


def test_parquet_values_that_python_cannot_hold_cost_the_row_only_where_it_needs_them(tmp_path: Path) -> None:
    text = pa.array([b"good", b"caf\xe9", b"good"]).view(pa.string())
    when = pa.array([1, 2, 10**15], pa.timestamp("s"))
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": text, "when": when}), tmp_path / "a.parquet")
    made = [document_of(row, FieldNames(), 1000) for row in rows(tmp_path / "a.parquet")]
    assert [one.text if isinstance(one, Document) else one.reason for one in made] == ["good", "not-utf8", "good"]
    assert [one.metadata_left_out for one in made if isinstance(one, Document)] == [False, True]


def test_a_parquet_file_with_a_broken_page_keeps_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ids = [f"d{number}" for number in range(1000)]
    pq.write_table(pa.table({"id": ids, "text": ids}), path, row_group_size=100, compression="zstd")
    group = pq.ParquetFile(path).metadata.row_group(5).column(1)
    data = bytearray(path.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    data[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    found = outcome(write(path, bytes(data)))
    assert found[-1] == (None, "unreadable-file")
    assert [line for line, _ in found[:-1]] == list(range(1, len(found)))
    assert 400 < len(found) <= 501
    assert outcome(write(path, bytes(data[:-20]))) == [(None, "unreadable-file")]


def test_a_small_parquet_file_of_very_many_long_texts_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A text that is repeated stands in the file once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 9 * MEGABYTE]))
    columns = {"id": pa.array(range(2_000)).cast(pa.string()), "text": texts}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < MEGABYTE
    before = pa.total_allocated_bytes()
    found: list[SourceRow | RejectedRow] = []
    for row in stream(tmp_path / "a.parquet"):
        assert pa.total_allocated_bytes() - before < 400 * MEGABYTE
        found.append(row if isinstance(row, RejectedRow) else SourceRow(row.line, {}))
    last = found[-1]
    assert isinstance(last, RejectedRow)
    assert (last.line, last.reason) == (None, "unreadable-file")
    assert "it expands to more than 268 MB" in last.detail
    assert 20 < len(found) < 60


def test_a_parquet_file_whose_footer_is_too_long_is_not_read(tmp_path: Path) -> None:
    footer = (200 << 20).to_bytes(4, "little")
    found = refusal(write(tmp_path / "a.parquet", b"PAR1" + b"\0" * 100 + footer + b"PAR1"))
    assert "a footer of 209,715,200 bytes" in found.detail


# Text files


def test_a_text_file_is_a_document_named_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfOne.\r\nTwo.\n")
    (row,) = rows(path)
    made = document(row)
    assert (made.document_id, made.source, made.title, made.text) == ("a.txt", "a.txt", "", "One.\nTwo.\n")
    assert made.metadata == "{}"
    assert row.line is None


def test_text_files_that_cannot_be_documents_are_refused_by_name(tmp_path: Path) -> None:
    for data, reason in ((b"caf\xe9", "not-utf8"), (b"x" * 101, "too-large")):
        found = refusal(write(tmp_path / "a.txt", data), max_document_bytes=100)
        assert (found.line, found.document_id, found.reason) == (None, "a.txt", reason)


def test_front_matter_becomes_title_and_metadata(tmp_path: Path) -> None:
    data = (
        "---\ntitle: The Bridge\ndate: 2024-05-01\ntags: [a, b]\ndraft: true\n1907: built\n---\n\n# Heading\n\nText.\n"
    )
    made = document(rows(write(tmp_path / "a.md", data.replace("\n", "\r\n")))[0])
    assert made.title == "The Bridge"
    assert made.text == "\n# Heading\n\nText.\n"
    assert json.loads(made.metadata) == {"date": "2024-05-01", "tags": ["a", "b"], "draft": True, "1907": "built"}


@pytest.mark.parametrize(
    ("data", "title"),
    [
        ("Intro\n\n```\n# not this\n```\n\n## The Heading ##\n", "The Heading"),
        ("~~~~\n# not this\n~~~\n# nor this\n~~~~\n# This\n", "This"),
        ("The Heading\n===\nText", "The Heading"),
        ("#hashtag\n\nText", ""),
        ("---\ntitle:\n---\n# From the text", "From the text"),
        ("---\n---\n# Empty front matter", "Empty front matter"),
        ("---\ntitle: 2024\n---\n# Other", "2024"),
    ],
)
def test_without_a_title_the_first_heading_is_it(tmp_path: Path, data: str, title: str) -> None:
    assert document(rows(write(tmp_path / "a.md", data))[0]).title == title


def test_a_heading_that_is_too_long_is_no_title(tmp_path: Path) -> None:
    for heading, title in (("é" * 2048, "é" * 2048), ("é" * 2049, "")):
        for data in (f"# {heading}\n\nText.", f"{heading}\n===\nText."):
            made = document(rows(write(tmp_path / "a.md", data))[0])
            assert (made.title, made.text) == (title, data)


def test_two_rules_around_a_text_are_not_front_matter(tmp_path: Path) -> None:
    data = "---\nA whole paragraph.\n---\nAnother.\n"
    assert document(rows(write(tmp_path / "a.md", data))[0]).text == data
    assert document(rows(write(tmp_path / "a.md", "---\nonly one rule"))[0]).text == "---\nonly one rule"


@pytest.mark.parametrize(
    ("front", "metadata"),
    [
        ("title: {{ page.title }}\nlayout: post", {"layout": "post"}),
        ("{% if draft %}\ndraft: true\n{% endif %}\ntags:\n- {{ tag }}", {"draft": True}),
        ("title: [unclosed", {}),
        ("a: b: c", {"a": "b: c"}),
        ("a: @scope/name\ntags:\n- x\n- y\nb: 'it's'\n", {"a": "@scope/name", "tags": ["x", "y"], "b": "it's"}),
        ("# a comment\n\nx: " + "9" * 5000, {}),
        ("a: " + "[" * 50_000, {}),
        (
            "a0: &a0 {k: v}\n"
            + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)),
            {"a0": {"k": "v"}},
        ),
        ("on: push\nscore: .nan", {"score": None}),
        ("a: !!binary aGVsbG8=\nb: 1", {"b": 1}),
    ],
)
def test_of_front_matter_that_cannot_be_read_the_readable_lines_are_kept(
    tmp_path: Path, front: str, metadata: dict[str, Any]
) -> None:
    (row,) = rows(write(tmp_path / "a.md", f"---\n{front}\n---\n# The Bridge\n\nText.\n"))
    assert row.front_matter_left_out
    made = document(row)
    assert (made.title, made.text, json.loads(made.metadata)) == ("The Bridge", "# The Bridge\n\nText.\n", metadata)


def test_a_title_that_yaml_requires_quotes_for_is_read(tmp_path: Path) -> None:
    (row,) = rows(write(tmp_path / "a.md", "---\ntitle: Install: the guide\ntags: [a]\n---\n# Other\n"))
    assert (document(row).title, document(row).metadata) == ("Install: the guide", '{"tags":["a"]}')


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("# Install {#install}", "Install"),
        ("# Set up `frob` and **go** [¶](#set-up)", "Set up frob and go"),
        ("Under {.wide}\n=====", "Under"),
        ("# {#if} blocks", "{#if} blocks"),
        ("# Untitled\n\n# Named", "Named"),
        ("# robots.txt", "robots.txt"),
    ],
)
def test_a_heading_gives_its_visible_words_as_the_title(tmp_path: Path, heading: str, title: str) -> None:
    assert document(rows(write(tmp_path / "a.md", f"{heading}\n\nText."))[0]).title == title


@pytest.mark.parametrize("text", ["", " \n", "---\ntitle: A section\nweight: 3\n---\n"])
def test_a_file_without_text_is_no_document_and_no_failure(tmp_path: Path, text: str) -> None:
    assert refusal(write(tmp_path / "_index.md", text)).reason == "empty-file"


@pytest.mark.parametrize(
    "between", ["Note: this: that.\nAnd a second line.", "!!python/object:os.system {}", "{%\nText"]
)
def test_a_text_between_two_rules_is_kept_though_it_is_not_yaml(tmp_path: Path, between: str) -> None:
    data = f"---\n{between}\n---\nText"
    (row,) = rows(write(tmp_path / "a.md", data))
    assert not row.front_matter_left_out
    assert document(row).text == data


PAGE = """<?xml version="1.0" encoding="utf-8"?>
<html><head><title>The Bridge of Alma</title><script>var hidden = 1;</script></head>
<body><nav><a href="/">Home</a></nav><article><h1>The Bridge of Alma</h1>
<p>The bridge was paid for by Ermengarde of Tours, who never saw it finished, and it carries her name on a stone.</p>
<p>It fell in the flood of 1907 &amp; was built again by the town, café by café, as the chronicle says.</p>
</article></body></html>"""


@pytest.mark.slow
def test_html_gives_its_main_text_and_title(tmp_path: Path) -> None:
    made = document(rows(write(tmp_path / "a.html", PAGE))[0])
    assert (made.document_id, made.title) == ("a.html", "The Bridge of Alma")
    assert "flood of 1907 & was built again by the town, café by café" in made.text
    assert "hidden" not in made.text
    assert "<p>" not in made.text


NO_MEMORY = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    zlib.error("Error -4 while decompressing data"),
    zstandard.ZstdError("could not create decompressor: not enough memory"),
]


@pytest.mark.parametrize("error", NO_MEMORY, ids=repr)
def test_a_lack_of_memory_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> str:
        raise error

    monkeypatch.setattr(readers, "_whole", fails)
    with pytest.raises(type(error)):
        list(stream(write(tmp_path / "a.txt", "text")))


def test_a_lack_of_memory_of_the_html_library_is_no_fault_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> str:
        raise MemoryError

    monkeypatch.setattr("trafilatura.extract", fails)
    with pytest.raises(MemoryError):
        list(stream(write(tmp_path / "a.html", "<html><body><article>text</article></body></html>")))


def test_html_without_text_and_with_nul_is_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "a.html", "<html><body></body></html>")).reason == "empty-file"
    assert refusal(write(tmp_path / "a.html", "<p>a\x00b</p>")).reason == "nul"
    assert document(rows(write(tmp_path / "a.htm", "<p>Just this.</p>"))[0]).text == "Just this."


def test_html_with_a_tag_of_very_many_attributes_is_refused_at_once(tmp_path: Path) -> None:
    page = f"<html><body><p {' '.join(f'a{number}=x' for number in range(100_000))}>Some text.</p></body></html>"
    began = time.process_time()
    found = refusal(write(tmp_path / "a.html", page))
    assert time.process_time() - began < 10
    assert (found.reason, found.detail) == ("unreadable-file", "a tag has more than 10,000 attributes")


def test_html_that_is_nested_without_end_is_read(tmp_path: Path) -> None:
    page = f"<p>{'Some text that is here. ' * 9}</p>{'<div>' * 100_000}End"
    text = document(rows(write(tmp_path / "a.html", page))[0]).text
    assert text.startswith("Some text")
    assert text.endswith("End")


def test_extracted_files_are_documents_with_their_format_and_locations(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "# Head"}]}', encoding="utf-8")
    (tmp_path / "b.rst").write_text("Head\n====\n\nText.\n", encoding="utf-8")
    (tmp_path / "c.py").write_text("def f():\n    pass\n", encoding="utf-8")
    found = {name: rows(tmp_path / name)[0] for name in ("a.ipynb", "b.rst", "c.py")}
    assert {name: row.record["metadata"]["format"] for name, row in found.items()} == {
        "a.ipynb": "notebook",
        "b.rst": "restructured-text",
        "c.py": "python",
    }
    assert [row.record["title"] for row in found.values()] == ["Head", "Head", "c.py"]
    assert [(one.start, one.page) for one in found["a.ipynb"].locations] == [(0, 1)]
    (tmp_path / "__init__.py").write_text("\n", encoding="utf-8")
    assert refusal(tmp_path / "__init__.py").reason == "empty-file"
    (tmp_path / "d.ipynb").write_text("{}", encoding="utf-8")
    assert outcome(tmp_path / "d.ipynb") == [(None, "unreadable-file")]
