"""Writing a report to a file: whole, and never over something else."""

from __future__ import annotations

from pathlib import Path

from indexmill.errors import BadInput, DiskFull
from indexmill.report.page import GENERATOR
from indexmill.store.whole_files import write_whole

__all__ = ["write_report"]

_HEAD = 4096
"""The bytes at the beginning of a report that say that it is one."""


def write_report(path: Path, page: str) -> None:
    """Write a report, atomically, in place of an earlier one.

    Raises BadInput if the file cannot be written, or exists and is no report; DiskFull.
    """
    try:
        if path.exists() and not _is_report(path):
            raise BadInput(f"{path}: exists and is no report of indexmill, so it is left as it is: name another file")
        write_whole(path, [page])
    except OSError as error:
        bad = BadInput(f"{path}: cannot write the report: {error.strerror or error}")
        raise DiskFull.of(error, path) or bad from error


def _is_report(path: Path) -> bool:
    """True for a file that an earlier report may have written; an empty one counts."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return not head or f'<meta name="generator" content="{GENERATOR}">'.encode() in head
