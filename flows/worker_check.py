"""Whether a worker of a shared cluster is fit for a run: it sees the store, and runs the same code and libraries."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from distributed import Status, Worker, WorkerPlugin

from indexmill.errors import IndexmillError
from storage.stores import open_store
from tasks.core.environment import code_digest, environment_fingerprint

_REASON = "unfit for a run of indexmill"

Description = tuple[bool, str, dict[str, str]]
"""Whether a process sees the store, the digest of its code, and its environment fingerprint."""


def describe_worker(store: str) -> Description:
    """The description of this process. store: a path or URL."""
    sees = True
    try:
        open_store(store)
    except (IndexmillError, OSError):
        sees = False
    return sees, code_digest(), environment_fingerprint()


def misfit(found: Description, expected: Description) -> str:
    """The first difference that makes a worker unfit; empty if there is none."""
    for what, one, other in zip(("sees the store", "code", "environment"), found, expected, strict=True):
        if one != other:
            return f"{what}: found {one!r}, expected {other!r}"
    return ""


class WorkerCheck(WorkerPlugin):
    """Closes a worker that joins a cluster during a run and is not fit for it, before it takes any work.

    It says so in a text on the topic that is its name. A worker whose code cannot even load this class does not start.
    """

    def __init__(self, run: str, store: str, expected: Description) -> None:
        self.name = f"indexmill-worker-check-{run}"
        self._run, self._store, self._expected = run, store, expected

    async def setup(self, worker: Worker) -> None:
        """Called on every worker, also on one that joins later, before its first task."""
        problem = misfit(describe_worker(self._store), self._expected)
        if problem:
            message = f"a worker on {socket.gethostname()} was closed, since it is not fit for this run: {problem}"
            logging.getLogger("distributed.worker").error("%s", message)
            worker.log_event(self.name, message)
            # The scheduler takes back what it has given to the worker already; where a worker just closes, that work is
            # blamed for its death. The nanny answers once the start is over, so the end is not waited for here.
            self._closing = asyncio.create_task(worker.close_gracefully(restart=False, reason=_REASON))
            while worker.status is not Status.closing and not self._closing.done():
                await asyncio.sleep(0.01)
            if worker.status is not Status.closing:
                self._closing = asyncio.create_task(worker.close(reason=_REASON))
                await asyncio.sleep(0)  # it takes no task from now on

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerCheck, (self._run, self._store, self._expected)
