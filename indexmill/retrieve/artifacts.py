"""A retriever's view of a snapshot: its artifacts, each read on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from indexmill.store.artifact_listing import Artifact
    from indexmill.store.manifest import Manifest

T = TypeVar("T")


class Artifacts(Protocol):
    """The artifacts of one version, read-only. Thread-safe."""

    @property
    def path(self) -> Path | str:
        """The snapshot's location, for messages."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The snapshot's manifest."""
        ...

    @property
    def version(self) -> int | None:
        """The version that hits carry; None if nothing was published."""
        ...

    @property
    def dimensions(self) -> int | None:
        """The length of a passage's vector; None without vectors."""
        ...

    def artifact(self, name: str) -> Artifact:
        """The manifest's entry for an artifact; raises NotFound."""
        ...

    def shards(self, name: str) -> tuple[Artifact, ...]:
        """The artifacts ``name/<shard>`` in label order, else the artifact ``name``; may be empty."""
        ...

    def file(self, name: str) -> Path:
        """The verified local file of an artifact. Raises NotFound, CorruptBlob."""
        ...

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, its shards concatenated; all columns unless ``columns`` names some. Raises NotFound, CorruptBlob."""
        ...

    def arrays(self, name: str) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays of one artifact by name, mapped read-only. Raises NotFound, CorruptBlob."""
        ...

    def vectors(self, name: str, array: str) -> Sequence[npt.NDArray[np.float32]]:
        """The same array of every artifact ``name/<label>``: ``(n, d)`` maps, rows numbered consecutively.

        An artifact is opened on first access to its rows.
        """
        ...

    def assembled(
        self, name: str, make: Callable[[], Mapping[str, npt.NDArray[Any]]]
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Arrays that ``make`` computes from this snapshot alone, cached by name; read-only.

        They are memory-mapped if a disk cache stores them: see ``indexmill.store.assemblies``. The name is a plain path
        component that ends with a number; raise it whenever ``make`` returns something else for the same shards.
        """
        ...

    def unpacked(self, name: str, columns: Sequence[str]) -> Sequence[pa.RecordBatch] | None:
        """Some columns of the tables ``name/<shard>``, a batch for each in label order, mapped from a cache.

        None if no disk cache stores them, or if one of the tables cannot be read.
        """
        ...

    def once(self, key: str | tuple[str, ...], make: Callable[[], T]) -> T:
        """The result of ``make``, cached by key; read errors become CorruptBlob."""
        ...
