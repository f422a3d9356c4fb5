"""The displayed names of entities, and which of them a user with limited rights may see.

An entity is displayed as the corpus writes it most often, so its surface may come from documents that a user may not
read. Such a user sees a surface only if a passage that the user may read contains it, otherwise the canonical name.

Texts written from several passages, such as summaries, spell names in the displayed form, too. So whether a user may
see such a text depends on its passages and on the names that they mention (``plain``).
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.matrices import Rows, Sparse, both_ways
from indexmill.retrieve.retrieval_method import Allowed
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    import pyarrow as pa

_BY_ENTITY: CacheKey[tuple[Sparse, Sparse]] = CacheKey("passages by entity")
_LABELS: CacheKey[EntityLabels] = CacheKey("entity labels")
_NAMED: CacheKey[_Named] = CacheKey("passages that name entities")

KEPT_READERS = 16
"""The number of masks of readable passages whose results (a byte per entity and per passage) are cached."""

_NAMING = ("mentions", "extracted")
"""The tables that record which passages name an entity, and the surface they use."""


class _Named(NamedTuple):
    """Parallel columns that record which passage names which entity. as_shown: True if by the displayed surface."""

    entities: Rows
    passages: Rows
    as_shown: npt.NDArray[np.bool_]


class EntityLabels:
    """The labels of a snapshot's entities, by their rows in the table of entities. Thread-safe."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._rows = TableRows(artifacts, "entities", ["entity_id", "surface"])
        self._names = TableRows(artifacts, "entities", ["name"])
        self._spelled = lru_cache(maxsize=KEPT_READERS)(self._spelled_by)
        self._plain = lru_cache(maxsize=KEPT_READERS)(self._plain_by)

    def __len__(self) -> int:
        return len(self._rows)

    def ids(self, rows: Rows) -> list[str]:
        return self._rows.take(rows, "entity_id")

    def shown(self, rows: Rows, readable: Allowed | None) -> list[str]:
        """Return the labels of entities that readable passages name. readable: a mask of passages; None for all."""
        surfaces = self._rows.take(rows, "surface")
        if readable is None or not len(rows):
            return surfaces
        spelled = self.spelled(readable)[rows].tolist()
        names = self._names.take(rows, "name")
        return [surface if visible else name for surface, name, visible in zip(surfaces, names, spelled, strict=True)]

    def spelled(self, readable: Allowed) -> Allowed:
        """Return a read-only mask ``(n_entities,)`` of the entities whose surface a readable passage contains."""
        return self._spelled(len(readable), np.packbits(readable).tobytes())

    def plain(self, readable: Allowed) -> Allowed:
        """Return a read-only mask ``(n_passages,)`` of the readable passages that name only ``spelled`` entities."""
        return self._plain(len(readable), np.packbits(readable).tobytes())

    def passages(self) -> tuple[Sparse, Sparse]:
        """Return the entities x passages matrix of how often each passage names each entity, and its transpose."""
        return self._artifacts.once(_BY_ENTITY, self._by_passage)

    def names(self, rows: Rows) -> list[str]:
        """Return the canonical names of entities, each of which must be named in a passage the user may read."""
        return self._names.take(rows, "name")

    def rows_of(self, ids: pa.Array) -> Rows:
        """Return the rows of some entities by their ids, -1 for an unknown id."""
        import pyarrow.compute as pc

        rows = pc.fill_null(pc.index_in(ids, value_set=self._ids), -1)
        return np.asarray(rows, dtype=np.int64)

    def _spelled_by(self, passages: int, packed: bytes) -> Allowed:
        readable, named = _unpacked(passages, packed), self._named
        spelled: Allowed = np.zeros(len(self), dtype=np.bool_)
        spelled[named.entities[named.as_shown & readable[named.passages]]] = True
        spelled.setflags(write=False)
        return spelled

    def _plain_by(self, passages: int, packed: bytes) -> Allowed:
        readable, named = _unpacked(passages, packed), self._named
        plain = readable.copy()
        plain[named.passages[~self._spelled(passages, packed)[named.entities]]] = False
        plain.setflags(write=False)
        return plain

    @cached_property
    def _ids(self) -> pa.Array:
        return self._column("entity_id")

    def _column(self, name: str) -> Any:
        import pyarrow as pa

        shards = [self._rows.shard(number)[name] for number in range(len(self._rows.tables))]
        return pa.concat_arrays(shards) if shards else pa.array([], pa.string())

    @property
    def _named(self) -> _Named:
        return self._artifacts.once(_NAMED, self._read)

    def _by_passage(self) -> tuple[Sparse, Sparse]:
        named, passages = self._named, sum(shard.rows or 0 for shard in self._artifacts.shards("passages"))
        counts = np.ones(len(named.entities), dtype=np.int32)
        return both_ways(named.entities, named.passages, counts, len(self), passages)

    def _read(self) -> _Named:
        import pyarrow as pa
        import pyarrow.compute as pc

        artifacts, surfaces, first = self._artifacts, self._column("surface"), 0
        naming = {artifact.name for name in _NAMING for artifact in artifacts.shards(name)}
        tables = [_Named(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))]
        for artifact in artifacts.shards("passages"):
            passages = artifacts.table(artifact.name, ["passage_id"])["passage_id"].combine_chunks()
            label = artifact.name.partition("/")[2]
            for name in sorted(naming.intersection(f"{table}/{label}" for table in _NAMING)):
                columns = ("passage_id", "entity_id", "surface")
                table = artifacts.table(name, columns)
                passage_ids, entity_ids, written_surfaces = (table[column].combine_chunks() for column in columns)
                places, rows = pc.index_in(passage_ids, value_set=passages), self.rows_of(entity_ids)
                if places.null_count or (rows < 0).any():
                    raise CorruptBlob(f"{artifacts.path}: {name!r} names unknown passages or entities")
                as_shown = pc.equal(written_surfaces, surfaces.take(pa.array(rows))).to_numpy(zero_copy_only=False)
                at = np.asarray(places, dtype=np.int64) + first
                tables.append(_Named(rows, at, as_shown.astype(np.bool_)))
            first += len(passages)
        return _Named(*(np.concatenate(column) for column in zip(*tables, strict=True)))


def _unpacked(length: int, packed: bytes) -> Allowed:
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=length)
    return bits.astype(np.bool_)


def entity_labels_of(artifacts: Artifacts) -> EntityLabels:
    """Open the labels of a snapshot's entities, once."""
    return artifacts.once(_LABELS, lambda: EntityLabels(artifacts))
