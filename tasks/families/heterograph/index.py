"""Stage `heterograph`: texts, units, relations, entities, attributes, high-level elements and overviews as one graph.

NodeRAG, sections 2.2 to 2.4. The graph has the extracted pieces, the texts about important entities and communities,
and two kinds of edges made from vectors: between a high-level element and a near unit or attribute of its community
(Algorithm 2), and between neighbours of any kind that has vectors. The tables are `nodes`, `edges` (HETERO_NODES,
HETERO_EDGES) and `relations` (HETERO_RELATIONS). Packs: `graph` and `names` (indexmill.families.heterograph.schema).
Row i of `names` belongs to node offsets[5] + i: an entity's canonical name, or an overview's title in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.heterograph.schema import ATTRIBUTE_VECTORS, ELEMENT_VECTORS, GRAPH, NAMES, UNIT_VECTORS
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.retrieve.shared_schema import VECTORS
from indexmill.text.canonical_names import NameIndex, canonical_name
from schemas.tables import RELATIONS, SAME_AS
from tasks.core.communities.graph import Floats
from tasks.core.shards import estimate_tokens
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, shared_tables
from tasks.families.heterograph.communities import communities_of, community_rows
from tasks.families.heterograph.graph import (
    ENDS,
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    high_level,
    places,
    relation_nodes,
    subjects,
    texts,
)
from tasks.families.heterograph.names import name_words
from tasks.families.heterograph.support import support
from tasks.families.heterograph.tables import (
    HETERO_ATTRIBUTES,
    HETERO_COMMUNITIES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_READ,
    HETERO_RELATIONS,
)
from tasks.families.heterograph.texts import relation_table
from tasks.families.heterograph.vector_edges import clusters_of, matched, near_pairs

NODES = {
    "T": "texts",
    "S": "units",
    "A": "attributes",
    "H": "high_level",
    "R": "relations",
    "N": "entities",
    "O": "overviews",
}
"""The name of each kind of node in counts."""

TABLES = {
    "T": ("passages", "passage_id"),
    "S": ("units", "unit_id"),
    "A": ("attributes", "attribute_id"),
    "H": ("elements", "element_id"),
    "N": ("entities", "entity_id"),
    "O": ("elements", "overview_id"),
}
"""The table with the nodes of each kind, and its id column."""

_VECTORS = {
    "T": ("vectors", "passages"),
    "S": ("unit_vectors", "vectors"),
    "A": ("attribute_vectors", "vectors"),
    "H": ("element_vectors", "vectors"),
}
"""The packs with the vectors of each kind, parallel to those tables, and the array in each pack."""


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Count nodes and edges of each kind (table 4 of the paper), and fallbacks for a model's answers."""
    nodes = dict(zip((NODES[kind] for kind in KINDS), np.diff(pack["offsets"]).tolist(), strict=True))
    edges = {f"edges_{kind}": count for kind, count in zip(ENDS, pack["edges"].tolist(), strict=True)}
    whole = {"nodes": int(pack["offsets"][-1]), "edges": int(pack["edges"].sum())}
    return {**whole, **nodes, **edges, "stand_ins": int(pack["stand_ins"].sum())}


@dataclass(frozen=True, kw_only=True)
class HeterographStageSettings(StageSettings):
    """neighbours: the number of nearest nodes linked to each node. asks: whether a model was asked."""

    neighbours: int
    seed: int
    asks: bool
    dimension: int


