"""The state of a run's asking, with a clock that the tests move."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import BudgetReached, ConfigurationError
from schemas.config import LlmSettings, Price
from tasks.llm.account import Account, AskingEnded, CallLimits, EndpointRates, Spent, price_of
from tests.deep import examples

PRICE = Price(input_per_million=0.15, output_per_million=0.60)


def account(**limits: object) -> Account:
    return Account(CallLimits(**{"prices": {"m": PRICE}, **limits}))  # type: ignore[arg-type]


def ask(account: Account, tokens: int, output: int = 0, owner: str = "", stage: str = "s") -> str:
    return account.request(owner, stage, "m", tokens, output)


def test_without_limits_every_call_starts_and_is_counted() -> None:
    free = account()
    tickets = [ask(free, 1000, 200) for _ in range(3)]
    assert free.start(0.0) == tickets
    free.settle(tickets[0], 900, 100)
    free.settle(tickets[1], 0, 0)  # not billed
    assert free.spent() == {"s": Spent(2, 1900, 300, pytest.approx((1900 * 0.15 + 300 * 0.6) / 1e6))}
    free.settle(tickets[2], 10, 10)
    free.settle(tickets[2], 500, 500)  # the first word counts
    assert free.spent()["s"].input_tokens == 910


def test_calls_start_in_the_order_in_which_they_came() -> None:
    tight = account(budget_tokens=100)
    first, large, small = ask(tight, 60), ask(tight, 80), ask(tight, 10)
    assert tight.start(0.0) == [first]  # the small one would fit
    assert tight.ended is None
    tight.settle(first, 20, 0)
    assert tight.start(0.0) == [large]
    tight.settle(large, 70, 0)
    assert tight.start(0.0) == [small]


def test_a_call_that_cannot_fit_any_more_ends_the_asking() -> None:
    tight = account(budget_tokens=100)
    first = ask(tight, 60)
    ask(tight, 41)
    ask(tight, 1)  # would fit
    assert tight.start(0.0) == [first]
    tight.settle(first, 60, 0)
    assert tight.start(0.0) == []
    assert isinstance(tight.ended, BudgetReached)
    assert "100 tokens: 60 are spent and 0 reserved for running calls, the next call may take 41" in str(tight.ended)
    assert "after 1 call " in str(tight.ended)
    ask(tight, 1)
    assert (tight.start(1e9), tight.wait(1e9)) == ([], math.inf)
    tight.resume()
    assert tight.ended is not None


def test_what_was_never_settled_is_spent_and_nobody_waits_for_it_for_ever() -> None:
    tight = account(budget_tokens=100, lapse=900.0)
    lost, later = ask(tight, 60), ask(tight, 30, 20)
    assert tight.start(5.0) == [lost]
    assert tight.wait(5.0) == 900.0
    assert tight.start(905.0) == []
    assert isinstance(tight.ended, BudgetReached)  # 60 + 50 > 100
    assert tight.spent()["s"].input_tokens == 60
    tight.settle(lost, 1, 0)  # it lives after all
    assert tight.spent()["s"].input_tokens == 1
    assert later


def test_what_the_dead_had_under_way_is_spent_and_what_they_waited_for_is_dropped() -> None:
    tight = account(budget_tokens=100)
    lost = ask(tight, 60, owner="dead")
    ask(tight, 90, owner="dead")
    mine = ask(tight, 40, owner="alive")
    assert tight.start(0.0) == [lost]
    tight.leave("dead")
    assert tight.start(0.0) == [mine]
    tight.settle(mine, 0, 0)
    assert [ask(tight, 41)] != tight.start(0.0)
    assert isinstance(tight.ended, BudgetReached)


def test_who_gives_a_call_up_before_it_is_made_pays_nothing() -> None:
    tight = account(budget_tokens=100)
    first, second, third = ask(tight, 100), ask(tight, 100), ask(tight, 100)
    assert tight.start(0.0) == [first]
    tight.withdraw(second)
    tight.withdraw(first)
    assert tight.start(0.0) == [third]
    assert tight.spent()["s"].calls == 1


def test_a_pause_holds_back_all_calls_and_a_shorter_one_does_not_shorten_it() -> None:
    one = account()
    one.pause(600, 10.0)
    one.pause(5, 11.0)
    ticket = ask(one, 1)
    assert one.start(11.0) == []
    assert one.wait(11.0) == 599.0
    assert one.start(610.0) == [ticket]


def test_an_encoder_has_rates_and_pauses_of_its_own_and_shares_the_budget() -> None:
    both = account(requests_per_minute=60, rates={"e": EndpointRates(requests=600)}, budget_tokens=1000)
    words = [ask(both, 10) for _ in range(6)]
    vectors = [both.request("", "s", "e", 100, 0) for _ in range(3)]
    assert both.start(0.0) == [*vectors, *words[:5]]  # five seconds' worth of either
    both.pause(600, 0.0, "e")
    both.request("", "s", "e", 1, 0)
    assert both.start(1.5) == [words[5]]
    assert both.wait(2.0) == 598.0
    for ticket in vectors:
        both.settle(ticket, 400, 0)
    ask(both, 10)
    assert both.start(700.0) == []
    assert isinstance(both.ended, BudgetReached)


def test_a_budget_in_money_is_exact() -> None:
    cost = price_of(PRICE, 1000, 100)
    assert cost == Decimal("0.00021")
    tight = account(budget_cost=0.00063)
    tickets = [ask(tight, 1000, 100) for _ in range(4)]
    assert tight.start(0.0) == tickets[:3]
    for ticket in tickets[:3]:
        tight.settle(ticket, 1000, 100)
    assert tight.start(0.0) == []
    assert "0.00063 USD: 0.0006 are spent and 0.0000 reserved" in str(tight.ended)


def test_a_budget_in_money_needs_a_price() -> None:
    with pytest.raises(ConfigurationError, match=r"`prices` has no price for 'other'"):
        account(budget_cost=1.0).request("", "s", "other", 1, 1)


def test_what_was_ended_may_be_resumed() -> None:
    one = account()
    one.end(AskingEnded("enough"))
    dropped = ask(one, 1)
    assert one.start(0.0) == []
    one.resume()
    ticket = ask(one, 1)
    assert one.start(0.0) == [ticket]
    assert dropped != ticket


def test_the_calls_at_once_adapt_to_each_endpoint() -> None:
    both = account(adapts=True, rates={"e": EndpointRates()}, lapse=900.0)
    words = [ask(both, 1) for _ in range(11)]
    vectors = [both.request("", "s", "e", 1, 0) for _ in range(3)]
    assert both.start(0.0) == [*vectors[:2], *words[:2]]
    assert both.wait(0.0) == 900.0
    for number in range(3):
        both.settle(words[number], 1, 0, "answered")
        assert both.start(1.0) == [words[number + 2]]
    both.settle(words[3], 1, 0, "answered")
    assert both.start(2.0) == words[5:8]  # four at once
    for ticket in words[4:8]:
        both.settle(ticket, 0, 0, "overloaded")
    assert both.start(3.0) == words[8:10]
    both.leave("")
    assert both.start(4.0) == []
    later = ask(both, 1)
    assert both.start(5.0) == [later]  # calls that are given up free their places


def test_the_limits_are_those_of_the_settings() -> None:
    settings = LlmSettings.model_validate(
        {"requests_per_minute": 3, "tokens_per_minute": 5, "budget": {"tokens": 7, "cost": 0.5}, "deadline_seconds": 9}
    )
    assert CallLimits.of(settings, {}).lapse == 16 * settings.timeout_seconds  # the longest call
    settings = settings.model_copy(update={"timeout_seconds": 0.5})
    assert CallLimits.of(settings, {"m": PRICE}) == CallLimits(3, 5, 7, 0.5, {"m": PRICE}, 9, adapts=True)


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 400), st.integers(0, 100), st.integers(0, 2)),
    st.tuples(st.just("settle"), st.integers(0, 50), st.floats(0, 1), st.just(0)),
    st.tuples(st.just("withdraw"), st.integers(0, 50), st.just(0), st.just(0)),
    st.tuples(st.just("leave"), st.integers(0, 2), st.just(0), st.just(0)),
    st.tuples(st.just("pause"), st.integers(0, 100), st.just(0), st.just(0)),
    st.tuples(st.just("pass"), st.floats(0, 40), st.just(0), st.just(0)),
)


@examples(20, deep=100)
@given(
    st.lists(STEPS, max_size=60),
    st.integers(0, 3000),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.integers(50, 2000)),
)
def test_whatever_happens_budget_and_rates_hold_and_nobody_overtakes(
    steps: list[tuple[str, float, float, int]], budget: int, per_minute: int | None, tokens_per_minute: int | None
) -> None:
    """The truth beside the account: what each call was really billed, also those of the dead, at most what it said."""
    one = account(budget_tokens=budget, requests_per_minute=per_minute, tokens_per_minute=tokens_per_minute, lapse=200)
    now, paused = 0.0, -1.0
    bounds: dict[str, int] = {}
    owners: dict[str, str] = {}
    billed: dict[str, int] = {}  # what each that started was or may have been billed
    order: list[str] = []
    starts: dict[str, float] = {}

    def start() -> None:
        for ticket in one.start(now):
            assert now >= paused
            billed[ticket], starts[ticket] = bounds[ticket], now
            order.append(ticket)
            assert sum(billed.values()) <= budget

    for what, first, second, who in steps:
        if what == "ask":
            ticket = one.request(str(who), "s", "m", int(first), int(second))
            bounds[ticket], owners[ticket] = int(first + second), str(who)
        elif what == "pass":
            now += first
        elif what == "pause":
            one.pause(first, now)
            paused = max(paused, now + first)
        elif what == "leave":
            one.leave(str(first))
        elif order:
            ticket = order[int(first) % len(order)]
            if what == "settle" and billed[ticket] == bounds[ticket]:
                billed[ticket] = int(bounds[ticket] * second)
                one.settle(ticket, billed[ticket], 0)
            elif what == "withdraw" and billed[ticket] == bounds[ticket]:
                billed[ticket] = 0
                one.withdraw(ticket)
        start()
    told = one.spent().get("s", Spent())
    assert told.input_tokens + told.output_tokens == sum(billed.values())
    assert order == sorted(order, key=int)
    for at in starts.values():
        minute = [ticket for ticket, when in starts.items() if at - 60 + 1e-6 < when <= at]
        assert per_minute is None or len(minute) <= per_minute
        used = sum(billed[ticket] for ticket in minute)
        assert (
            tokens_per_minute is None or used <= tokens_per_minute or len([one for one in minute if billed[one]]) == 1
        )


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(0, 5000), st.integers(1, 20))
def test_every_call_starts_or_the_budget_is_reached(tokens: list[int], budget: int, per_minute: int) -> None:
    one = account(budget_tokens=budget, requests_per_minute=per_minute, tokens_per_minute=400)
    waiting = [ask(one, number) for number in tokens]
    bounds = dict(zip(waiting, tokens, strict=True))
    now, spent = 0.0, 0
    for _ in range(2000):
        for ticket in one.start(now):
            waiting.remove(ticket)
            one.settle(ticket, bounds[ticket] // 2, 0)
            spent += bounds[ticket] // 2
        if one.ended is not None or not waiting:
            break
        now += max(one.wait(now), 0.001)
    if waiting:
        assert isinstance(one.ended, BudgetReached)
        assert spent + bounds[waiting[0]] > budget


def test_a_batch_is_set_aside_at_once_or_not_at_all() -> None:
    tight = account(budget_tokens=100, requests_per_minute=1)
    call = ask(tight, 30)
    assert tight.start(0.0) == [call]
    batch = tight.set_aside("", "s", "m", 60, 10, 0.0)
    with pytest.raises(BudgetReached, match="may take 1"):
        tight.set_aside("", "s", "m", 1, 0, 0.0)
    assert tight.ended is None
    tight.start(5000.0)  # long after a single call would have been given up
    tight.settle(batch, 20, 5)
    assert tight.set_aside("", "s", "m", 45, 0, 5000.0)
