"""Small file systems of their own, which a test can fill to the last byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(folder: Path, size: int, files: int = 0) -> Iterator[Path]:
    """Mount a file system in memory of so many bytes, and files (0: any); skips the test where that is not allowed."""
    folder.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={files},mode=755", "indexmill-test", str(folder)],  # noqa: S607
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no `mount`")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def fill(disk: Path) -> None:
    """Leave no byte of a file system free."""
    with (disk / f"filler-{len(list(disk.glob('filler-*')))}").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(os.urandom(1 << 12))
