"""Reading untrusted files: only regular files, of a bounded length.

A path may turn out to be a pipe, which would block, a device, which never ends, or a file that is far too long. So the
kind and the length of the opened file are checked before any byte is read.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from indexmill.errors import CorruptBlob
from indexmill.text.counted import byte_size

RECORD_BYTES = 1 << 20
"""The maximum size of a small record, such as a ref, in bytes."""

MANIFEST_BYTES = 64 << 20
"""The maximum size of a manifest (some 500,000 artifacts) and of a run's record, in bytes."""

BLOB_BYTES = 1 << 30
"""The maximum size of any other blob or record that is read whole, such as a lineage, in bytes."""


_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags that avoid waiting for a pipe's writer and read raw bytes; not every system has each of them."""

_KINDS = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISDIR, "folder"))


class NotRegular(Exception):
    """The path is not a regular file. kind: a pipe, socket, folder or device."""

    def __init__(self, mode: int) -> None:
        self.kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "device")
        super().__init__(f"it is a {self.kind}")


def open_checked(path: str | Path, flags: int = 0) -> BufferedReader:
    """Open a regular file for reading; the opened file itself is checked. flags: additional flags of ``os.open``.

    Raises OSError as ``open`` does. Raises NotRegular for any other kind of file, without opening it: opening a device
    may change its state.
    """
    if not stat.S_ISREG(mode := os.stat(path).st_mode):  # noqa: PTH116 - a str, too
        raise NotRegular(mode)
    descriptor = os.open(path, _READ | flags)
    try:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):  # replaced since the first check
            raise NotRegular(mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_regular(path: Path, most: int | None = None) -> BufferedReader:
    """Open a regular file of a store or an exported snapshot for reading; the opened file itself is checked.

    Raises OSError as ``open`` does, CorruptBlob if it is not a regular file or has more than ``most`` bytes.
    """
    try:
        file = open_checked(path)
    except NotRegular as error:
        raise CorruptBlob(f"{path} cannot be read: it is not a regular file: restore it from a copy") from error
    size = os.fstat(file.fileno()).st_size
    if most is not None and size > most:
        file.close()
        raise CorruptBlob(f"{path} is {byte_size(size)}; the maximum is {byte_size(most)}: restore it from a copy")
    return file


def is_own(status: os.stat_result) -> bool:
    """Return True for the status of a regular file that belongs to this user and that no other user may write."""
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes. Raises as ``open_regular`` does."""
    with open_regular(path, most) as file:
        data = file.read(most + 1)
    if len(data) > most:  # it has grown since the check
        raise CorruptBlob(f"{path} is larger than the maximum of {byte_size(most)}: restore it from a copy")
    return data
