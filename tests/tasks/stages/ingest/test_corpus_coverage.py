"""What became of each file, and of its words."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pyarrow as pa
import pytest

from flows.command.coverage import command, coverage_lines
from schemas.corpus import CorpusSettings
from schemas.tables import QUARANTINE
from tasks.stages.ingest import corpus_coverage, shard_plan, spill
from tasks.stages.ingest.listing import list_corpus
from tasks.stages.ingest.source_files import SourceFile
from tasks.stages.ingest.spill_files import CARRIED_ROW


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
        ("", "forgotten", "", 1),
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
    assert summary["suffixes_passed_over"] == {".png": 1}
    assert summary["files"]["forgotten"] == 1
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


def test_a_corpus_without_files_has_no_row() -> None:
    table = corpus_coverage.table_of((), (), {}, CARRIED_ROW.empty_table(), QUARANTINE.empty_table())
    assert table.num_rows == 0
    assert list(coverage_lines(corpus_coverage.summary_of(table))) == ["the corpus has no file"]


def test_the_command_knows_all_outcomes() -> None:
    (option,) = [one for one in command.params if one.name == "outcome"]
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == corpus_coverage.OUTCOMES.keys()
