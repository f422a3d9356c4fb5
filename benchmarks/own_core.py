"""A Dask preload that pins each worker to its own core: `dask worker --preload benchmarks/own_core.py`.

The encoder runs two passes at a time where a second core is idle. In a cluster whose workers each request one core, a
worker never has a second.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Pin all threads of a worker to one of the process's cores, chosen by the worker's number."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[int(worker.name) % len(cores)]
    for thread in Path("/proc/self/task").iterdir():  # later threads inherit it
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(thread.name), {core})
