"""A check that a worker of a shared cluster fits a run: it can open the store, and has the same code and libraries."""

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
"""Whether a process can open the store, the digest of its code, and its environment fingerprint."""


def describe_worker(store: str) -> Description:
    """Describe this process, for `misfit`. store: a path or URL."""
    sees = True
    try:
        open_store(store)
    except (IndexmillError, OSError):
        sees = False
    return sees, code_digest(), environment_fingerprint()


def misfit(actual: Description, expected: Description) -> str:
    """Return the first difference that makes a worker unfit; empty if there is none."""
    for name, value, required in zip(("sees the store", "code", "environment"), actual, expected, strict=True):
        if value != required:
            return f"{name}: found {value!r}, expected {required!r}"
    return ""


class WorkerCheck(WorkerPlugin):
    """Closes an unfit worker that joins a cluster during a run, before it takes any work.

    Sends the reason as an event on the topic `self.name`. A worker whose code cannot load this class does not start.
    """

    def __init__(self, run: str, store: str, expected: Description) -> None:
        self.name = f"indexmill-worker-check-{run}"
        self._run, self._store, self._expected = run, store, expected

    async def setup(self, worker: Worker) -> None:
        """Check a worker before its first task; Dask calls this on every worker, including one that joins later."""
        problem = misfit(describe_worker(self._store), self._expected)
        if problem:
            message = f"a worker on {socket.gethostname()} was closed, since it is not fit for this run: {problem}"
            logging.getLogger("distributed.worker").error("%s", message)
            worker.log_event(self.name, message)
            # A graceful close returns assigned tasks to the scheduler; after a plain close, they count as the cause of
            # the worker's death. The nanny answers only after the start, so this does not wait for the end.
            self._closing = asyncio.create_task(worker.close_gracefully(restart=False, reason=_REASON))
            while worker.status is not Status.closing and not self._closing.done():
                await asyncio.sleep(0.01)
            if worker.status is not Status.closing:
                self._closing = asyncio.create_task(worker.close(reason=_REASON))
                await asyncio.sleep(0)  # from here on, it takes no task

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerCheck, (self._run, self._store, self._expected)
