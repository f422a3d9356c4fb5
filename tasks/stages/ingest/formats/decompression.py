"""Decompress .gz and .zst files within limits: a small file may expand to terabytes."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Literal

import zstandard

from indexmill.text.counted import byte_size

_CHUNK = 1 << 20
_ZSTD_INPUT = 1 << 8  # four bytes of zstd can expand to 128 KiB, so these expand to 8 MiB at most
_ZSTD_WINDOW = 1 << 27
_LEAST_EXPANDED, _MOST_TIMES = 256 << 20, 100
"""A file may expand to the larger of the first value, in bytes, and the second value times the file's size."""


def decompressed(raw: io.BufferedReader, compression: Literal["gzip", "zstd"] | None) -> io.BufferedReader:
    """Return a stream of an open file's decompressed bytes; closing the stream closes the file.

    Reading raises OSError, EOFError, zlib.error or zstandard.ZstdError for a truncated or damaged file.
    """
    if compression is None:
        return raw
    gzipped = compression == "gzip"
    readinto = gzip.GzipFile(fileobj=raw, mode="rb").readinto1 if gzipped else _Zstd(raw).readinto
    return io.BufferedReader(_Expanded(raw, readinto), _CHUNK)


def refuse_expansion(expanded: int, file: BinaryIO) -> None:
    """Raise OSError if a file has expanded beyond the limit for its compressed size."""
    most = max(_LEAST_EXPANDED, _MOST_TIMES * os.fstat(file.fileno()).st_size)
    if expanded > most:
        raise OSError(
            f"it expands to more than {byte_size(most)}, the maximum for its size; the rest is not read: split it into "
            f"files that expand to at most {byte_size(_LEAST_EXPANDED)} each"
        )


class _Expanded(io.RawIOBase):
    """A stream of a file's decompressed bytes. Reading raises OSError if they exceed the limit for the file's size."""

    def __init__(self, raw: BinaryIO, readinto: Callable[[Any], int]) -> None:
        self._raw, self._readinto = raw, readinto
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._readinto(buffer)
        self._read += size
        refuse_expansion(self._read, self._raw)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Zstd:
    """Decompresses a .zst file frame by frame. Unlike the library's reader, it detects a truncated file."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._ready = memoryview(b"")
        self._unused = b""
        self._frame: Any = None

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._unused or self._raw.read(_ZSTD_INPUT)
            self._unused = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("the compressed file ended before its end marker")
                return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            self._ready = memoryview(self._frame.decompress(data))
            if self._frame.eof:
                self._unused, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size
