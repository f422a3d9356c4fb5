"""How fresh an index is, in every state of a store, by a false clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.candidates import publish_candidate
from flows.operation import operation
from flows.rollback import resume, roll_back
from flows.status import Status, duration_text, read_status
from indexmill.errors import GateRefused
from storage import runs
from storage.clock import timestamp
from storage.folder import FolderStore, init_folder
from storage.lease import DURATION, MARGIN, acquire
from storage.processes import this_process
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run

START = 1_769_824_800.0
HOUR = 3600.0


class Nights:
    """Builds at times of one's choice; the time of a status is given in hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> FolderStore:
        return init_folder(self.folder / "store")

    def build(self, hour: float, rows: Documents, *, max_shrink: float = 1.0) -> None:
        corpus = write_corpus(self.folder / "corpus.jsonl", rows)
        chosen = settings(self.folder / "store", corpus, gates={"max_shrink": max_shrink})
        build(chosen, clock=self.clock(hour))

    def look(self, hour: float, max_age: float | None = 26.0) -> Status:
        return read_status(self.store, START + hour * HOUR, None if max_age is None else max_age * HOUR)

    def clock(self, hour: float) -> Callable[[], float]:
        return lambda: START + hour * HOUR


@pytest.fixture
def nights(quick: Path) -> Nights:
    return Nights(quick)


@pytest.fixture
def built(nights: Nights) -> Nights:
    """Version 1, built at hour 0."""
    nights.build(0, documents(4))
    return nights


def test_nothing_published_is_not_fresh(nights: Nights) -> None:
    found = nights.look(0, None)
    assert (found.fresh, found.version, found.success, found.last, found.age_seconds) == (False, None, None, None, None)
    assert found.problems == ("no version was published yet: run `indexmill build`",)


@pytest.mark.slow
def test_an_index_ages(built: Nights) -> None:
    assert built.look(0).age_seconds == 0
    early, late = built.look(26), built.look(26.1)
    assert (early.fresh, early.problems) == (True, ())
    assert early.version is not None
    assert (early.version.version, early.version.age_seconds) == (1, 26 * HOUR)
    assert not late.fresh
    assert late.problems == ("the index was last compared with the corpus 1d 2h ago, and --max-age is 1d 2h",)
    assert built.look(10_000, None).fresh


@pytest.mark.slow
def test_a_run_that_found_nothing_to_do_keeps_the_index_fresh(built: Nights) -> None:
    built.build(24, documents(4))
    found = built.look(49)
    assert found.fresh
    assert found.success is not None
    assert (found.success.state, found.age_seconds) == ("unchanged", 25 * HOUR)
    assert found.version is not None
    assert (found.version.version, found.version.age_seconds) == (1, 49 * HOUR)


@pytest.mark.slow
def test_a_refused_run_does_not(built: Nights) -> None:
    with pytest.raises(GateRefused):
        built.build(24, documents(1), max_shrink=0.2)
    found = built.look(30)
    assert not found.fresh
    assert found.last is not None
    assert (found.last.state, found.last.exit_code, found.last.age_seconds) == ("refused", 3, 6 * HOUR)
    assert "1 document where version 1 has 4" in str(found.last.error)
    assert found.success is not None
    assert found.success.state == "published"


@pytest.mark.slow
def test_an_operation_that_does_not_read_the_corpus_does_not_either(built: Nights) -> None:
    with operation(built.store, "gc", clock=built.clock(24)):
        pass
    found = built.look(30)
    assert found.last is not None
    assert (found.last.command, found.last.state, found.fresh) == ("gc", "unchanged", False)


@pytest.mark.slow
def test_a_candidate_is_as_fresh_as_the_run_that_built_it(built: Nights) -> None:
    candidate = _refused_by_its_quality(built, 24)
    assert not built.look(48).fresh
    publish_candidate(built.store, candidate, clock=built.clock(47))
    found = built.look(48)
    assert (found.fresh, found.age_seconds) == (True, 24 * HOUR)
    assert found.version is not None
    assert (found.version.version, found.version.age_seconds) == (2, HOUR)
    assert not built.look(51).fresh


