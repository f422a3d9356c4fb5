"""A preload of Dask that gives each worker a core of its own: `dask worker --preload benchmarks/own_core.py`.

The encoder runs two passes at a time where a second core is idle. A worker that has one core, as in a cluster whose
workers each ask for one, never has a second.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Let all threads of a worker run on one of the cores that the process has, by the worker's number."""
    cores = sorted(os.sched_getaffinity(0))
    own = cores[int(worker.name) % len(cores)]
    for thread in Path("/proc/self/task").iterdir():  # those that start later inherit it
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), {own})
