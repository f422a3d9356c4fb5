"""The typed graph: nodes of seven kinds and typed edges, built from pieces in any order (NodeRAG, section 2).

    edge         from             to
    mention      unit             entity           the unit names the entity
    source       entity           relation         \\  a relation keeps its direction:
    target       relation         entity           /   it is read from source to target
    same_as      entity           entity           their names are nearly equal
    attribute    entity           attribute
    overview     high-level       overview
    text         text             unit             the unit comes from the passage
    match        unit, attribute  high-level       Algorithm 2
    near         text, unit, attribute, high-level, both ends
    subject      unit             entity           the unit's passage is about the entity

Every graph built here respects this table: `graph_of` looks up an edge's ends only among nodes of the allowed kinds.
Two nodes are linked at most once, with weight 1, by the first kind in this list that links them. Every entity is named
by a unit or is the subject of one. Relations with the same wording between the same entities are one node (section 2.2:
nodes do not depend on the event in which they were found).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.heterograph.search import KINDS
from indexmill.retrieve.matrices import Sparse
from schemas.tables import conform
from tasks.families.heterograph.tables import HETERO_EDGES, HETERO_NODES
from tasks.stages.resolve.name_counts import SUBJECT_KINDS

ENDS: Mapping[str, tuple[str, str]] = {
    "mention": ("S", "N"),
    "source": ("N", "R"),
    "target": ("R", "N"),
    "same_as": ("N", "N"),
    "attribute": ("N", "A"),
    "overview": ("H", "O"),
    "text": ("T", "S"),
    "match": ("SA", "H"),
    "near": ("TSAH", "TSAH"),
    "subject": ("S", "N"),
}
"""The kinds of edges, with the kinds of their source and target nodes."""

_SYMMETRIC = ("same_as", "near")  # the earlier node is the source

Ends = NDArray[np.int32]


@dataclass(frozen=True)
class Pieces:
    """Nodes by kind, and edges by kind as two parallel arrays of ids; in any order, repeats allowed."""

    nodes: Mapping[str, pa.Array] = field(default_factory=dict)
    edges: Mapping[str, tuple[pa.Array, pa.Array]] = field(default_factory=dict)


@dataclass(frozen=True)
class TypedGraph:
    """A graph as arrays. ids: the ids of all nodes, ordered by KINDS and then by id.

    offsets: (8,) int64, the first row of each kind, and the end. edges: (m, 2) int32, the rows of source and target.
    kinds: (m,) uint8, indexes into ENDS. Edges are ordered by kind, source and target; no two nodes are linked twice,
    and no node is linked to itself.
    """

    ids: pa.Array
    offsets: NDArray[np.int64]
    edges: Ends
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, kind: str) -> slice:
        place = KINDS.index(kind)
        return slice(int(self.offsets[place]), int(self.offsets[place + 1]))

    def ids_of(self, kind: str) -> pa.Array:
        """Return the ids of a kind of nodes, ascending."""
        rows = self.rows(kind)
        return self.ids.slice(rows.start, rows.stop - rows.start)

    def of(self, kind: str) -> Ends:
        place = np.searchsorted(self.kinds, [list(ENDS).index(kind), list(ENDS).index(kind) + 1])
        return self.edges[place[0] : place[1]]

    @cached_property
    def links(self) -> Sparse:
        """The undirected links: every edge is in the rows of both ends."""
        return linked(len(self), self.edges)

    @cached_property
    def link_kinds(self) -> NDArray[np.uint8]:
        """The index in ENDS of each link's kind, in the order of ``links``."""
        source, target = self.edges.T.astype(np.int64)
        order = np.argsort(np.concatenate([source * len(self) + target, target * len(self) + source]))
        return np.concatenate([self.kinds, self.kinds])[order]

    @cached_property
    def node_kinds(self) -> NDArray[np.int8]:
        """The index in KINDS of each node's kind, (n,)."""
        return np.arange(len(KINDS), dtype=np.int8).repeat(np.diff(self.offsets))

    def counts(self) -> dict[str, int]:
        """Return the number of nodes and edges of each kind, including those of table 4 of the paper."""
        nodes = dict(zip(KINDS, np.diff(self.offsets).tolist(), strict=True))
        edges = dict(zip(ENDS, np.bincount(self.kinds, minlength=len(ENDS)).tolist(), strict=True))
        return nodes | edges | {"nodes": len(self), "edges": len(self.edges)}

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Return the tables of nodes and edges: HETERO_NODES, HETERO_EDGES."""
        kinds = pa.array(KINDS).take(pa.array(self.node_kinds))
        names = pa.array(list(ENDS)).take(pa.array(self.kinds))
        ends = {name: self.ids.take(pa.array(self.edges[:, place])) for place, name in enumerate(("source", "target"))}
        weights = pa.array(np.ones(len(self.edges), dtype=np.float32))
        return (
            conform(pa.table({"node_id": self.ids, "kind": kinds}), HETERO_NODES),
            conform(pa.table({**ends, "kind": names, "weight": weights}), HETERO_EDGES),
        )


def node_id(what: str, *parts: str) -> str:
    """Return the id of a node, 32 hex digits. All parts but the last are ids, so the hashed text is unambiguous."""
    return hashlib.sha256("\0".join((what, *parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def graph_of(*pieces: Pieces) -> TypedGraph:
    """Join pieces into one graph.

    Raises ValueError for an edge whose end is not a node of an allowed kind, a node linked to itself, and an id shared
    by two kinds of nodes.
    """
    ids, sizes = [], []
    for kind in KINDS:
        some = pl.concat([_series(one.nodes[kind]) for one in pieces if kind in one.nodes] or [_series([])])
        ids.append(some.unique().sort())
        sizes.append(len(ids[-1]))
    every = pl.concat(ids)
    if every.n_unique() < len(every):
        twice = every.filter(every.is_duplicated()).min()
        raise ValueError(f"two kinds of nodes have the id {twice!r}: give each node its own id")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edges, kinds = [np.empty((0, 2), dtype=np.int32)], [np.empty(0, dtype=np.uint8)]
    for number, (name, allowed) in enumerate(ENDS.items()):
        some_ends = [one.edges[name] for one in pieces if name in one.edges]
        if not some_ends:
            continue
        pairs = np.stack(
            [
                _rows(pl.concat([_series(ends[side]) for ends in some_ends]), ids, offsets, name, allowed[side])
                for side in (0, 1)
            ],
            axis=1,
        )
        if name in _SYMMETRIC:
            pairs.sort(axis=1)
        itself = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if itself.size:
            raise ValueError(f"{name}: {every[int(pairs[itself[0], 0])]!r} is linked to itself; leave such edges out")
        edges.append(pairs)
        kinds.append(np.full(len(pairs), number, dtype=np.uint8))
    return TypedGraph(_array(every), offsets, *_once(len(every), np.concatenate(edges), np.concatenate(kinds)))


def graph_of_tables(nodes: pa.Table, edges: pa.Table) -> TypedGraph:
    """Return the graph of two tables, HETERO_NODES and HETERO_EDGES; raises ValueError like `graph_of`."""
    unknown = set(nodes["kind"].unique().to_pylist()) - set(KINDS)
    unknown |= set(edges["kind"].unique().to_pylist()) - set(ENDS)
    if unknown:
        raise ValueError(f"kinds of nodes or edges {sorted(unknown)} are unknown; the kinds are {(*KINDS, *ENDS)}")
    by_kind = {kind: nodes.filter(pc.equal(nodes["kind"], kind))["node_id"].combine_chunks() for kind in KINDS}
    by_edge = {}
    for kind in ENDS:
        some = edges.filter(pc.equal(edges["kind"], kind))
        by_edge[kind] = (some["source"].combine_chunks(), some["target"].combine_chunks())
    return graph_of(Pieces(by_kind, by_edge))


def decomposed(
    units: pa.Table, unit_entities: pa.Table, relations: pa.Table, same_as: pa.Table | None = None
) -> Pieces:
    """Return the pieces of units, relations and entities (section 2.2), from the tables EXTRACTION.

    same_as: schema SAME_AS; pairs with an entity that is not in the other tables are left out.
    """
    nodes = relation_nodes(relations)
    entities = pl.concat([_series(column) for column in (unit_entities["entity_id"], nodes["source"], nodes["target"])])
    edges = {
        "mention": (unit_entities["unit_id"], unit_entities["entity_id"]),
        "source": (nodes["source"], nodes["node_id"]),
        "target": (nodes["node_id"], nodes["target"]),
    }
    if same_as is not None:
        entity_ids = _array(entities.unique())
        both = same_as.filter(
            pc.and_(pc.is_in(same_as["entity_id"], entity_ids), pc.is_in(same_as["other_id"], entity_ids))
        )
        edges["same_as"] = (both["entity_id"], both["other_id"])
    return Pieces({"S": units["unit_id"], "R": nodes["node_id"], "N": _array(entities)}, edges)


def relation_ids(relations: pa.Table) -> pa.Array:
    """Return the id of each relation's node. relations: schema RELATIONS."""
    rows = zip(*(relations[name].to_pylist() for name in ("source", "target", "text")), strict=True)
    return pa.array([node_id("relation", *row) for row in rows], pa.string())


