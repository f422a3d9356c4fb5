"""The checks of heterograph: they refuse texts and vectors that do not fit each other, and an invalid graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.heterograph.name_words import NameWords
from indexmill.families.heterograph.schema import ATTRIBUTE_VECTORS, ELEMENT_VECTORS, GRAPH, NAMES, UNIT_VECTORS
from indexmill.families.heterograph.search import KINDS
from indexmill.retrieve.matrices import Sparse
from indexmill.text.names import NameIndex
from schemas.tables import ENTITIES, PASSAGES, UNITS
from tasks.core.checks import Check, check_pack, refuse_if
from tasks.core.groups import bits_of
from tasks.core.stage import Input, Part
from tasks.families.heterograph.graph import ENDS, TypedGraph, graph_of_tables, node_id
from tasks.families.heterograph.index import TABLES
from tasks.families.heterograph.support import faults
from tasks.families.heterograph.tables import (
    HETERO_ATTRIBUTES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_RELATIONS,
)
from tasks.stages.write.check import check_text_vectors

Pack = Mapping[str, NDArray[Any]]
Counts = Mapping[str, int]

_NODE_TABLES = {
    "passages": PASSAGES,
    "units": UNITS,
    "attributes": HETERO_ATTRIBUTES,
    "elements": HETERO_ELEMENTS,
    "entities": ENTITIES,
}


def check_units(part: Part[Any], _: Counts) -> dict[str, int]:
    """Check a shard's vectors of units against the units, and return the number of units."""
    texts = part.table("units", "text")["text"].to_pylist()
    check_text_vectors(part, "unit_vectors", texts)
    return {"units": len(texts)}


def check_attributes(part: Part[Any], _: Counts) -> dict[str, int]:
    """Check a shard's attributes against its entities, their texts and vectors, and return their number."""
    rows = part.table("attributes")
    where = f"attributes/{part.job.shard}"
    ids, of = rows["attribute_id"].to_pylist(), rows["entity_id"].to_pylist()
    refuse_if(ids != [node_id("attribute", one) for one in of], f"{where}: an attribute has not the id of its entity's")
    known = part.table("entities", "entity_id")["entity_id"].combine_chunks()
    strange = pc.sum(pc.invert(pc.is_in(rows["entity_id"], known))).as_py() or 0
    refuse_if(strange > 0, f"{where}: {strange} attributes of entities that are not there")
    _check_texts(part, rows, ids, where, "attribute_vectors")
    return {"attributes": len(ids)}


