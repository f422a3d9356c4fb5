from __future__ import annotations

import json

import pyarrow as pa
import pytest

from indexmill.store.canonical import canonical_json
from storage.document_traces import Traces

CONTENT = {
    "document_id": "doc-0007",
    "title": "The Silver Codex",
    "text": "In the spring of 1803 the codex was carried across the river Ane.",
    "source": None,
    "metadata": '{"keeper":"Guild of Bookbinders and Gilders","year":1803}',
    "content_hash": "ab" * 32,
}


@pytest.fixture
def traces() -> Traces:
    return Traces(["doc-0007", "7", "a/b.md"], [CONTENT], ["p-1"])


@pytest.mark.parametrize(
    "text",
    [
        "cannot read doc-0007",
        '{"id": "doc-0007", "text"',
        "/mnt/a/b.md: no such file",
        "ValueError in 'The Silver Codex'",
        "poison/x/" + "ab" * 32,
        "near 'spring of 1803 the codex was carried'",
        "keeper: Guild of Bookbinders and Gilders",
    ],
)
def test_a_trace_is_found(traces: Traces, text: str) -> None:
    assert traces.in_text(text)
    assert not traces.in_text(traces.without(text))
    assert traces.in_record(json.dumps({"a": [text]}).encode())


@pytest.mark.parametrize(
    "text", ["", "doc-00071", "my-doc-0007-copy", "line 7", "xa/b.mdx", "the Silver", "in 1803 the river", "1803"]
)
def test_other_words_are_none(traces: Traces, text: str) -> None:
    assert not traces.in_text(text)
    assert traces.without(text) == text


@pytest.mark.parametrize("length", [23, 30, 41])
def test_any_piece_of_23_characters_is_found(length: int) -> None:
    text = "".join(chr(0x4E00 + number) for number in range(200))
    traces = Traces(["x"], [{**CONTENT, "title": "", "text": text}])
    assert all(traces.in_text(f"in '{text[at : at + length]}'") for at in range(200 - length))


def test_only_words_of_a_record_are_rewritten(traces: Traces) -> None:
    record = {"run_id": "doc-0007", "error": "in doc-0007: it", "details": {"a/b.md": ["a/b.md", 7]}, "state": "failed"}
    clean = json.loads(traces.cleaned(canonical_json(record)))
    assert clean == {**record, "error": "in [...]: it", "details": {"a/b.md": ["[...]", 7]}}
    same = canonical_json({"error": None, "state": "failed"})
    assert traces.cleaned(same) is same
    assert traces.cleaned(b'{"broken doc-0007') == b"{}\n"
    assert traces.cleaned(b'{"broken') == b'{"broken'


def test_refused_rows_are_found_by_id_file_and_detail(traces: Traces) -> None:
    row = {"file": "corpus.jsonl", "line": 7, "document_id": None, "reason": "not-json", "detail": "line 7"}
    assert not traces.in_quarantine(row)
    for changed in ({"document_id": "7"}, {"file": "a/b.md"}, {"detail": 'begins {"id": "doc-0007"'}):
        assert traces.in_quarantine(row | changed)


def test_a_long_id_is_found_as_a_quarantine_shows_it() -> None:
    from tasks.stages.ingest.documents import clip

    name = "x" * 299 + "y" * 50
    row = {"file": "f", "line": 1, "document_id": clip(name), "reason": "no-text", "detail": ""}
    assert Traces([name]).in_quarantine(row)


def test_rows_of_a_table_are_found_by_document_and_passage(traces: Traces) -> None:
    assert traces.in_table(pa.table({"document_id": ["a", "7"]}))
    assert traces.in_table(pa.table({"passage_id": ["p-1"]}))
    assert not traces.in_table(pa.table({"document_id": ["77"], "passage_id": ["p-2"], "text": ["doc-0007"]}))