def relation_nodes(relations: pa.Table) -> pa.Table:
    """Return the relation nodes of some relations (schema RELATIONS), ordered by node_id.

    The columns are those of HETERO_RELATIONS except `said`, which `tasks.families.heterograph.texts.relation_table`
    adds.
    """
    columns = ("source", "target", "text")
    distinct = pl.DataFrame({name: _series(relations[name]) for name in columns}).unique()
    table = pa.table({name: _array(distinct[name]) for name in columns})
    return table.add_column(0, "node_id", relation_ids(table)).sort_by("node_id")


def attributes(table: pa.Table) -> Pieces:
    """Return attributes with their entities (section 2.3). table: columns `attribute_id` and `entity_id`."""
    return Pieces({"A": table["attribute_id"]}, {"attribute": (table["entity_id"], table["attribute_id"])})


def high_level(table: pa.Table) -> Pieces:
    """Return high-level elements with their overviews (section 2.3). table: columns `element_id` and `overview_id`."""
    return Pieces(
        {"H": table["element_id"], "O": table["overview_id"]},
        {"overview": (table["element_id"], table["overview_id"])},
    )


def texts(passages: pa.Table, units: pa.Table) -> Pieces:
    """Return the pieces that link passages to their units (section 2.4). Schemas: PASSAGES, UNITS."""
    return Pieces({"T": passages["passage_id"]}, {"text": (units["passage_id"], units["unit_id"])})