def check_elements(part: Part[Any], _: Counts) -> dict[str, int]:
    """Check the ids, texts and vectors of a group's high-level elements, and return their number."""
    rows, label = part.table("elements"), part.job.shard
    where = f"elements/{label}"
    ids = rows["element_id"].to_pylist()
    said = list(zip(rows["made_of"].to_pylist(), rows["text"].to_pylist(), strict=True))
    refuse_if(ids != [node_id("high_level", *one) for one in said], f"{where}: an element has not the id of its text")
    overviews = [node_id("overview", one) for one in ids]
    refuse_if(rows["overview_id"].to_pylist() != overviews, f"{where}: an overview has not the id of its element's")
    strange = [made_of for made_of, _ in said if not bits_of(made_of).startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: what is made of {strange[:1]} belongs to another group")
    _check_texts(part, rows, ids, where, "element_vectors")
    return {"elements": len(ids)}


def _check_texts(part: Part[Any], rows: pa.Table, ids: Sequence[str], where: str, vectors: str) -> None:
    """Check the order, the text digests and the vectors of attributes or elements."""
    refuse_if(any(one >= other for one, other in pairwise(ids)), f"{where}: not in the order of their ids")
    check_text_vectors(part, vectors, rows["text"].to_pylist(), where.partition("/")[0], rows["digest"].to_pylist())


@dataclass(frozen=True)
class GraphTables:
    """The artifacts of a heterograph."""

    nodes: pa.Table
    edges: pa.Table
    relations: pa.Table
    graph: Pack
    names: Pack

    @classmethod
    def of(cls, part: Part[Any]) -> GraphTables:
        """The artifacts among the inputs of `check_whole`."""
        return cls(
            part.table("heterograph/nodes"),
            part.table("heterograph/edges"),
            part.table("heterograph/relations"),
            part.pack("heterograph/graph"),
            part.pack("heterograph/names"),
        )


def rows_of_kinds(part: Part[Any]) -> dict[str, pa.Array]:
    """The ids in the tables of each kind of node, concatenated in the order of the tables' names."""
    return {kind: part.tables(name, key)[key].combine_chunks() for kind, (name, key) in TABLES.items()}


def check_whole(part: Part[Any], _: Counts) -> dict[str, int]:
    """Check the graph against the tables of its nodes."""
    check_graph(GraphTables.of(part), rows_of_kinds(part))
    return {}


def check_graph(made: GraphTables, ids: Mapping[str, pa.Array]) -> None:
    """Raise CheckError unless the artifacts of a heterograph are one graph over the rows of its tables.

    ids: see `rows_of_kinds`.
    """
    graph, pack = _graph(made), made.graph
    wrong = faults(graph)
    refuse_if(bool(wrong), f"heterograph: {'; '.join(wrong)}")
    sizes = {"passages": len(ids["T"]), "heterograph/relations": len(made.relations)}
    check_pack(GRAPH, pack, "heterograph/graph", sizes)
    same = np.array_equal(pack["offsets"], graph.offsets)
    refuse_if(not same, "heterograph/graph: kinds begin elsewhere than in nodes")
    same = all(np.array_equal(pack[f"links.{side}"], getattr(graph.links, side)) for side in ("indptr", "indices"))
    refuse_if(not same, "heterograph/graph: the links are not those of the edges, once in the rows of both their ends")
    refuse_if(not np.array_equal(pack["links.kinds"], graph.link_kinds), "heterograph/graph: not the kind of each link")
    counted = np.bincount(graph.kinds, minlength=len(ENDS))
    refuse_if(not np.array_equal(pack["edges"], counted), "heterograph/graph: not the edges of each kind")
    _check_rows(pack, graph, {**ids, "R": made.relations["node_id"].combine_chunks()})
    _check_passages(Sparse(pack["passages.indptr"], pack["passages.indices"]), graph, pack["rows"])
    _check_relations(made.relations, graph, pack["relation_tokens"])
    keys = NameIndex.keys(graph.ids_of("N").to_pylist())
    refuse_if(not np.array_equal(pack["entity_keys"], keys), "heterograph/graph: not the keys of the entities")
    _check_names(made.names, len(graph) - int(graph.offsets[5]))


def _graph(made: GraphTables) -> TypedGraph:
    """The graph of the two tables; raises CheckError if they are invalid or not in the graph's order."""
    try:
        graph = graph_of_tables(made.nodes, made.edges)
    except ValueError as error:
        refuse_if(True, f"heterograph: {error}")
        raise
    for name, table, now in zip(("nodes", "edges"), (made.nodes, made.edges), graph.tables(), strict=True):
        refuse_if(not table.equals(now), f"heterograph/{name}: not each once, in the order of kinds and ids")
    return graph


def _check_rows(pack: Pack, graph: TypedGraph, ids: Mapping[str, pa.Array]) -> None:
    """Raise CheckError if a node's row has another id, or if a row has no node (entities excepted)."""
    for kind in KINDS:
        own, held = pack["rows"][graph.rows(kind)], ids[kind]
        where = f"heterograph/graph: rows of kind {kind}"
        fits = len(own) <= len(held) and (kind == "N" or len(own) == len(held))
        refuse_if(not fits, f"{where}: {len(own)} nodes for {len(held)} rows")
        refuse_if(bool((own >= len(held)).any()), f"{where}: there is no such row")
        refuse_if(not held.take(pa.array(own)).equals(graph.ids_of(kind)), f"{where}: a row of another node")


def _check_passages(held: Sparse, graph: TypedGraph, rows: NDArray[np.int32]) -> None:
    """Raise CheckError if a retrievable node comes from no passage, or a text from another passage than itself."""
    where = "heterograph/graph: passages"
    degrees = np.diff(held.indptr)
    refuse_if(bool((degrees < 1).any()), f"{where}: a node comes from none")
    rising = np.diff(held.indices.astype(np.int64)) > 0
    rising[held.indptr[1:-1] - 1] = True  # from one node to the next
    refuse_if(not bool(rising.all()), f"{where}: not ascending rows of passages")
    texts = graph.rows("T")
    own = bool((degrees[texts] == 1).all()) and np.array_equal(held.indices[: len(degrees[texts])], rows[texts])
    refuse_if(not own, f"{where}: a text does not come from itself")
    units = graph.of("text")
    of = held.indptr[units[:, 1]]
    said = bool((degrees[graph.rows("S")] == 1).all()) and np.array_equal(held.indices[of], rows[units[:, 0]])
    refuse_if(not said, f"{where}: a unit does not come from the text that says it")


def _check_relations(table: pa.Table, graph: TypedGraph, tokens: NDArray[np.int32]) -> None:
    """Raise CheckError if a relation's id does not match its content, or its ends differ from its edges."""
    where = "heterograph/relations"
    ids = table["node_id"].to_pylist()
    said = zip(*(table[name].to_pylist() for name in ("source", "target", "text")), strict=True)
    refuse_if(ids != [node_id("relation", *one) for one in said], f"{where}: a relation has not the id of what it says")
    refuse_if(any(one >= other for one, other in pairwise(ids)), f"{where}: not in the order of their ids")
    refuse_if(bool((tokens < 1).any()), f"{where}: not the tokens of each relation")
    for edge, name, side in (("source", "source", 1), ("target", "target", 0)):
        ends = graph.of(edge)
        order = np.argsort(ends[:, side])
        led = graph.ids.take(pa.array(ends[order, 1 - side]))
        refuse_if(not led.equals(table[name].combine_chunks()), f"{where}: the edges {edge} lead elsewhere")


def _check_names(pack: Pack, names: int) -> None:
    """Raise CheckError if the arrays of words contradict each other or the number of names is wrong."""
    held, where = NameWords.of(pack), "heterograph/names"
    check_pack(NAMES, pack, where, {})
    starts, words, keys = held.starts, held.words, held.keys
    refuse_if(len(starts) != names + 1, f"{where}: {len(starts) - 1} names for {names} entities and overviews")
    refuse_if(bool((keys[1:] == keys[:-1]).any()), f"{where}: a word is there twice")
    pairs = np.unique(np.stack([words.astype(np.int64), np.arange(names).repeat(np.diff(starts))], axis=1), axis=0)
    same = np.array_equal(np.bincount(pairs[:, 0], minlength=len(keys)), np.diff(held.holders.indptr))
    same = same and np.array_equal(pairs[:, 1], held.holders.indices)
    refuse_if(not same, f"{where}: words and the names that hold them do not agree")


CHECKS = (
    Check((Input("unit_vectors", UNIT_VECTORS), Input("units", UNITS)), check_units),
    Check(
        (
            Input("attributes", HETERO_ATTRIBUTES),
            Input("attribute_vectors", ATTRIBUTE_VECTORS),
            Input("entities", ENTITIES),
        ),
        check_attributes,
    ),
    Check((Input("elements", HETERO_ELEMENTS), Input("element_vectors", ELEMENT_VECTORS)), check_elements),
    Check(
        (
            Input("heterograph/graph", GRAPH),
            Input("heterograph/names", NAMES),
            Input("heterograph/nodes", HETERO_NODES),
            Input("heterograph/edges", HETERO_EDGES),
            Input("heterograph/relations", HETERO_RELATIONS),
            *(Input(name, schema, each=True) for name, schema in _NODE_TABLES.items()),
        ),
        check_whole,
        whole=True,
    ),
)
