"""Helper processes: what becomes of them, and of a batch, whatever happens to either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import indexmill
from indexmill.errors import BadInput, CorruptBlob, ModelUnavailable, StoreError
from indexmill.hits import Hit
from indexmill.opening import open_manifest
from indexmill.retrieve import worker_pool as helpers
from indexmill.retrieve.retrieval_method import QueryBatch, Vectors
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path
from tests.indexmill.small_snapshot import export, writer_of

QUESTIONS = [f"{what} {place}?" for what in ("Who paid for", "Where is", "What is") for place in ("Ilse", "Quux", "it")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    writer = writer_of(tmp_path / "store")
    writer.tri_graph()
    writer.bm25()
    writer.publish()
    return tmp_path / "store"


@pytest.fixture
def alone(store: Path) -> list[list[Hit]]:
    """What one process answers."""
    with indexmill.open(store) as snapshot:
        return answers(snapshot)


@pytest.fixture
def helped(store: Path) -> Iterator[Snapshot]:
    with indexmill.open(store, processes=2) as snapshot:
        yield snapshot


def answers(snapshot: Snapshot, **given: Any) -> list[list[Hit]]:
    return snapshot.retrieve_batch(QUESTIONS, **{"method": "tri_graph", "k": 3, **given})


def processes(snapshot: Snapshot) -> list[int]:
    assert snapshot.pool is not None
    return snapshot.pool.processes


def ended(process: int) -> bool:
    """Whether a process is gone, or can be waited for without waiting; a zombie's threads may still be ending."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else's, or one that was waited for
        return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def soon(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


@contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """Processes that take what they are sent, and say nothing until the end of the block."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def kill(*processes: int) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)
    assert soon(lambda: all(map(ended, processes)))


@pytest.mark.slow
def test_helpers_answer_and_end_with_the_snapshot(store: Path, alone: list[list[Hit]]) -> None:
    with indexmill.open(store, processes=2) as snapshot:
        own = processes(snapshot)
        assert len(set(own)) == 2
        assert answers(snapshot) == alone
        assert not any(map(ended, own))
    assert all(map(ended, own))
    with pytest.raises(StoreError, match="closed"):
        answers(snapshot)


@pytest.mark.slow
def test_helpers_do_the_work_of_batches_alone(helped: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    kind = type(helped.retriever("tri_graph"))
    search = kind.search

    def counted(self: Any, asked: Any, k: int) -> list[list[Hit]]:
        searched.append(len(asked.questions))
        return search(self, asked, k)

    monkeypatch.setattr(kind, "search", counted)
    answers(helped)
    assert searched == []
    few = QUESTIONS[: helpers.FEWEST - 1]
    assert helped.retrieve_batch(few, method="tri_graph", k=3) == answers(helped)[: len(few)]
    assert searched == [len(few)]


def test_nobody_helps_unless_it_is_asked_for(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.pool is None
    for count in (0, -1, 1.5, "2"):
        with pytest.raises(BadInput, match="whole number of at least 1"):
            indexmill.open(store, processes=count)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_manifest_and_an_exported_folder_have_helpers_too(
    store: Path, alone: list[list[Hit]], tmp_path: Path
) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.ref is not None
        digest = snapshot.ref.manifest
        export(snapshot, tmp_path / "exported")
    for opened in (open_manifest(store, digest, processes=2), indexmill.open(tmp_path / "exported", processes=2)):
        with opened:
            assert [[hit.id for hit in hits] for hits in answers(opened)] == [
                [hit.id for hit in hits] for hits in alone
            ]
            assert {hit.version for hits in answers(opened) for hit in hits} == {None}


@pytest.mark.slow
def test_a_relative_path_is_that_of_the_moment(
    store: Path, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(store.parent)
    with indexmill.open(store.name, processes=2) as snapshot:
        monkeypatch.chdir(tmp_path.parent)
        kill(processes(snapshot)[0])
        assert answers(snapshot) == alone  # both a helper that was there and one that starts now


@pytest.mark.slow
def test_a_helper_that_has_ended_is_started_anew(helped: Snapshot, alone: list[list[Hit]]) -> None:
    before = processes(helped)
    kill(before[0])
    assert answers(helped) == alone
    assert processes(helped)[1] == before[1]
    assert processes(helped)[0] != before[0]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_helper_that_ends_in_the_middle_leaves_its_part_to_others(
    helped: Snapshot, alone: list[list[Hit]], count: int
) -> None:
    answers(helped)
    victims = processes(helped)[:count]
    for process in victims:
        os.kill(process, signal.SIGSTOP)  # takes its part, and says nothing

    def finish(found: Future[list[list[Hit]]]) -> list[list[Hit]]:
        for process in victims:
            os.kill(process, signal.SIGKILL)
        return found.result(60)

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(answers, helped)
        time.sleep(0.3)
        assert not found.done()
        with pytest.warns(RuntimeWarning, match="has ended with exit code -9; other processes") as told:
            assert finish(found) == alone
    assert len(told) == count
    assert answers(helped) == alone
    assert not set(victims) & set(processes(helped))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 4_000])  # less and more than a socket holds
def test_a_helper_that_hangs_is_killed_and_others_answer(
    helped: Snapshot, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    questions = [f"{question} {'bridge ' * (length // 7)}" for question in QUESTIONS] * 10
    expected = helped.retrieve_batch(questions, method="bm25", k=3)
    monkeypatch.setattr(helpers, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(helpers, "QUESTION_SECONDS", 0.0)
    hanging, other = processes(helped)
    os.kill(hanging, signal.SIGSTOP)
    with pytest.warns(
        RuntimeWarning, match=rf"process {hanging} has not answered for 3 seconds and was killed; other processes"
    ):
        assert helped.retrieve_batch(questions, method="bm25", k=3) == expected
    monkeypatch.undo()
    assert helped.retrieve_batch(questions, method="bm25", k=3) == expected
    assert hanging not in processes(helped)
    assert other in processes(helped)


@pytest.mark.slow
def test_a_helper_has_longer_until_its_first_answer_with_a_method(
    store: Path, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens the snapshot first, and hashes the files that the method needs."""
    monkeypatch.setattr(helpers, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(helpers, "QUESTION_SECONDS", 0.0)
    with indexmill.open(store) as snapshot:
        expected = answers(snapshot, method="bm25")
    with indexmill.open(store, processes=2) as snapshot:
        before = processes(snapshot)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert answers(snapshot) == alone
            assert answers(snapshot, method="bm25") == expected
        assert processes(snapshot) == before


@pytest.mark.slow
def test_what_a_search_raises_in_a_helper_is_raised_here(store: Path, alone: list[list[Hit]]) -> None:
    with indexmill.open(store, processes=2) as snapshot:
        snapshot.retriever("bm25").search(QueryBatch(["bridge"], np.empty((1, 64), np.float32)), 1)  # has read
        postings = snapshot.artifact("bm25/p0")
        path = store / blob_path(postings.digest)
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        before = processes(snapshot)
        with pytest.raises(CorruptBlob, match=postings.digest[:12]):
            answers(snapshot, method="bm25")
        assert answers(snapshot) == alone
        assert processes(snapshot) == before


@pytest.mark.slow
def test_a_snapshot_that_helpers_cannot_open_is_told(store: Path, alone: list[list[Hit]], tmp_path: Path) -> None:
    with indexmill.open(store, processes=2) as snapshot:
        answers(snapshot)
        kill(*processes(snapshot))
        store.rename(tmp_path / "elsewhere")
        with pytest.raises(indexmill.IndexmillError, match="store"):
            answers(snapshot)
        (tmp_path / "elsewhere").rename(store)
        assert soon(lambda: all(map(ended, processes(snapshot))))
        assert answers(snapshot) == alone


@pytest.mark.slow
def test_names_are_encoded_by_the_one_that_asks(
    helped: Snapshot, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = helped.encode_texts
    encoded: list[str] = []

    def counted(texts: Sequence[str]) -> Vectors:
        encoded.extend(texts)
        return encode(texts)

    monkeypatch.setattr(helped, "encode_texts", counted)
    assert answers(helped) == alone
    assert "quux" in encoded

    def unable(_: Sequence[str]) -> Vectors:
        raise ModelUnavailable("no encoder here")

    monkeypatch.setattr(helped, "encode_texts", unable)
    with pytest.raises(ModelUnavailable, match="no encoder here"):
        answers(helped)
    monkeypatch.setattr(helped, "encode_texts", encode)
    assert answers(helped) == alone


@pytest.mark.slow
def test_a_parameter_that_is_wrong_is_told_before_anybody_is_asked(helped: Snapshot) -> None:
    with pytest.raises(BadInput, match="unknown 'nothing'; the method's parameters are preset, hops"):
        answers(helped, parameters={"nothing": 1})


@pytest.mark.slow
def test_threads_may_ask_at_the_same_time(helped: Snapshot, alone: list[list[Hit]]) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert all(found == alone for found in threads.map(lambda _: answers(helped), range(12)))


@pytest.mark.slow
def test_an_interrupted_batch_leaves_nothing_to_the_next(
    helped: Snapshot, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(helped)
    before = processes(helped)

    def interrupted(connections: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(helpers, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            helped.retrieve_batch(QUESTIONS[::-1], method="tri_graph")
    assert all(map(ended, before))
    assert answers(helped) == alone


@pytest.mark.slow
def test_what_nobody_waited_for_is_no_answer_to_the_next(
    helped: Snapshot, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(connections: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(helpers, "wait", interrupted)
        patch.setattr(helpers._Reader, "end", lambda self: 0)  # interrupted as well
        with pytest.raises(KeyboardInterrupt):
            helped.retrieve_batch(QUESTIONS[::-1], method="tri_graph")
    assert answers(helped) == alone


@pytest.mark.slow
def test_a_process_that_is_forked_answers_by_itself(helped: Snapshot, alone: list[list[Hit]]) -> None:
    answers(helped)
    child = os.fork()
    if child == 0:
        os._exit(0 if answers(helped) == alone else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert answers(helped) == alone


@pytest.mark.slow
def test_helpers_end_though_a_process_was_forked_that_goes_on(store: Path) -> None:
    snapshot = indexmill.open(store, processes=2)
    own = processes(snapshot)
    answers(snapshot)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        began = time.monotonic()
        snapshot.close()
        assert all(map(ended, own))
        assert time.monotonic() - began < helpers.PATIENCE
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.slow
def test_a_forked_process_may_close_what_another_thread_was_in(helped: Snapshot, alone: list[list[Hit]]) -> None:
    answers(helped)
    with ThreadPoolExecutor(1) as thread, stopped(processes(helped)):
        found = thread.submit(answers, helped)
        time.sleep(0.3)
        child = os.fork()
        if child == 0:
            assert helped.pool is not None
            helped.pool.close()
            os._exit(0)
        closed = soon(lambda: ended(child))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert closed
    assert found.result(60) == alone


@pytest.mark.slow
def test_what_waits_for_closing_starts_nothing(helped: Snapshot) -> None:
    own = processes(helped)
    vectors = helped.encode(QUESTIONS)
    expected = answers(helped, vectors=vectors)
    assert helped.pool is not None
    with ThreadPoolExecutor(3) as threads, stopped(own):
        first = threads.submit(answers, helped, vectors=vectors)
        time.sleep(0.3)
        closing = threads.submit(helped.pool.close)
        time.sleep(0.3)
        second = threads.submit(answers, helped, vectors=vectors)
        time.sleep(0.3)
    assert first.result(60) == second.result(60) == expected
    closing.result(60)
    assert processes(helped) == own
    assert all(map(ended, own))


@pytest.mark.slow
def test_entries_of_the_path_that_python_ignores_are_ignored(
    store: Path, alone: list[list[Hit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, store, ""])
    with indexmill.open(store, processes=2) as snapshot:
        assert answers(snapshot) == alone


USER = """
import sys, time, indexmill
snapshot = indexmill.open(sys.argv[1], processes=2)
snapshot.retrieve_batch(["bridge"] * 9, method="tri_graph")
print(*snapshot.pool.processes, flush=True)
if sys.argv[2] == "wait":
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["by itself", "interrupted", "killed"])
def test_no_helper_outlives_the_one_that_started_it(store: Path, end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(store), "" if end == "by itself" else "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as user:
        assert user.stdout is not None
        own = [int(one) for one in user.stdout.readline().split()]
        assert len(own) == 2
        if end != "by itself":
            user.send_signal(signal.SIGINT if end == "interrupted" else signal.SIGKILL)
        user.wait(30)
    assert soon(lambda: all(map(ended, own)))


@pytest.mark.slow
def test_a_snapshot_that_is_forgotten_has_its_helpers_ended(store: Path) -> None:
    snapshot = indexmill.open(store, processes=2)
    own = processes(snapshot)
    del snapshot
    assert soon(lambda: all(map(ended, own)))


def test_closing_waits_for_the_batch(helped: Snapshot) -> None:
    vectors = helped.encode(QUESTIONS)  # so that nothing is looked up while it closes
    expected = answers(helped, vectors=vectors)
    with ThreadPoolExecutor(2) as threads, stopped(processes(helped)):
        found = threads.submit(answers, helped, vectors=vectors)
        time.sleep(0.3)
        closing = threads.submit(helped.close)
        time.sleep(0.3)
        assert not closing.done()
    assert found.result(60) == expected
    closing.result(60)
    assert all(map(ended, processes(helped)))
