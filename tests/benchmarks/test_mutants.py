"""The mutants: their lines and tests are there, and one is really made and noticed."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from benchmarks import mutants
from benchmarks.mutant_table import MUTANTS, Mutant
from benchmarks.mutants import main
from tests.paths import ROOT


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def functions(name: str) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(text_of(name))) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.file}: {one.shown}")
def test_each_mutant_is_of_one_place_and_names_tests_that_are_there(mutant: Mutant) -> None:
    ast.parse(mutant.applied(text_of(mutant.file)))
    assert mutant.tests
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert function.partition("[")[0] in functions(file)


def test_a_mutant_is_there_once() -> None:
    assert len({(one.file, one.old, one.new) for one in MUTANTS}) == len(MUTANTS) >= 55


TESTS = ("tests/indexmill/text/test_counted.py",)


def mutants_of_counted() -> tuple[Mutant, Mutant]:
    file, line = "indexmill/text/counted.py", "    if number == 1:\n"
    return Mutant(file, line, "    if number != 1:\n", TESTS), Mutant(file, line, "    if 1 == number:\n", TESTS)


@pytest.mark.slow
def test_a_mutant_is_killed_and_one_that_changes_nothing_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, same = mutants_of_counted()
    before = text_of(killed.file)
    monkeypatch.setattr(mutants, "MUTANTS", (killed, same))
    assert main([]) == 1
    told = capsys.readouterr().out
    assert f"| `{killed.shown}` | tests/indexmill/text/test_counted.py::" in told
    assert f"| `{same.shown}` | **none** |" in told
    assert f"survives:\n    {same.shown}" in told
    assert (ROOT / killed.file).read_text(encoding="utf-8") == before


def test_a_reason_why_no_test_can_notice_has_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    killed, same = mutants_of_counted()
    monkeypatch.setattr(mutants, "_failing", lambda tests, root, seconds: "a test" if seconds < 1000 else "")
    monkeypatch.setattr(mutants, "MUTANTS", (killed,))
    assert main([]) == 0
    wrong = Mutant(same.file, same.old, same.new, same.tests, "the order of operands is all the same")
    monkeypatch.setattr(mutants, "MUTANTS", (wrong,))
    assert main([]) == 1


def test_a_choice_of_no_mutant_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "no such line"])
    assert "no mutant's file or line holds 'no such line'" in capsys.readouterr().err


def test_a_line_that_is_not_there_once_is_an_error() -> None:
    killed, _ = mutants_of_counted()
    with pytest.raises(ValueError, match="holds 0 times"):
        killed.applied("")
    with pytest.raises(ValueError, match="holds 2 times"):
        killed.applied(2 * killed.old)


def test_tests_that_fail_by_themselves_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    killed, _ = mutants_of_counted()
    monkeypatch.setattr(mutants, "_failing", lambda tests, root, seconds: tests[0])
    with pytest.raises(RuntimeError, match="fails without any change"):
        mutants.run([killed])


def test_the_list_tries_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "storage/lease.py"]) == 0
    assert all(line.startswith("storage/lease.py: ") for line in capsys.readouterr().out.splitlines())
