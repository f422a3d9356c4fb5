"""Packs: files of several named arrays, which a reader maps into memory.

    offset 0        8 bytes    magic, b"IMPACK1\\n"
    offset 8        8 bytes    length of the header, unsigned, little-endian
    offset 16       header     canonical JSON: {"arrays": [{"dtype", "name", "offset", "shape"}, ...]}
    data            arrays     raw, C order, little-endian

The data begins at the first multiple of 64 after the header; `offset` counts from there. Arrays are ordered by name,
and each begins at the next multiple of 64. Gaps are filled with zeros, and the file ends with the last byte of the last
array. So names, types and shapes determine every byte but the values, and any other header is rejected.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import JsonValue

from indexmill.errors import CorruptBlob
from indexmill.store.canonical import canonical_json
from indexmill.store.layout import check_name
from indexmill.store.regular_files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"IMPACK1\n"
ALIGNMENT = 64
DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"])
"""The types that an array may have: booleans, integers and floats, never objects."""

_PREFIX = struct.Struct("<8sQ")
_LONGEST_HEADER = 1 << 24
_MOST_DIMENSIONS = 32
_MOST_VALUES = 1 << 56


class _Entry(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # from the start of the data

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _little(dtype: DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype).newbyteorder("<")
    if kind.str not in DTYPES:
        raise TypeError(f"a pack cannot contain {np.dtype(dtype)}: expected one of {', '.join(sorted(DTYPES))}")
    return kind


def _check_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Return a shape; raises ValueError unless numpy can represent it, even if a length of 0 makes it empty."""
    if len(shape) > _MOST_DIMENSIONS or any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"an array cannot have the shape {shape!r}")
    if math.prod(length for length in shape if length) > _MOST_VALUES:
        raise ValueError(f"an array of shape {shape!r} is too large")
    return tuple(shape)


