"""Export a snapshot with a community tree as the six tables that GraphRAG 3 tools read.

The columns have the names, order and types of GraphRAG 3.3's output tables. The tables are built one shard at a time,
so that only ids, links, and the texts of one shard are in memory. Rows keep the snapshot's ids, so that repeated
exports of a snapshot give the same tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from indexmill.export.entity_graph import EntityGraph, check_extraction, paired, pieces
from indexmill.export.export_tables import TableOf, listed, lists, spans
from indexmill.families.community_tree.hierarchy import Hierarchy, check_communities
from indexmill.retrieve.matrices import Integers, Rows, Sparse, both_ways

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts
    from indexmill.store.manifest import Manifest

_KINDS = {
    "": pa.string(),
    "whole": pa.int64(),
    "real": pa.float64(),
    "texts": pa.list_(pa.string()),
    "wholes": pa.list_(pa.int64()),
    "findings": pa.list_(pa.struct([pa.field("summary", pa.string()), pa.field("explanation", pa.string())])),
}
"""The types of columns, as ``_schema`` names them."""


def _schema(columns: str) -> pa.Schema:
    """Parse ``name:kind name:kind ...`` into a schema; a column without a kind contains strings."""
    pairs = (one.partition(":") for one in columns.split())
    return pa.schema({name: _KINDS[kind] for name, _, kind in pairs})


SCHEMAS: dict[str, pa.Schema] = {
    "documents": _schema("id human_readable_id:whole title text text_unit_ids:texts creation_date raw_data"),
    "text_units": _schema(
        "id human_readable_id:whole text n_tokens:whole document_id entity_ids:texts relationship_ids:texts "
        "covariate_ids:texts"
    ),
    "entities": _schema(
        "id human_readable_id:whole title type description text_unit_ids:texts frequency:whole degree:whole"
    ),
    "relationships": _schema(
        "id human_readable_id:whole source target description weight:real combined_degree:whole text_unit_ids:texts"
    ),
    "communities": _schema(
        "id human_readable_id:whole community:whole level:whole parent:whole children:wholes title "
        "entity_ids:texts relationship_ids:texts text_unit_ids:texts period size:whole"
    ),
    "community_reports": _schema(
        "id human_readable_id:whole community:whole level:whole parent:whole children:wholes title summary "
        "full_content rank:real rating_explanation findings:findings full_content_json period size:whole"
    ),
}
"""The schema of each table, in the order in which ``tables`` yields them."""

PERIOD = ""
"""The value of GraphRAG's ``period`` and ``creation_date``, which snapshots do not store."""


def check(manifest: Manifest, where: object) -> None:
    """Raise FamilyNotFound if a snapshot lacks the extraction or the communities."""
    check_extraction(manifest, where)
    check_communities(manifest, where)


def tables(artifacts: Artifacts) -> Iterator[TableOf]:
    """Yield the tables of `SCHEMAS`; read each before requesting the next. Raises FamilyNotFound, CorruptBlob."""
    check(artifacts.manifest, artifacts.path)
    graph = EntityGraph(artifacts)
    hierarchy = Hierarchy(artifacts)
    contents = {
        "documents": _documents(artifacts),
        "text_units": _text_units(artifacts, graph),
        "entities": _entities(artifacts, graph),
        "relationships": _relationships(artifacts, graph),
        "communities": _communities(graph, hierarchy),
        "community_reports": _reports(hierarchy),
    }
    for name, schema in SCHEMAS.items():
        yield TableOf(name, schema, contents[name])


def _documents(artifacts: Artifacts) -> Iterator[pa.Table]:
    """Yield the documents. The id replaces a missing title; raw_data is the metadata as JSON."""
    columns = ["document_id", "title", "text", "metadata"]
    for first, table, passages in paired(artifacts, "documents", columns, "passages", ["passage_id", "document_id"]):
        ids, titles = table["document_id"], table["title"]
        owner = pc.index_in(passages["document_id"], ids.combine_chunks())
        if owner.null_count:
            raise CorruptBlob(f"{artifacts.path}: 'passages' has passages of unknown documents; build again")
        by_document, _ = both_ways(
            owner.to_numpy().astype(np.int64), np.arange(len(passages)), None, len(ids), len(passages)
        )
        yield _table(
            "documents",
            id=ids,
            human_readable_id=_numbers(first, len(ids)),
            title=pc.if_else(pc.equal(titles, ""), ids, titles),
            text=table["text"],
            text_unit_ids=lists(passages["passage_id"].combine_chunks(), by_document, 0, len(ids)),
            creation_date=_repeated(PERIOD, len(ids)),
            raw_data=table["metadata"],
        )


