"""The protocol's tables from results that are made up, and a run over a small store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import protocol, sets
from benchmarks.protocol import half_of, main, print_baseline, print_budgets, print_recall, within
from benchmarks.readme_table import FIGURES, ROWS, TITLES, cells, read_columns, table
from benchmarks.sets import QuestionSet, SetFiles, cut
from indexmill.results import HitReference, QuestionResult, evidence_documents, ranks_of, read_results, recall
from indexmill.retrieve.method_registry import METHODS
from tests.indexmill.small_snapshot import publish
from tests.paths import ROOT


def hit(document: str, tokens: int, kind: str = "passage") -> HitReference:
    return HitReference(kind, document, (document,), 1.0, tokens)


def result(method: str, number: int, *documents: str, milliseconds: float = 2.0) -> QuestionResult:
    hits = tuple(hit(document, 400) for document in documents)
    found = evidence_documents(hits)
    recalls = {k: recall(["gold"], found, k) for k in (5, 10)}
    ranks = ranks_of(("gold",), found)
    return QuestionResult(method, str(number), "Who?", None, ("gold",), ranks, recalls, hits, milliseconds)


def results() -> dict[str, dict[str, list[QuestionResult]]]:
    return {
        "cranfield": {
            "fused": [result("fused", 0, "gold"), result("fused", 1, "x")],
            "dense": [result("dense", 0, "gold"), result("dense", 1, "x", "y", "gold", milliseconds=4.0)],
        }
    }


def test_every_method_stands_beside_the_default_which_says_where_it_is_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_recall(results())
    assert capsys.readouterr().out.splitlines() == [
        "| set | method | recall@5 | to fused | recall@10 | to fused | ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| cranfield | fused | 0.500 | **0.500 below dense** | 0.500 | **0.500 below dense** | 2.0 |",
        "| cranfield | dense | 1.000 | +0.500 [+0.000, +1.000] | 1.000 | +0.500 [+0.000, +1.000] | 3.0 |",
    ]


@pytest.mark.slow
def test_a_default_that_is_hardly_below_is_not_marked(capsys: pytest.CaptureFixture[str]) -> None:
    of_set = {
        method: [result(method, i, "gold" if i < good else "x") for i in range(1_000)]
        for method, good in (("fused", 900), ("dense", 905), ("bm25", 800))
    }
    print_recall({"cranfield": of_set})
    assert "below" not in capsys.readouterr().out
    of_set["dense"][905] = result("dense", 905, "gold")
    print_recall({"cranfield": of_set})
    assert "| 0.900 | **0.006 below dense** |" in capsys.readouterr().out


def test_a_set_may_bring_a_measure_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    themed = QuestionSet(sets.SETS["cranfield"].make, measure=lambda one, k: len(one.hits) / k)
    monkeypatch.setitem(sets.SETS, "cranfield", themed)
    print_recall(results())
    assert "| cranfield | dense | 0.400 |" in capsys.readouterr().out


def test_a_budget_is_spent_on_hits_in_order_and_what_does_not_fit_is_passed_over() -> None:
    hits = (hit("a", 300, "summary"), hit("b", 300), hit("c", 150), hit("d", 50))
    one = QuestionResult("fused", "1", "Who?", None, ("a", "b", "c", "d"), (), {}, hits, 1.0)
    # The summary is read and is no evidence; of 500 tokens, b does not fit behind it, c and d do.
    assert [within(one, budget) for budget in (299, 300, 500, 600, 800)] == [0.5, 0.0, 0.5, 0.25, 0.75]


def test_equal_tokens_are_compared_and_the_best_is_bold(capsys: pytest.CaptureFixture[str]) -> None:
    print_budgets(results())
    assert capsys.readouterr().out.splitlines() == [
        "| set | method | 500 tokens | 1,000 tokens | 2,000 tokens |",
        "| --- | --- | --- | --- | --- |",
        "| cranfield | fused | **0.500** | **0.500** | 0.500 |",
        "| cranfield | dense | **0.500** | **0.500** | **1.000** |",
    ]


def test_halves_are_questions_at_even_and_odd_places() -> None:
    halves = [half_of(results(), half)["cranfield"]["dense"] for half in ("even", "odd", "all")]
    assert [[one.id for one in half] for half in halves] == [["0"], ["1"], ["0", "1"]]


def test_an_earlier_run_is_compared_question_by_question(capsys: pytest.CaptureFixture[str]) -> None:
    now, before = results(), results()
    before["cranfield"]["dense"] = [result("dense", 1, "x"), result("dense", 7, "gold")]
    del before["cranfield"]["fused"]
    print_baseline(now, before)
    (line,) = capsys.readouterr().out.splitlines()[2:]
    found = "0.000 to 1.000 | +1.000 [+1.000, +1.000]"
    assert line == f"| cranfield | dense | {found} | {found} | 2.0 to 4.0 |"


def test_a_cut_keeps_the_evidence_of_its_questions_and_the_order_of_the_corpus() -> None:
    corpus = [{"id": f"d{i}"} for i in range(40)]
    questions = [{"id": str(i), "gold_ids": [f"d{i}", f"d{i + 20}"]} for i in range(20)]
    documents, asked = cut(corpus, questions, 12)
    assert len(documents) == 12
    assert len(asked) == 3
    kept = [row["id"] for row in documents]
    assert {gold for question in asked for gold in question["gold_ids"]} <= set(kept)
    assert kept == sorted(kept, key=lambda name: int(name[1:]))
    assert cut(corpus[::-1], questions[::-1], 12)[1] == asked


def test_a_run_keeps_what_was_found_and_makes_its_tables_again_without_asking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "stores" / "cranfield")
    questions = tmp_path / "questions.jsonl"
    lines = [{"id": "1", "question": "Tallow is a town of lamps.", "gold_ids": ["tallow"]}] * 2
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = SetFiles(tmp_path / "corpus.jsonl", questions)
    monkeypatch.setitem(sets.SETS, "cranfield", QuestionSet(lambda data, out: files))
    command = [str(tmp_path), str(tmp_path / "work"), "--stores", str(tmp_path / "stores"), "--sets", "cranfield"]
    main([*command, "--methods", "dense,fused"])
    table = capsys.readouterr().out
    assert "| cranfield | dense | 1.000 |" in table
    assert "Questions: cranfield 2" in table
    kept = tmp_path / "work" / "results" / "cranfield"
    assert [one.ranks for one in read_results(kept / "dense.jsonl")] == [(1,), (1,)]
    (kept / "fused.jsonl").unlink()
    before = (kept / "dense.jsonl").stat().st_mtime_ns
    main([*command, "--resume"])
    again = capsys.readouterr().out.splitlines()
    assert [line for line in table.splitlines() if "| dense |" in line] == [
        line for line in again if "| dense |" in line
    ]
    assert (kept / "fused.jsonl").exists()
    assert (kept / "dense.jsonl").stat().st_mtime_ns == before
    main([*command, "--resume", "--set", "fused.dense=2"])
    assert (kept / "dense.jsonl").stat().st_mtime_ns > before
    capsys.readouterr()
    monkeypatch.setattr(protocol, "evaluate", None)
    main([*command, "--tables", "--half", "odd", "--matrix", "--baseline", str(kept.parent)])
    made = capsys.readouterr().out
    assert "| set | fused | dense |\n| --- | --- | --- |\n| cranfield | 1.000 / 1.000 | 1.000 / 1.000 |" in made
    assert "Questions, odd questions: cranfield 1" in made
    assert "| 1.000 to 1.000 | +0.000 [+0.000, +0.000] |" in made


def test_the_readmes_table_is_printed_from_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "stores" / "hotpot")
    questions = tmp_path / "questions.jsonl"
    lines = [{"id": "1", "question": "Tallow is a town of lamps.", "gold_ids": ["tallow"]}] * 2
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = SetFiles(tmp_path / "corpus.jsonl", questions)
    monkeypatch.setitem(sets.SETS, "hotpot", QuestionSet(lambda data, out: files))
    figures = tmp_path / "recall.json"
    figures.write_text(FIGURES.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(protocol, "FIGURES", figures)
    command = [str(tmp_path), str(tmp_path / "work"), "--stores", str(tmp_path / "stores"), "--sets", "hotpot"]
    main([*command, "--readme"])
    printed = capsys.readouterr().out.splitlines()
    before, after = read_columns(FIGURES), read_columns(figures)
    assert printed == list(table(after))
    assert [name for name in before if before[name] != after[name]] == ["hotpot"]
    assert (after["hotpot"]["documents"], after["hotpot"]["questions"]) == (4, 2)
    assert after["hotpot"]["command"] == "python -m benchmarks.protocol DATA WORK --sets hotpot --readme"
    assert after["hotpot"]["recall"]["5"]["dense"] == 1.0
    assert after["hotpot"]["not_run"] == [method for method in ROWS if method not in ("dense", "fused")]
    main([*command, "--set", "fused.dense=2", "--methods", "fused,dense"])
    with pytest.raises(SystemExit, match="not of the default settings"):
        main([*command, "--tables", "--readme"])


def test_the_readme_has_the_figures_that_were_printed() -> None:
    columns = read_columns(FIGURES)
    assert list(columns) == list(TITLES)
    assert set(ROWS) == set(METHODS)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(table(columns)) in readme, "print the table by `python -m benchmarks.protocol ... --readme`"


def test_the_page_of_all_methods_has_the_readmes_figures() -> None:
    page = (ROOT / "docs" / "measurements" / "methods.md").read_text(encoding="utf-8")
    assert f"| recall at 5 / 10 | {' | '.join(f'`{method}`' for method in ROWS)} |" in page
    for name, figures in read_columns(FIGURES).items():
        assert f" | {' | '.join(cells(figures))} |\n" in page, name


def test_what_there_is_not_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--sets", "--methods"):
        with pytest.raises(SystemExit):
            main([str(tmp_path), str(tmp_path), option, "colour"])
        assert "colour; choose from" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="there are no results of cranfield"):
        main([str(tmp_path), str(tmp_path), "--sets", "cranfield", "--tables"])