@dataclass(frozen=True)
class _Tables:
    """The tables from which the graph is made, with the needed columns, over all shards."""

    passages: pa.Table
    units: pa.Table
    unit_entities: pa.Table
    relations: pa.Table
    attributes: pa.Table
    elements: pa.Table
    communities: pa.Table
    mentions: pa.Table
    same_as: pa.Table | None

    @classmethod
    def of(cls, part: Part[HeterographStageSettings]) -> _Tables:
        return cls(
            part.tables("passages", "passage_id", "document_id"),
            part.tables("units", "unit_id", "passage_id"),
            part.tables("unit_entities", "unit_id", "entity_id"),
            part.tables("relations", "passage_id", "source", "target", "text"),
            part.tables("attributes", "attribute_id", "entity_id", "stand_in"),
            part.tables("elements", "element_id", "overview_id", "community_id", "stand_in"),
            part.table("hetero_communities"),
            part.tables("mentions", "passage_id", "entity_id", "kind"),
            part.table("same_as", "entity_id", "other_id") if part.has("same_as") else None,
        )

    def pieces(self) -> tuple[Pieces, ...]:
        """Return all nodes, and the edges that are not made from vectors."""
        return (
            decomposed(self.units, self.unit_entities, self.relations, self.same_as),
            attributes(self.attributes),
            high_level(self.elements),
            texts(self.passages, self.units),
            subjects(self.units, self.mentions),
        )

    def read(self, part: Part[HeterographStageSettings]) -> pa.Table:
        """Return the nodes read for each attribute and element: columns owner (id of the text) and node_id."""
        tables = []
        for prefix, table, owner_column, id_column in (
            ("attribute_read", self.attributes, "entity_id", "attribute_id"),
            ("element_read", self.elements, "community_id", "element_id"),
        ):
            read = part.tables(prefix, "owner", "node_id")
            ids = table.select([owner_column, id_column]).rename_columns(["owner", "own"])
            joined = read.join(ids, "owner", join_type="inner")  # a community has several elements
            tables.append(pa.table({"owner": joined["own"], "node_id": joined["node_id"]}))
        return pa.concat_tables(tables)


def _compute(part: Part[HeterographStageSettings]) -> Outputs:
    settings = part.settings
    tables = _Tables.of(part)
    pieces = tables.pieces()
    graph = graph_of(*pieces)
    vectors = _vectors(part, graph)
    match = _matches(graph, vectors, tables, settings.seed)
    near = _near(graph, vectors, settings.neighbours, settings.seed)
    graph = graph_of(*pieces, match, near)
    entities = part.tables("entities", "entity_id", "name", "surface")
    relations = relation_table(relation_nodes(tables.relations), entities.select(["entity_id", "surface"]))
    passages = tables.passages["passage_id"].combine_chunks()
    comes_from = support(graph, passages, tables.units, tables.relations, tables.read(part))
    relation_texts = relations["said"].to_pylist()
    nodes, edges = graph.tables()
    asks = int(settings.asks)
    pack: dict[str, NDArray[Any]] = {
        **Heterograph(graph.offsets, graph.links, comes_from, graph.link_kinds).arrays(),
        "rows": _rows(part, graph),
        "entity_keys": NameIndex.keys(graph.ids_of("N").to_pylist()),
        "edges": np.bincount(graph.kinds, minlength=len(ENDS)).astype(np.int64),
        "relation_tokens": np.array([estimate_tokens(len(text.encode())) for text in relation_texts], dtype=np.int32),
        "stand_ins": np.array(
            [asks * (pc.sum(table["stand_in"]).as_py() or 0) for table in (tables.attributes, tables.elements)],
            dtype=np.int64,
        ),
    }
    return Outputs(
        tables={"nodes": nodes, "edges": edges, "relations": relations},
        packs={"graph": pack, "names": name_words(_names(part, graph, entities)).arrays()},
    )


