"""What a retriever sees of a snapshot: its artifacts, each read when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from indexmill.store.manifest import Artifact, Manifest

__all__ = ["Artifacts"]

T = TypeVar("T")


class Artifacts(Protocol):
    """The artifacts of one version, read-only. Thread-safe."""

    @property
    def path(self) -> Path:
        """Where they lie: messages name it."""
        ...

    @property
    def manifest(self) -> Manifest:
        """What there is."""
        ...

    @property
    def version(self) -> int | None:
        """The version that hits name; None where nothing was published."""
        ...

    @property
    def dimensions(self) -> int | None:
        """The length of a passage's vector; None without vectors."""
        ...

    def artifact(self, name: str) -> Artifact:
        """The manifest's entry for an artifact; raises NotFound."""
        ...

    def shards(self, name: str) -> tuple[Artifact, ...]:
        """The artifacts ``name/<shard>`` in the order of their labels, else the one called ``name``; may be empty."""
        ...

    def file(self, name: str) -> Path:
        """The verified local file of an artifact. Raises NotFound, CorruptBlob."""
        ...

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, its shards one after the other; all columns unless some are named. Raises NotFound, CorruptBlob."""
        ...

    def arrays(self, name: str) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays of one artifact by name, mapped read-only. Raises NotFound, CorruptBlob."""
        ...

    def vectors(self, name: str, array: str) -> list[npt.NDArray[np.float32]]:
        """The same array of every shard ``name/<shard>``: ``(n, d)`` maps, rows numbered one after the other."""
        ...

    def once(self, key: str | tuple[str, ...], make: Callable[[], T]) -> T:
        """What ``make`` returned the first time it was called for this key; errors of reading become CorruptBlob."""
        ...
