"""Record batches in an Arrow file that readers map into memory, so that rows can be read without decompression.

Each batch has a key in the metadata of the file's schema; batches with the same key are equal in all files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, overload

from indexmill.errors import CorruptBlob, StoreError
from indexmill.forks import Lock
from indexmill.text.counted import byte_size

if TYPE_CHECKING:
    import pyarrow as pa


_KEYS = b"indexmill.keys"


def write_batches(file: BinaryIO, keys: Sequence[str], batch_of: Callable[[int], pa.RecordBatch], most: int) -> None:
    """Write record batches as an Arrow file.

    keys: the batches' keys, ASCII without line breaks. batch_of: returns a batch, given its number. Raises StoreError
    if there is no batch, if batches have different columns, or once the file has more than ``most`` bytes.
    """
    import pyarrow as pa

    if not keys:
        raise StoreError("there are no batches to write")
    first = batch_of(0)
    schema = first.schema.with_metadata({_KEYS: "\n".join(keys)})
    with pa.ipc.new_file(file, schema) as writer:
        for number in range(len(keys)):
            batch = batch_of(number) if number else first
            if batch.schema != first.schema:
                raise StoreError("the columns of a batch differ from those of the first batch")
            writer.write_batch(batch)
            if file.tell() > most:
                raise StoreError(f"the batches are larger than {byte_size(most)}")


class ArrowFile(Sequence["pa.RecordBatch"]):
    """The batches that `write_batches` wrote, mapped read-only. Thread-safe. Opening and reading raise CorruptBlob."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path, self._lock = path, Lock()
        with self._reading():
            self._reader = pa.ipc.open_file(pa.memory_map(os.fsencode(path)))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise CorruptBlob(f"{self._path} cannot be read as an Arrow file: {error}") from error

    @property
    def keys(self) -> list[str]:
        """The keys of the batches, in order. Raises CorruptBlob."""
        metadata: dict[bytes, bytes] = self._reader.schema.metadata or {}
        with self._reading():
            return metadata.get(_KEYS, b"").decode("ascii").split("\n")

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    @overload
    def __getitem__(self, number: int) -> pa.RecordBatch: ...
    @overload
    def __getitem__(self, number: slice) -> list[pa.RecordBatch]: ...
    def __getitem__(self, number: int | slice) -> pa.RecordBatch | list[pa.RecordBatch]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        with self._lock, self._reading():
            return self._reader.get_batch(range(len(self))[number])
