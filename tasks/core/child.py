"""Child processes that may die: their import path, their memory, and a description of their end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil


def import_path() -> str:
    """Return the PYTHONPATH of a child: the folder of the pipeline's packages, then the current value."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))


def held_memory(pid: int | None = None) -> int:
    """Return the bytes of a process (default: this one) that RLIMIT_DATA counts; 0 if unknown or if it has ended."""
    try:
        return int(getattr(psutil.Process(pid).memory_info(), "data", 0))
    except psutil.Error:
        return 0


def ending(code: int) -> str:
    """Describe how a process ended, in words that follow its name in a message. code: as in `Popen.returncode`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