def subjects(units: pa.Table, mentions: pa.Table) -> Pieces:
    """Return the pieces that link units to the subjects of their passages (not in the paper). Schemas: UNITS, MENTIONS.

    A sentence seldom repeats the subject of its document ("He was born in ..."), so without these links a search for
    the subject would not find it.
    """
    about = mentions.filter(pc.is_in(mentions["kind"], pa.array(SUBJECT_KINDS)))
    unit_passages = pl.DataFrame({name: _series(units[name]) for name in ("unit_id", "passage_id")})
    passage_subjects = pl.DataFrame({name: _series(about[name]) for name in ("passage_id", "entity_id")}).unique()
    pairs = unit_passages.join(passage_subjects, on="passage_id").select("unit_id", "entity_id")
    entities = _array(pairs["entity_id"])
    return Pieces({"N": entities}, {"subject": (_array(pairs["unit_id"]), entities)})


def linked(size: int, edges: NDArray[np.integer]) -> Sparse:
    """Return the symmetric adjacency matrix, with `size` rows, of edges (m, 2). No pair of nodes may be repeated."""
    keys = np.empty(2 * len(edges), dtype=np.int64)
    for place, side in enumerate((0, 1)):
        half = keys[place * len(edges) : (place + 1) * len(edges)]
        half[:] = edges[:, side]
        half *= size
        half += edges[:, 1 - side]
    keys.sort()
    indptr = keys.searchsorted(np.arange(size + 1, dtype=np.int64) * size)
    keys %= max(size, 1)
    return Sparse(indptr.astype(np.int64), keys.astype(np.int32))


def places(ids: pa.Array | pa.ChunkedArray, among: pa.Array) -> NDArray[np.int64]:
    """Return the index of each id in `among`, -1 if it is missing."""
    flat = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    indices = pc.fill_null(pc.index_in(flat, among), -1)
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _rows(ends: pl.Series, ids: Sequence[pl.Series], offsets: NDArray[np.int64], name: str, allowed: str) -> Ends:
    """Return the row of each edge end among the nodes of the allowed kinds; raises ValueError if an end is missing."""
    rows = np.full(len(ends), -1, dtype=np.int32)
    arrow = _array(ends)
    for kind in allowed:
        place = KINDS.index(kind)
        at = pc.index_in(arrow, _array(ids[place]))
        matched = at.is_valid().to_numpy(zero_copy_only=False)
        rows[matched] = at.drop_null().to_numpy() + np.int32(offsets[place])
    missing = np.flatnonzero(rows < 0)
    if missing.size:
        kinds = " or ".join(allowed)
        raise ValueError(
            f"{name}: {ends[int(missing[0])]!r} is not a node of kind {kinds} ({missing.size:,} such ends of"
            f" {len(rows):,}); give the nodes of all edges"
        )
    return rows


def _once(size: int, edges: Ends, kinds: NDArray[np.uint8]) -> tuple[Ends, NDArray[np.uint8]]:
    """Return the sorted edges and their kinds; a pair of nodes appears once, with its first kind."""
    pairs = np.minimum(edges[:, 0], edges[:, 1]).astype(np.int64)
    pairs *= max(size, 1)
    pairs += np.maximum(edges[:, 0], edges[:, 1])
    order = np.lexsort((kinds, pairs))
    same = np.diff(pairs[order], prepend=-1) == 0
    first_edges = order[~same]
    edges, kinds = edges[first_edges], kinds[first_edges]
    order = np.lexsort((edges[:, 1], edges[:, 0], kinds))
    return edges[order], kinds[order]


def _series(values: pa.Array | pa.ChunkedArray | Iterable[Any]) -> pl.Series:
    return pl.Series(values, dtype=pl.String)


def _array(values: pl.Series) -> pa.Array:
    return values.to_arrow().cast(pa.string())
