"""The log file of runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows import run_log
from flows.build_run import BuildOutcome, Order, build_inline
from flows.run_log import logged
from indexmill.errors import BadInput, ConfigurationError
from schemas.config import Configuration, load_configuration
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import settings

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "


def configuration(folder: Path) -> Configuration:
    chosen = settings(folder / "store", write_corpus(folder / "corpus.jsonl", documents(4)))
    return Configuration.model_validate({**chosen, "run": {"log": str(folder / "run.log")}})


def lines(folder: Path) -> list[str]:
    """The lines of the log without their times, each of which has one."""
    found = (folder / "run.log").read_text(encoding="utf-8").splitlines()
    assert all(re.match(STAMP, line) for line in found)
    return [re.sub(STAMP, "", line) for line in found]


def test_every_run_appends_what_it_tells_and_how_it_ended(tmp_path: Path) -> None:
    chosen = configuration(tmp_path)
    outcomes: list[BuildOutcome] = []
    for _ in range(2):
        with logged("build", chosen, Silent()) as log:
            outcomes.append(build_inline(chosen, progress=log.progress))
            log.ended(outcomes[-1])
    told = lines(tmp_path)
    assert told.count(f"indexmill build begins: store {tmp_path / 'store'}") == 2
    assert any(re.fullmatch(r"embed: \d+ made, 0 reused in .* s", line) for line in told)
    assert [line for line in told if " version 1: 4 documents, " in line] == [
        line for line in told if line.startswith(("published version 1: ", "nothing to do, version 1: "))
    ]
    assert told[-1].startswith("nothing to do, version 1: 4 documents, ")
    assert f"run {outcomes[-1].run}, " in told[-1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadInput("no\ncorpus"), "error: no corpus (exit code 2)"),
        (KeyboardInterrupt("SIGTERM"), "interrupted by SIGTERM: exit code 130"),
        (KeyboardInterrupt(), "interrupted by Ctrl-C: exit code 130"),
        (ZeroDivisionError("oh"), "error: ZeroDivisionError: oh (exit code 1)"),
    ],
)
def test_what_ends_a_run_is_its_last_line(tmp_path: Path, error: BaseException, said: str) -> None:
    with pytest.raises(type(error)), logged("build", configuration(tmp_path), Silent()):
        raise error
    assert lines(tmp_path)[-1] == said
    traced = any("raise error" in line for line in lines(tmp_path))
    assert traced == isinstance(error, ZeroDivisionError)


def test_no_secret_and_no_control_character_reaches_the_log(tmp_path: Path) -> None:
    with logged("build", configuration(tmp_path), Silent()) as log:
        log.progress.warn("https://ada:hidden@models.example/v1 does not answer\x1b[2J")
    assert lines(tmp_path)[-1] == "warning: https://***@models.example/v1 does not answer\ufffd[2J"


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 2_000)
    with logged("build", configuration(tmp_path), Silent()) as log:
        for number in range(1_000):
            log.progress.note(f"line {number}")
    files = sorted(path.name for path in tmp_path.glob("run.log*"))
    assert files == ["run.log", *(f"run.log.{number}" for number in range(1, 5))]
    assert all((tmp_path / name).stat().st_size <= 2_000 for name in files)
    assert lines(tmp_path)[-1] == "line 999"


def test_a_log_that_cannot_be_written_is_told_before_anything_is_done(tmp_path: Path) -> None:
    chosen = configuration(tmp_path)
    (tmp_path / "run.log").mkdir()
    with (
        pytest.raises(ConfigurationError, match=r"run\.log: .*run\.log: cannot be written"),
        logged("build", chosen, Silent()),
    ):
        pytest.fail("begun")


def test_a_full_disk_costs_lines_of_the_log_and_not_the_run(tmp_path: Path) -> None:
    chosen = Configuration.model_validate(
        {**settings(tmp_path / "store", tmp_path), "run": {"log": "/dev/full"}}  # takes nothing
    )
    with logged("build", chosen, Silent()) as log:
        log.progress.note("a line")


def test_a_deployed_run_that_is_terminated_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prefect")
    from flows import deployed

    def terminated(order: Order) -> None:
        order.failure = KeyboardInterrupt("SIGTERM")
        raise SystemExit  # as Prefect's TerminationSignal, no Exception

    monkeypatch.setattr(deployed, "final_state", terminated)
    (tmp_path / "indexmill.yaml").write_text("run: {log: run.log}\n")
    with pytest.raises(SystemExit):
        deployed._run(str(tmp_path / "indexmill.yaml"), None)
    assert lines(tmp_path)[-1] == "interrupted by SIGTERM: exit code 130"


def test_without_the_setting_nothing_is_written(tmp_path: Path) -> None:
    silent = Silent()
    with logged("build", Configuration.model_validate(settings(tmp_path / "store", tmp_path)), silent) as log:
        assert log.progress is silent
        log.ended(None)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_log_lies_beside_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "indexmill.yaml").write_text("run: {log: run.log}\n")
    assert load_configuration(tmp_path / "indexmill.yaml").run.log == tmp_path / "run.log"
