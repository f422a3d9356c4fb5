"""A snapshot's artifacts, as retrievers see them: tables, arrays and files, verified on first use.

A blob's bytes are verified against their digest on first use; arrays are memory-mapped. Arrays that readers assemble
from shards are mapped from a cache on disk if there is one. Every public call is thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from indexmill.errors import CorruptBlob, IndexmillError, NotFound, StoreError
from indexmill.forks import LOADING, Lock

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from indexmill.retrieve.consecutive import Consecutive
    from indexmill.store.artifact_listing import Artifact
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.checked_packs import CheckedPacks
    from indexmill.store.manifest import Manifest
    from indexmill.store.pack_checks import ArrayLengths
    from indexmill.store.pack_schema import PackSchema
    from indexmill.store.packs import Pack

T = TypeVar("T")

OpenLocal = Callable[["Artifact"], Path]
"""A function that returns the verified local file of an artifact; raises CorruptBlob."""


@dataclass(frozen=True, eq=False)
class CacheKey(Generic[T]):
    """The key under which a snapshot caches a value, or one value per name: see ``Artifacts.once``."""

    what: str
    """The value's name in messages."""


_ABSENT = object()
_ARRAYS: CacheKey[Pack] = CacheKey("arrays")
_ASSEMBLED: CacheKey[Mapping[str, npt.NDArray[Any]]] = CacheKey("assembled")
_CHECKED: CacheKey[CheckedPacks] = CacheKey("checked packs")
_SIZES: CacheKey[ArrayLengths] = CacheKey("sizes")
_UNPACKED: CacheKey[Sequence[pa.RecordBatch] | None] = CacheKey("unpacked")


@contextmanager
def sound(path: Path | str, what: str) -> Iterator[None]:
    """Raise CorruptBlob instead of the errors that inconsistent artifacts cause in the block.

    A MemoryError is not converted: declared sizes were checked before, so this machine lacks memory.
    """
    try:
        yield
    except IndexmillError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, RecursionError) as error:
        raise CorruptBlob(
            f"{path}: the snapshot's {what} cannot be used: its artifacts do not fit together "
            f"({type(error).__name__}: {error}); check them with `indexmill verify`, or open another copy or version"
        ) from error


