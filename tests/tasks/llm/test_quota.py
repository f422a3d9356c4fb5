"""The quota of one process: its threads and event loops share it."""

from __future__ import annotations

import asyncio
import pickle
import threading

import pytest

from indexmill.errors import BudgetReached
from tasks.llm.account import AskingEnded, CallLimits
from tasks.llm.quota import LocalQuota, NoQuota, Quota


async def one(quota: Quota, bound: int, billed: int) -> bool:
    """Whether a call was made."""
    try:
        ticket = await quota.reserve("m", bound, 0)
    except BudgetReached:
        return False
    await asyncio.sleep(0)
    await quota.settle(ticket, billed, 0)
    return True


def test_event_loops_in_several_threads_stay_within_one_budget() -> None:
    quota = LocalQuota(CallLimits(budget_tokens=1000))
    made: list[bool] = []

    async def many() -> None:
        made.extend(await asyncio.gather(*(one(quota.of("s"), 50, 10) for _ in range(40))))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count(True) == 96  # 960 are spent, and 50 more do not fit
    assert quota.spent()["s"].input_tokens == 960


def test_a_wait_that_is_given_up_holds_nobody_up() -> None:
    async def scene() -> None:
        quota = LocalQuota(CallLimits(budget_tokens=100))
        held = await quota.reserve("m", 60, 0)
        first = asyncio.ensure_future(quota.reserve("m", 90, 0))
        second = asyncio.ensure_future(quota.reserve("m", 30, 0))
        await asyncio.sleep(0.01)
        assert not first.done()
        assert not second.done()
        first.cancel()
        await asyncio.wait_for(second, 1)
        await quota.settle(held, 60, 0)
        assert quota.spent()[""].input_tokens == 90

    asyncio.run(scene())


def test_all_who_wait_hear_that_the_asking_has_ended() -> None:
    async def scene() -> None:
        quota = LocalQuota(CallLimits(requests_per_minute=1))
        await quota.reserve("m", 1, 0)
        waiting = [asyncio.ensure_future(quota.reserve("m", 1, 0)) for _ in range(3)]
        await asyncio.sleep(0.01)
        quota.end("enough")
        heard = await asyncio.gather(*waiting, return_exceptions=True)
        assert [(type(error), str(error)) for error in heard] == [(AskingEnded, "enough")] * 3
        quota.resume()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(quota.reserve("m", 1, 0), 0.01)

    asyncio.run(scene())


def test_a_pause_ends_by_itself() -> None:
    async def scene() -> None:
        quota = LocalQuota()
        await quota.pause(0.05)
        assert await one(quota, 1, 1)

    asyncio.run(scene())


def test_a_copy_in_another_process_may_ask_nothing() -> None:
    for quota in (LocalQuota(), LocalQuota().of("s")):
        copy = pickle.loads(pickle.dumps(quota))  # noqa: S301 - our own
        assert copy == NoQuota()
        with pytest.raises(RuntimeError, match="m was called where no calls are allowed"):
            asyncio.run(copy.reserve("m", 1, 1))
