"""The limits and the spending of a run's calls to language models: a state machine without threads, tasks or a clock.

Calls queue first in, first out, in a lane for each endpoint. The first call of a lane starts once the rates allow it,
no pause is in effect, and the budget covers its maximum cost, which is reserved. Settling the call replaces the
reservation by the amount billed. A call that does not fit into the budget waits as long as running calls may still
cost less than was reserved for them. If it can no longer fit, no later call starts, however small.

A reservation that is never settled counts as spent, so the budget is never exceeded, even if a worker dies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from indexmill.errors import BudgetReached, ConfigurationError
from indexmill.models.chat_stream import LONGEST
from indexmill.text.counted import counted
from schemas.config import EmbedSettings, LlmSettings, Price
from tasks.llm.call_window import CallWindow, Outcome
from tasks.llm.token_bucket import TokenBucket


class AskingEnded(BudgetReached):
    """The run makes no more calls, for a reason other than the budget; the caller that ended it knows the reason."""


@dataclass(frozen=True)
class EndpointRates:
    """The limits of an endpoint per minute; None means no limit."""

    requests: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class CallLimits:
    """The limits on a run's calls; None means no limit.

    budget_cost: in the currency of `prices`, which are by model name. lapse: seconds after which an unsettled call is
    given up and counts as spent. rates: the limits of models at endpoints other than the language model's, by name.
    adapts: whether the number of calls at once adapts to each endpoint (`CallWindow`).
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_tokens: int | None = None
    budget_cost: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    lapse: float = 900.0
    rates: Mapping[str, EndpointRates] = field(default_factory=dict)
    adapts: bool = False

    @classmethod
    def of(cls, settings: LlmSettings, prices: Mapping[str, Price], embed: EmbedSettings | None = None) -> CallLimits:
        has_endpoint = embed is not None and embed.asks
        return cls(
            settings.requests_per_minute,
            settings.tokens_per_minute,
            settings.budget.tokens,
            settings.budget.cost,
            dict(prices),
            max(
                settings.deadline_seconds,
                (LONGEST + 1) * settings.timeout_seconds,
                embed.deadline_seconds if embed is not None and has_endpoint else 0.0,
            ),
            {embed.model: EndpointRates(embed.requests_per_minute, embed.tokens_per_minute)}
            if embed is not None and has_endpoint
            else {},
            adapts=True,
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of a stage: calls that were or may have been billed, their tokens, and their cost."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


def price_of(price: Price | None, input_tokens: int, output_tokens: int, *, batch: bool = False) -> Decimal:
    """Return the cost of tokens in a direct call or in a batch; 0 if the price is unknown."""
    if price is None:
        return Decimal(0)
    per_million = (Decimal(str(price.input_per_million)), Decimal(str(price.output_per_million)))
    factor = Decimal(str(price.batch_factor)) if batch else 1
    return factor * (per_million[0] * input_tokens + per_million[1] * output_tokens) / 1_000_000


@dataclass
class _Sum:
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def add(self, tokens: int, cost: Decimal, sign: int = 1) -> None:
        self.tokens += sign * tokens
        self.cost += sign * cost


@dataclass(slots=True)
class _Call:
    """A waiting or running call, with the maximum that it may be billed."""

    owner: str
    stage: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: Decimal
    batch: bool = False
    since: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class _Lane:
    """The waiting calls of one endpoint, first in, first out, its rates, and its window, None if nothing adapts."""

    def __init__(self, rates: EndpointRates, adapts: bool) -> None:
        self.window = CallWindow() if adapts else None
        self.waiting: dict[str, _Call] = {}
        self.requests, self.tokens = _bucket(rates.requests), _bucket(rates.tokens)
        self.paused = -math.inf


class Account:
    """The state of a run's calls. Times are seconds of any monotonic clock, the same for all methods."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        rates = {**limits.rates, "": EndpointRates(limits.requests_per_minute, limits.tokens_per_minute)}
        self._lanes = {name: _Lane(of_lane, limits.adapts) for name, of_lane in rates.items()}
        self._numbers = itertools.count(1)
        self._open: dict[str, _Call] = {}
        self._lapsed: dict[str, _Call] = {}
        self._settled: dict[tuple[str, str, bool], list[int]] = {}  # calls and tokens, by stage, model and batch
        self._spent, self._aside = _Sum(), _Sum()
        self.ended: BudgetReached | None = None
        """The reason why no further call starts; None while calls may start."""

    def request(self, owner: str, stage: str, model: str, input_tokens: int, output_tokens: int) -> str:
        """Queue a call of at most these tokens; returns its ticket. Raises ConfigurationError if a price is missing."""
        ticket, call = self._new(owner, stage, model, input_tokens, output_tokens)
        self._lane(model).waiting[ticket] = call
        return ticket

    def set_aside(self, owner: str, stage: str, model: str, input_tokens: int, output_tokens: int, now: float) -> str:
        """Reserve the maximum cost of a batch, ahead of waiting calls and outside the rates; returns its ticket.

        Raises BudgetReached if the budget has no room for it now; a smaller batch may still fit.
        """
        if self.ended is not None:
            raise type(self.ended)(str(self.ended))
        self._lapse(now)
        ticket, call = self._new(owner, stage, model, input_tokens, output_tokens, batch=True)
        if not self._fits(call, self._spent, self._aside):
            raise self._reached(call)
        self._open_up(ticket, call, now)
        return ticket

    def _new(
        self, owner: str, stage: str, model: str, input_tokens: int, output_tokens: int, *, batch: bool = False
    ) -> tuple[str, _Call]:
        if min(input_tokens, output_tokens) < 0:
            raise ValueError(f"negative token counts: {input_tokens} input, {output_tokens} output")
        price = self._limits.prices.get(model)
        if price is None and self._limits.budget_cost is not None:
            raise ConfigurationError(
                f"llm.budget.cost is set, but `prices` has no price for {model!r}: give its price per million tokens"
            )
        ticket = str(next(self._numbers))
        cost = price_of(price, input_tokens, output_tokens, batch=batch)
        return ticket, _Call(owner, stage, model, input_tokens, output_tokens, cost, batch)

    def _open_up(self, ticket: str, call: _Call, now: float) -> None:
        call.since = now
        if (window := self._window(call)) is not None:
            window.begin()
        self._open[ticket] = call  # in the order of `since`
        self._aside.add(call.tokens, call.cost)

    def start(self, now: float) -> list[str]:
        """Start the calls that may start now and return their tickets; after `ended` is set, drop all waiting calls."""
        self._lapse(now)
        started = [ticket for lane in self._lanes.values() for ticket in self._start(lane, now)]
        if self.ended is not None:
            for lane in self._lanes.values():
                lane.waiting.clear()
        return started

    def _start(self, lane: _Lane, now: float) -> list[str]:
        started = []
        while lane.waiting and self.ended is None:
            ticket, call = next(iter(lane.waiting.items()))
            if self._wait(lane, call, now) > 0:
                break
            del lane.waiting[ticket]
            self._open_up(ticket, call, now)
            for bucket, amount in ((lane.requests, 1), (lane.tokens, call.tokens)):
                if bucket is not None:
                    bucket.take(ticket, amount, now)
            started.append(ticket)
        return started

    def wait(self, now: float) -> float:
        """Return the seconds until `start` may start a call, if nothing else happens; infinity if it never may."""
        first = [(lane, next(iter(lane.waiting.values()))) for lane in self._lanes.values() if lane.waiting]
        waits = [self._wait(lane, call, now) if self.ended is None else math.inf for lane, call in first]
        return min(waits, default=math.inf)

    def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        """Record the billed tokens of a call; 0 if it certainly was not billed. The first settlement counts."""
        if min(input_tokens, output_tokens) < 0:
            raise ValueError(f"negative billed tokens: {input_tokens} input, {output_tokens} output")
        for calls, sums in ((self._open, self._aside), (self._lapsed, self._spent)):
            if ticket in calls:
                call = calls.pop(ticket)
                if calls is self._open and (window := self._window(call)) is not None:
                    window.end(outcome)
                sums.add(call.tokens, call.cost, -1)
                break
        else:
            return
        tokens = self._lane(call.model).tokens
        if tokens is not None:
            tokens.settle(ticket, input_tokens + output_tokens)
        if input_tokens or output_tokens:
            settled = self._settled.setdefault((call.stage, call.model, call.batch), [0, 0, 0])
            for place, number in enumerate((1, input_tokens, output_tokens)):
                settled[place] += number
            cost = price_of(self._limits.prices.get(call.model), input_tokens, output_tokens, batch=call.batch)
            self._spent.add(input_tokens + output_tokens, cost)

    def withdraw(self, ticket: str) -> None:
        """Cancel a call before it is made."""
        for lane in self._lanes.values():
            lane.waiting.pop(ticket, None)
        self.settle(ticket, 0, 0)

    def leave(self, owner: str) -> None:
        """Remove an owner: drop its waiting calls and count its running ones as spent."""
        for lane in self._lanes.values():
            lane.waiting = {ticket: call for ticket, call in lane.waiting.items() if call.owner != owner}
        for ticket in [ticket for ticket, call in self._open.items() if call.owner == owner]:
            self._give_up(ticket)

    def pause(self, seconds: float, now: float, model: str = "") -> None:
        """Start no call of a model's endpoint (default: the language model's) for `seconds` from `now`."""
        lane = self._lane(model)
        lane.paused = max(lane.paused, now + seconds)

    def end(self, error: BudgetReached) -> None:
        """Start no more calls; the first reason counts."""
        self.ended = self.ended or error

    def resume(self) -> None:
        """Allow calls again after `end`, unless the budget is the reason."""
        if isinstance(self.ended, AskingEnded):
            self.ended = None

    def spent(self) -> dict[str, Spent]:
        """Return the amounts spent, by stage; unsettled calls count with their full reservation."""
        total = {key: list(numbers) for key, numbers in self._settled.items()}
        for call in (*self._open.values(), *self._lapsed.values()):
            numbers = total.setdefault((call.stage, call.model, call.batch), [0, 0, 0])
            for place, number in enumerate((1, call.input_tokens, call.output_tokens)):
                numbers[place] += number
        stages: dict[str, Spent] = {}
        for (stage, model, batch), (calls, input_tokens, output_tokens) in total.items():
            before = stages.get(stage, Spent())
            stages[stage] = Spent(
                before.calls + calls,
                before.input_tokens + input_tokens,
                before.output_tokens + output_tokens,
                before.cost + float(price_of(self._limits.prices.get(model), input_tokens, output_tokens, batch=batch)),
            )
        return stages

    def _window(self, call: _Call) -> CallWindow | None:
        """Return the window in which a call counts; batches count in none."""
        return None if call.batch else self._lane(call.model).window

    def _lane(self, model: str) -> _Lane:
        return self._lanes[model if model in self._lanes else ""]

    def _wait(self, lane: _Lane, call: _Call, now: float) -> float:
        """Return the seconds until a call of a lane may start; ends all calls if the budget can never cover it."""
        if not self._fits(call, self._spent, self._aside):
            if not self._fits(call, self._spent):
                self.end(self._reached(call))
                return math.inf
            return next(iter(self._open.values())).since + self._limits.lapse - now
        if lane.window is not None and lane.window.is_full():
            return next(iter(self._open.values())).since + self._limits.lapse - now
        waits = [lane.paused - now]
        waits += [bucket.wait(1, now) for bucket in [lane.requests] if bucket is not None]
        waits += [bucket.wait(call.tokens, now) for bucket in [lane.tokens] if bucket is not None]
        return max(0.0, *waits)

    def _fits(self, call: _Call, *others: _Sum) -> bool:
        tokens = call.tokens + sum(total.tokens for total in others)
        cost = call.cost + sum((total.cost for total in others), Decimal(0))
        most_tokens, most_cost = self._limits.budget_tokens, self._limits.budget_cost
        return (most_tokens is None or tokens <= most_tokens) and (most_cost is None or cost <= Decimal(str(most_cost)))

    def _reached(self, call: _Call) -> BudgetReached:
        limits, calls = self._limits, sum(spent.calls for spent in self.spent().values())
        reasons = []
        if limits.budget_tokens is not None:
            reasons.append(
                f"{limits.budget_tokens:,} tokens: {self._spent.tokens:,} are spent and {self._aside.tokens:,} "
                f"reserved for running calls, the next call may take {call.tokens:,}"
            )
        if limits.budget_cost is not None:
            reasons.append(
                f"{limits.budget_cost:g} {limits.prices[call.model].currency}: {self._spent.cost:.4f} are spent and "
                f"{self._aside.cost:.4f} reserved for running calls, the next call may take {call.cost:.4f}"
            )
        if not self._fits(call):
            reasons.append("not even one such call fits: raise the budget")
        return BudgetReached(
            f"the budget for language models is reached after {counted(calls, 'call')} ({'; '.join(reasons)})"
        )

    def _lapse(self, now: float) -> None:
        while self._open:
            ticket, call = next(iter(self._open.items()))
            if call.since + self._limits.lapse > now:
                break
            self._give_up(ticket)

    def _give_up(self, ticket: str) -> None:
        call = self._lapsed[ticket] = self._open.pop(ticket)
        if (window := self._window(call)) is not None:
            window.end()
        self._aside.add(call.tokens, call.cost, -1)
        self._spent.add(call.tokens, call.cost)


def _bucket(limit: int | None) -> TokenBucket | None:
    return None if limit is None else TokenBucket(limit)