class Artifacts:
    """The artifacts of one snapshot, read-only."""

    def __init__(
        self,
        path: Path | str,
        open_local: OpenLocal,
        manifest: Manifest,
        version: int | None,
        schema_of: Callable[[str], PackSchema | None],
        assemblies: Assemblies | None,
        local: Callable[[Artifact], Path | None],
    ) -> None:
        """Set up access to the artifacts without reading any.

        schema_of: returns the schema of an artifact's arrays, given its name; None for arrays that are not checked.
        assemblies: the disk cache of arrays assembled from shards; None keeps them in memory only. local: returns the
        unverified path of an artifact on the local disk; None if it must be fetched.
        """
        self.path = path
        """The folder of the store or export, or the URL of a store."""
        self.manifest = manifest
        self.version = version
        """The version number; None for an exported folder, which does not record it, and for a candidate."""
        self._open_local, self._schema_of = open_local, schema_of
        self._assemblies, self._local = assemblies, local
        self._lock = Lock()
        self._values: dict[tuple[CacheKey[Any], tuple[str, ...]], Any] = {}
        self._closed = False

    @property
    def has_cache(self) -> bool:
        """True if arrays assembled from shards are cached on disk."""
        return self._assemblies is not None

    def artifact(self, name: str) -> Artifact:
        """Return the manifest's entry for an artifact; raises NotFound."""
        self._check_open()
        artifact = self.manifest.artifact(name)
        if artifact is None:
            raise NotFound(f"{self.path}: the snapshot has no artifact {name!r}; `indexmill show` lists them")
        return artifact

    def shards(self, name: str) -> tuple[Artifact, ...]:
        """Return the artifact ``name``, or else the artifacts ``name/<shard>`` in the order of their labels."""
        self._check_open()
        whole = self.manifest.artifact(name)
        return self.manifest.under(name) if whole is None else (whole,)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table from all shards, with all columns or only those named. Raises NotFound, CorruptBlob."""
        with LOADING:
            import pyarrow as pa

            from indexmill.store.table_reader import read_table

        shards = [shard for shard in self.shards(name) if shard.kind == "table"]
        if not shards:
            table_names = sorted(
                {artifact.name.split("/")[0] for artifact in self.manifest.artifacts if artifact.kind == "table"}
            )
            raise NotFound(
                f"{self.path}: the snapshot has no table {name!r}; it has {', '.join(table_names) or 'none'}"
            )
        tables = [read_table(self.file(shard.name), shard, columns) for shard in shards]
        return pa.concat_tables(tables, promote_options="default")  # a shard may lack the column of locations

    def arrays(self, name: str) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays of one artifact by name, mapped read-only. Raises NotFound, CorruptBlob."""
        artifact = self.artifact(name)
        if artifact.kind != "arrays":
            raise NotFound(f"{self.path}: the artifact {name!r} is of the kind {artifact.kind!r}; expected arrays")
        return self.once(_ARRAYS, lambda: self._open_arrays(artifact), name)

    def _open_arrays(self, artifact: Artifact) -> Pack:
        """Open the arrays of an artifact; skip the check of vectors that an earlier process has checked."""
        if self._assemblies is None or not artifact.name.startswith("vectors/"):
            return self._check_arrays(artifact)
        checked_packs = self.once(_CHECKED, self._checked_packs)
        return checked_packs.open(artifact, self._local(artifact)) or self._check_arrays(artifact)

    def _checked_packs(self) -> CheckedPacks:
        """Return the vector packs that a reader with the same cache has checked; empty if some must be fetched."""
        from indexmill.store.checked_packs import CheckedPacks, PackFile, describe_packs

        name, assemblies = "checked_vectors.2", self._assemblies
        artifacts = self.manifest.under("vectors")
        local = [(artifact, path) for artifact in artifacts if (path := self._local(artifact)) is not None]

        def describe() -> Mapping[str, npt.NDArray[Any]]:
            packs = [PackFile(artifact, path, self._key_of_check(artifact)) for artifact, path in local]
            return describe_packs(packs, self._check_arrays, () if assemblies is None else assemblies.earlier(name))

        if len(local) < len(artifacts):
            return CheckedPacks((), describe_packs((), self._check_arrays))
        return CheckedPacks(artifacts, self.assembled(name, describe))

    def _key_of_check(self, artifact: Artifact) -> bytes:
        """Hash everything that the check of a pack depends on."""
        from indexmill.store.canonical import canonical_json, digest_of
        from indexmill.store.pack_checks import lengths_for

        lengths = lengths_for(self._schema_of(artifact.name), self._lengths(artifact.name))
        return bytes.fromhex(digest_of(canonical_json([artifact.name, artifact.digest, artifact.schema_, lengths])))

    def _lengths(self, name: str) -> Mapping[str, int]:
        from indexmill.store.pack_checks import ArrayLengths

        return self.once(_SIZES, lambda: ArrayLengths(self.manifest)).of(name)

    def _check_arrays(self, artifact: Artifact) -> Pack:
        """Open and check the arrays of an artifact; raises CorruptBlob if they do not match its schema and manifest."""
        from indexmill.store.pack_checks import check_arrays
        from indexmill.store.packs import open_pack

        path = self.file(artifact.name)
        pack = open_pack(path)
        if artifact.schema_ is not None and pack.schema != artifact.schema_:
            raise CorruptBlob(f"{path}: {artifact.name!r} does not have the arrays that the manifest declares")
        if problem := check_arrays(self._schema_of(artifact.name), pack, self._lengths(artifact.name)):
            raise CorruptBlob(f"{path}: the arrays {artifact.name!r} cannot be used: {problem}")
        return pack

    def file(self, name: str) -> Path:
        """Return the verified local file of an artifact. Raises NotFound, CorruptBlob."""
        return self._open_local(self.artifact(name))

    def vectors(self, name: str, array: str) -> Consecutive:
        """Return ``array`` of each artifact ``name/<label>`` as ``(n, d)`` memory maps, opened on first access."""
        from indexmill.retrieve.consecutive import Consecutive

        artifacts = self.shards(name)
        lengths = []
        for artifact in artifacts:
            declared = artifact.schema_.get(array) if isinstance(artifact.schema_, dict) else None
            shape = declared.get("shape") if isinstance(declared, dict) else None
            if not isinstance(shape, list) or not shape or not isinstance(shape[0], int) or shape[0] < 0:
                raise CorruptBlob(f"{self.path}: the artifact {artifact.name!r} has no array {array!r}")
            lengths.append(shape[0])
        return Consecutive(lengths, lambda number: self.arrays(artifacts[number].name)[array])

    def row_vectors(self, table: str) -> Sequence[npt.NDArray[np.float32]]:
        """Return the vectors of ``passages`` or the directions of ``sentences``, one per table row, as memory maps.

        Each map is ``(n, d)``. Raises CorruptBlob if the total number of vectors differs from the table's rows.
        """
        vectors = self.vectors("vectors", table)
        rows = sum(shard.rows or 0 for shard in self.shards(table))
        if (length := int(vectors.starts[-1])) != rows:
            raise CorruptBlob(f"{self.path}: there are {length} vectors for {rows} rows of {table!r}; build again")
        return vectors

    def check_same_shards(self, *names: str) -> None:
        """Raise CorruptBlob unless the artifacts ``name/<shard>`` have the same shards for all names."""
        labels = [[shard.name.partition("/")[2] for shard in self.shards(name)] for name in names]
        if any(some != labels[0] for some in labels):
            raise CorruptBlob(f"{self.path}: {' and '.join(names)} are not in the same shards")

    @cached_property
    def dimensions(self) -> int | None:
        """The number of dimensions of a passage's vector; None if the snapshot has no vectors."""
        shards = self.vectors("vectors", "passages")
        return int(shards[0].shape[1]) if shards else None

    def once(self, key: CacheKey[T], make: Callable[[], T], *names: str) -> T:
        """Return the value of ``make``, which is called once per key and names. Read errors become CorruptBlob."""
        place = key, names
        value = self._values.get(place, _ABSENT)
        if value is _ABSENT:
            with self._lock:
                self._check_open()
                value = self._values.get(place, _ABSENT)
                if value is _ABSENT:
                    with LOADING, sound(self.path, " ".join([key.what, *names])):
                        value = self._values[place] = make()
        cached: T = value
        return cached

    def assembled(
        self, name: str, make: Callable[[], Mapping[str, npt.NDArray[Any]]]
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Return the read-only arrays that ``make`` computes from this snapshot alone, cached by name.

        They are memory-mapped if a disk cache stores them: see ``indexmill.store.assemblies``. The name is a plain path
        component that ends with a number. Increase the number when ``make`` changes its result for the same shards.
        """
        assemblies = self._assemblies
        return self.once(_ASSEMBLED, make if assemblies is None else lambda: assemblies.arrays(name, make), name)

    def unpacked(self, name: str, columns: Sequence[str]) -> Sequence[pa.RecordBatch] | None:
        """Return columns of the tables ``name/<shard>``, one batch per shard in label order, from the disk cache.

        They are memory-mapped. Returns None if no disk cache stores them, or if a table cannot be read.
        """
        assemblies = self._assemblies
        if assemblies is None:
            return None
        return self.once(_UNPACKED, lambda: self._unpack(assemblies, name, columns), name, *columns)

    def _unpack(self, assemblies: Assemblies, name: str, columns: Sequence[str]) -> Sequence[pa.RecordBatch] | None:
        """Return the batches of ``unpacked``; None if they are not cached and shards would have to be fetched."""
        from indexmill.store.canonical import canonical_json, digest_of
        from indexmill.store.table_reader import read_batch

        shards = self.shards(name)

        def unpack(number: int) -> pa.RecordBatch:
            return read_batch(self.file(shards[number].name), shards[number], columns)

        def is_local(number: int) -> bool:
            return self._local(shards[number]) is not None

        keys = [digest_of(canonical_json([shard.digest, shard.schema_])) for shard in shards]
        label = ".".join([name.replace("/", "."), *columns, "2"])
        return assemblies.batches(label, sum(shard.bytes for shard in shards), keys, unpack, is_local)

    def _release(self) -> None:
        """Forget everything that was read; returned arrays stay valid. Later calls raise StoreError."""
        with self._lock:
            self._closed = True
            self._values.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path}: the snapshot is closed; open it again with indexmill.open")
