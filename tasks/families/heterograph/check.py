"""The checks of heterograph: texts match their vectors, and the graph is valid."""

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
from indexmill.text.canonical_names import NameIndex
from tasks.core.checks import Check, check_pack, refuse_if
from tasks.core.groups import bits_of
from tasks.core.stage import Input, Part, shared_tables
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
from tasks.stages.write.text_checks import check_text_vectors

Pack = Mapping[str, NDArray[Any]]
Counts = Mapping[str, int]


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
    refuse_if(ids != [node_id("attribute", one) for one in of], f"{where}: an attribute's id does not match its entity")
    entity_ids = part.table("entities", "entity_id")["entity_id"].combine_chunks()
    strange = pc.sum(pc.invert(pc.is_in(rows["entity_id"], entity_ids))).as_py() or 0
    refuse_if(strange > 0, f"{where}: {strange} attributes belong to unknown entities")
    _check_texts(part, rows, ids, where, "attribute_vectors")
    return {"attributes": len(ids)}


def check_elements(part: Part[Any], _: Counts) -> dict[str, int]:
    """Check the ids, texts and vectors of a group's high-level elements, and return their number."""
    rows, label = part.table("elements"), part.job.shard
    where = f"elements/{label}"
    ids = rows["element_id"].to_pylist()
    contents = list(zip(rows["made_of"].to_pylist(), rows["text"].to_pylist(), strict=True))
    refuse_if(
        ids != [node_id("high_level", *one) for one in contents], f"{where}: an element's id does not match its text"
    )
    overviews = [node_id("overview", one) for one in ids]
    refuse_if(rows["overview_id"].to_pylist() != overviews, f"{where}: an overview's id does not match its element")
    strange = [made_of for made_of, _ in contents if not bits_of(made_of).startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: the element made of {strange[:1]} belongs to another group")
    _check_texts(part, rows, ids, where, "element_vectors")
    return {"elements": len(ids)}


def _check_texts(part: Part[Any], rows: pa.Table, ids: Sequence[str], where: str, vectors: str) -> None:
    """Check the order, the text digests and the vectors of attributes or elements."""
    refuse_if(any(one >= other for one, other in pairwise(ids)), f"{where}: the rows are not in the order of their ids")
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
        """Return the artifacts among the inputs of `check_whole`."""
        return cls(
            part.table("heterograph/nodes"),
            part.table("heterograph/edges"),
            part.table("heterograph/relations"),
            part.pack("heterograph/graph"),
            part.pack("heterograph/names"),
        )


def rows_of_kinds(part: Part[Any]) -> dict[str, pa.Array]:
    """Return the ids in the tables of each kind of node, concatenated in the order of the tables' names."""
    return {kind: part.tables(name, key)[key].combine_chunks() for kind, (name, key) in TABLES.items()}


def check_whole(part: Part[Any], _: Counts) -> None:
    """Check the graph against the tables of its nodes."""
    check_graph(GraphTables.of(part), rows_of_kinds(part))


def check_graph(artifacts: GraphTables, ids: Mapping[str, pa.Array]) -> None:
    """Raise CheckError unless the artifacts agree on a valid graph over the tables' rows. ids: see `rows_of_kinds`."""
    graph, pack = _graph(artifacts), artifacts.graph
    wrong = faults(graph)
    refuse_if(bool(wrong), f"heterograph: {'; '.join(wrong)}")
    sizes = {"passages": len(ids["T"]), "heterograph/relations": len(artifacts.relations)}
    check_pack(GRAPH, pack, "heterograph/graph", sizes)
    same = np.array_equal(pack["offsets"], graph.offsets)
    refuse_if(not same, "heterograph/graph: the offsets of kinds differ from those of nodes")
    same = all(np.array_equal(pack[f"links.{side}"], getattr(graph.links, side)) for side in ("indptr", "indices"))
    refuse_if(not same, "heterograph/graph: the links differ from the edges in both directions")
    refuse_if(not np.array_equal(pack["links.kinds"], graph.link_kinds), "heterograph/graph: wrong kinds of links")
    counted = np.bincount(graph.kinds, minlength=len(ENDS))
    refuse_if(not np.array_equal(pack["edges"], counted), "heterograph/graph: wrong numbers of edges by kind")
    _check_rows(pack, graph, {**ids, "R": artifacts.relations["node_id"].combine_chunks()})
    _check_passages(Sparse(pack["passages.indptr"], pack["passages.indices"]), graph, pack["rows"])
    _check_relations(artifacts.relations, graph, pack["relation_tokens"])
    keys = NameIndex.keys(graph.ids_of("N").to_pylist())
    refuse_if(not np.array_equal(pack["entity_keys"], keys), "heterograph/graph: wrong keys of entities")
    _check_names(artifacts.names, len(graph) - int(graph.offsets[5]))


def _graph(artifacts: GraphTables) -> TypedGraph:
    """Return the graph of the two tables; raises CheckError if they are invalid or not in the graph's order."""
    try:
        graph = graph_of_tables(artifacts.nodes, artifacts.edges)
    except ValueError as error:
        refuse_if(True, f"heterograph: {error}")
        raise
    for name, table, now in zip(("nodes", "edges"), (artifacts.nodes, artifacts.edges), graph.tables(), strict=True):
        refuse_if(not table.equals(now), f"heterograph/{name}: rows repeat or are not in the order of kinds and ids")
    return graph


def _check_rows(pack: Pack, graph: TypedGraph, ids: Mapping[str, pa.Array]) -> None:
    """Raise CheckError if a node's row has the wrong id, or if a row has no node, unless the row is an entity's."""
    for kind in KINDS:
        node_rows, row_ids = pack["rows"][graph.rows(kind)], ids[kind]
        where = f"heterograph/graph: rows of kind {kind}"
        fits = len(node_rows) <= len(row_ids) and (kind == "N" or len(node_rows) == len(row_ids))
        refuse_if(not fits, f"{where}: {len(node_rows)} nodes for {len(row_ids)} rows")
        refuse_if(bool((node_rows >= len(row_ids)).any()), f"{where}: a node's row does not exist")
        refuse_if(not row_ids.take(pa.array(node_rows)).equals(graph.ids_of(kind)), f"{where}: a row of another node")


def _check_passages(support: Sparse, graph: TypedGraph, rows: NDArray[np.int32]) -> None:
    """Raise CheckError if a retrievable node has no passage, or if a text or unit has a passage not its own."""
    where = "heterograph/graph: passages"
    degrees = np.diff(support.indptr)
    refuse_if(bool((degrees < 1).any()), f"{where}: a node comes from no passage")
    rising = np.diff(support.indices.astype(np.int64)) > 0
    rising[support.indptr[1:-1] - 1] = True  # the last row of one node and the first of the next
    refuse_if(not bool(rising.all()), f"{where}: the rows of passages are not ascending")
    texts = graph.rows("T")
    texts_match = bool((degrees[texts] == 1).all()) and np.array_equal(
        support.indices[: len(degrees[texts])], rows[texts]
    )
    refuse_if(not texts_match, f"{where}: a text does not come from itself")
    units = graph.of("text")
    of = support.indptr[units[:, 1]]
    units_match = bool((degrees[graph.rows("S")] == 1).all()) and np.array_equal(support.indices[of], rows[units[:, 0]])
    refuse_if(not units_match, f"{where}: a unit does not come from the text that states it")


def _check_relations(table: pa.Table, graph: TypedGraph, tokens: NDArray[np.int32]) -> None:
    """Raise CheckError if a relation's id does not match its content, or its ends differ from its edges."""
    where = "heterograph/relations"
    ids = table["node_id"].to_pylist()
    contents = zip(*(table[name].to_pylist() for name in ("source", "target", "text")), strict=True)
    refuse_if(
        ids != [node_id("relation", *one) for one in contents], f"{where}: a relation's id does not match its content"
    )
    refuse_if(any(one >= other for one, other in pairwise(ids)), f"{where}: the rows are not in the order of their ids")
    refuse_if(bool((tokens < 1).any()), f"{where}: a relation has no tokens")
    for edge, name, side in (("source", "source", 1), ("target", "target", 0)):
        ends = graph.of(edge)
        order = np.argsort(ends[:, side])
        led = graph.ids.take(pa.array(ends[order, 1 - side]))
        refuse_if(not led.equals(table[name].combine_chunks()), f"{where}: the edges '{edge}' differ from the table")


def _check_names(pack: Pack, names: int) -> None:
    """Raise CheckError if the arrays of words contradict each other or the number of names is wrong."""
    name_words, where = NameWords.of(pack), "heterograph/names"
    check_pack(NAMES, pack, where, {})
    starts, words, keys = name_words.starts, name_words.words, name_words.keys
    refuse_if(len(starts) != names + 1, f"{where}: {len(starts) - 1} names for {names} entities and overviews")
    refuse_if(bool((keys[1:] == keys[:-1]).any()), f"{where}: a word is repeated")
    pairs = np.unique(np.stack([words.astype(np.int64), np.arange(names).repeat(np.diff(starts))], axis=1), axis=0)
    same = np.array_equal(np.bincount(pairs[:, 0], minlength=len(keys)), np.diff(name_words.holders.indptr))
    same = same and np.array_equal(pairs[:, 1], name_words.holders.indices)
    refuse_if(not same, f"{where}: the index of words contradicts the names")


CHECKS = (
    Check((Input("unit_vectors", UNIT_VECTORS), *shared_tables("units")), check_units),
    Check(
        (
            Input("attributes", HETERO_ATTRIBUTES),
            Input("attribute_vectors", ATTRIBUTE_VECTORS),
            *shared_tables("entities"),
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
            *shared_tables("passages", "units", "entities", each=True),
            Input("attributes", HETERO_ATTRIBUTES, each=True),
            Input("elements", HETERO_ELEMENTS, each=True),
        ),
        check_whole,
        whole=True,
    ),
)
