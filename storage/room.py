"""A check of the free space for temporary files.

Programs and libraries report a full disk in their own words, if at all: SQLite, OpenVINO, a worker of Dask that does
not start. Writing a file here shows whether the disk is full.
"""

from __future__ import annotations

import tempfile

from indexmill.errors import DiskFull
from indexmill.store.free_space import temporary_folder
from indexmill.text.counted import byte_size

ROOM = 16 << 20
"""The free bytes that a run needs at its start: a private Prefect server writes a third of that in a short run."""
_FULL = 1 << 20
"""With fewer free bytes, a failure is attributed to the full disk."""


def check_room(size: int = _FULL) -> None:
    """Raise DiskFull if a file of `size` bytes does not fit into the folder for temporary files."""
    folder = temporary_folder()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(size))
            file.flush()
    except OSError as error:
        advice = f"free {byte_size(max(size, ROOM))} there, or name a folder with more room in TMPDIR, and run again"
        if (full := DiskFull.of(error, folder, advice)) is not None:
            raise full from error
        raise