def _text_units(artifacts: Artifacts, graph: EntityGraph) -> Iterator[pa.Table]:
    for first, table in pieces(artifacts, "passages", ["passage_id", "text", "tokens", "document_id"]):
        last = first + len(table)
        yield _table(
            "text_units",
            id=table["passage_id"],
            human_readable_id=_numbers(first, len(table)),
            text=table["text"],
            n_tokens=table["tokens"],
            document_id=table["document_id"],
            entity_ids=lists(graph.entity_ids, graph.passage_entities, first, last),
            relationship_ids=_relation_lists(graph, graph.passage_relations, first, last),
            covariate_ids=pa.ListArray.from_arrays(
                pa.array(np.zeros(len(table) + 1, np.int32)), pa.array([], pa.string())
            ),
        )


def _entities(artifacts: Artifacts, graph: EntityGraph) -> Iterator[pa.Table]:
    links = graph.entity_passages
    for start, table in pieces(artifacts, "described", ["type", "description"]):
        for first, last in _spans(start, start + len(table), links):
            part = table.slice(first - start, last - first)
            yield _table(
                "entities",
                id=graph.entity_ids.slice(first, last - first),
                human_readable_id=_numbers(first, last - first),
                title=graph.titles.slice(first, last - first),
                type=part["type"],
                description=part["description"],
                text_unit_ids=lists(graph.passage_ids, links, first, last),
                frequency=links.degrees(np.arange(first, last)),
                degree=graph.degrees[first:last],
            )


def _relationships(artifacts: Artifacts, graph: EntityGraph) -> Iterator[pa.Table]:
    """Yield the relationships. The weight is the number of relations extracted from the source to the target."""
    links = graph.relation_passages
    for start, table in pieces(artifacts, "related", ["description", "relations"]):
        for first, last in _spans(start, start + len(table), links):
            part = table.slice(first - start, last - first)
            source, target = graph.sources[first:last], graph.targets[first:last]
            yield _table(
                "relationships",
                id=_relation_ids(graph, np.arange(first, last)),
                human_readable_id=_numbers(first, last - first),
                source=graph.titles.take(pa.array(source)),
                target=graph.titles.take(pa.array(target)),
                description=part["description"],
                weight=part["relations"],
                combined_degree=graph.degrees[source] + graph.degrees[target],
                text_unit_ids=lists(graph.passage_ids, links, first, last),
            )


def _communities(graph: EntityGraph, hierarchy: Hierarchy) -> Iterator[pa.Table]:
    """Yield the communities, each with the entities below it and the relationships between these entities."""
    for level in range(hierarchy.depth):
        begin, end = hierarchy.span(level)
        of = hierarchy.of_entities(level)
        entities, _ = _members(of, np.arange(len(graph)), begin, end, len(graph))
        same = np.where(of[graph.sources] == of[graph.targets], of[graph.sources], -1)
        relations, _ = _members(same, np.arange(len(same)), begin, end, len(same))
        units = _evidence(graph, of, same, begin, end)
        for first, last in _spans(0, end - begin, entities, relations, units):
            numbers = np.arange(begin + first, begin + last)
            yield _table(
                "communities",
                id=hierarchy.ids.slice(begin + first, last - first),
                **_place(hierarchy, numbers),
                title=pc.binary_join_element_wise("Community", pa.array(numbers).cast(pa.string()), " "),
                entity_ids=lists(graph.entity_ids, entities, first, last),
                relationship_ids=_relation_lists(graph, relations, first, last),
                text_unit_ids=lists(graph.passage_ids, units, first, last),
            )


