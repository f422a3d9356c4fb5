"""One quota for all workers of a run: its state, and the handle that workers use.

The state is in the process of the Dask scheduler, which is the run's own process unless the cluster existed before.
This module imports Dask only when a worker makes a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.llm.account import CallLimits
from tasks.llm.call_window import Outcome
from tasks.llm.quota import LocalQuota

if TYPE_CHECKING:
    from distributed.security import Security

AT_WORK: dict[str, LocalQuota] = {}
"""The quotas whose state is in this process, by run."""


def begin(run: str, limits: CallLimits) -> LocalQuota:
    """Begin or resume the quota of a run, with its state in this process."""
    quota = AT_WORK.setdefault(run, LocalQuota(limits))
    quota.resume()
    return quota


def forget(run: str) -> None:
    """Drop the quota of a run that is over."""
    quota = AT_WORK.pop(run, None)
    if quota is not None:
        quota.end("the run is over")


@dataclass(frozen=True)
class SharedQuota:
    """A stage's handle for the quota of a run (see `Quota`), for any process of its cluster.

    address, security: those of the scheduler, for a process that is not a worker; by default from Dask's settings.
    """

    run: str
    stage: str
    address: str | None = None
    security: Security | None = None

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self._ticket("reserve", model, input_tokens, output_tokens)

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self._ticket("set_aside", model, input_tokens, output_tokens)

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        tokens = {"input_tokens": int(input_tokens), "output_tokens": int(output_tokens)}
        await self._call("settle", ticket=ticket, **tokens, outcome=outcome)

    async def hold(self, prompt: str) -> None:
        await self._call("hold", prompt=prompt)

    async def release(self, prompt: str) -> None:
        await self._call("release", prompt=prompt)

    async def pause(self, seconds: float, model: str = "") -> None:
        await self._call("pause", seconds=float(seconds), model=model)

    async def ended(self) -> None:
        await self._call("ended")

    async def _ticket(self, method: str, model: str, input_tokens: int, output_tokens: int) -> str:
        tokens = {"input_tokens": int(input_tokens), "output_tokens": int(output_tokens)}
        return str(await self._call(method, model=model, stage=self.stage, **tokens))

    async def _call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the run's LocalQuota, in this process or in the scheduler's."""
        here = AT_WORK.get(self.run)
        if here is not None:
            return await getattr(here, method)(**arguments)
        from flows.quota_client import client_of

        return await client_of(self.run, self.address, self.security).ask(method, **arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the scheduler's address, for child processes of a worker."""
        from flows.quota_client import scheduler_of

        return SharedQuota, (self.run, self.stage, *scheduler_of(self.address, self.security))
