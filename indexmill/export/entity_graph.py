"""The entities of a snapshot by row, with their titles, relations and passages.

Entities are the consecutive rows of the tables ``described/<label>``, relations those of ``related/<label>``, passages
those of ``passages/<label>``. Ids and links are in memory; texts are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.retrieve.columns import distinct
from indexmill.retrieve.matrices import Rows, Sparse, both_ways
from indexmill.retrieve.method_registry import enable
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts
    from indexmill.store.manifest import Manifest


_MANY = 65_536  # the number of ids converted to keys at a time


def how_to_extract() -> str:
    """Return advice on how to build a snapshot that has the data to export."""
    return f"set {enable('described')} in indexmill.yaml, build, and use the new version"


def check_extraction(manifest: Manifest, where: object) -> None:
    """Raise FamilyNotFound for a snapshot without extracted and merged entities and relations."""
    for name in ("described", "related", "relations"):
        if not (manifest.artifact(name) or manifest.under(name)):
            raise FamilyNotFound(
                f"{where}: the snapshot has no table {name!r}: nothing was extracted from its passages, or the "
                f"extraction was not merged by entity; {how_to_extract()}"
            )


def pieces(artifacts: Artifacts, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield columns of a table shard by shard, each with the number of rows in the previous shards."""
    from indexmill.store.table_reader import read_table

    row = 0
    for artifact in artifacts.shards(name):
        table = read_table(artifacts.file(artifact.name), artifact, columns)
        yield row, table
        row += len(table)


def paired(
    artifacts: Artifacts, name: str, columns: Sequence[str], second: str, second_columns: Sequence[str]
) -> Iterator[tuple[int, pa.Table, pa.Table]]:
    """Yield the same as `pieces`, each with the matching shard of a second table. Raises NotFound if it is missing."""
    from indexmill.store.table_reader import read_table

    labels = [artifact.name.removeprefix(name) for artifact in artifacts.shards(name)]
    for label, (row, table) in zip(labels, pieces(artifacts, name, columns), strict=True):
        yield row, table, read_table(artifacts.file(second + label), artifacts.artifact(second + label), second_columns)


def whole(artifacts: Artifacts, name: str, *columns: str) -> dict[str, pa.Array]:
    """Read some string columns of a table, with all shards concatenated."""
    none = pa.array([], pa.string())
    tables = [table for _, table in pieces(artifacts, name, columns)]
    return {
        column: pa.concat_arrays([none, *(chunk for table in tables for chunk in table[column].chunks)])
        for column in columns
    }


def unique_titles(surfaces: pa.Array, names: pa.Array) -> pa.Array:
    """Return a unique title for each entity: its surface form, followed by its canonical name if needed.

    surfaces, names: strings; names are distinct. Two entities "Mercury" become "Mercury (mercury planet)" and "Mercury
    (mercury god)". A canonical name contains no parenthesis, so titles that end in distinct names are distinct. A
    surface form that equals such a title also gets its canonical name, until no two titles are equal.
    """
    tail = pc.binary_join_element_wise(" (", names, ")", "")
    longer = pc.binary_join_element_wise(surfaces, tail, "")
    codes = pc.dictionary_encode(surfaces).indices.to_numpy(zero_copy_only=False)
    plain = np.bincount(codes, minlength=1)[codes] == 1
    clashes = plain
    while clashes.any():
        clashes = plain & pc.is_in(surfaces, longer.filter(pa.array(~plain))).to_numpy(zero_copy_only=False)
        plain = plain & ~clashes
    return pc.if_else(pa.array(plain), surfaces, longer)


