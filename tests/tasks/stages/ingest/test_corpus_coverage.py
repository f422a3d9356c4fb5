"""What became of each file, and of its words."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.corpus import CorpusSettings
from schemas.tables import QUARANTINE
from tasks.stages.ingest import corpus_coverage, shard_plan, spill
from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.file_counts import FileCounts, counts_of, table_of
from tasks.stages.ingest.formats.word_count import words_of
from tasks.stages.ingest.listing import list_corpus
from tasks.stages.ingest.source_files import SourceFile
from tasks.stages.ingest.spill_files import CARRIED_ROW
from tests.deep import examples


def line(name: str, text: str) -> str:
    return json.dumps({"id": name, "text": text}) + "\n"


def test_every_file_has_an_outcome_and_all_bytes_are_counted(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    texts = {
        "a.md": "---\ntags: [x, y]\n---\n# Vell\n\nFenna Rook left [Vell](https://vell.example/a/b).\n",
        "b.jsonl": line("b1", "Goran Stave came.") + line("b2", "Orrin Bay.") + "{",
        "c.jsonl": "{" + line("c", " "),
        "i.mdx": "import X from 'x'\n\nOrrin Bay.\n",
        "d.md": "---\ntitle: D\n---\n",
        "e.jsonl": line("b2", "Orrin Bay."),
        "docs/f.png": "not a picture",
        "docs/.g.md": "hidden",
        "docs/gone.txt": "Forget me.",
        "g.jsonl": "",
        "h.txt": "excluded",
    }
    for name, text in texts.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(text, encoding="utf-8")
    settings = CorpusSettings(paths=(str(corpus),), exclude=("h.*",))
    listing = list_corpus(settings, tmp_path / "places")
    forgotten = [file for file in listing.files if file.name == "docs/gone.txt"]
    files = [file for file in listing.files if file not in forgotten]
    plan = shard_plan.plan([spill.scan(files, settings, tmp_path)], tmp_path)
    rows, refused = shard_plan.known_rows(tmp_path), shard_plan.quarantine_of(plan, tmp_path)
    table = corpus_coverage.table_of(files, listing.passed_over, plan.counts, rows, refused, forgotten=forgotten)
    assert [(row["name"], row["outcome"], row["reason"], row["documents"]) for row in table.to_pylist()] == [
        ("", "forgotten", "", 0),
        ("a.md", "indexed", "", 1),
        ("b.jsonl", "partly", "not-json", 2),
        ("c.jsonl", "quarantined", "not-json", 0),
        ("d.md", "empty", "", 0),
        ("docs/.g.md", "passed-over", "hidden", 0),
        ("docs/f.png", "passed-over", "suffix", 0),
        ("e.jsonl", "duplicate", "b.jsonl", 0),
        ("g.jsonl", "empty", "", 0),
        ("h.txt", "passed-over", "excluded", 0),
        ("i.mdx", "indexed", "", 1),
    ]
    assert sum(table["bytes"].to_pylist()) == sum(len(text.encode()) for text in texts.values())
    summary = corpus_coverage.summary_of(table)
    assert summary["passed_over"] == {"excluded": 1, "hidden": 1, "suffix": 1}
    assert summary["formats"]["markdown"] == {
        "files": 2,
        "read": 2,
        "bytes": 96,
        "documents": 1,
        "words": 8,
        "text_words": 5,
        "left_out": {"front-matter": 3},
    }
    assert corpus_coverage.words_line(summary) == "67% of the words of 1 mdx file (components) are left out"
    worst = {"name": "i.mdx", "words": 6, "text_words": 2, "left_out": {"components": 4}}
    assert summary["worst"] == [worst]  # metadata are not lost


WORDS = st.lists(st.sampled_from(["Fenna", "Rook", "Vell", "\u6c34", "caf\u00e9"]), max_size=9).map(" ".join)


@examples(50, deep=500)
@given(WORDS, WORDS, st.integers(0, 5))
def test_no_word_is_lost_without_a_reason(in_file: str, text: str, hidden: int) -> None:
    counts = counts_of(WordCounts(words_of(in_file), {"hidden": hidden}), text)
    assert counts.words is not None
    assert counts.text_words is not None
    assert counts.words + counts.added == counts.text_words + sum(counts.left_out.values())
    missing = (words_of(in_file) - words_of(text)).total()
    assert counts.left_out.get("unexplained", 0) == max(0, missing - hidden)
    (row,) = table_of({"a": counts}).to_pylist()
    assert FileCounts.of_row(row) == counts


@pytest.mark.parametrize("order", [("b", "c"), ("c", "b")])
def test_a_document_of_several_files_counts_for_the_first_by_name_whichever_is_read_first(
    order: tuple[str, ...],
) -> None:
    rows = pa.Table.from_pylist(
        [
            {"document_id": "x", "content_hash": b"1" * 32, "published": file == order[0], "file": file, "tokens": 1}
            | {"size": 1, "line": 1}
            for file in order
        ],
        CARRIED_ROW,
    )
    files = [SourceFile(name, name, "json-lines") for name in ("b", "c")]
    table = corpus_coverage.table_of(files, (), {}, rows, QUARANTINE.empty_table())
    assert [(row["outcome"], row["reason"], row["documents"]) for row in table.to_pylist()] == [
        ("indexed", "", 1),
        ("duplicate", "b", 0),
    ]
