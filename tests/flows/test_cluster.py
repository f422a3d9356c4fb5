"""The Dask side: results, failures, and workers that are not fit for a run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

pytest.importorskip("distributed")

from distributed import Client, Future

from flows import dask_executor, remote_cluster
from flows.cluster import private_cluster, quiet_logs, started
from flows.dask_executor import DaskExecutor
from indexmill.errors import BadInput, IndexmillError
from indexmill.models.progress import Items, report_progress
from schemas.config import DaskSettings
from storage.folder import init_folder
from tasks.core.executor import Call, InlineExecutor, StoppedError
from tests.flows import ending_worker


def later(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


def fail(value: int) -> int:
    raise BadInput(f"the value {value} cannot be used; give another")


def waits(for_file: Path, value: int) -> int:
    while not for_file.exists():
        time.sleep(0.01)
    return value


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return init_folder(tmp_path_factory.mktemp("cluster") / "store").root


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    """One cluster of two processes for every test here."""
    with private_cluster(2, store) as client:
        yield client


@pytest.fixture(scope="module")
def address(client: Client) -> str:
    """Where its scheduler listens."""
    return str(client.scheduler_info()["address"])


def test_dask_logs_nothing_in_the_process_of_a_run() -> None:
    """Its scheduler calls it critical that a worker reports progress to a client that has just left.

    Its client logs a traceback where it is closed while it looks for a scheduler that has gone away.
    """
    names = [f"distributed{module}" for module in ("", ".client", ".gc", ".scheduler", ".utils", ".worker")]
    before = {name: logging.getLogger(name).level for name in names}
    with quiet_logs():
        assert [name for name in names if logging.getLogger(name).isEnabledFor(logging.CRITICAL)] == []
    assert before == {name: logging.getLogger(name).level for name in names}


def test_results_come_as_they_are_ready_each_with_its_call(client: Client, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    slow = Call("later-0", waits, (ready, 0))
    calls = [slow, *(Call(f"later-{value}", later, (0.0, value)) for value in range(1, 6))]
    results = []
    for result in DaskExecutor(client).run(iter(calls)):
        results.append(result)
        if len(results) == 5:  # all but the one that was submitted first
            ready.touch()
    assert sorted(value for _, value in results) == list(range(6))
    assert all(call == calls[value] for call, value in results)
    assert results[-1] == (slow, 0)
    assert sorted(results, key=lambda result: result[1]) == list(InlineExecutor().run(calls))


def test_a_call_that_is_asked_for_twice_is_made_once(client: Client) -> None:
    call = Call("twice", later, (0.0, 7))
    assert list(DaskExecutor(client).run([call, call])) == [(call, 7)]


def test_a_result_that_comes_slowly_is_waited_for_and_not_asked_for_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask cancels a fetch that times out, after which its client may never fetch anything again."""
    fetch, timeouts = Future.result, []

    def result(future: Future, timeout: float | None = None) -> object:
        timeouts.append(timeout)
        time.sleep(0.5)
        return fetch(future, timeout)

    monkeypatch.setattr(Future, "result", result)
    call = Call("fetched-slowly", later, (0.0, 7))
    assert list(DaskExecutor(client).run([call])) == [(call, 7)]
    assert timeouts == [None]


def late() -> None:
    raise TimeoutError("the endpoint has not answered")


def test_an_error_of_a_call_that_is_also_one_of_waiting_is_raised(client: Client) -> None:
    with pytest.raises(TimeoutError, match="endpoint"):
        list(DaskExecutor(client).run([Call("late", late, ())]))


@pytest.mark.slow
def test_calls_are_submitted_a_window_ahead_of_their_results(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "_WINDOW", 2)
    window = 4 * sum(client.nthreads().values())
    asked = 0

    def calls() -> Iterator[Call]:
        nonlocal asked
        for value in range(5 * window):
            asked += 1
            yield Call(f"windowed-{value}", later, (0.0, value))

    results = []
    for done, (_, value) in enumerate(DaskExecutor(client).run(calls()), 1):
        assert asked <= window + done
        results.append(value)
    assert sorted(results) == list(range(5 * window))


def half_done(for_file: Path) -> int:
    while not for_file.exists():
        time.sleep(0.01)
        report_progress(3, 6, Items(1, 2, "text"))
    return 7


def test_a_worker_tells_how_far_its_call_is(client: Client, tmp_path: Path) -> None:
    heard: list[tuple[int, int, Items | None]] = []

    def hear(done: int, total: int, items: Items | None) -> None:
        heard.append((done, total, items))
        if done:
            (tmp_path / "heard").touch()

    call = Call("half-done", half_done, (tmp_path / "heard",), on_progress=hear)
    assert list(DaskExecutor(client).run([call])) == [(call, 7)]
    assert heard[:2] == [(0, 1, None), (3, 6, Items(1, 2, "text"))]
    assert len(heard) <= 3  # as it begins, then twice a second: not for each step


def test_an_interruption_is_one_also_where_the_cluster_then_fails_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
            raise RuntimeError("no worker started")

        def close(self) -> None:
            raise AssertionError("it never started")

    with pytest.raises(KeyboardInterrupt):
        started(Failing)


