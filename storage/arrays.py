"""Packs as blobs."""

from __future__ import annotations

import tempfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from indexmill.store.canonical import digest_of
from indexmill.store.folder_files import hash_file
from indexmill.store.packs import write_pack
from storage.protocol import Store
from storage.write_errors import writing_to_store

_SMALL = 1 << 20
"""The maximum size of arrays that are packed in memory, in bytes."""


def put_pack(
    store: Store, run_id: str, arrays: Mapping[str, NDArray[Any]], there: Container[str] = ()
) -> tuple[str, int]:
    """Store arrays as one blob; returns its digest and length.

    there: digests of existing blobs, which are not stored or uploaded again.

    Small arrays are packed in memory, so that existing ones need no file. Large ones are written to a file in a new
    folder of the run's scratch folder, so that two tasks, or two tries of one, never collide; the file becomes the blob
    without a copy. Raises DiskFull or StoreNotWritable if it cannot be written.
    """
    if sum(array.nbytes for array in arrays.values()) <= _SMALL:
        data = write_pack(None, arrays)
        digest = digest_of(data)
        return digest if digest in there else store.put_blob(data), len(data)
    scratch = store.scratch(run_id)
    with writing_to_store(scratch / "pack"), tempfile.TemporaryDirectory(dir=scratch, prefix="pack-") as folder:
        path = Path(folder) / "pack"
        size = write_pack(path, arrays)
        digest = hash_file(path)[0] if there else ""
        return digest if digest in there else store.put_blob(path), size
