"""Fault points, where a test can break a store: every boundary of a durable write crosses one.

They do nothing unless a hook is installed, or the environment sets one fault for this process:

    INDEXMILL_FAULT=7           SIGKILL at the 7th crossing
    INDEXMILL_FAULT=7:enospc    the 7th crossing raises "no space left on device" (`eio`, `erofs`, `eacces` likewise)
    INDEXMILL_FAULT=7:short     the first write at or after the 7th crossing stops half-way, then there is no space left
    INDEXMILL_FAULT=7:torn      the same, then SIGKILL
    INDEXMILL_FAULT_COUNT=file  the number of crossings of this process is written there when it ends
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

Hook = Callable[[str], None]

_ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO, "erofs": errno.EROFS, "eacces": errno.EACCES}
_lock = threading.Lock()
_crossed = 0
_at, _mode = 0, "kill"
_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call a hook with the name of every crossing from now on; None removes it."""
    global _hook
    _hook = hook


def arm(at: int, mode: str = "kill") -> None:
    """Reset the count, and make crossing number `at` of this process fail as `INDEXMILL_FAULT` describes; 0: none."""
    global _at, _mode, _crossed
    if mode not in (*_ERRORS, "kill", "short", "torn"):
        raise ValueError(f"{mode!r} is not a fault: use kill, short, torn or one of {', '.join(_ERRORS)}")
    _at, _mode, _crossed = at, mode, 0


def crossings() -> int:
    return _crossed


def fault_point(name: str) -> None:
    """Cross a boundary: nothing happens unless a fault is due here."""
    global _crossed
    with _lock:
        _crossed += 1
        number = _crossed
    if _hook is not None:
        _hook(name)
    if number == _at and _mode not in ("short", "torn"):
        if _mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(_ERRORS[_mode], os.strerror(_ERRORS[_mode]), name)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all data, unless a fault cuts the write short."""
    global _at
    fault_point("write")
    view = memoryview(data)
    if _mode in ("short", "torn") and 0 < _at <= _crossed:
        _at = 0
        os.write(descriptor, view[: len(view) // 2])
        if _mode == "torn":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    while view:
        view = view[os.write(descriptor, view) :]
    fault_point("written")


if os.environ.get("INDEXMILL_FAULT"):
    _number, _, _word = os.environ["INDEXMILL_FAULT"].partition(":")
    arm(int(_number), _word or "kill")

if os.environ.get("INDEXMILL_FAULT_COUNT"):
    _count_file = Path(os.environ["INDEXMILL_FAULT_COUNT"])
    atexit.register(lambda: _count_file.write_text(f"{_crossed}\n", encoding="utf-8"))
