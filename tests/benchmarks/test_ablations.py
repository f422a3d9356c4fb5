"""The ablations' table from what is made up, and a run over a small store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import sets
from benchmarks.ablations import LEFT_OUT, AblationTable, RecallChange, left_out_of, main, print_table
from benchmarks.sets import QuestionSet, SetFiles
from indexmill.retrieve.method_registry import METHODS
from schemas.config import load_configuration
from tests.indexmill.small_snapshot import publish


@pytest.mark.parametrize("method", LEFT_OUT)
def test_every_part_is_left_out_by_settings_that_the_method_knows(tmp_path: Path, method: str) -> None:
    assert method in METHODS
    for given in LEFT_OUT[method].values():
        configuration = tmp_path / "indexmill.yaml"
        configuration.write_text(json.dumps({"families": {method: {"parameters": given}}}))
        load_configuration(configuration)


def test_a_part_that_the_snapshot_does_not_hold_cannot_be_left_out() -> None:
    assert "community_tree" in left_out_of("fused", ["fused", "dense", "community_tree"])
    held = left_out_of("fused", ["fused", "dense"])
    assert "community_tree" not in held
    assert {"coverage", "dense"} <= set(held)


def test_a_change_is_told_by_half_and_starred_where_it_is_clear(capsys: pytest.CaptureFixture[str]) -> None:
    whole = np.ones((40, 2))
    without = whole.copy()
    without[::2] = 0.5
    assert str(RecallChange.of(without, whole)) == "-0.500 / +0.000*"
    assert str(RecallChange.of(whole, whole)) == "+0.000 / +0.000"
    print_table("dense", AblationTable({"a": without, "b": whole}, {"titles": {"a": RecallChange.of(without, whole)}}))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "| dense | a | b | worse, better |",
        "| --- | --- | --- | --- |",
        "| as it is | 0.750 / 0.750 | 1.000 / 1.000 | |",
        "| without titles | -0.500 / +0.000* | - | 1, 0 |",
    ]


def test_a_run_over_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "stores" / "cranfield")
    questions = tmp_path / "questions.jsonl"
    line = {"id": "1", "question": "Tallow is a town of lamps.", "gold_ids": ["tallow"]}
    questions.write_text((json.dumps(line) + "\n") * 4)
    files = SetFiles(tmp_path / "corpus.jsonl", questions)
    monkeypatch.setitem(sets.SETS, "cranfield", QuestionSet(lambda data, out: files))
    main([str(tmp_path), str(tmp_path), "--stores", str(tmp_path / "stores"), "--sets", "cranfield", "--step", "2"])
    printed = capsys.readouterr().out
    assert "| dense | cranfield | worse, better |" in printed
    assert "| without titles | +0.000 / +0.000 | 0, 0 |" in printed
    assert "tri_graph" not in printed
    with pytest.raises(SystemExit):
        main([str(tmp_path), str(tmp_path), "--stores", str(tmp_path), "--methods", "colour"])
    assert "unknown methods: colour" in capsys.readouterr().err
