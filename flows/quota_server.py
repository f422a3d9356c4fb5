"""The quota server keeps the state of a run's quota, and serves it at the port of a Dask scheduler.

The state is in the process of the scheduler, which every worker can reach; a local cluster's scheduler is in the run's
own process. A plugin answers at the scheduler's port, protected like that port, and is removed together with the client
that installed it, even if the client is killed. When a worker's connection ends, its waiting requests are dropped and
its unsettled calls count as spent, since their cost is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distributed.comm.core import Comm
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from flows.quota_client import QuotaClient, name_of
from flows.shared_quota import AT_WORK, SharedQuota, begin, forget
from indexmill.errors import BadInput, IndexmillError
from tasks.core.environment import code_digest
from tasks.llm.account import CallLimits, Spent
from tasks.llm.quota import LocalQuota, Quota

if TYPE_CHECKING:
    from distributed import Client, Scheduler

_ANSWER = 30.0
"""The timeout of a scheduler's answer in seconds."""


class ClusterQuota:
    """The quota of a run on the cluster of a client, for the process that drives the run."""

    def __init__(self, client: Client, run: str, limits: CallLimits) -> None:
        """Install the server. Raises BadInput if the scheduler cannot run this code."""
        self._client, self._run = client, run
        self._address = str(client.scheduler_info(n_workers=0)["address"])
        try:
            client.register_plugin(_QuotaServer(run, limits, client.id, code_digest()), name=name_of(run))
        except IndexmillError:
            raise
        except Exception as error:  # unpickling there may raise any error
            raise BadInput(
                f"the Dask scheduler at {self._address} cannot keep the quota of the language model: start it where "
                f"this version of indexmill is installed, as its workers are ({type(error).__name__}: {error})"
            ) from error
        self._call("resume")

    def of(self, stage: str) -> Quota:
        return SharedQuota(self._run, stage, self._address)

    def spent(self) -> Mapping[str, Spent]:
        """Return the amounts spent until now, by stage; empty if the scheduler is gone."""
        return {stage: Spent(**numbers) for stage, numbers in (self._call("spent") or {}).items()}

    def end(self) -> None:
        self._call("end")

    def _call(self, method: str) -> Any:
        """Call a method of the quota in the scheduler; returns None if the scheduler is gone."""
        here = AT_WORK.get(self._run)
        if here is not None:
            return _plain(getattr(here, method)())
        with contextlib.suppress(OSError, IndexmillError, ValueError, RuntimeError):  # gone, or the client is closed
            return self._client.sync(self._ask_once, method, callback_timeout=_ANSWER)
        return None

    async def _ask_once(self, method: str) -> Any:
        connection = QuotaClient(self._run, self._address, self._client.security.get_connection_args("client"))
        try:
            return await connection.ask(method)
        finally:
            connection.close()


def _plain(result: Any) -> Any:
    """Convert the result of a LocalQuota method for a connection: amounts spent become plain numbers, by stage."""
    return {stage: asdict(spent) for stage, spent in result.items()} if isinstance(result, dict) else result


class _QuotaServer(SchedulerPlugin):
    """Serves the quota of a run in the scheduler's process while the client that installed it is connected."""

    idempotent = True

    def __init__(self, run: str, limits: CallLimits, client: str, code: str) -> None:
        self._run, self._limits, self._client, self._code = run, limits, client, code
        self.name = name_of(run)

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to answer; raises BadInput if the scheduler runs other code."""
        if (digest := code_digest()) != self._code:
            raise BadInput(
                f"the Dask scheduler is not fit for this run: code: found {digest!r}, expected {self._code!r}"
            )
        self._scheduler = scheduler
        self._quota = begin(self._run, self._limits)
        self._owners = itertools.count(1)
        self._comms: set[Comm] = set()
        scheduler.handlers[self.name] = self._serve

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        if client == self._client:
            scheduler.plugins.pop(self.name, None)
            self._leave()

    async def close(self) -> None:
        self._leave()

    def _leave(self) -> None:
        self._scheduler.handlers.pop(self.name, None)
        forget(self._run)
        for comm in self._comms:
            comm.abort()

    async def _serve(self, comm: Comm) -> Status:
        caller = _Caller(comm, self._quota, str(next(self._owners)))
        self._comms.add(comm)
        try:
            await caller.serve()
        finally:
            self._comms.discard(comm)
        return Status.dont_reply


_METHODS = frozenset({"reserve", "set_aside", "settle", "hold", "release", "pause", "ended", "spent", "end", "resume"})
"""The methods of LocalQuota that may be called through a connection."""


class _Caller:
    """The server's side of one connection. Messages are answered in any order; an answer has its message's number."""

    def __init__(self, comm: Comm, quota: LocalQuota, owner: str) -> None:
        self._comm, self._quota, self._owner = comm, quota, owner
        self._writing = asyncio.Lock()
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._tickets: dict[int, str] = {}  # tickets of unsettled calls, by the number of the request
        self._holders: dict[str, int] = {}  # the number of the request that holds each prompt

    async def serve(self) -> None:
        """Answer until the connection ends; then drop its waiting requests and count its unsettled calls as spent."""
        try:
            with contextlib.suppress(OSError):  # CommClosedError is an OSError
                await self._comm.write({"ready": True})
                while True:
                    message = await self._comm.read()
                    number = message.pop("number")
                    if message["do"] == "withdraw":
                        self._withdraw(number)
                        continue
                    self._requests[number] = task = asyncio.create_task(self._answer(number, message))
                    task.add_done_callback(functools.partial(self._forget, number))
        finally:
            for task in self._requests.values():
                task.cancel()
            self._quota.leave(self._owner)

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"number": number}
        try:
            reply["result"] = await self._do(number, **message)
        except Exception as error:  # otherwise the caller would wait forever
            reply["error"] = [type(error).__name__, str(error)]
        with contextlib.suppress(OSError):
            async with self._writing:
                await self._comm.write(reply)

    def _forget(self, number: int, _: asyncio.Task[None]) -> None:
        self._requests.pop(number, None)

    async def _do(self, number: int, do: str, **arguments: Any) -> Any:
        if do not in _METHODS:
            raise ValueError(f"not a method of a quota: {do}")
        if do in ("reserve", "set_aside"):
            ticket = await getattr(self._quota, do)(**arguments, owner=self._owner)
            self._tickets[number] = ticket
            return f"{number}/{ticket}"
        if do == "settle":
            request_number, _, arguments["ticket"] = arguments["ticket"].partition("/")
            if self._tickets.get(int(request_number)) == arguments["ticket"]:  # else it is an earlier connection's
                del self._tickets[int(request_number)]
        if do == "release":
            self._holders.pop(arguments["prompt"], None)
        if do in ("hold", "release"):
            arguments["owner"] = self._owner
        result = getattr(self._quota, do)(**arguments)
        if inspect.isawaitable(result):
            result = await result
        if do == "hold":
            self._holders[arguments["prompt"]] = number
        return _plain(result)

    def _withdraw(self, number: int) -> None:
        """Cancel a request for a call or a prompt; its answer may already be on its way."""
        if number in self._requests:
            self._requests[number].cancel()
        if number in self._tickets:
            self._quota.withdraw(self._tickets.pop(number))
        for prompt in [prompt for prompt, holder in self._holders.items() if holder == number]:
            del self._holders[prompt]
            self._quota.let_go(prompt, owner=self._owner)