def _shards(part: Part[HeterographStageSettings], kind: str, *columns: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the label and the table of each shard or group with nodes of a kind, in the order of labels."""
    name = TABLES[kind][0]
    for label in part.labels(name):
        yield label, part.table(f"{name}/{label}", *columns)


def _rows(part: Part[HeterographStageSettings], graph: TypedGraph) -> NDArray[np.int32]:
    """Return the row of each node in the concatenated tables of its kind."""
    rows = np.full(len(graph), -1, dtype=np.int32)
    relations = graph.rows("R")
    rows[relations] = np.arange(relations.stop - relations.start)
    for kind, (_, key) in TABLES.items():
        node_rows, ids, first = graph.rows(kind), graph.ids_of(kind), 0
        for _, table in _shards(part, kind, key):
            at = places(table[key], ids)
            rows[node_rows][at[at >= 0]] = first + np.flatnonzero(at >= 0)  # not every entity is a node
            first += len(table)
    return rows


def _vectors(part: Part[HeterographStageSettings], graph: TypedGraph) -> Floats:
    vectors: Floats = np.zeros((int(graph.offsets[4]), part.settings.dimension), dtype=np.float32)
    for kind, (name, array) in _VECTORS.items():
        nodes, ids, key = graph.rows(kind), graph.ids_of(kind), TABLES[kind][1]
        for label, table in _shards(part, kind, key):
            packs = part.packs(name, within=label)  # several if the stage publishes a shard in pieces
            if len(table):
                vectors[nodes][places(table[key], ids)] = np.concatenate([pack[array] for pack in packs])
    return vectors


def _matches(graph: TypedGraph, vectors: Floats, tables: _Tables, seed: int) -> Pieces:
    clustered = slice(graph.rows("S").start, graph.rows("H").stop)
    ids = graph.ids.slice(clustered.start, clustered.stop - clustered.start)
    elements = graph.rows("H").start - clustered.start
    communities = communities_of(tables.communities)
    memberships = community_rows(tables.communities, ids, communities)
    at = places(tables.elements["element_id"], graph.ids_of("H"))
    memberships[elements + at] = places(tables.elements["community_id"], communities)
    clusters = clusters_of(ids.to_pylist(), vectors[clustered], seed=seed)
    return _pieces("match", ids, matched(clusters, memberships, np.arange(len(ids)) >= elements))


def _near(graph: TypedGraph, vectors: Floats, neighbours: int, seed: int) -> Pieces:
    ids = graph.ids.slice(0, len(vectors))
    return _pieces("near", ids, near_pairs(ids.to_pylist(), vectors, neighbours, seed=seed))


def _pieces(kind: str, ids: pa.Array, pairs: NDArray[np.int64]) -> Pieces:
    return Pieces({}, {kind: (ids.take(pa.array(pairs[:, 0])), ids.take(pa.array(pairs[:, 1])))})


def _names(part: Part[HeterographStageSettings], graph: TypedGraph, entities: pa.Table) -> pa.Array:
    """Return the canonical names of entities, then the titles of overviews in canonical form."""
    elements = part.tables("elements", "overview_id", "title")
    names = []
    for kind, table, key, name in (("N", entities, "entity_id", "name"), ("O", elements, "overview_id", "title")):
        rows = pc.index_in(graph.ids_of(kind), table[key].combine_chunks())
        names.append(table[name].combine_chunks().take(rows))
    titles = [canonical_name(title) for title in names[1].to_pylist()]
    return pa.concat_arrays([names[0], pa.array(titles, pa.string())])


STAGE = Stage(
    "heterograph",
    version=5,
    compute=_compute,
    libraries=("numpy", "polars", "scipy"),
    expensive=True,
    inputs=(
        *shared_tables("units", "unit_entities", "entities", "passages", "mentions", each=True),
        Input("relations", RELATIONS, stage="extract", each=True),
        Input("same_as", SAME_AS, optional=True),
        Input("vectors", VECTORS, each=True),
        Input("unit_vectors", UNIT_VECTORS, each=True),
        Input("attributes", HETERO_ATTRIBUTES, each=True),
        Input("attribute_vectors", ATTRIBUTE_VECTORS, each=True),
        Input("elements", HETERO_ELEMENTS, each=True),
        Input("element_vectors", ELEMENT_VECTORS, each=True),
        Input("attribute_read", HETERO_READ, each=True),
        Input("element_read", HETERO_READ, each=True),
        Input("hetero_communities", HETERO_COMMUNITIES),
    ),
    outputs=(
        Output("graph", GRAPH, artifact="heterograph/graph"),
        Output("names", NAMES, artifact="heterograph/names"),
        Output("nodes", HETERO_NODES, artifact="heterograph/nodes"),
        Output("edges", HETERO_EDGES, artifact="heterograph/edges"),
        Output("relations", HETERO_RELATIONS, artifact="heterograph/relations"),
    ),
)
