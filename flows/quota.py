"""One quota for all workers of a run: its state where they can reach it, and the handle that they are given.

The state is in the process of the Dask scheduler, which is that of the run unless the cluster was there before. Nothing
here needs Dask until a worker asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.llm.quota import Limits, LocalQuota

if TYPE_CHECKING:
    from distributed.security import Security

__all__ = ["AT_WORK", "SharedQuota", "begin", "forget"]

AT_WORK: dict[str, LocalQuota] = {}
"""The quotas whose state is in this process, by run."""


def begin(run: str, limits: Limits) -> LocalQuota:
    """The quota of a run, its state in this process; one that had ended goes on."""
    quota = AT_WORK.setdefault(run, LocalQuota(limits))
    quota.resume()
    return quota


def forget(run: str) -> None:
    """The run is over."""
    quota = AT_WORK.pop(run, None)
    if quota is not None:
        quota.end("the run is over")


@dataclass(frozen=True)
class SharedQuota:
    """A stage's handle of the quota of a run, for any process of its cluster.

    address, security: where the scheduler is and how connections to it are secured (by default as Dask's settings say),
    for a process that is no worker; a worker knows both better.
    """

    run: str
    stage: str
    address: str | None = None
    security: Security | None = None

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Wait for a call's turn; see `Quota`."""
        return await self._ticket("reserve", model, input_tokens, output_tokens)

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        """Set the cost of a batch aside; see `Quota`."""
        return await self._ticket("set_aside", model, input_tokens, output_tokens)

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int) -> None:
        """Settle a call; see `Quota`."""
        await self._call("settle", ticket=ticket, input_tokens=int(input_tokens), output_tokens=int(output_tokens))

    async def hold(self, prompt: str) -> None:
        """Wait until nobody else asks a prompt; see `Quota`."""
        await self._call("hold", prompt=prompt)

    async def release(self, prompt: str) -> None:
        """Let others ask a prompt; see `Quota`."""
        await self._call("release", prompt=prompt)

    async def pause(self, seconds: float) -> None:
        """Pause all calls; see `Quota`."""
        await self._call("pause", seconds=float(seconds))

    async def ended(self) -> None:
        """Wait for the end of the asking; see `Quota`."""
        await self._call("ended")

    async def _ticket(self, method: str, model: str, input_tokens: int, output_tokens: int) -> str:
        tokens = {"input_tokens": int(input_tokens), "output_tokens": int(output_tokens)}
        return str(await self._call(method, model=model, stage=self.stage, **tokens))

    async def _call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the run's LocalQuota, here or where the scheduler is."""
        here = AT_WORK.get(self.run)
        if here is not None:
            return await getattr(here, method)(**arguments)
        from flows.quota_client import client_of

        return await client_of(self.run, self.address, self.security).ask(method, **arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """What a worker hands on to a process of its own, which is no worker, knows the way."""
        from flows.quota_client import scheduler_of

        return SharedQuota, (self.run, self.stage, *scheduler_of(self.address, self.security))
