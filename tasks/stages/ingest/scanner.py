"""The program of the process that reads corpus files for `tasks.stages.ingest.supervisor`.

The process may die, and is killed if it takes too long. It gets a connection, and shared memory for its position. For
each scan it receives the arguments of `spill.scan`, and sends the result, a message if the current row raised an error,
or the error itself if no file is at fault.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import mmap
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from indexmill.errors import ConfigurationError, IndexmillError
from schemas.corpus import CorpusSettings
from tasks.core.child import held_memory
from tasks.stages.ingest.memory import lacks_memory
from tasks.stages.ingest.source_files import SourceFile
from tasks.stages.ingest.spill import Cut, ScanResult, scan

_IDLE = 30.0
"""Seconds without a scan after which the process ends."""


def serve(connection: Connection, position: memoryview[int]) -> None:
    """Answer requests for scans until the other end closes the connection, or is silent for _IDLE seconds."""
    at_start = held_memory()
    with contextlib.suppress(EOFError, ConnectionError):
        while connection.poll(_IDLE):
            files, settings, folder, cuts = connection.recv()
            with _ending_with(connection):
                answer = _scanned(files, settings, folder, cuts, position, at_start)
            connection.send(answer)


def _scanned(
    files: Sequence[SourceFile],
    settings: CorpusSettings,
    folder: Path,
    cuts: Mapping[int, Cut],
    position: memoryview[int],
    at_start: int,
) -> ScanResult | str | Exception:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = settings.max_reading_memory_bytes
    if most != resource.RLIM_INFINITY:
        allowed = min(allowed, most)
    limit = f"max_reading_memory_bytes ({allowed:,} bytes)"
    too_low = ConfigurationError(f"the process that reads the corpus takes more memory than {limit}: raise it")
    if allowed <= at_start:
        return too_low

    def limit_memory() -> None:
        """Limit memory. The memory already in use is not counted, so that each file gets the same limit."""
        earlier = min(max(held_memory() - at_start, 0), allowed)
        limited = allowed + earlier if most == resource.RLIM_INFINITY else min(allowed + earlier, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limited, most))

    limit_memory()
    try:
        return scan(files, settings, folder, cuts=cuts, position=position, before_file=limit_memory)
    except Exception as error:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        if _lacked_memory(error):
            return f"it takes more memory than {limit}" if position[0] >= 0 else too_low
        if position[0] < 0 or isinstance(error, (IndexmillError, ImportError, OSError)):
            return error
        return f"{type(error).__name__}: {error}"


def _lacked_memory(error: BaseException | None) -> bool:
    """Return whether the memory limit caused an error, such as a library's failed import; the limit has been lifted.

    A missing or broken library cannot be imported without the limit either.
    """
    while error is not None:
        if lacks_memory(error):
            return True
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError) and error.name:
            try:
                importlib.import_module(error.name)
            except Exception:  # the library may be half loaded: any error means that it is unusable
                return False
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _ending_with(connection: Connection) -> Iterator[None]:
    """Have the kernel end this process when the connection is closed, even while C code blocks the interpreter.

    Nothing is sent to the socket meanwhile, so only its closing can raise SIGIO, which kills by default.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(connection.fileno(), fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(connection.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(connection.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)
    if connection.poll():
        os._exit(0)  # the connection is already closed
    try:
        yield
    finally:
        fcntl.fcntl(connection.fileno(), fcntl.F_SETFL, flags)


def _main() -> None:
    with contextlib.suppress(OSError):  # if the machine runs out of memory, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # no core dump
    connection, shared = map(int, sys.argv[1:])
    serve(Connection(connection), memoryview(mmap.mmap(shared, 16)).cast("q"))


if __name__ == "__main__":
    _main()
