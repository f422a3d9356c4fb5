"""Processes, identified so that another process can check whether they still run."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from pathlib import Path

from indexmill.store.record import Record


class Process(Record):
    """A process and its machine, as precisely as the system reports them.

    `space` identifies the boot and the process-id namespace, within which ids are comparable. `started` is the start
    time in kernel ticks, which distinguishes the process from a later one with the same id. Both are empty without
    /proc.
    """

    host: str
    space: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Process:
    return _process(os.getpid())


@functools.lru_cache(maxsize=1)  # each temporary file is named after its process
def _process(pid: int) -> Process:
    return Process(host=socket.gethostname(), space=_space(), pid=pid, started=_start(pid)[1])


os.register_at_fork(after_in_child=_process.cache_clear)


def this_user() -> str:
    """Return the user and the host of this process, as a contact for other users: `ada@indexer-3`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def alive(process: Process) -> bool | None:
    """Return True if a process still runs; None if this machine cannot tell (another machine, or no /proc)."""
    if process.host != socket.gethostname() or process.space != _space():
        return None
    state, started = _start(process.pid)
    if state:
        # Without a start time, any process with this id counts as the same.
        return state not in ("Z", "X") and process.started in ("", started)
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return None  # the number is taken, but /proc does not show by whom


def same_boot(process: Process) -> bool:
    """Return True if a process ran on this machine since its last boot, in any container."""
    boot = process.space.partition(" ")[0]
    return bool(boot) and boot == _space().partition(" ")[0]


def _space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start(pid: int) -> tuple[str, str]:
    """Return the state letter and start tick of a process; two empty strings if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""
