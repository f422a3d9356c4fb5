"""The preload of the scheduler and each worker of a private cluster (`distributed.*.preload`)."""

from __future__ import annotations

import signal

from distributed import Scheduler, Worker


def dask_setup(server: Scheduler | Worker) -> None:
    """Stop the HTTP server, which would expose the state of the cluster; make a worker ignore Ctrl-C.

    Ctrl-C reaches every process of a terminal; the run handles it. No setting of Dask keeps its servers from listening
    for HTTP, but they have no routes until this function runs.
    """
    server.http_server.stop()
    if isinstance(server, Worker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
