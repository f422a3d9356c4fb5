"""What a run tells a log and a terminal while it works."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from flows.build_run import build_inline
from flows.progress_lines import Lines, TerminalBars
from indexmill.models.progress import Items
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import settings


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until it is set."""
    clock = [100.0]
    monkeypatch.setattr("flows.progress_lines.time.monotonic", lambda: clock[0])
    return clock


def moving(stream: io.StringIO) -> str:
    """The moving line as it stands."""
    return re.split(r"\x1b\[[JK]", stream.getvalue())[-1]


def test_a_log_says_why_calls_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "interval", 0.0)
    stream = io.StringIO()
    lines = Lines(stream)
    lines.begin("extract", 2)
    lines.within("extract", "a", 0.0, Items(0, 9, "prompt", 2, 1, "models.example: no answer within 60 s"))
    calls = "2 calls in flight, 1 to retry (models.example: no answer within 60 s)"
    assert stream.getvalue() == f"extract: 0 of 2, 0 prompts, {calls}\n"


def test_a_log_hears_every_ten_seconds_how_far_the_part_at_work_is(now: list[float]) -> None:
    told = io.StringIO()
    lines = Lines(told)
    lines.doing("starting")
    lines.begin("embed", 2)
    for second, share in ((104, 0.1), (111, 0.5), (112, 0.6), (125, 0.9)):
        now[0] = float(second)
        lines.within("embed", "one", share)
    lines.within("embed", "one", None)
    lines.advance("embed")
    now[0] = 140.0
    lines.advance("embed")
    lines.end("embed", "2 made, 0 reused", 37.5)
    assert told.getvalue().splitlines() == [
        "embed: 0 of 2, 25 %",
        "embed: 0 of 2, 45 %, 38 s left",
        "embed: 2 of 2",
        "embed: 2 made, 0 reused in 38 s",
    ]


def test_a_stage_that_has_ended_hears_nothing_more(now: list[float]) -> None:
    told = io.StringIO()
    lines = Lines(told)
    lines.begin("embed", 1)
    lines.end("embed", "1 made, 0 reused")
    now[0] = 200.0
    lines.within("embed", "one", 0.5)
    assert told.getvalue() == "embed: 1 made, 0 reused in 0.0 s\n"


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_the_moving_line_is_never_longer_than_the_terminal_is_wide(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    told = io.StringIO()
    bars = TerminalBars(told)
    bars.doing("looking at the corpus, which takes a moment")
    for stage in ("lsh_summaries", "embed_titles", "zoom_links"):
        bars.begin(stage, 1_000)
        bars.within(stage, "part", 0.34)
        bars.advance(stage, 999)
        bars.note("something")
    bars.close()
    drawn = [piece for piece in re.split(r"\r\x1b\[K|\n", told.getvalue()) if piece != "something"]
    assert any("999/1000" in piece for piece in drawn) or columns == 20
    assert max(map(len, drawn)) < columns
    assert drawn[-1] == ""


def test_the_terminal_shows_how_far_a_stage_of_one_part_is(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(TerminalBars, "_beat", 60.0)
    told = io.StringIO()
    bars = TerminalBars(told)
    bars.doing("starting workers")
    assert moving(told) == "0:00 ⠋ starting workers"
    now[0] += 65.0
    bars.begin("embed", 1)
    assert moving(told) == f"1:05  embed {'·' * 24} 0/1"
    now[0] += 1.0
    bars.within("embed", "one", 0.5, Items(3, 6, "text"))
    bars.warn("careful")
    assert f"\r\x1b[Kwarning: careful\n\r\x1b[K1:06  embed {'█' * 12}" in told.getvalue()
    assert moving(told) == f"1:06  embed {'█' * 12}{'·' * 12} 0/1 50%  3 of 6 texts"
    bars.end("embed", "1 made, 0 reused", 3.0)
    assert "\x1b[Kembed: 1 made, 0 reused in 3.0 s\n" in told.getvalue()
    assert moving(told) == "1:06 ⠋ working"  # until the next stage begins
    bars.close()
    assert moving(told) == ""


def test_the_clock_of_a_terminal_goes_on_while_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TerminalBars, "_beat", 0.01)
    told = io.StringIO()
    bars = TerminalBars(told)
    bars._start -= 59
    bars.begin("tri_graph", 1)
    deadline = time.monotonic() + 20
    while "1:00  tri_graph" not in told.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    bars.close()
    assert moving(told) == ""
    length = len(told.getvalue())
    time.sleep(0.05)
    assert len(told.getvalue()) == length


def test_a_line_that_a_narrower_terminal_shows_in_several_rows_is_taken_away_as_a_whole(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TerminalBars, "_beat", 60.0)
    monkeypatch.setenv("COLUMNS", "80")
    told = io.StringIO()
    bars = TerminalBars(told)
    bars.doing("x" * 200)
    monkeypatch.setenv("COLUMNS", "30")
    bars.note("something")
    assert "\x1b[2A\r\x1b[Jsomething\n" in told.getvalue()  # 79 columns were drawn: three rows
    bars.close()


def test_the_time_stands_before_lines_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexmill.text.durations.time.time", lambda: 0.0)
    monkeypatch.setenv("INDEXMILL_TIMESTAMPS", "1")
    told = io.StringIO()
    lines = Lines(told)
    lines.note("first")
    lines.warn("second")
    lines.end("embed", "1 made, 0 reused", 3.0)
    for line, said in zip(
        told.getvalue().splitlines(),
        ("first", "warning: second", "embed: 1 made, 0 reused in 3.0 s"),
        strict=True,
    ):
        assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ {said}", line)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_colours_unless_they_are_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for wanted in (True, False):
        told = Terminal()
        lines = Lines(told)
        lines.warn("careful")
        assert ("\x1b[33mwarning:\x1b[0m careful" in told.getvalue()) == wanted
        monkeypatch.setenv("NO_COLOR", "1")


class Shares(Silent):
    """What a run tells of parts that are being made."""

    def __init__(self) -> None:
        self.of: dict[str, list[float | None]] = {}
        self.texts: list[Items] = []

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        self.of.setdefault(stage, []).append(share)
        if stage == "embed" and items is not None:
            self.texts.append(items)


@pytest.mark.slow
def test_a_build_of_one_shard_tells_how_far_its_vectors_are(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(30, words=200))
    chosen = settings(tmp_path / "store", corpus, shards={"document_tokens": 1_000_000})
    told = Shares()
    build_inline(Configuration.model_validate(chosen), progress=told)
    begun, *shares, ended = told.of["embed"]
    assert (begun, ended) == (0.0, None)  # the part is made
    assert len(shares) > 5
    assert shares[-1] == 1.0
    assert told.texts[-1] == Items(told.texts[-1].total, told.texts[-1].total, "text")
    assert told.of["ingest"] == [0.0, None, 0.0, None]  # reading, and writing the documents
