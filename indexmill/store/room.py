"""Room for temporary files.

Programs and libraries that meet a full disk say so in words of their own, if at all: SQLite, OpenVINO, a worker of
Dask that does not start. A file that is written here tells whether the disk is full.
"""

from __future__ import annotations

import tempfile

from indexmill.errors import DiskFull
from indexmill.store.free_space import temporary_folder
from indexmill.text.counted import byte_size

ROOM = 16 << 20
"""Bytes to begin with: a private Prefect server writes a third of that in a short run."""
_LEFT = 1 << 20
"""Bytes; what fails where less is free has met a full disk."""


def check_room(size: int = _LEFT) -> None:
    """Raise DiskFull if the folder for temporary files cannot take a file of so many bytes."""
    place = temporary_folder()
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(size))
            file.flush()
    except OSError as error:
        advice = f"free {byte_size(max(size, ROOM))} there, or name a folder with more room in TMPDIR, and run again"
        if (full := DiskFull.of(error, place, advice)) is not None:
            raise full from error
        raise
