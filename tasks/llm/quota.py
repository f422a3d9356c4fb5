"""The quota that all workers of a run share for calls to a language model: the endpoint's rate limit and the budget.

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

from indexmill.errors import IndexmillError
from tasks.llm.account import Account, AskingEnded, CallLimits, Spent
from tasks.llm.at_work import PromptsAtWork
from tasks.llm.call_window import Outcome

_SHORTEST = 0.001
"""The shortest wait in seconds, which is the resolution of clocks."""


class NotAsked(IndexmillError, RuntimeError):
    """A call was made where no calls are allowed; no document is to blame."""


class Quota(Protocol):
    """A quota for calls. Picklable: a copy in another process shares the run's quota."""

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Wait until a call of at most these tokens may start, and reserve its cost; returns a ticket.

        A ticket is for one request, sent once. Raises BudgetReached if the remaining budget is less than the maximum
        cost of the call.
        """
        ...

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Reserve the maximum cost of a batch of calls, immediately and outside the rates; returns a ticket.

        Raises BudgetReached if the budget has no room now; a smaller batch may fit, and single calls continue.
        """
        ...

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        """Record what a reserved call or batch was billed, 0 tokens if it certainly was not, and how it ended."""
        ...

    async def hold(self, prompt: str) -> None:
        """Lock a prompt by its key, waiting until no other caller holds it; `release` unlocks it."""
        ...

    async def release(self, prompt: str) -> None:
        """Unlock a prompt; the next holder checks the ledger first."""
        ...

    async def pause(self, seconds: float, model: str = "") -> None:
        """Start no call of a model's endpoint for `seconds`, as it requested; "" means the language model's."""
        ...

    async def ended(self) -> None:
        """Wait until no more calls may start, then raise the error of `reserve`."""
        ...


class RunQuota(Protocol):
    """The quota of a run, in the process that drives the run."""

    def of(self, stage: str) -> Quota:
        """Return the quota for a stage's workers."""
        ...

    def spent(self) -> Mapping[str, Spent]:
        """Return the amounts spent so far, by stage."""
        ...

    def end(self) -> None:
        """Start no more calls on any worker: `reserve` raises AskingEnded."""
        ...


class LocalQuota:
    """The quota of one process, shared by its threads and event loops; without limits it only counts.

    clock: returns monotonic seconds. The object itself is a Quota without a stage; a copy in another process is a
    `NoQuota`. The methods of `Quota` accept an owner, whose calls `leave` drops.
    """

    def __init__(self, limits: CallLimits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._account = Account(limits or CallLimits())
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, concurrent.futures.Future[None]] = {}
        self._prompts = PromptsAtWork()

    def of(self, stage: str) -> Quota:
        """Return the quota for a stage."""
        return _OfStage(self, stage)

    async def reserve(
        self, model: str, input_tokens: int, output_tokens: int, *, stage: str = "", owner: str = ""
    ) -> str:
        """Wait until a call may start, and return its ticket; see `Quota`."""
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
        """Reserve the cost of a batch; see `Quota`."""
        with self._lock:
            return self._account.set_aside(owner, stage, model, input_tokens, output_tokens, self._clock())

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        self._change(lambda: self._account.settle(ticket, input_tokens, output_tokens, outcome))

    async def hold(self, prompt: str, *, owner: str = "") -> None:
        await self._prompts.hold(prompt, owner)

    async def release(self, prompt: str, *, owner: str = "") -> None:
        self.let_go(prompt, owner=owner)

    async def pause(self, seconds: float, model: str = "") -> None:
        self._change(lambda: self._account.pause(seconds, self._clock(), model))

    async def ended(self) -> None:
        end: concurrent.futures.Future[None] = concurrent.futures.Future()
        watch = f"watch-{id(end)}"  # not a ticket, so it is never started
        with self._lock:
            self._waiting[watch] = end
        try:
            self._start()
            await asyncio.wrap_future(end)
        finally:
            with self._lock:
                self._waiting.pop(watch, None)

    def let_go(self, prompt: str, *, owner: str = "") -> None:
        """Unlock a prompt, without `await`."""
        self._prompts.release(prompt, owner)

    def withdraw(self, ticket: str) -> None:
        with self._lock:
            self._waiting.pop(ticket, None)
            self._account.withdraw(ticket)
        self._start()

    def leave(self, owner: str) -> None:
        """Remove an owner: drop its waiting calls, count its running ones as spent, and unlock its prompts."""
        self._prompts.leave(owner)
        self._change(lambda: self._account.leave(owner))

    def spent(self) -> dict[str, Spent]:
        with self._lock:
            return self._account.spent()

    def end(self, why: str = "the run makes no more calls") -> None:
        self._change(lambda: self._account.end(AskingEnded(why)))

    def resume(self) -> None:
        with self._lock:
            self._account.resume()

    def _change(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
        self._start()

    def _start(self) -> float:
        """Start the calls that may start now; returns the seconds until more calls may start."""
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
    """A LocalQuota for one stage."""

    quota: LocalQuota
    stage: str

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self.quota.reserve(model, input_tokens, output_tokens, stage=self.stage)

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self.quota.set_aside(model, input_tokens, output_tokens, stage=self.stage)

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        await self.quota.settle(ticket, input_tokens, output_tokens, outcome)

    async def hold(self, prompt: str) -> None:
        await self.quota.hold(prompt)

    async def release(self, prompt: str) -> None:
        await self.quota.release(prompt)

    async def pause(self, seconds: float, model: str = "") -> None:
        await self.quota.pause(seconds, model)

    async def ended(self) -> None:
        await self.quota.ended()

    def __reduce__(self) -> tuple[Any, ...]:
        return NoQuota, ()


@dataclass(frozen=True)
class NoQuota:
    """The quota where no calls are allowed, such as in a plan."""

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        raise NotAsked(f"{model} was called where no calls are allowed")

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        raise NotAsked(f"{model} was called where no calls are allowed")

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        pass

    async def hold(self, prompt: str) -> None:
        pass

    async def release(self, prompt: str) -> None:
        pass

    async def pause(self, seconds: float, model: str = "") -> None:
        pass

    async def ended(self) -> None:
        await asyncio.Future()
