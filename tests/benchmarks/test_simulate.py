"""The tables of runs on paper."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.recorded_run import RecordedPart, RecordedRound, RecordedRun, RecordedStep
from benchmarks.schedule import Workers
from benchmarks.simulate import main, replay
from flows.build_run import build_inline
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import settings

PARTS = tuple(RecordedPart("embed", f"p{number:02b}", 2.0, 1.0) for number in range(4))
RUN = RecordedRun(
    "run",
    40,
    1,
    1.0,
    1.0,
    3.0,
    (RecordedStep("embed", 0, True, (), 0.0, (RecordedRound("embed", 0.0, PARTS),), 0.0),),
    8,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("simulate")
    corpus = write_corpus(folder / "corpus.jsonl", documents(12, words=110))
    build_inline(Configuration.model_validate(settings(folder / "store", corpus)), progress=Silent())
    return str(folder / "store")


def rows_of(printed: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    lines = printed.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(heading))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["simulate", *words])
    return main()


def test_the_start_and_end_of_a_run_stay_whatever_its_workers() -> None:
    alone, many = (replay(RUN, Workers(count), "wall") for count in (1, 4))
    assert (alone.seconds, many.seconds) == (8 + 2, 2 + 2)
    assert (alone.busy, many.busy) == (0.8, 0.5)
    assert alone.causes[0] == "workers (80%)"
    assert many.causes[0] == "start and end (50%)"
    assert replay(RUN, Workers(1), "processor").seconds == 4 + 2


def test_a_store_is_replayed_on_more_and_more_workers(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "replay", store, "--workers", "1,2,64", "--handing", "1") == 0
    printed = capsys.readouterr().out
    rows = rows_of(printed, "| workers |")
    assert [row[0] for row in rows] == ["1", "2", "64"]
    assert rows[0][2] == "1.0"
    assert 1.0 <= float(rows[1][2]) <= 2.0
    assert "12 documents" in printed
    assert "bound: " in printed


def test_a_store_is_scaled_by_laws_that_are_shown(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scale", store, "--documents", "120", "--workers", "4,8", "--handing", "1", "--law", "resolve=1.5"]
    words += ["--wave-shards", "8", "--worker-price", "2", "--store-price", "3", "--latency", "20", "--bandwidth", "50"]
    assert run_main(monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    assert "10.0 times the documents: 120" in printed
    laws = {row[0]: row for row in rows_of(printed, "| stage | law |")}
    assert laws["resolve"][1:3] == ["N^1.50", "given"]
    assert laws["split"][1] == "parts x N"
    assert int(laws["split"][4]) == 10 * int(laws["split"][3])
    assert "each part fetches what it opens" in " ".join(printed.split())
    for workers, hours, cost, _ in rows_of(printed, "| workers | worker hours |"):
        assert workers in {"4", "8"}
        assert float(cost) == pytest.approx(2 * float(hours), abs=0.2)


@pytest.mark.parametrize(
    "words",
    [
        ["scale", "store"],
        ["scale", "store", "--documents", "9", "--law", "resolve=quick"],
        ["replay", "store", "--workers", "0"],
    ],
)
def test_options_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch, words: list[Any]) -> None:
    with pytest.raises(SystemExit) as refused:
        run_main(monkeypatch, *words)
    assert refused.value.code == 2
