"""Gathering questions: groups, isolation, bounds, and nothing lost or mixed up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import BadInput
from indexmill.serve.batching import QuestionBatcher
from indexmill.serve.limits import CallerRates, ServerLimits
from indexmill.serve.rejections import Busy, TooMany


def find(way: str, questions: Sequence[str]) -> list[str]:
    if any(question == "bad" for question in questions):
        raise BadInput("bad")
    return [f"{way}:{question}" for question in questions]


def made(
    on_batch: Callable[[int, float], None] | None = None, at_once: int = 1, waiting: int = 1000
) -> QuestionBatcher[str, str]:
    return QuestionBatcher(find, most=4, at_once=at_once, waiting=waiting, on_batch=on_batch)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["q", "r", "bad", ""])), max_size=40), st.integers(1, 3)
)
def test_each_question_gets_what_it_gets_alone(asked: list[tuple[str, str]], at_once: int) -> None:
    sizes: list[int] = []

    async def all_of_them() -> list[tuple[str, int] | BaseException]:
        batcher = made(lambda size, seconds: sizes.append(size), at_once)
        try:
            return await asyncio.gather(*(batcher.ask(*one) for one in asked), return_exceptions=True)
        finally:
            batcher.close()
            assert batcher.waiting == 0

    for (way, question), result in zip(asked, asyncio.run(all_of_them()), strict=True):
        if question == "bad":
            assert isinstance(result, BadInput)
        else:
            assert isinstance(result, tuple)
            assert result[0] == f"{way}:{question}"
    assert sum(sizes) == len(asked)
    assert all(1 <= size <= 4 for size in sizes)


def test_what_comes_while_a_batch_runs_goes_together_and_too_many_are_refused() -> None:
    began, free = threading.Event(), threading.Event()
    batches: list[tuple[str, int]] = []

    def slow(way: str, questions: Sequence[str]) -> list[str]:
        batches.append((way, len(questions)))
        began.set()
        free.wait(10)
        return list(questions)

    async def play() -> None:
        batcher: QuestionBatcher[str, str] = QuestionBatcher(slow, most=4, at_once=1, waiting=5)
        first = asyncio.create_task(batcher.ask("a", "1"))
        await asyncio.to_thread(began.wait)  # an idle batcher waits for nothing
        others = [asyncio.create_task(batcher.ask(way, str(n))) for n, way in enumerate("abaab")]
        await asyncio.sleep(0)
        assert batcher.waiting == 5
        with pytest.raises(Busy, match="5 questions are waiting"):
            await batcher.ask("a", "x")
        others[0].cancel()  # its caller has left
        await asyncio.sleep(0)
        free.set()
        assert await first == ("1", 1)
        assert await asyncio.gather(*others[1:]) == [("1", 2), ("2", 2), ("3", 2), ("4", 2)]
        batcher.close()

    asyncio.run(play())
    assert batches == [("a", 1), ("a", 2), ("b", 2)]


def test_a_caller_has_a_burst_and_then_a_rate() -> None:
    now = [0.0]
    rates = CallerRates(2, lambda: now[0])
    for _ in range(4):
        rates.take("one")
    with pytest.raises(TooMany, match="2 requests a second") as raised:
        rates.take("one")
    assert raised.value.retry_after == pytest.approx(0.5)
    rates.take("other")
    now[0] += 0.5
    rates.take("one")
    with pytest.raises(TooMany):
        rates.take("one")
    CallerRates(None, lambda: 0.0).take("anyone")


def test_limits_that_cannot_be_are_refused() -> None:
    for wrong in ({"k": 0}, {"seconds": 0.0}, {"rate": -1.0}, {"batch": 0}):
        with pytest.raises(BadInput, match="expected"):
            ServerLimits(**wrong)  # type: ignore[arg-type]
