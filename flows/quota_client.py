"""The client of a run's quota server, with one connection for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import Mapping
from typing import Any

from distributed.comm.core import Comm, CommClosedError, connect
from distributed.security import Security
from distributed.worker import get_worker

from indexmill.errors import BudgetReached, ConfigurationError, IndexmillError
from tasks.llm.account import AskingEnded

_ATTEMPTS = 3
"""The number of attempts at a call before a broken connection becomes an error."""

_ERRORS: dict[str, type[IndexmillError]] = {
    error.__name__: error for error in (AskingEnded, BudgetReached, ConfigurationError)
}
"""The errors that the client raises again, by class name."""


def name_of(run: str) -> str:
    """Return the name by which a scheduler routes connections to a run's quota server."""
    return f"indexmill-quota-{run}"


_CLIENTS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, QuotaClient]] = weakref.WeakKeyDictionary()
"""The connections of this process, by event loop and run."""


def client_of(run: str, address: str | None, security: Security | None) -> QuotaClient:
    """Return the client of the running event loop for the quota of a run. address, security: as for `SharedQuota`."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if run not in clients:
        scheduler, security = scheduler_of(address, security)
        if scheduler is None:
            raise RuntimeError(f"run {run} has no quota here: no Dask scheduler is known in this process")
        arguments = security.get_connection_args("worker") if security else Security().get_connection_args("client")
        clients[run] = QuotaClient(run, scheduler, arguments)
    return clients[run]


def scheduler_of(address: str | None, security: Security | None) -> tuple[str | None, Security | None]:
    """Return the address of the scheduler as this process sees it, and the security of connections to it."""
    try:
        worker = get_worker()
    except ValueError:
        return address, security
    return str(worker.scheduler.address), worker.security


class QuotaClient:
    """The connection of one event loop to a quota server, opened on first use and closed with the loop."""

    def __init__(self, run: str, address: str, arguments: Mapping[str, Any]) -> None:
        self._run, self._address, self._arguments = run, address, arguments
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._lock = asyncio.Lock()
        self._comm: Comm | None = None
        self._reader: asyncio.Task[None] | None = None

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of the run's quota. Raises its error, or IndexmillError if the server cannot be reached."""
        broken: OSError | None = None
        for _ in range(_ATTEMPTS):
            try:
                return await self._request({"do": method, **arguments})
            except OSError as error:
                broken = error
        raise IndexmillError(
            f"the quota of the run cannot be reached at {self._address}: {broken}; run the build again"
        ) from broken

    async def _request(self, message: dict[str, Any]) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self._write({"number": number, **message})
            return await answer
        except asyncio.CancelledError:
            await self._withdraw(number)
            raise
        finally:
            del self._answers[number]

    async def _withdraw(self, number: int) -> None:
        """Cancel a request on the server; a closed connection has already cancelled it."""
        with contextlib.suppress(OSError):
            async with self._lock:
                if self._comm is not None and not self._comm.closed():
                    await self._comm.write({"number": number, "do": "withdraw"})

    async def _write(self, message: dict[str, Any]) -> None:
        async with self._lock:
            if self._comm is None or self._comm.closed():
                self._comm = await self._connected()
                self._reader = asyncio.create_task(self._read(self._comm))
            await self._comm.write(message)

    async def _connected(self) -> Comm:
        comm: Comm = await connect(self._address, **self._arguments)
        try:
            await comm.write({"op": name_of(self._run)})
            if await comm.read() != {"ready": True}:  # None: there is no such server
                raise AskingEnded("the run is over")
        except BaseException:
            comm.abort()
            raise
        return comm

    async def _read(self, comm: Comm) -> None:
        try:
            while True:
                reply = await comm.read()
                answer = self._answers.get(reply["number"])
                if answer is None or answer.done():
                    continue
                if "error" in reply:
                    kind, text = reply["error"]
                    answer.set_exception(_ERRORS.get(kind, IndexmillError)(text))
                else:
                    answer.set_result(reply["result"])
        except OSError as error:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(CommClosedError(str(error)))
        finally:
            comm.abort()
            _CLIENTS.pop(asyncio.get_running_loop(), None)  # a reference to the loop would keep it alive forever

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
