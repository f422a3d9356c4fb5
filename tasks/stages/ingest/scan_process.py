"""Runs scans in a child process. If it dies or is killed, its position identifies the file and row at fault.

The child runs `tasks.stages.ingest.scanner`. After a scan it waits for the next scan, and it ends when this process
ends. Its position is in memory that both processes map, so that an update costs next to nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from indexmill.errors import DiskFull
from indexmill.store.free_space import temporary_folder
from tasks.core.child import ending, held_memory, import_path
from tasks.core.executor import StoppedError, stopped
from tasks.core.process_environment import reader_environment, source_environment

if TYPE_CHECKING:  # this module is imported first, to start a process early
    from schemas.corpus import CorpusSettings
    from schemas.sources import SourceSettings
    from tasks.stages.ingest.source_files import SourceFile
    from tasks.stages.ingest.spill import Cut, ScanResult

_TICK = 0.1
"""Seconds between two checks of a scanning process."""

_BLOCKED = 20
"""The limit of a row's wall time, as a multiple of its limit of processor time."""

_END = 10.0
"""Seconds to wait for a killed process to end; a process stuck in the kernel ends later."""

_ABORTS = (-signal.SIGABRT, -signal.SIGILL, -signal.SIGTRAP)
_ABORTED = ", as libraries do where a file is broken, or needs more memory than max_reading_memory_bytes"

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # no matrix is multiplied, and threads take time to start
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # mimalloc would reserve 1 GiB, or half of max_reading_memory_bytes
}


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """How a scan ended early, and at which file and row. file: the file's number; -1 if no file was being read."""

    file: int
    rows: int
    how: str
    slow: bool = False


class ScanProcess:
    """A process that runs one scan at a time. place: the record source to which the process has access."""

    def __init__(self, place: SourceSettings | None = None) -> None:
        self._access = reader_environment() if place is None else source_environment(place)
        try:
            with tempfile.TemporaryFile() as shared:
                shared.write(bytes(16))  # a sparse page without disk space would kill both processes
                shared.flush()
                self._start(shared.fileno())
        except OSError as error:
            if (full := DiskFull.of(error, temporary_folder())) is not None:
                raise full from error
            raise
        _every.add(self)

    def _start(self, shared: int) -> None:
        self._memory = mmap.mmap(shared, 16)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.connection, other_end = Pipe()
        with other_end:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", "tasks.stages.ingest.scanner", str(other_end.fileno()), str(shared)],
                env={**_ENVIRONMENT, **self._access, "PYTHONPATH": import_path()},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[other_end.fileno(), shared],
                process_group=0,  # so that Ctrl-C reaches only this process
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def waits(self) -> bool:
        """True if the process is alive and can run another scan."""
        return self._process.poll() is None

    def scan(
        self, files: Sequence[SourceFile], settings: CorpusSettings, folder: Path, cuts: Mapping[int, Cut]
    ) -> ScanResult | ScanEnd | Exception:
        """Run a scan. Returns its result, a `ScanEnd` if it ended early, or an error that no file caused."""
        position = memoryview(self._memory).cast("q")
        position[0] = -1
        watch = _Watch(self._process.pid, settings.max_document_seconds)
        try:
            self.connection.send((tuple(files), settings, folder, dict(cuts)))
            while not self.connection.poll(_TICK):
                if stopped():
                    raise StoppedError
                if how := watch.overdue(position[0], position[1]):
                    return ScanEnd(position[0], position[1], how, slow=True)
            answer: ScanResult | str | Exception = self.connection.recv()
        except (EOFError, OSError):
            return ScanEnd(position[0], position[1], self._ending(at_row=position[0] >= 0))
        return ScanEnd(position[0], position[1], answer) if isinstance(answer, str) else answer

    def _ending(self, *, at_row: bool) -> str:
        """Describe how the process ended, with the tail of its output if no row explains it."""
        try:
            how = f"its process {ending(self._process.wait(_END))}"
        except subprocess.TimeoutExpired:
            how = "its process did not answer"
        if at_row:
            return f"{how}{_ABORTED}" if self._process.returncode in _ABORTS else how
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()[-1500:]
        return f"{how}: {words}" if words else how

    def end(self) -> None:
        """Kill the process, whatever it is doing."""
        self.connection.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        self._errors.close()


class _Watch:
    """Measures how long a child has spent on its current row, in processor time and wall time."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid, self._seconds = pid, seconds
        self._position = (-1, 0)
        self._since = 0.0
        self._computed: float | None = None  # processor seconds at the first check; measured only for slow rows

    def overdue(self, file: int, rows: int) -> str:
        """Return why the current row takes too long; empty if it does not, or if no row is being read."""
        now = time.monotonic()
        if file < 0 or self._position != (file, rows):
            self._position, self._since, self._computed = (file, rows), now, None
            return ""
        if self._computed is None:
            self._computed = _processor_seconds(self._pid)
        if _processor_seconds(self._pid) - self._computed > self._seconds:
            return f"it takes more than {self._seconds:g} seconds of processor time (max_document_seconds)"
        if now - self._since > _BLOCKED * self._seconds:
            return f"it has blocked for {_BLOCKED * self._seconds:g} seconds, {_BLOCKED} times max_document_seconds"
        return ""


def _processor_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


_idle: list[ScanProcess] = []
_every: weakref.WeakSet[ScanProcess] = weakref.WeakSet()
_inherited: list[ScanProcess] = []


def start() -> None:
    """Start a process for the next scan without waiting for it, unless a process is waiting for a scan."""
    if not _idle:
        _idle.append(ScanProcess())


def close() -> None:
    """End the processes that wait for a scan."""
    while _idle:
        _idle.pop().end()


def give_back(process: ScanProcess) -> None:
    """Keep a process that has finished a scan for the next one."""
    _idle.append(process)


def take(most_bytes: float = math.inf) -> ScanProcess:
    """Return a process for a scan: a waiting process that uses at most `most_bytes` of memory, or a new process."""
    while True:
        try:
            process = _idle.pop()
        except IndexError:
            return ScanProcess()
        if process.waits and held_memory(process.pid) <= most_bytes:
            return process
        process.end()


def _forked() -> None:
    """In a forked process, leave the scan processes to its parent, and let them end with the parent."""
    for process in _every:
        process.connection.close()
    _inherited.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_forked)
atexit.register(close)
