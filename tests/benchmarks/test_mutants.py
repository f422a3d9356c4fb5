"""mutmut changes a module here, and its tests notice or do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.mutants import default_tests, main
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("target", "tests"),
    [
        ("storage", "tests/storage"),
        ("storage/lease.py", "tests/storage/test_lease.py"),
        ("storage/refusals.py", "tests/storage"),
    ],
)
def test_tests_are_found_by_the_tree_that_they_mirror(target: str, tests: str) -> None:
    assert default_tests(target) == [tests]


def test_a_target_outside_the_packages_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tests/storage"])
    assert "'tests/storage' is not a folder or file of" in capsys.readouterr().err


@pytest.mark.slow
def test_survivors_are_printed_and_functions_that_no_test_calls() -> None:
    command = [sys.executable, "-m", "benchmarks.mutants", "indexmill/text/counted.py", "--digits", "13"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "none of these tests calls indexmill.text.counted.x_byte_size" in done.stdout
    assert "\N{PARTY POPPER} indexmill.text.counted.x_counted__mutmut_1\n" in done.stdout
    assert "indexmill/text/counted.py, digits 13: 0 mutants survive" in done.stdout
