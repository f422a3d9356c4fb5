"""What all workers of a run share while they ask a language model: the rate that the endpoint allows, and the budget.

`flows` implements the protocol once for the whole cluster; `LocalQuota` serves one process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.llm.account import Account, AskingEnded, Limits, Spent
from tasks.llm.at_work import PromptsAtWork

__all__ = ["AskingEnded", "Limits", "LocalQuota", "NoQuota", "Quota", "RunQuota", "Spent"]

_SHORTEST = 0.001
"""Seconds: clocks are not finer than that."""


class Quota(Protocol):
    """Picklable: a copy in another process speaks for the same run."""

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Wait until a call of at most so many tokens may start, and set its cost aside; returns a ticket.

        One ticket is one request that is sent once. Raises BudgetReached where the rest of the budget is less than the
        call may cost.
        """
        ...

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Set aside what a batch of calls may cost, at once and outside the rates; returns a ticket.

        Raises BudgetReached where the budget has no room for it now. For less it may have, and single calls go on.
        """
        ...

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int) -> None:
        """Say what a reserved call, or a batch, was billed; nothing where it certainly was not."""
        ...

    async def hold(self, prompt: str) -> None:
        """Wait until nobody else asks a prompt, named by its key; then ask it, and `release` it."""
        ...

    async def release(self, prompt: str) -> None:
        """Let others ask a held prompt, who look into the ledger first."""
        ...

    async def pause(self, seconds: float) -> None:
        """Start no further call for so long: the endpoint said so."""
        ...

    async def ended(self) -> None:
        """Wait until no further call may start; raises what `reserve` would."""
        ...


class RunQuota(Protocol):
    """The quota of a run, as the process sees it that drives the run."""

    def of(self, stage: str) -> Quota:
        """What a stage's workers are given."""
        ...

    def spent(self) -> Mapping[str, Spent]:
        """What was spent until now, by stage."""
        ...

    def end(self) -> None:
        """Start no further call, wherever: `reserve` raises AskingEnded."""
        ...


class LocalQuota:
    """The quota of one process, shared by its threads and event loops; without limits it only counts.

    clock: seconds that only grow. It is a Quota itself, of no stage. A copy in another process is a `NoQuota`.
    """

    def __init__(self, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._account = Account(limits or Limits())
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, concurrent.futures.Future[None]] = {}
        self._prompts = PromptsAtWork()

    def of(self, stage: str) -> Quota:
        """The quota as a stage's."""
        return _OfStage(self, stage)

    async def reserve(
        self, model: str, input_tokens: int, output_tokens: int, *, stage: str = "", owner: str = ""
    ) -> str:
        """Wait for a call's turn; see `Quota`. owner: whom `leave` names."""
        turn: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            ticket = self._account.request(owner, stage, model, input_tokens, output_tokens)
            self._waiting[ticket] = turn
        waiting = asyncio.wrap_future(turn)
        try:
            while not turn.done():
                wait = self._start()
                await asyncio.wait({waiting}, timeout=None if math.isinf(wait) else max(wait, _SHORTEST))
            await waiting
        except asyncio.CancelledError:
            waiting.cancel()
            self.withdraw(ticket)
            raise
        return ticket

    async def set_aside(
        self, model: str, input_tokens: int, output_tokens: int, *, stage: str = "", owner: str = ""
    ) -> str:
        """Set the cost of a batch aside; see `Quota`."""
        with self._lock:
            return self._account.set_aside(owner, stage, model, input_tokens, output_tokens, self._clock())

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int) -> None:
        """Settle a call; see `Quota`."""
        self._change(lambda: self._account.settle(ticket, input_tokens, output_tokens))

    async def hold(self, prompt: str, *, owner: str = "") -> None:
        """Wait until nobody else asks a prompt; see `Quota`."""
        await self._prompts.hold(prompt, owner)

    async def release(self, prompt: str, *, owner: str = "") -> None:
        """Let others ask a prompt; see `Quota`."""
        self.let_go(prompt, owner=owner)

    async def pause(self, seconds: float) -> None:
        """Pause all calls; see `Quota`."""
        self._change(lambda: self._account.pause(seconds, self._clock()))

    async def ended(self) -> None:
        """Wait for the end of the asking; see `Quota`."""
        end: concurrent.futures.Future[None] = concurrent.futures.Future()
        watch = f"watch-{id(end)}"  # no ticket: its turn never comes
        with self._lock:
            self._waiting[watch] = end
        try:
            self._start()
            await asyncio.wrap_future(end)
        finally:
            with self._lock:
                self._waiting.pop(watch, None)

    def let_go(self, prompt: str, *, owner: str = "") -> None:
        """`release`, for who does not wait."""
        self._prompts.release(prompt, owner)

    def withdraw(self, ticket: str) -> None:
        """A call was given up before it was made."""
        with self._lock:
            self._waiting.pop(ticket, None)
            self._account.withdraw(ticket)
        self._start()

    def leave(self, owner: str) -> None:
        """An owner of calls is gone: what it waited for is dropped, what it had under way is spent."""
        self._prompts.leave(owner)
        self._change(lambda: self._account.leave(owner))

    def spent(self) -> dict[str, Spent]:
        """What was spent until now, by stage."""
        with self._lock:
            return self._account.spent()

    def end(self, why: str = "the run has stopped asking") -> None:
        """Start no further call."""
        self._change(lambda: self._account.end(AskingEnded(why)))

    def resume(self) -> None:
        """Go on after `end`."""
        with self._lock:
            self._account.resume()

    def _change(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
        self._start()

    def _start(self) -> float:
        """Start what may start; the seconds until there may be more."""
        with self._lock:
            now = self._clock()
            started = [self._waiting.pop(ticket) for ticket in self._account.start(now)]
            ended, refused = self._account.ended, list[concurrent.futures.Future[None]]()
            if ended is not None:
                refused, self._waiting = list(self._waiting.values()), {}
            wait = self._account.wait(now)
        for turn in started:
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
        for turn in refused:
            if ended is not None and turn.set_running_or_notify_cancel():
                turn.set_exception(type(ended)(str(ended)))
        return wait

    def __reduce__(self) -> tuple[Any, ...]:
        return NoQuota, ()


@dataclass(frozen=True)
class _OfStage:
    """A LocalQuota as a stage's."""

    quota: LocalQuota
    stage: str

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self.quota.reserve(model, input_tokens, output_tokens, stage=self.stage)

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self.quota.set_aside(model, input_tokens, output_tokens, stage=self.stage)

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int) -> None:
        await self.quota.settle(ticket, input_tokens, output_tokens)

    async def hold(self, prompt: str) -> None:
        await self.quota.hold(prompt)

    async def release(self, prompt: str) -> None:
        await self.quota.release(prompt)

    async def pause(self, seconds: float) -> None:
        await self.quota.pause(seconds)

    async def ended(self) -> None:
        await self.quota.ended()

    def __reduce__(self) -> tuple[Any, ...]:
        return NoQuota, ()


@dataclass(frozen=True)
class NoQuota:
    """The quota of who may ask nothing, such as a plan."""

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        raise RuntimeError(f"{model} was to be asked where nothing may be asked")

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        raise RuntimeError(f"{model} was to be asked where nothing may be asked")

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int) -> None:
        pass

    async def hold(self, prompt: str) -> None:
        pass

    async def release(self, prompt: str) -> None:
        pass

    async def pause(self, seconds: float) -> None:
        pass

    async def ended(self) -> None:
        await asyncio.Future()
