"""Programs of the acceptance run: output, processor time, the tail of what fails, and death with all children."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.acceptance.commands import CommandFailed, Programs


def test_a_failure_shows_the_end_of_the_output_and_not_its_beginning(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nfor i in range(100): print('line', i, file=sys.stderr)\nsys.exit(3)\n")
    with pytest.raises(CommandFailed, match="ended with exit code 3, expected 0") as failure:
        Programs(tmp_path).python(script)
    assert "line 99" in str(failure.value)
    assert "line 50" not in str(failure.value)


def test_a_program_has_temporary_files_of_its_own_and_its_processor_time_counts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json, os\nsum(range(10**6))\nprint(json.dumps(os.environ['TMPDIR']))\n")
    programs = Programs(tmp_path)
    assert programs.python(script) == str(tmp_path / "tmp")
    assert programs.cpu > 0


def test_nothing_that_a_program_started_outlives_its_block(tmp_path: Path) -> None:
    with Programs(tmp_path).running("sh", "-c", "sleep 600 & sleep 600 & echo ready; wait") as program:
        assert program.wait_for(lambda: "ready" in program.out)
        family = [psutil.Process(program.pid), *psutil.Process(program.pid).children()]
        assert len(family) == 3
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)


def test_a_program_that_ends_early_reaches_nothing(tmp_path: Path) -> None:
    with Programs(tmp_path).running(sys.executable, "-c", "") as program:
        assert not program.wait_for(lambda: False)


def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    with Programs(tmp_path).running("sleep", "600") as program, pytest.raises(CommandFailed, match="in 0 s"):
        program.wait(0.1)