def _lay_out(declared: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> tuple[list[_Entry], int]:
    """Return the entries in the order of the file, and the length of the data."""
    entries, end = [], 0
    for name in sorted(declared):
        dtype, shape = declared[name]
        entry = _Entry(name, dtype, shape, _aligned(end))
        entries.append(entry)
        end = entry.offset + entry.nbytes
    return entries, end


def _header(entries: list[_Entry]) -> bytes:
    listed = [
        {"name": entry.name, "dtype": entry.dtype.str, "shape": list(entry.shape), "offset": entry.offset}
        for entry in entries
    ]
    return canonical_json({"arrays": listed})


@overload
def write_pack(path: None, arrays: Mapping[str, NDArray[Any]]) -> bytes: ...
@overload
def write_pack(path: Path | BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> int: ...
def write_pack(path: Path | BinaryIO | None, arrays: Mapping[str, NDArray[Any]]) -> bytes | int:
    """Write arrays as a pack to a new file, or an open, empty file, and return its size; for None, return the bytes.

    Raises TypeError for a dtype that is not in `DTYPES`, ValueError for arrays that a pack cannot describe,
    FileExistsError if the file exists. A file that cannot be written completely is removed.
    """
    declared = {check_name(name): (_little(array.dtype), _check_shape(array.shape)) for name, array in arrays.items()}
    entries, _ = _lay_out(declared)
    header = _header(entries)
    if len(header) > _LONGEST_HEADER:
        raise ValueError(f"{len(entries)} arrays do not fit in the header of one pack")
    if path is None:
        buffer = BytesIO()
        _write(buffer, header, entries, arrays)
        return buffer.getvalue()
    if not isinstance(path, Path):
        _write(path, header, entries, arrays)
        return path.tell()
    with path.open("xb") as file:
        try:
            _write(file, header, entries, arrays)
        except BaseException:
            path.unlink()
            raise
        return file.tell()


def _write(file: BinaryIO, header: bytes, entries: list[_Entry], arrays: Mapping[str, NDArray[Any]]) -> None:
    start = _aligned(_PREFIX.size + len(header))
    file.write((_PREFIX.pack(MAGIC, len(header)) + header).ljust(start, b"\0"))
    for entry in entries:
        file.write(bytes(start + entry.offset - file.tell()))
        flat = np.asarray(arrays[entry.name], dtype=entry.dtype, order="C").reshape(-1)
        file.write(flat.view(np.uint8).data)


class Pack(Mapping[str, NDArray[Any]]):
    """The arrays of a file, read-only and mapped into memory: a page is read when it is first used.

    The mapping lives as long as any of its arrays, and keeps no file open: a reader maps more packs than the thousand
    files that a process may usually open.
    """

    def __init__(self, path: Path, buffer: pa.Buffer, start: int, entries: list[_Entry]) -> None:
        self._buffer = buffer
        self.start = start
        """The offset of the data in the file."""
        self._entries = {entry.name: entry for entry in entries}
        self._path = path

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        count = math.prod(entry.shape)
        if not count:
            empty = np.empty(entry.shape, entry.dtype)
            empty.setflags(write=False)
            return empty
        flat = np.frombuffer(self._buffer, entry.dtype, count, self.start + entry.offset)
        return flat.reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Pack({str(self._path)!r}, {len(self)} arrays)"

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The dtype and shape of each array, by name, as a manifest stores them."""
        return {entry.name: {"dtype": entry.dtype.str, "shape": list(entry.shape)} for entry in self._entries.values()}


def open_pack(path: Path) -> Pack:
    """Map a pack into memory without executing anything; raises CorruptBlob if its layout is not that of a pack."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                raise CorruptBlob(f"{path} is not a pack: it has {size} bytes; expected at least {_PREFIX.size}")
            magic, length = _PREFIX.unpack(prefix)
            if magic != MAGIC:
                raise CorruptBlob(f"{path} is not a pack: it begins with {magic!r}; expected {MAGIC!r}")
            if length > min(_LONGEST_HEADER, size - _PREFIX.size):
                raise CorruptBlob(f"{path} says its header has {length} bytes; the file has {size}")
            header = file.read(length)
            entries, data = _parse(header, path)
            start = _aligned(_PREFIX.size + length)
            if size != start + data:
                raise CorruptBlob(f"{path} has {size} bytes; its header describes {start + data}")
    except OSError as error:
        raise CorruptBlob(f"{path} cannot be read: {error.strerror or error}") from error
    return Pack(path, _mapped(path, size), start, entries)


def map_pack(path: Path, start: int, schema: Mapping[str, Any]) -> Pack:
    """Map a pack that has been opened before, without reading its header.

    start: the offset of the pack's data. schema: its ``Pack.schema``. Raises CorruptBlob if the file's size is wrong.
    """
    declared = {name: (np.dtype(entry["dtype"]), tuple(entry["shape"])) for name, entry in schema.items()}
    entries, data = _lay_out(declared)
    return Pack(path, _mapped(path, start + data), start, entries)


def _mapped(path: Path, size: int) -> pa.Buffer:
    """Map a file into memory; raises CorruptBlob if its size is not the expected one."""
    import pyarrow as pa

    try:
        with pa.memory_map(os.fsencode(path)) as file:  # numpy's and Python's mappings keep a descriptor each
            buffer = file.read_buffer(1).parent  # reading the whole file would read ahead
    except OSError as error:
        raise CorruptBlob(f"{path} cannot be read: {error.strerror or error}") from error
    if buffer.size != size:
        raise CorruptBlob(f"{path} has {buffer.size} bytes; expected {size}")
    return buffer


def _parse(header: bytes, path: Path) -> tuple[list[_Entry], int]:
    """Read the entries of a header; raises CorruptBlob unless this module would write the same header for them."""
    try:
        listed = json.loads(header)["arrays"]
        declared = {}
        for item in listed:
            name, dtype, shape = item["name"], item["dtype"], item["shape"]
            if not isinstance(name, str) or dtype not in DTYPES:
                raise CorruptBlob(f"{path} has an array {name!r} of type {dtype!r}, which a pack cannot contain")
            declared[check_name(name)] = (np.dtype(dtype), _check_shape(shape))
        entries, length = _lay_out(declared)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptBlob(f"{path} has no readable header: {error!r}") from error
    if _header(entries) != header:
        raise CorruptBlob(f"{path} has a header whose names, offsets or order differ from what its layout requires")
    return entries, length
