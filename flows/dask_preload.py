"""What Dask runs in the scheduler and in each worker of a private cluster as it starts (`distributed.*.preload`)."""

from __future__ import annotations

import signal

from distributed import Scheduler, Worker

__all__ = ["dask_setup"]


def dask_setup(server: Scheduler | Worker) -> None:
    """Stop the HTTP server, which would tell everybody what goes on; let a worker leave Ctrl-C to its run.

    Ctrl-C reaches every process of a terminal. No setting of Dask keeps its servers from listening for HTTP; until this
    runs they have no routes.
    """
    server.http_server.stop()
    if isinstance(server, Worker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
