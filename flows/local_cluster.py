"""A Dask cluster of processes on this machine that speaks TLS alone: neither scheduler nor workers answer HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import distributed
from distributed import Nanny, SpecCluster
from distributed.security import Security

__all__ = ["LocalCluster", "Scheduler", "Worker"]

_SILENCE = 50
"""Of Dask's own logs: what counts reaches the run as an exception."""


class _WithoutHttp:
    """Mixed into a server of Dask, which would else answer everybody with its settings and what it is at.

    No setting of Dask keeps it from listening. The method is not documented: `tests/flows/test_strangers.py` fails
    where a version of Dask has renamed it.
    """

    def start_http_server(self, *_: object, **__: object) -> None:
        """Listen nowhere."""


class Scheduler(_WithoutHttp, distributed.Scheduler):
    """A scheduler with one port."""


class Worker(_WithoutHttp, distributed.Worker):
    """A worker with one port."""


class LocalCluster(SpecCluster):
    """A scheduler in this process, and workers of one thread under nannies, with the security of Dask's settings.

    environment: of the workers, beside what the process has that they are forked from.
    """

    def __init__(self, *, workers: int, environment: Mapping[str, str]) -> None:
        place = {"host": "127.0.0.1", "protocol": "tls://", "security": Security()}
        worker: dict[str, Any] = {
            "cls": Nanny,
            "options": {
                **place,
                "worker_class": Worker,
                "nthreads": 1,
                "memory_limit": 0,
                "env": dict(environment),
                "silence_logs": _SILENCE,
            },
        }
        super().__init__(
            scheduler={"cls": Scheduler, "options": {**place, "port": 0, "dashboard": False}},
            workers=dict.fromkeys(range(workers), worker),
            worker=worker,
            security=place["security"],
            silence_logs=_SILENCE,
        )