class EntityGraph:
    """The graph of a snapshot's entities. Raises FamilyNotFound if nothing was extracted, CorruptBlob if damaged.

    entity_ids, titles, passage_ids: strings in the order of rows; no two titles are equal. sources, targets:
    ``(n_relations,) int64`` rows of entities.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        check_extraction(artifacts.manifest, artifacts.path)
        self._artifacts = artifacts
        shown = whole(artifacts, "described", "entity_id", "surface", "name")
        self.entity_ids: pa.Array = shown["entity_id"]
        self._keys = _keys(self.entity_ids)
        self._order = self._keys.argsort(kind="stable")
        self._sorted = self._keys[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            raise self._broken("'described' has a duplicate entity")
        self.titles: pa.Array = unique_titles(shown["surface"], shown["name"])
        self.passage_ids: pa.Array = whole(artifacts, "passages", "passage_id")["passage_id"]
        ends = [
            (self.rows(table["source"]), self.rows(table["target"])) for _, table in pieces(artifacts, "related", _ENDS)
        ]
        self.sources: Rows = np.concatenate([np.empty(0, np.int64), *(source for source, _ in ends)])
        self.targets: Rows = np.concatenate([np.empty(0, np.int64), *(target for _, target in ends)])

    def __len__(self) -> int:
        return len(self.entity_ids)

    def rows(self, ids: pa.ChunkedArray) -> Rows:
        """Return the rows of some entities. Raises CorruptBlob for an unknown id."""
        rows = _places(self._order, self._sorted, _keys(ids))
        if rows is None:
            raise self._broken("a relation names an entity that is not in the table 'described'")
        return rows

    @cached_property
    def degrees(self) -> Rows:
        """The number of entities related to each entity, in either direction: ``(n_entities,) int64``."""
        count = len(self)
        low, high = np.minimum(self.sources, self.targets), np.maximum(self.sources, self.targets)
        pairs = distinct(low * count + high)
        low, high = np.divmod(pairs, max(count, 1))
        return np.bincount(low, minlength=count) + np.bincount(high, minlength=count)

    @cached_property
    def _mentions(self) -> tuple[Sparse, Sparse]:
        links = [
            (self.rows(table["entity_id"]), passage) for passage, table in self._by_passage("extracted", "entity_id")
        ]
        return _linked(links, len(self), len(self.passage_ids))

    @cached_property
    def _evidence(self) -> tuple[Sparse, Sparse]:
        count = len(self)
        pairs = self.sources * count + self.targets
        order = pairs.argsort(kind="stable")
        ordered = pairs[order]
        links = []
        for passage, table in self._by_passage("relations", *_ENDS):
            related = _places(order, ordered, self.rows(table["source"]) * count + self.rows(table["target"]))
            if related is None:
                raise self._broken("'relations' has a pair of entities that 'related' lacks")
            links.append((related, passage))
        return _linked(links, len(pairs), len(self.passage_ids))

    @property
    def entity_passages(self) -> Sparse:
        """The matrix of entities and the passages that they were extracted from."""
        return self._mentions[0]

    @property
    def passage_entities(self) -> Sparse:
        """The transpose of entity_passages."""
        return self._mentions[1]

    @property
    def relation_passages(self) -> Sparse:
        """The matrix of relations and the passages that they were extracted from."""
        return self._evidence[0]

    @property
    def passage_relations(self) -> Sparse:
        """The transpose of relation_passages."""
        return self._evidence[1]

    def _broken(self, what: str) -> CorruptBlob:
        return CorruptBlob(f"{self._artifacts.path}: {what}; check it with `indexmill verify`, or build again")

    def _by_passage(self, name: str, *columns: str) -> Iterator[tuple[Rows, pa.Table]]:
        """Yield each shard of a table with the passage row of each of its rows."""
        shards = paired(self._artifacts, "passages", ["passage_id"], name, ["passage_id", *columns])
        for first, passages, table in shards:
            row = pc.index_in(table["passage_id"], passages["passage_id"].combine_chunks())
            if row.null_count:
                raise self._broken(f"{name!r} has passages that 'passages' lacks")
            yield row.to_numpy().astype(np.int64) + first, table


_ENDS = ("source", "target")


def _keys(ids: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint64]:
    """Compute the keys of a column of entity ids in chunks, so that few ids are Python objects at a time."""
    parts = [NameIndex.keys(ids.slice(low, _MANY).to_pylist()) for low in range(0, len(ids), _MANY)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def _places(order: Rows, ordered: npt.NDArray[Any], values: npt.NDArray[Any]) -> Rows | None:
    """Find the rows of ``values``; None if a value is missing. ordered: all values, sorted; order: their rows."""
    at = ordered.searchsorted(values)
    if (at == len(ordered)).any() or (ordered[at] != values).any():
        return None
    return order[at].astype(np.int64)


def _linked(links: Sequence[tuple[Rows, Rows]], height: int, width: int) -> tuple[Sparse, Sparse]:
    """Build the matrix of the distinct (row, column) pairs, and its transpose."""
    none = [np.empty(0, np.int64)]
    rows, columns = (np.concatenate([*none, *(pair[side] for pair in links)]) for side in (0, 1))
    return both_ways(rows, columns, None, height, width)
