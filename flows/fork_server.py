"""The process that the workers of a private cluster are forked from.

It imports what they need (`flows.worker`), once for all of them, while the command is at its own imports.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

from flows.scratch import PREFIX, scratch_folder
from indexmill.errors import IndexmillError
from schemas.config import Configuration, LlmSettings
from storage import runs
from storage.folder import open_store
from tasks.core.process_environment import secret_variables
from tasks.stages.ingest import scan_process
from tasks.stages.ingest.sources import digest_of_files, find, is_quick

__all__ = ["running", "start", "start_where_work_is_expected"]

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # native code of each worker has one core
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "6640",  # Dask's own, which wants all workers to hash alike
    "PYTHONSAFEPATH": "1",  # or it would import from the current folder first
}
"""Of the workers, unless the command's says otherwise."""

_LONGEST_ADDRESS = 103
"""Bytes of a socket's path that every system takes (Linux: 107)."""
_BELOW = len(f"/{PREFIX}01234567/pymp-01234567/listener-01234567")

_lock = threading.Lock()
_users = 0


def start(llm: LlmSettings | None = None) -> None:
    """Start it, unless it runs; returns at once. It ends with this process.

    It is given no secrets: `llm.api_key_env` names one. Workers that need them are handed them as they are forked.
    """
    forkserver.set_forkserver_preload(["flows.worker"])
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    with _hidden(secret_variables(llm)):
        resource_tracker.ensure_running()  # which would let SIGINT through again
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until `flows.worker` ignores it
        os.environ.update(added)
        try:
            _make_socket_folder()
            forkserver.ensure_running()
        finally:
            for name in added:
                del os.environ[name]
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def _hidden(names: Collection[str]) -> Iterator[None]:
    """Let processes be started without some variables, which `os.environ` keeps: other threads go on reading it."""
    values = {name: os.environ[name] for name in names}
    try:
        for name in values:
            os.unsetenv(name)
        yield
    finally:
        for name, value in values.items():
            os.putenv(name, value)


@functools.cache
def _make_socket_folder() -> None:
    """Have `multiprocessing` make its private folder for sockets in one of ours; both last as long as this process."""
    kept = contextlib.ExitStack()
    with _short_temporary_folder():
        folder = kept.enter_context(scratch_folder())
        usual, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            util.get_temp_dir()
        finally:
            tempfile.tempdir = usual
    util.Finalize(None, kept.close, exitpriority=-1000)  # after `multiprocessing` has removed its own


@contextlib.contextmanager
def _short_temporary_folder() -> Iterator[None]:
    """Let folders for temporary files be made where a socket in them has a path that the system takes."""
    usual = tempfile.gettempdir()
    if _takes_a_socket(usual):
        yield
        return
    places = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp")  # noqa: S108 - only for a private folder
    tempfile.tempdir = next(
        (one for one in places if _takes_a_socket(one) and os.access(one, os.W_OK | os.X_OK)), usual
    )
    try:
        yield
    finally:
        tempfile.tempdir = usual


def _takes_a_socket(folder: str) -> bool:
    return Path(folder).is_absolute() and len(os.fsencode(folder)) + _BELOW <= _LONGEST_ADDRESS


@contextlib.contextmanager
def running(llm: LlmSettings | None = None) -> Iterator[None]:
    """It runs within the block, and ends with it, as do the processes that were forked from it and are still there.

    llm: as for `start`. Of blocks that overlap the last one ends it.
    """
    global _users
    with _lock:
        start(llm)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _end()


def _end() -> None:
    import psutil  # not while the command starts

    server: Any = forkserver._forkserver  # there is no public way to end it
    if server._forkserver_pid is not None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(server._forkserver_pid)
            process.suspend()  # it forks no more
            left = process.children(recursive=True)  # of a cluster that was interrupted as it started
            process.kill()
            for fork in left:
                with contextlib.suppress(psutil.Error):
                    fork.kill()
    server._stop()  # waits for it, so that what its processes took counts as this one's


def start_where_work_is_expected(configuration: Configuration) -> None:
    """Start it for a refresh of a corpus that has changed since the last run; what is wrong with it is told later.

    The process that will read the corpus is started as well, changed or not, where this command reads it by itself.
    """
    if configuration.corpus is None:
        return
    with contextlib.suppress(IndexmillError, OSError):
        store = open_store(configuration.store)
        files = find(configuration.corpus, allow_none=True).files
        if is_quick(files):
            scan_process.start()
        if runs.saw_other_files(store, digest_of_files(files)):
            start(configuration.llm)