@pytest.mark.slow
def test_a_refused_build_is_a_state_of_its_own_at_any_age_until_one_goes_well(built: Nights) -> None:
    with pytest.raises(GateRefused):
        built.build(1, documents(1), max_shrink=0.2)
    found = built.look(2)
    assert (found.state, found.fresh, found.candidate, found.age_seconds) == ("refused", False, None, 2 * HOUR)
    assert "was refused: the corpus has 1 document where version 1 has 4" in found.problems[0]
    assert built.look(2, None).state == "refused"
    built.build(3, documents(4))
    assert (built.look(4).state, built.look(4).problems) == ("fresh", ())


@pytest.mark.slow
def test_a_candidate_waits_until_it_is_published_or_the_index_moves_on(built: Nights) -> None:
    refused = _refused_by_its_quality(built, 1)
    found = built.look(2)
    assert (found.state, found.candidate) == ("candidate-waiting", refused)
    publish_candidate(built.store, refused, clock=built.clock(3))
    assert (built.look(4).state, built.look(4).candidate) == ("fresh", None)
    again = _refused_by_its_quality(built, 5, count=8)
    assert built.look(6).candidate == again
    roll_back(built.store, 1, clock=built.clock(7))
    resume(built.store, clock=built.clock(8))
    found = built.look(9)
    assert (found.state, found.candidate) == ("rolled-back", None)


@pytest.mark.slow
def test_an_index_that_was_taken_back_is_as_old_as_what_it_serves_until_a_build_has_looked(built: Nights) -> None:
    built.build(10, documents(6))
    roll_back(built.store, 1, clock=built.clock(20))
    held = built.look(21)
    assert (held.state, held.fresh, held.age_seconds) == ("on-hold", False, 21 * HOUR)
    resume(built.store, clock=built.clock(22))
    back = built.look(23)
    assert (back.state, back.fresh, back.age_seconds) == ("rolled-back", False, 23 * HOUR)
    assert "version 3 went back to version 1" in back.problems[0]
    assert built.look(27).problems[0].startswith("the index was last compared with the corpus 1d 3h ago")
    built.build(24, documents(4))  # what it was taken back to is right now
    assert (built.look(25).state, built.look(25).age_seconds) == ("fresh", HOUR)
    built.build(26, documents(6))
    assert built.look(27).state == "fresh"


@pytest.mark.slow
def test_runs_whose_versions_are_gone_are_no_version(built: Nights) -> None:
    for path in (built.folder / "store" / "refs").rglob("*.json"):
        path.unlink()
    found = built.look(1)
    assert (found.state, found.version, found.success) == ("unpublished", None, None)


@pytest.mark.slow
def test_a_hold_without_a_version_of_its_own_is_one_too(built: Nights) -> None:
    roll_back(built.store, 1, clock=built.clock(1))
    assert built.look(2).state == "on-hold"
    resume(built.store, clock=built.clock(3))
    assert built.look(4).state == "fresh"


def test_the_command_exits_with_the_code_of_the_state(built: Nights, run: Run) -> None:
    def asked(*argv: str) -> tuple[int, str]:
        code, out, _ = run.printed("status", *argv, "--store", built.folder / "store")
        return code, out.partition("\n")[0]

    assert asked() == (0, "state: fresh")
    refused = _refused_by_its_quality(built, 1)
    assert asked() == (7, "state: candidate-waiting")
    publish_candidate(built.store, refused, clock=built.clock(2))
    with pytest.raises(GateRefused):
        built.build(3, documents(1), max_shrink=0.2)
    assert asked("--max-age", "3650d") == (3, "state: refused")
    roll_back(built.store, 1, clock=built.clock(4))
    assert asked("--max-age", "3650d") == (8, "state: on-hold")
    resume(built.store, clock=built.clock(5))
    assert asked("--max-age", "3650d") == (9, "state: rolled-back")
    built.build(6, documents(4))
    assert asked("--max-age", "1h") == (1, "state: stale")


def _refused_by_its_quality(nights: Nights, hour: float, count: int = 6) -> str:
    """Build a candidate that the gate of quality refuses; returns the run."""
    corpus = write_corpus(nights.folder / "corpus.jsonl", documents(count))
    questions = nights.folder / "questions.jsonl"
    questions.write_text('{"question": "Who?", "gold_ids": ["never"]}\n', encoding="utf-8")
    gates = {"questions": str(questions), "minimum": 0.5}
    with pytest.raises(GateRefused):
        build(settings(nights.folder / "store", corpus, gates=gates), clock=nights.clock(hour))
    return runs.list_runs(nights.store)[-1].run_id


