"""A family is what it declares: two folders, a class of settings, and a line in each of two registries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.toy_family import install

SUITES = ("tests/toy_family/cases.py", "tests/test_rooms.py", "tests/indexmill/families/test_declarations.py")


@pytest.mark.slow
def test_a_family_that_is_added_as_the_pages_say_takes_part_in_everything(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    install(copy)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "temporary", *SUITES],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
