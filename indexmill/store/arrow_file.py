"""Record batches in an Arrow file that a reader maps, so that reading some of their rows unpacks nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, overload

from indexmill.errors import CorruptBlob, StoreError
from indexmill.forks import Lock
from indexmill.text.counted import byte_size

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowFile", "write_batches"]


def write_batches(file: BinaryIO, batches: Callable[[], Iterator[pa.RecordBatch]], most: int) -> None:
    """Write record batches as an Arrow file.

    Raises StoreError if there is none, if they have different columns, or once they have more than ``most`` bytes.
    """
    import pyarrow as pa

    found = batches()
    first = next(found, None)
    if first is None:
        raise StoreError("there are no batches to write")
    with pa.ipc.new_file(file, first.schema) as writer:
        for batch in chain([first], found):
            if batch.schema != first.schema:
                raise StoreError("a batch has other columns than the first")
            writer.write_batch(batch)
            if file.tell() > most:
                raise StoreError(f"the batches have more than {byte_size(most)}")


class ArrowFile(Sequence["pa.RecordBatch"]):
    """The batches of an Arrow file that this program has written, mapped read-only. Thread-safe.

    Opening it and taking a batch raise CorruptBlob if it cannot be read.
    """

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
        except (pa.ArrowException, OSError) as error:
            raise CorruptBlob(f"{self._path} cannot be read as an Arrow file: {error}") from error

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    @overload
    def __getitem__(self, number: int) -> pa.RecordBatch: ...
    @overload
    def __getitem__(self, number: slice) -> list[pa.RecordBatch]: ...
    def __getitem__(self, number: int | slice) -> pa.RecordBatch | list[pa.RecordBatch]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        with self._lock, self._reading():
            return self._reader.get_batch(range(len(self))[number])
