"""A preload of Dask's workers that end while they start, as often as a file has lines."""

from __future__ import annotations

import os
from pathlib import Path

from distributed import Scheduler, Worker

VARIABLE = "INDEXMILL_ENDING_WORKER"


def dask_setup(server: Scheduler | Worker) -> None:
    """Take a line from the file and end this process with exit code 3, unless there is none."""
    file = Path(os.environ[VARIABLE])
    lines = file.read_text().splitlines() if isinstance(server, Worker) else []
    if lines:
        file.write_text("\n".join(lines[1:]))
        os._exit(3)
