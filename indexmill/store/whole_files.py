"""Replacing files atomically: programs that read a file see either the complete old one or the complete new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, pieces: Iterable[str], mode: int | None = None) -> None:
    """Write a UTF-8 text file atomically; raises OSError. mode: its permissions; the default is as for any new file."""
    draft = None
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask  # not the temporary file's 0600
        Path(draft).chmod(mode)
        Path(draft).replace(path)
    finally:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
