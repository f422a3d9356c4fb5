"""The protocol of a store: the operations that all other modules use.

The only method that publishes is `create`, which fails if the name exists. No record of a version is ever overwritten,
so a folder and an object store can behave alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from indexmill.store.byte_rate import ByteRateLimit

Names: TypeAlias = list[str]


@dataclass(frozen=True, slots=True)
class Stat:
    """The size and time of a record or blob."""

    bytes: int
    modified: float
    """The time of creation, or of the last put of a blob, in seconds since the epoch."""


class Store(Protocol):
    """Blobs named by their content, and small records with create-only names. Stores inherit from this protocol.

    A store can be pickled; the copy in another process is opened from its `url`. Every method raises StoreNotWritable
    if space or permission is missing, StoreError for other failures of the underlying system.
    """

    @property
    def url(self) -> str:
        """The URL that `open_store` accepts."""
        ...

    def put_blob(self, data: bytes | Path) -> str:
        """Store bytes or a file permanently; returns the digest.

        On return they survive a loss of power. An existing blob gets a new modification time, and its bytes are
        restored if they were damaged. A file in the store's own scratch folder becomes the blob: do not write to it
        afterwards.
        """
        ...

    def blob_size(self, digest: str) -> int | None:
        """Return the length of a blob, or None if it is missing; does not read its bytes.

        Many calls may be answered from an earlier listing; `blob_sizes` returns the current state.
        """
        ...

    def blob_sizes(self, digests: Collection[str]) -> Mapping[str, int]:
        """Return the lengths of the blobs that exist now."""
        ...

    def open_local(self, digest: str) -> Path:
        """Return a local, read-only file of a blob, verified on first use per process; CorruptBlob if damaged."""
        ...

    def get_blob(self, digest: str) -> bytes:
        """Return the verified bytes of a small blob; CorruptBlob if it is missing or damaged."""
        ...

    def discard_blob(self, digest: str) -> bool:
        """Remove a blob whose bytes do not match its digest; False if it is intact, missing, or cannot be read."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Publish a record under a name: True if this call created it, False if the name exists (its record stays).

        Readers see the whole record or none. In both cases the existing record survives a loss of power.
        """
        ...

    def get(self, name: str) -> bytes:
        """Return the record with this name; NotFound if there is none."""
        ...

    def list(self, prefix: str) -> Names:
        """Return the names that begin with a prefix, sorted."""
        ...

    def stat(self, name: str) -> Stat | None:
        """Return the size and modification time of a record or blob; None if it is missing."""
        ...

    def stats(self, prefix: str) -> Mapping[str, Stat]:
        """Return the sizes and modification times of the names that begin with a prefix, sorted; uses a listing."""
        return {name: stat for name in self.list(prefix) if (stat := self.stat(name)) is not None}

    def now(self) -> float:
        """Return the time of the clock that sets modification times, in seconds since the epoch."""
        ...

    def delete(self, name: str) -> None:
        """Remove a record, or a blob by its path; nothing happens if there is none."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Replace an existing record: readers see the old or the new one.

        Only three callers need it: forgetting, to remove the names of documents from records; repair, for damaged
        records; and a run that reads its corpus again.
        """
        ...

    def scratch(self, run_id: str) -> Path:
        """Return a local folder for the files of a run, on the same disk as the blobs; created if missing."""
        ...

    def drop_scratch(self, run_id: str) -> None:
        """Remove the scratch folder of a run and everything in it."""
        ...

    @property
    def folder(self) -> Path:
        """The folder on this machine that the store writes to: its own, or that of the cache of an object store."""
        ...

    def limit(self, pace: ByteRateLimit) -> None:
        """Transfer files to or from the store at this pace from now on, in all threads that use the object.

        Once the pace is stopped, methods that transfer files raise TransferStopped.
        """
        ...

    def requests(self) -> Mapping[str, int]:
        """Return the number of requests that this object has sent, by kind, and their bytes; empty for a folder."""
        return {}

    def freeing_space(self) -> AbstractContextManager[None]:
        """Return a context for freeing space: on a full disk, records written in it may use the reserve."""
        return nullcontext()

    def keep_reserve(self) -> None:
        """Reserve space for `freeing_space`; does nothing unless the store is on a disk that can fill up."""
        return

    def sweep(self, now: float, keep: str = "") -> int:
        """Remove unfinished files of dead processes, and the scratch folders of runs other than `keep`.

        Only the holder of the lease may call it. Returns the number of files and folders removed.
        """
        ...
