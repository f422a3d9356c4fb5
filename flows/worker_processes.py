"""The worker processes of a private cluster: each is restarted when it ends, unless it cannot start.

Dask's nannies restart an ended process without limit, and report how it ended in their log only.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

from distributed import LocalCluster, Nanny, Status

_STARTS = 3
"""The number of consecutive failed starts after which a worker process is given up."""
_ENDS = 4
"""The number of ended processes that an error lists."""
_LOGGER = logging.getLogger("distributed.nanny")


class _WorkerNanny(Nanny):
    """A nanny that closes after several failed starts of its process in a row."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._starts = 0

    async def instantiate(self) -> Status:
        """Start the worker process, retrying a failed first start, for which Dask does not call this again."""
        if self._starts == _STARTS:
            await self.close(reason="the worker process does not start")
            return self.status
        self._starts += 1
        status = await super().instantiate()
        if status is Status.running:
            self._starts = 0
        elif self.status is Status.init:
            return await self.instantiate()
        return status


class _Ends(logging.Handler):
    """Keeps the log messages of nannies on how worker processes ended and why they did not start."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: deque[str] = deque(maxlen=_ENDS)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            self.messages.append(f"{type(error).__name__}: {error}")
        elif message.startswith("Worker process"):
            self.messages.append(message)


@contextlib.contextmanager
def recorded_ends() -> Iterator[deque[str]]:
    """Collect the last messages of nannies about ended processes during the block, hidden from other handlers."""
    handler, level, propagate = _Ends(), _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    _LOGGER.addHandler(handler)
    try:
        yield handler.messages
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.propagate = propagate
        _LOGGER.setLevel(level)


class PrivateCluster(LocalCluster):
    """A scheduler and worker processes on this machine. ends: messages about ended processes, updated live."""

    def __init__(self, ends: deque[str], **options: Any) -> None:
        self.ends = ends
        super().__init__(worker_class=_WorkerNanny, **options)

    @property
    def alive(self) -> bool:
        """False if no worker process runs and none is restarted."""
        return any(nanny.status not in (Status.closed, Status.failed) for nanny in list(self.workers.values()))