def _reports(hierarchy: Hierarchy) -> Iterator[pa.Table]:
    for numbers, table in hierarchy.texts("title", "text", "findings", "rating", "rating_explanation"):
        ratings = table["rating"].to_numpy().astype(str).astype(np.float64)  # 7.3, not 7.300000190734863
        content, whole = [], []
        for row, rating in zip(table.to_pylist(), ratings.tolist(), strict=True):
            findings = [
                {"summary": finding["summary"], "explanation": finding["explanation"]} for finding in row["findings"]
            ]
            sections = "\n\n".join(f"## {finding['summary']}\n\n{finding['explanation']}" for finding in findings)
            content.append(f"# {row['title']}\n\n{row['text']}\n\n{sections}")
            report = {"title": row["title"], "summary": row["text"], "findings": findings, "rating": rating}
            report["rating_explanation"] = row["rating_explanation"]
            whole.append(json.dumps(report, ensure_ascii=False, indent=4))
        yield _table(
            "community_reports",
            id=pc.binary_join_element_wise(hierarchy.ids.take(pa.array(numbers)), "report", "-"),
            **_place(hierarchy, numbers),
            title=table["title"],
            summary=table["text"],
            full_content=content,
            rank=ratings,
            rating_explanation=table["rating_explanation"],
            findings=table["findings"],
            full_content_json=whole,
        )


def _place(hierarchy: Hierarchy, numbers: Rows) -> dict[str, Any]:
    """Return the columns that communities and their reports have in common."""
    _, child, _ = hierarchy.children.links(numbers)
    ends = np.concatenate([[0], hierarchy.children.degrees(numbers).cumsum()])
    return {
        "human_readable_id": numbers,
        "community": numbers,
        "level": hierarchy.levels[numbers],
        "parent": hierarchy.parents[numbers],
        "children": pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(child)),
        "period": _repeated(PERIOD, len(numbers)),
        "size": hierarchy.sizes[numbers],
    }


def _evidence(graph: EntityGraph, of: Rows, same: Rows, begin: int, end: int) -> Sparse:
    """Return the text units of the communities of a level. of, same: the community of each entity and relation, or -1.

    As in GraphRAG, a community has the text units that its relationships were extracted from. GraphRAG drops
    communities without relationships; here, where entities are grouped by their descriptions, such a community is kept,
    with the text units of its entities.
    """
    related = np.flatnonzero(same >= 0)
    which, passages, _ = graph.relation_passages.links(related)
    alone = np.ones(end - begin, bool)
    alone[same[related] - begin] = False
    entities = np.flatnonzero(of >= 0)
    entities = entities[alone[of[entities] - begin]]
    whose, others, _ = graph.entity_passages.links(entities)
    owners = np.concatenate([same[related][which], of[entities][whose]])
    units, _ = _members(owners, np.concatenate([passages, others]), begin, end, len(graph.passage_ids))
    return units


def _members(of: Rows, members: Integers, begin: int, end: int, width: int) -> tuple[Sparse, Sparse]:
    """Return matrices communities x members of a level, and transposed. of: the community of each member, or -1."""
    inside = of >= 0
    return both_ways(of[inside] - begin, members[inside], None, end - begin, width)


def _spans(first: int, last: int, *links: Sparse) -> Iterator[tuple[int, int]]:
    """Split a range of rows into pieces whose lists of links have a bounded total length."""
    lengths = np.zeros(last - first, np.int64)
    for matrix in links:
        lengths += np.diff(matrix.indptr[first : last + 1])
    return spans(first, lengths)


def _relation_lists(graph: EntityGraph, links: Sparse, first: int, last: int) -> pa.ListArray:
    return listed(lambda items: _relation_ids(graph, items), links, first, last)


def _relation_ids(graph: EntityGraph, rows: Integers) -> pa.Array:
    """Return the ids of relations: the ids of both ends, unique since a pair has at most one relation per direction."""
    ends = (graph.entity_ids.take(pa.array(side[rows])) for side in (graph.sources, graph.targets))
    return pc.binary_join_element_wise(*ends, "-")


def _numbers(first: int, count: int) -> Rows:
    return np.arange(first, first + count)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _table(name: str, **columns: Any) -> pa.Table:
    """Build a piece of a table, with the columns in the schema's order and types."""
    schema = SCHEMAS[name]
    if set(columns) != set(schema.names):
        raise ValueError(f"{name} has the columns {sorted(columns)}; expected {schema.names}")
    return pa.table({one: columns[one] for one in schema.names}).cast(schema)
