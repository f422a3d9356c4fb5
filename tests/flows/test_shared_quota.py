"""One quota for the workers of a run, on real processes: what is counted is what was granted, not how long it took."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import Client, get_worker

from flows import shared_quota as states
from flows.cluster import private_cluster
from flows.dask_executor import DaskExecutor
from flows.quota_client import name_of
from flows.quota_server import ClusterQuota
from indexmill.errors import BadInput, BudgetReached, IndexmillError
from schemas.config import Price
from storage.folder import init_folder
from tasks.core.executor import Call, Failed, StoppedError, WorkerDied
from tasks.llm.account import AskingEnded, CallLimits, Spent
from tasks.llm.quota import Quota, RunQuota
from tests.flows.elsewhere import cluster_elsewhere

PRICES = {"m": Price(input_per_million=1.0, output_per_million=2.0)}


def ask(quota: Quota, calls: int, bound: int, billed: int) -> tuple[int, int, list[float]]:
    """So many calls at once: how many were made and refused, and when they began."""

    async def one(times: list[float]) -> bool:
        try:
            ticket = await quota.reserve("m", bound, 0)
        except BudgetReached:
            return False
        times.append(time.monotonic())
        await quota.settle(ticket, billed, 0)
        return True

    async def all_of_them() -> tuple[int, int, list[float]]:
        times: list[float] = []
        made = await asyncio.gather(*(one(times) for _ in range(calls)))
        return sum(made), calls - sum(made), times

    return asyncio.run(all_of_them())


def ask_here(quota: Quota, calls: int, bound: int, billed: int) -> tuple[int, int, list[float], str]:
    """As `ask`, and on which worker; as long as another is at it, so that there are two."""
    time.sleep(0.3)
    return *ask(quota, calls, bound, billed), str(get_worker().address)


def reserve_and_die(quota: Quota, died_before: Path) -> None:
    """Die in the middle of a call; the first time others wait for it to be settled."""

    async def reserve() -> None:
        await quota.reserve("m", 20, 0)
        if not died_before.exists():
            died_before.touch()
            waiting = [asyncio.ensure_future(quota.reserve("m", 90, 0)) for _ in range(3)]
            await asyncio.sleep(0.2)
            if any(one.done() for one in waiting):
                raise RuntimeError("what does not fit was let go")
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(reserve())


def reserve_and_wait(quota: Quota, started: str, most: float) -> str:
    """Wait for a turn that does not come; what ended the wait."""

    async def reserve() -> str:
        Path(started).touch()
        try:
            await asyncio.wait_for(quota.reserve("m", 1, 0), most)
        except IndexmillError as error:
            return type(error).__name__
        return "granted"

    return asyncio.run(reserve())


def ask_for_less_than_nothing(quota: Quota) -> str:
    """What is no number of tokens; the class of the error."""

    async def reserve() -> str:
        try:
            await asyncio.wait_for(quota.reserve("m", -1, 0), 30)
        except IndexmillError as error:
            return type(error).__name__
        return "granted"

    return asyncio.run(reserve())


def give_up(quota: Quota) -> None:
    """Stop waiting for a turn, and let a turn that has come pass."""

    async def reserve() -> None:
        held = await quota.reserve("m", 60, 0)
        waiting = asyncio.ensure_future(quota.reserve("m", 90, 0))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await quota.settle(held, 0, 0)

    asyncio.run(reserve())


def lines_left(quota: Quota) -> int:
    """How many connections a process keeps for event loops that are over."""
    from flows.quota_client import _CLIENTS

    for _ in range(3):
        ask(quota, 2, 1, 1)
    return len(_CLIENTS)


def in_a_child(quota: Quota) -> bytes:
    """The handle as it is handed on to a process that is no worker."""
    return pickle.dumps(quota)


def hold_here(quota: Quota, most: float) -> tuple[float, float, str]:
    """When this worker began and ended its turn at a prompt."""
    time.sleep(0.3)

    async def turn() -> tuple[float, float]:
        await quota.hold("prompt")
        began = time.monotonic()
        await asyncio.sleep(most)
        ended = time.monotonic()
        await quota.release("prompt")
        return began, ended

    return *asyncio.run(turn()), str(get_worker().address)


def hold_and_leave(quota: Quota) -> None:
    """An event loop that ends while it asks."""
    asyncio.run(quota.hold("prompt"))


def seen(folder: Path, name: str) -> None:
    """Wait until a worker has left its mark."""
    for _ in range(300):
        if (folder / name).exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} never came")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return init_folder(tmp_path_factory.mktemp("quota") / "store").root


@pytest.fixture(scope="module", params=["here", pytest.param("elsewhere", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest, store: Path) -> Iterator[Client]:
    """Two workers; their scheduler is in this process, or in another."""
    here = request.param == "here"
    with private_cluster(2, store) if here else cluster_elsewhere(2, store) as client:
        yield client


def on(client: Client, run: str, **limits: object) -> RunQuota:
    return DaskExecutor(client).quota(run, CallLimits(**{"prices": PRICES, **limits}))  # type: ignore[arg-type]


def results(client: Client, *calls: Call) -> list[object]:
    return [result for _, result in DaskExecutor(client).run(calls)]


def server_is_gone(client: Client, run: str) -> bool:
    """Whether the scheduler has forgotten a run."""

    def look(dask_scheduler: object) -> bool:
        from flows.shared_quota import AT_WORK

        held = (dask_scheduler.handlers, dask_scheduler.plugins, AT_WORK)  # type: ignore[attr-defined]
        return all(run not in " ".join(map(str, names)) for names in held)

    return bool(client.run_on_scheduler(look))


@pytest.mark.end_to_end
@pytest.mark.parametrize("client", ["here", pytest.param("elsewhere", marks=pytest.mark.slow)], indirect=True)
def test_two_workers_stay_within_one_budget(client: Client) -> None:
    quota = on(client, "one-budget", budget_tokens=600)
    calls = [Call(f"one-budget-{n}", ask_here, (quota.of("s"), 40, 10, 10)) for n in range(4)]
    told = results(client, *calls)
    assert len({worker for *_, worker in told}) == 2  # type: ignore[misc]
    assert sum(made for made, *_ in told) == 60  # type: ignore[misc]
    assert sum(refused for _, refused, *_ in told) == 100  # type: ignore[misc]
    assert quota.spent() == {"s": Spent(60, 600, 0, pytest.approx(600e-6))}


def test_two_workers_keep_one_rate(client: Client) -> None:
    quota = on(client, "one-rate", requests_per_minute=240)
    told = results(client, *(Call(f"one-rate-{n}", ask_here, (quota.of("s"), 14, 1, 1)) for n in range(2)))
    assert len({worker for *_, worker in told}) == 2  # type: ignore[misc]
    times = sorted(at for _, _, begun, _ in told for at in begun)  # type: ignore[misc]
    assert len(times) == 28
    # Twenty at once and four a second after that: a call may be seen later than it was let go, never earlier.
    assert times[-1] - times[0] >= (28 - 20) / 4 - 0.5


def test_what_is_set_aside_waits_for_what_was_not_needed(client: Client) -> None:
    quota = on(client, "waits", budget_tokens=100)
    told = results(client, *(Call(f"waits-{n}", ask, (quota.of("s"), 5, 60, 10)) for n in range(2)))
    assert sum(made for made, *_ in told) == 5  # type: ignore[misc]  # 4 x 10 + 60 fit, 5 x 10 + 60 do not
    assert quota.spent()["s"].input_tokens == 50


@pytest.mark.slow
def test_a_dead_worker_has_spent_what_it_had_under_way_and_holds_nobody_up(client: Client, tmp_path: Path) -> None:
    quota = on(client, "dies", budget_tokens=100)
    executor = DaskExecutor(client)
    died = list(executor.run([Call("dies", reserve_and_die, (quota.of("s"), tmp_path / "died"))], keep_going=True))
    assert isinstance(died[0][1], Failed)
    assert isinstance(died[0][1].error, WorkerDied)
    assert quota.spent()["s"].input_tokens == 40  # it was tried twice
    client.wait_for_workers(1, timeout=60)
    ((made, _, _),) = results(client, Call("dies-after", ask, (quota.of("s"), 20, 10, 10)))  # type: ignore[misc]
    assert made * 10 == 100 - 40
    client.wait_for_workers(2, timeout=60)


def test_two_workers_ask_a_prompt_one_after_the_other(client: Client) -> None:
    quota = on(client, "one-prompt")
    told = results(client, *(Call(f"one-prompt-{n}", hold_here, (quota.of("s"), 0.2)) for n in range(4)))
    assert len({worker for *_, worker in told}) == 2  # type: ignore[misc]
    turns = sorted((began, ended) for began, ended, _ in told)  # type: ignore[misc]
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(turns))


def test_who_goes_lets_go_of_the_prompt(client: Client) -> None:
    quota = on(client, "goes-asking")
    results(client, Call("goes-asking", hold_and_leave, (quota.of("s"),)))
    results(client, Call("goes-asking-after", hold_here, (quota.of("s"), 0.0)))


def test_who_gives_up_pays_nothing(client: Client) -> None:
    quota = on(client, "gives-up", budget_tokens=100)
    results(client, Call("gives-up", give_up, (quota.of("s"),)))
    assert quota.spent() == {}
    ((made, _, _),) = results(client, Call("gives-up-after", ask, (quota.of("s"), 1, 100, 100)))  # type: ignore[misc]
    assert made == 1


def test_a_stop_that_is_not_at_once_ends_the_asking_and_waits_for_what_is_under_way(
    client: Client, tmp_path: Path
) -> None:
    executor = DaskExecutor(client)
    quota = executor.quota("stops", CallLimits(requests_per_minute=1))
    first = executor.quota("stops", CallLimits())
    assert first is quota
    assert ask(quota.of("s"), 1, 1, 1)[0] == 1
    mark = str(tmp_path / "asks")
    calls = [Call(f"stops-{n}", reserve_and_wait, (quota.of("s"), mark, 60.0), asks=True) for n in range(200)]

    def stop() -> None:
        seen(tmp_path, "asks")
        executor.stop(at_once=False)

    stopping = threading.Thread(target=stop)
    stopping.start()
    got: list[object] = []
    with pytest.raises(StoppedError):
        got.extend(result for _, result in executor.run(calls))
    stopping.join()
    with pytest.raises(StoppedError):
        list(executor.run([Call("stops-later", ask, (quota.of("s"), 1, 1, 1))]))
    with pytest.raises(AskingEnded):
        asyncio.run(quota.of("s").reserve("m", 1, 1))
    again = DaskExecutor(client).quota("stops", CallLimits())  # the same run, its stages begun again
    assert again.spent()["s"].calls == 1
    waits = asyncio.run(_times_out(again.of("s")))
    assert waits


async def _times_out(quota: Quota) -> bool:
    try:
        await asyncio.wait_for(quota.reserve("m", 1, 1), 0.2)
    except TimeoutError:
        return True
    return False


def test_what_a_worker_waits_for_ends_with_the_run_that_wanted_it_and_nothing_is_left(
    client: Client, tmp_path: Path
) -> None:
    mark = tmp_path / "waits"
    with Client(client.scheduler.address) as other:
        quota = ClusterQuota(other, "over", CallLimits(requests_per_minute=1))
        ask(quota.of("s"), 1, 1, 1)
        waiting = client.submit(reserve_and_wait, quota.of("s"), str(mark), 60.0, key="over")
        seen(tmp_path, "waits")
        time.sleep(0.2)
    assert waiting.result(timeout=30) == "AskingEnded"
    assert server_is_gone(client, "over")
    late = client.submit(reserve_and_wait, quota.of("s"), str(mark), 60.0, key="over-late")
    assert late.result(timeout=30) == "AskingEnded"


def test_runs_on_one_scheduler_know_nothing_of_each_other(client: Client) -> None:
    with Client(client.scheduler.address) as one, Client(client.scheduler.address) as two:
        first, second = (
            ClusterQuota(one, "first", CallLimits(budget_tokens=10)),
            ClusterQuota(two, "second", CallLimits()),
        )
        with pytest.raises(BudgetReached):
            asyncio.run(first.of("s").reserve("m", 11, 0))
        assert ask(second.of("s"), 3, 100, 50)[0] == 3
        assert (dict(first.spent()), second.spent()["s"].input_tokens) == ({}, 150)
    for run in ("first", "second"):
        assert server_is_gone(client, run)


def test_a_scheduler_with_other_code_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(["ours"])  # then, where the scheduler is in this process, its own
    monkeypatch.setattr("flows.quota_server.code_digest", lambda: next(digests, "theirs"))
    with pytest.raises(BadInput, match=r"scheduler is not fit for this run: code: found '\w+', expected 'ours'"):
        ClusterQuota(client, "other-code", CallLimits())
    assert server_is_gone(client, "other-code")


def test_an_event_loop_that_is_over_leaves_no_connection(client: Client) -> None:
    quota = on(client, "left", budget_tokens=1000)
    assert results(client, Call("left", lines_left, (quota.of("s"),))) == [0]


def test_a_handle_is_handed_on_with_the_way_to_the_scheduler(client: Client) -> None:
    quota = on(client, "handed-on", budget_tokens=5)
    (handed,) = results(client, Call("handed-on", in_a_child, (quota.of("s"),)))
    copy = pickle.loads(handed)  # type: ignore[arg-type]  # noqa: S301 - from our own worker
    assert copy.address == client.scheduler.address
    assert asyncio.run(copy.reserve("m", 5, 0))


def test_whatever_goes_wrong_at_the_server_is_an_answer(client: Client) -> None:
    quota = on(client, "wrong", budget_tokens=10)
    if "wrong" in states.AT_WORK:  # then only a worker's words go over a connection
        ((told,),) = [results(client, Call("wrong", ask_for_less_than_nothing, (quota.of("s"),)))]
    else:
        told = ask_for_less_than_nothing(quota.of("s"))
    assert told == "IndexmillError"


@pytest.mark.slow
def test_a_process_that_no_scheduler_knows_says_so() -> None:
    with pytest.raises(RuntimeError, match="no Dask scheduler is known"):
        asyncio.run(states.SharedQuota("nowhere", "s").reserve("m", 1, 1))
    assert name_of("x") == "indexmill-quota-x"
