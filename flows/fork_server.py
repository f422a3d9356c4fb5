"""The process that the workers of a private cluster are forked from.

It imports what they need (`flows.worker`), once for all of them, while the command is at its own imports.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from multiprocessing import forkserver
from typing import Any

from indexmill.errors import IndexmillError
from schemas.config import Configuration
from storage import runs
from storage.folder import open_store
from tasks.ingest.sources import digest_of_files, find

__all__ = ["running", "start", "start_where_work_is_expected"]

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Of the workers: native code of each has one core."""


def start() -> None:
    """Start it, unless it runs; returns at once. It ends with this process."""
    forkserver.set_forkserver_preload(["flows.worker"])
    kept = dict(os.environ)
    os.environ.update({**_ENVIRONMENT, **kept})
    try:
        forkserver.ensure_running()
    finally:
        for name in _ENVIRONMENT.keys() - kept.keys():
            del os.environ[name]


@contextlib.contextmanager
def running() -> Iterator[None]:
    """It runs within the block, and ends with it, as do the processes that were forked from it and are still there."""
    start()
    try:
        yield
    finally:
        import psutil  # not while the command starts

        server: Any = forkserver._forkserver  # there is no public way to end it
        with contextlib.suppress(psutil.Error):
            left = psutil.Process(server._forkserver_pid).children() if server._forkserver_pid else []
            for fork in left:  # of a cluster that was interrupted as it started
                fork.kill()
        server._stop()  # waits for it, so that what its processes took counts as this one's


def start_where_work_is_expected(configuration: Configuration) -> None:
    """Start it for a refresh of a corpus that has changed since the last run; what is wrong with it is told later."""
    if configuration.corpus is None:
        return
    with contextlib.suppress(IndexmillError, OSError):
        files = digest_of_files(find(configuration.corpus, allow_none=True).files)
        if runs.saw_other_files(open_store(configuration.store), files):
            start()