def test_who_is_at_work_and_since_when(built: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.lease.clock_of", lambda _: built.clock(24))
    with operation(built.store, "build", clock=built.clock(24)) as run:
        found = built.look(24.01)
        assert found.running is not None
        assert (found.running.run, found.running.since) == (run.run_id, timestamp(START + 24 * HOUR))
        assert str(this_process().pid) in found.running.holder
        assert found.last is not None
        assert (found.last.state, found.zombie) == ("running", None)
    assert built.look(24.01).running is None


def test_a_run_whose_process_is_gone_is_a_zombie_until_another_takes_over(built: Nights) -> None:
    dead = this_process().model_copy(update={"pid": 2**22 + 1, "started": "1"})
    runs.start(built.store, "dead", "build", clock=built.clock(24), parent=1)
    acquire(built.store, "dead", clock=built.clock(24), process=dead)
    found = built.look(24)
    assert found.running is None
    assert found.zombie is not None
    assert (found.zombie.run, found.zombie.ended) == ("dead", f"its process {dead.pid} on {dead.host} has ended")
    assert found.fresh  # a monitor that wants to know reads it, or the message
    assert "run dead never ended" in found.problems[0]
    assert found.last is not None
    assert found.last.state == "killed"
    built.build(25, documents(4))
    assert (built.look(25).zombie, built.look(25).problems) == (None, ())


def test_a_run_that_no_longer_renews_its_lease_is_a_zombie(built: Nights) -> None:
    elsewhere = this_process().model_copy(update={"host": "another"})
    runs.start(built.store, "away", "build", clock=built.clock(24), parent=1)
    acquire(built.store, "away", clock=built.clock(24), process=elsewhere)
    end = 24 + (DURATION + MARGIN) / HOUR
    assert built.look(end - 0.001).running is not None
    found = built.look(end)
    assert found.running is None
    assert found.zombie is not None
    assert "its lease ran out at" in str(found.zombie.ended)


def test_a_run_of_the_future_counts_for_nothing(built: Nights) -> None:
    built.build(24 * 365, documents(4))  # a clock was a year ahead
    found = built.look(25)
    assert (found.fresh, found.age_seconds) == (True, 25 * HOUR)
    assert "began in the future" in found.problems[0]
    assert found.last is not None
    assert found.last.state == "published"
    assert not built.look(50).fresh
    before = built.look(-1)  # this machine's clock is behind: nothing can be told
    assert (before.fresh, before.success) == (False, None)
    assert len(before.problems) == 2
    assert built.look(-MARGIN / 2 / HOUR).age_seconds == 0  # two machines' clocks differ a little


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (59.6, "1m"), (3661, "1h 1m"), (93_600, "1d 2h"), (86_400, "1d"), (86_430, "1d 30s")],
)
def test_a_length_of_time_is_told_in_two_units(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_the_command_answers_people_and_monitors(built: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    status = Run(capsys, "--store", built.folder / "store")
    built.build((time.time() - START) / HOUR - 3, documents(4))
    assert status.printed("status", "--max-age", "4h") == (0, status.out, "")
    assert "newest version: 1, published " in status.out
    assert "up to date: with the corpus of 3h" in status.out
    assert "at work: none" in status.out
    assert status("status", "--max-age", "2h") == 1
    assert "--max-age is 2h" in status.err
    code, out, _ = status.printed("status", "--max-age", "2h", "--json")
    assert (code, json.loads(out)["fresh"], out.count("\n")) == (1, False, 1)
    shown = status.json("status")
    assert shown["success"]["state"] == "unchanged"
    assert (shown["running"], shown["zombie"], shown["aliases"], shown["problems"]) == (None, None, {}, [])
    assert status("status", "--max-age", "soon") == 2
    assert "write 90m, 26h, 2d" in status.err
    assert Run(capsys)("status", "--store", built.folder / "none") == 2
    assert runs.list_runs(built.store)[-1].state == "unchanged"
