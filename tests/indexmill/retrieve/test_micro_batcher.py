"""Questions of threads that are gathered into batches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from indexmill import BadInput, RetrievalOptions, Snapshot
from indexmill.retrieve.micro_batcher import MicroBatcher


class Slow:
    """Answers batches one at a time, each when the test lets it go."""

    def __init__(self, spoilt: str = "") -> None:
        self.batches: list[list[str]] = []
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self._spoilt = spoilt

    def __call__(self, questions: Sequence[str]) -> list[str]:
        self.batches.append(list(questions))
        self.begun.release()
        assert self.go_on.acquire(timeout=60)
        if self._spoilt in questions:
            raise BadInput(f"{self._spoilt} is spoilt")
        return [question.upper() for question in questions]


def ask(
    pool: ThreadPoolExecutor, gatherer: MicroBatcher[str], kind: str, questions: str, find: Slow
) -> list[Future[str]]:
    """Ask from as many threads, which wait in this order."""
    asked = []
    for question in questions:
        waiting = sum(len(line) for line in gatherer._lines.values())
        asked.append(pool.submit(gatherer.ask, kind, question, find))
        while sum(len(line) for line in gatherer._lines.values()) == waiting:
            time.sleep(0.001)
    return asked


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(32) as pool:
        yield pool


def test_questions_that_wait_for_one_go_together(pool: ThreadPoolExecutor) -> None:
    gatherer, find = MicroBatcher[str](4), Slow()
    first = pool.submit(gatherer.ask, "kind", "a", find)
    assert find.begun.acquire(timeout=60)
    others = ask(pool, gatherer, "kind", "bcdefg", find)
    for _ in range(3):
        find.go_on.release()
    assert [one.result(60) for one in (first, *others)] == list("ABCDEFG")
    assert find.batches == [["a"], ["b", "c", "d", "e"], ["f", "g"]]
    find.go_on.release()
    assert gatherer.ask("kind", "h", find) == "H"
    assert find.batches[-1] == ["h"]


def test_other_kinds_wait_for_nothing(pool: ThreadPoolExecutor) -> None:
    gatherer, find = MicroBatcher[str](4), Slow()
    asked = [pool.submit(gatherer.ask, kind, kind, find) for kind in "ab"]
    for _ in asked:
        assert find.begun.acquire(timeout=60)
    for _ in asked:
        find.go_on.release()
    assert [one.result(60) for one in asked] == ["A", "B"]


def test_a_question_that_fails_spoils_no_other(pool: ThreadPoolExecutor) -> None:
    gatherer, find = MicroBatcher[str](4), Slow(spoilt="c")
    first = pool.submit(gatherer.ask, "kind", "a", find)
    assert find.begun.acquire(timeout=60)
    others = ask(pool, gatherer, "kind", "bcd", find)
    for _ in range(5):
        find.go_on.release()
    assert [first.result(60), others[0].result(60), others[2].result(60)] == ["A", "B", "D"]
    with pytest.raises(BadInput, match="c is spoilt"):
        others[1].result(60)
    assert find.batches[:2] == [["a"], ["b", "c", "d"]]
    assert sorted(find.batches[2:]) == [["b"], ["c"], ["d"]]


class Interrupted(BaseException):
    """As Ctrl-C."""


def test_a_thread_that_is_interrupted_holds_up_no_other(pool: ThreadPoolExecutor) -> None:
    gatherer, find = MicroBatcher[str](4), Slow()

    def interrupted(questions: Sequence[str]) -> list[str]:
        find(questions)
        raise Interrupted

    first = pool.submit(gatherer.ask, "kind", "a", interrupted)
    assert find.begun.acquire(timeout=60)
    others = ask(pool, gatherer, "kind", "bc", find)
    for _ in range(2):
        find.go_on.release()
    with pytest.raises(Interrupted):
        first.result(60)
    assert [one.result(60) for one in others] == ["B", "C"]


def test_who_gives_up_waiting_is_asked_for_no_more(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    gatherer, find = MicroBatcher[str](4), Slow()
    first = pool.submit(gatherer.ask, "kind", "a", find)
    assert find.begun.acquire(timeout=60)

    def interrupted(_: threading.Event, timeout: float | None = None) -> bool:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(Interrupted):
            gatherer.ask("kind", "b", find)
    others = ask(pool, gatherer, "kind", "cd", find)
    for _ in range(2):
        find.go_on.release()
    assert [one.result(60) for one in (first, *others)] == ["A", "C", "D"]
    assert find.batches == [["a"], ["c", "d"]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_does_not_wait_for_threads_of_its_parent(pool: ThreadPoolExecutor) -> None:
    gatherer, find = MicroBatcher[str](4), Slow()
    first = pool.submit(gatherer.ask, "kind", "a", find)
    assert find.begun.acquire(timeout=60)
    child = os.fork()
    if not child:
        os._exit(gatherer.ask("kind", "b", lambda questions: [one.upper() for one in questions]) != "B")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    find.go_on.release()
    assert first.result(60) == "A"


def test_threads_get_from_a_snapshot_what_each_question_gets_alone(
    pool: ThreadPoolExecutor, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [f"Who paid for the bridge of {name}?" for name in ("Ada", "Venn", "Ilse", "Tallow")] * 16
    options: list[dict[str, Any]] = [
        {},
        {"k": 2},
        {"where": {"title": ["Tallow"]}},
        {"method": "dense", "parameters": {"title": 0.5}},
        {"method": "dense", "parameters": {"title": 1}},
    ]
    asked = [(question, options[number % len(options)]) for number, question in enumerate(questions)]
    alone = [snapshot.retrieve(question, **option) for question, option in asked]
    sizes: list[int] = []
    batch = Snapshot._search

    def counted(self: Snapshot, options: RetrievalOptions, questions: Sequence[str]) -> Any:
        sizes.append(len(questions))
        time.sleep(0.01)  # so that others come meanwhile
        return batch(self, options, questions)

    monkeypatch.setattr(Snapshot, "_search", counted)
    found = [pool.submit(snapshot.retrieve, question, **option) for question, option in asked]
    assert [one.result(60) for one in found] == alone
    assert sum(sizes) == len(asked) > len(sizes)


def test_options_that_cannot_be_compared_are_never_shared(snapshot: Snapshot) -> None:
    with pytest.raises(BadInput, match="k is"):
        snapshot.retrieve("the bridge", k=[1])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a question is None"):
        snapshot.retrieve(None)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        snapshot.retrieve("the bridge", method="dense", parameters={"title": [1]})