@pytest.mark.parametrize("moment", ["before it begins", "as it begins", "while it starts"])
def test_a_cluster_that_is_interrupted_is_closed_or_never_begun(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    begun = threading.Event()
    start = threading.Thread.start

    class Slow:
        def __init__(self) -> None:
            begun.set()
            if moment == "while it starts":
                signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
            done.append("started")

        def close(self) -> None:
            done.append("closed")

    threads: list[threading.Thread] = []

    def start_and_be_interrupted(thread: threading.Thread) -> None:
        threads.append(thread)
        if moment != "before it begins":
            start(thread)
        if moment == "as it begins":
            assert begun.wait(20)
        if moment != "while it starts":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        started(Slow)
    monkeypatch.undo()
    if moment == "before it begins":
        start(threads[0])
        threads[0].join()
    assert done == ([] if moment == "before it begins" else ["started", "closed"])


def test_nothing_to_do_is_done_at_once(client: Client) -> None:
    assert list(DaskExecutor(client).run([])) == []


def test_what_a_call_raised_reaches_the_caller_and_the_workers_go_on(client: Client) -> None:
    calls = [Call("fails", fail, (3,)), Call("works", later, (0.0, 1))]
    with pytest.raises(BadInput, match="the value 3 cannot be used") as caught:
        list(DaskExecutor(client).run(calls))
    assert caught.value.exit_code == 2
    again = Call("works again", later, (0.0, 2))
    assert list(DaskExecutor(client).run([again])) == [(again, 2)]


@pytest.mark.parametrize("told", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_scheduler_that_goes_away_is_an_error_unless_the_run_was_stopped(
    told: bool, store: Path, tmp_path: Path
) -> None:
    with private_cluster(1, store) as client:
        executor = DaskExecutor(client)
        slow = Call("slow", waits, (tmp_path / "never", 0), asks=True)
        results = executor.run([Call("quick", later, (0.0, 1)), slow], keep_going=True)
        assert next(results)[1] == 1
        if told:
            executor.stop(at_once=False)  # calls that ask a language model are waited for
        client.cluster.close()
        with pytest.raises(StoppedError if told else IndexmillError):
            next(results)


def test_the_workers_of_a_running_scheduler_are_proved(address: str, store: Path) -> None:
    with remote_cluster.remote_cluster(DaskSettings(address=address), store) as other:
        call = Call("proved", later, (0.0, 5))
        assert list(DaskExecutor(other).run([call])) == [(call, 5)]


def test_a_worker_that_does_not_see_the_store_is_refused(address: str, store: Path) -> None:
    elsewhere = store.parent / "elsewhere"
    with (
        pytest.raises(BadInput, match="sees the store"),
        remote_cluster.remote_cluster(DaskSettings(address=address), elsewhere),
    ):
        pass


@pytest.mark.slow
def test_a_worker_with_other_code_or_libraries_is_refused(
    address: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cluster, "code_digest", lambda: "another")
    with (
        pytest.raises(BadInput, match="is not fit for this run: code"),
        remote_cluster.remote_cluster(DaskSettings(address=address), store),
    ):
        pass
    monkeypatch.undo()
    monkeypatch.setattr(remote_cluster, "environment_fingerprint", lambda: {"numpy": "0"})
    with (
        pytest.raises(BadInput, match=r"environment: found .*expected {'numpy': '0'}"),
        remote_cluster.remote_cluster(DaskSettings(address=address), store),
    ):
        pass


@pytest.mark.slow
def test_a_call_that_kills_its_worker_is_named_and_does_not_go_on_killing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the workers take to start again: Dask's cluster gives them 15 seconds, which here pass at once."""
    call_later = asyncio.BaseEventLoop.call_later

    def hasten(loop: Any, delay: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        return call_later(loop, 0 if delay == 15 else delay, callback, *arguments, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", hasten)
    with pytest.raises(IndexmillError, match="the call poison ended 2 worker processes") as caught:
        list(DaskExecutor(client).run([Call("poison", die, ())]))
    assert "run the build again" in str(caught.value)
    client.wait_for_workers(2, timeout=240)
    call = Call("after the poison", later, (0.0, 4))
    assert list(DaskExecutor(client).run([call])) == [(call, 4)]


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a line for each worker that ends while it starts."""
    file = tmp_path / "ends"
    file.touch()
    monkeypatch.setenv(ending_worker.VARIABLE, str(file))
    with dask.config.set({"distributed.worker.preload": [ending_worker.__name__]}):
        yield file


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 3])
def test_a_worker_that_ends_while_it_starts_is_started_again_but_not_for_ever(
    store: Path, ends: Path, times: int
) -> None:
    with private_cluster(1, store) as client:
        ends.write_text("end\n" * times)
        calls = [Call("poison of its own", die, ()), Call("beside it", later, (0.0, 4))]
        results = DaskExecutor(client).run(calls, keep_going=True)
        if times == 2:
            assert {call.key for call, _ in results} == {call.key for call in calls}
            return
        with pytest.raises(IndexmillError, match="have ended and cannot be restarted") as caught:
            list(results)
    assert "exited with status 3" in str(caught.value)


@pytest.mark.slow
def test_a_cluster_whose_workers_end_as_it_begins_starts_them_again_but_not_for_ever(store: Path, ends: Path) -> None:
    ends.write_text("end\n" * 2)
    with private_cluster(1, store) as client:
        call = Call("at last", later, (0.0, 4))
        assert list(DaskExecutor(client).run([call])) == [(call, 4)]
    ends.write_text("end\n" * 3)
    with (
        pytest.raises(IndexmillError, match=r"do not start: Worker process .* exited with status 3"),
        private_cluster(1, store),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "nonsense://127.0.0.1"])
def test_an_address_without_a_scheduler_is_bad_input(
    client: Client, address: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cluster, "_CONNECT", "1s")
    with (
        pytest.raises(BadInput, match=f"{address}: no Dask scheduler"),
        remote_cluster.remote_cluster(DaskSettings(address=address), store),
    ):
        pass
