"""Prompts at work: one asker at a time, in the order of the line, whoever gives up or goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from tasks.llm.at_work import PromptsAtWork


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def lined_up(prompts: PromptsAtWork, owners: Sequence[str]) -> list[asyncio.Future[None]]:
    return [asyncio.ensure_future(prompts.hold("p", owner)) for owner in owners]


def test_one_after_the_other_and_other_prompts_at_once() -> None:
    async def scene() -> None:
        prompts = PromptsAtWork()
        await prompts.hold("p", "a")
        await prompts.hold("q", "b")
        second, third = lined_up(prompts, "bc")
        await settled()
        assert not second.done()
        prompts.release("p", "b")  # waits, and holds nothing
        await settled()
        assert not second.done()
        prompts.release("p", "a")
        await second
        assert not third.done()
        prompts.release("p", "b")
        await third

    asyncio.run(scene())


def test_who_gives_up_or_goes_holds_nobody_up() -> None:
    async def scene() -> None:
        prompts = PromptsAtWork()
        await prompts.hold("p", "a")
        second, third, fourth, fifth = lined_up(prompts, "bcbd")
        await settled()
        third.cancel()
        prompts.leave("b")
        await settled()
        assert not fifth.done()
        prompts.leave("a")
        await fifth
        assert not second.done()
        assert not fourth.done()
        for one in (second, fourth):
            one.cancel()
        prompts.release("p", "d")
        await prompts.hold("p", "e")

    asyncio.run(scene())


def test_threads_share_the_lines() -> None:
    prompts, inside, most = PromptsAtWork(), [0], [0]

    async def one(owner: str) -> None:
        for _ in range(20):
            await prompts.hold("p", owner)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            await asyncio.sleep(0)
            inside[0] -= 1
            prompts.release("p", owner)

    threads = [threading.Thread(target=lambda name=str(n): asyncio.run(one(name))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
