"""What a command waits for, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from indexmill.command import waiting
from indexmill.command.waiting import Waiting
from indexmill.models.progress import Items, report_progress


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOMENT", 0.0)
    monkeypatch.setattr(waiting, "BEAT", 0.01)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard error a terminal of forty columns: in a test's own body, where pytest has put its stream."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")


def until(capsys: pytest.CaptureFixture[str], text: str) -> str:
    """What standard error has had when some text is in it."""
    told, deadline = "", time.monotonic() + 20
    while text not in told:
        assert time.monotonic() < deadline, told
        time.sleep(0.005)
        told += capsys.readouterr().err
    return told


def test_a_wait_inside_another_says_its_own_and_then_the_outer_ones(
    capsys: pytest.CaptureFixture[str], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    with Waiting("retrieving"):
        until(capsys, "retrieving, 0 s")
        with Waiting("opening the snapshot", only_terminals=True):
            until(capsys, "opening the snapshot, 0 s")
        until(capsys, "retrieving, 0 s")
    assert capsys.readouterr().err.endswith("\r\x1b[K")


def test_work_that_reports_itself_is_told_as_far_as_it_is(
    capsys: pytest.CaptureFixture[str], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    with Waiting("reading") as one:
        report_progress(10, 100, Items(3, 1_200, "artifact"))
        until(capsys, "reading, 3 of 1,200 artifacts, 0 s")
        one.say("comparing")
        assert re.search("comparing, 0 s", until(capsys, "comparing"))
    report_progress(1, 2, Items(1, 2, "artifact"))  # to nobody
    assert "1 of 2" not in capsys.readouterr().err


def test_the_line_fits_and_names_no_secret(
    capsys: pytest.CaptureFixture[str], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    with Waiting("opening https://ada:hidden@bucket.example/" + "x" * 100 + "\x1b[2J"):
        told = until(capsys, "…")
    assert "hidden" not in told
    assert all(len(line) <= 39 for line in told.split("\r\x1b[K"))


def test_elsewhere_some_waits_are_silent(capsys: pytest.CaptureFixture[str], at_once: None) -> None:
    with Waiting("retrieving", only_terminals=True):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
    with Waiting("asking small"):
        assert until(capsys, "asking") == "asking small\n"
    assert capsys.readouterr().err == ""


def test_a_stream_that_is_gone_ends_no_command(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    with Waiting("retrieving") as one:
        while not one._shown:
            time.sleep(0.005)
    assert not one._thread.is_alive()
