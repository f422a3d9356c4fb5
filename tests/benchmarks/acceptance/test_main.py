"""The run as a whole where there is no data, and its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.acceptance.__main__ import GROUPS, main
from benchmarks.acceptance.floors import TECHDOCS_RECALL, WIKI_RECALL
from indexmill.retrieve.method_registry import METHODS
from tests.paths import ROOT


def test_without_data_every_row_says_so_and_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "data"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["row"] for row in rows] == [group.title(row) for group in GROUPS for row in group.rows]
    assert {row["status"] for row in rows} == {"not run"}
    assert f"there is no {tmp_path / 'data' / '2wikimultihopqa' / 'corpus.jsonl'}" in {row["value"] for row in rows}


def test_only_the_rows_that_are_asked_for_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--only", "2wiki: rebuild"]) == 0
    assert [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if "not run |" in line] == [
        "2wiki: build",
        "2wiki: night",
        "2wiki: rebuild",
    ]
    with pytest.raises(SystemExit):
        main(["--only", "colour"])
    assert "no row has colour in its name" in capsys.readouterr().err


def test_a_folder_with_files_is_no_folder_to_work_in(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--work", str(ROOT)])
    assert "is not empty" in capsys.readouterr().err


def test_every_method_has_floors() -> None:
    assert list(WIKI_RECALL) == list(TECHDOCS_RECALL) == list(METHODS)
