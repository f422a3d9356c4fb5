"""One Arrow schema per table that crosses a boundary, and the check that a table has it.

Rows of a shard's tables are ordered by (document id, position), so that the bytes of a part tell nothing of its
history. Offsets count Unicode code points (Python's string indices), the end excluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

__all__ = [
    "COMMUNITIES",
    "COMMUNITY_MEMBERS",
    "COMMUNITY_RELATIONS",
    "COMMUNITY_SOURCES",
    "CONSOLIDATED",
    "DESCRIBED",
    "DOCUMENTS",
    "ENTITIES",
    "EXTRACTED",
    "HETERO_ATTRIBUTES",
    "HETERO_COMMUNITIES",
    "HETERO_EDGES",
    "HETERO_ELEMENTS",
    "HETERO_MADE",
    "HETERO_NODES",
    "HETERO_READ",
    "HETERO_RELATIONS",
    "HETERO_SOURCES",
    "LSH_SEGMENTS",
    "LSH_SUMMARIES",
    "MENTIONS",
    "NAMES",
    "PASSAGES",
    "PIECES",
    "PLAIN",
    "QUARANTINE",
    "RELATED",
    "RELATIONS",
    "RELATION_PIECES",
    "SAME_AS",
    "SENTENCES",
    "STAND_INS",
    "SURFACES",
    "TABLES",
    "TITLE_SENTENCE",
    "UNITS",
    "UNIT_ENTITIES",
    "Table",
    "conform",
]

TITLE_SENTENCE = -1
"""The sentence ordinal of a mention that stands in the document's title."""


@dataclass(frozen=True)
class Table:
    """A published table: what its rows are, its schema, and, of columns whose names do not say it, what they hold."""

    holds: str
    schema: pa.Schema
    columns: Mapping[str, str]


TABLES: dict[str, Table] = {}
"""The published tables by artifact; private ones are known to the stages that read them."""

_Column: TypeAlias = pa.DataType | tuple[pa.DataType, str]


def _table(artifact: str, holds: str, *, nullable: tuple[str, ...] = (), **columns: _Column) -> pa.Schema:
    """Declare a published table; its schema has no metadata, so that descriptions are in no file."""
    pairs = {name: column if isinstance(column, tuple) else (column, "") for name, column in columns.items()}
    schema = _schema(nullable=nullable, **{name: kind for name, (kind, _) in pairs.items()})
    TABLES[artifact] = Table(holds, schema, {name: what for name, (_, what) in pairs.items()})
    return schema


def _schema(*, nullable: tuple[str, ...] = (), **fields: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in fields.items()])


DOCUMENTS = _table(
    "documents/<shard>",
    "the documents",
    nullable=("source",),
    document_id=pa.string(),
    title=(pa.string(), "may be empty"),
    text=pa.string(),
    source=(pa.string(), "what the record itself says, or a text file's path below the corpus; never the record file"),
    metadata=(pa.string(), "canonical JSON object: types are kept"),
    content_hash=(pa.string(), "SHA-256 of title, text, source and metadata, 64 hex digits"),
)

PASSAGES = _table(
    "passages/<shard>",
    "the passages of the documents",
    passage_id=pa.string(),
    document_id=pa.string(),
    ordinal=(pa.int32(), "position in the document"),
    start=(pa.int32(), "in the document's text"),
    end=(pa.int32(), "in the same, excluded"),
    text=pa.string(),
    tokens=(pa.int32(), "of the embedded text, special tokens included"),
)

SENTENCES = _table(
    "sentences/<shard>",
    "the sentences of the passages",
    passage_id=pa.string(),
    ordinal=(pa.int32(), "position in the passage"),
    start=(pa.int32(), "in the passage's text"),
    end=(pa.int32(), "in the same, excluded"),
)

MENTIONS = _table(
    "mentions/<shard>",
    "where passages and titles name entities",
    passage_id=pa.string(),
    sentence=(pa.int32(), "ordinal of the sentence in the passage; -1: the title"),
    start=(pa.int32(), "in the passage's text, or in the title"),
    end=(pa.int32(), "in the same, excluded"),
    surface=pa.string(),
    name=(pa.string(), "canonical"),
    entity_id=pa.string(),
    kind=(pa.string(), "`subject`: the passage is about the entity until its next subject, and the span is empty"),
)

PLAIN = _schema(
    document_id=pa.string(),
    text=pa.string(),  # what a reader sees of it
    starts=pa.list_(pa.int32()),  # of runs of it that stand as they are in the document's text
    origins=pa.list_(pa.int32()),  # where each run stands there
    ends=pa.list_(pa.int32()),  # where what it is made of ends there
    passage_starts=pa.list_(pa.int32()),  # of the document's passages, in the plain text
    passage_ends=pa.list_(pa.int32()),
    headings=pa.list_(pa.string()),  # above each passage, those of higher levels first; may be empty
    targets=pa.list_(pa.string()),  # the words in the targets of each passage's links
)
"""Of the documents that are written in markup alone, in their order: see tasks.text.markup."""

STAND_INS = _schema(document_id=pa.string())  # of which something else stands in for what a model was to find

UNITS = _table(
    "units/<shard>",
    "what a passage says, piece by piece",
    unit_id=pa.string(),
    passage_id=pa.string(),
    ordinal=(pa.int32(), "position in the passage"),
    text=(pa.string(), "what the passage says, in a sentence or a few"),
)

UNIT_ENTITIES = _table(
    "unit_entities/<shard>",
    "what a unit is about, the ends of its relations among them",
    passage_id=pa.string(),
    unit_id=pa.string(),
    entity_id=pa.string(),
)

EXTRACTED = _table(
    "extracted/<shard>",
    "each entity as one passage describes it",
    passage_id=pa.string(),
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "as the passage or its document's title writes it"),
    type=(pa.string(), "may be empty"),
    description=(pa.string(), "what this passage says of it; may be empty"),
)

RELATIONS = _table(
    "relations/<shard>",
    "relations between two entities that `extracted` has for the passage",
    relation_id=pa.string(),
    passage_id=pa.string(),
    unit_id=pa.string(),
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id, never the source"),
    kind=(pa.string(), "in folded words; may be empty"),
    text=(pa.string(), "the wording, read from source to target"),
    description=pa.string(),
)

ENTITIES = _table(
    "entities/<entity shard>",
    "the entities",
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "the most frequent one, the smallest of equals"),
    mentions=pa.int64(),
    passages=pa.int64(),
    documents=pa.int64(),
)

NAMES = _schema(entity_id=pa.string(), name=pa.string())

SURFACES = _table(
    "surfaces/<entity shard>",
    "how entities are written",
    entity_id=pa.string(),
    surface=pa.string(),
    mentions=pa.int64(),
)

LSH_SEGMENTS = _schema(
    node_id=pa.string(),
    child_id=pa.string(),  # of a passage or, above the first layer, of a node
    child_digest=pa.string(),  # of the child's text: see tasks.stages.embed.embed.row_key, 32 hex digits
    shard=pa.string(),  # where the child's text lies
)
"""Ordered by (node_id, child_id)."""

LSH_SUMMARIES = _table(
    "summaries/<group>",
    "the summaries of lsh_tree",
    node_id=pa.string(),
    layer=(pa.int32(), "1 is the lowest"),
    text=pa.string(),
    tokens=(pa.int32(), "of the text, special tokens included"),
    digest=(pa.string(), "of the text"),
    stand_in=(pa.bool_(), "no model wrote the summary although one was asked"),
)
"""Ordered by node_id."""

PIECES = _schema(
    entity_id=pa.string(),
    part=pa.string(),  # "name" (canonical), "surface" (how it is shown), "type" or "description"
    text=pa.string(),
    passages=pa.int32(),  # that say so; beside name and surface: that it was extracted from
    passage_id=pa.string(),  # the least of these; beside the surface: of those that write it so
)
"""What there is to be told of extracted entities, ordered by (entity_id, part, text); read by one stage alone."""

RELATION_PIECES = _schema(
    source=pa.string(),  # entity_id
    target=pa.string(),  # entity_id
    part=pa.string(),  # "source", "target" (how that end is shown), "kind", "description" or, for lack of it, "wording"
    text=pa.string(),
    relations=pa.int32(),  # that say so; beside the ends: how many there are
    passage_id=pa.string(),  # the least of those that they stand in; beside an end: of those that write it so
)
"""The same of relations, ordered by (source, target, part, text); in the shard of the source."""

CONSOLIDATED = _schema(
    made_of=pa.string(),  # of all that a description was made of: what has the same is not made again, 32 hex digits
    text=pa.string(),
)
"""Descriptions that are more than pieces joined, ordered by made_of; read by the stage that makes them alone."""

DESCRIBED = _table(
    "described/<entity shard>",
    "the entities that were extracted, with what all passages say of each",
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "the surface form that is shown"),
    type=(pa.string(), "the most frequent one, the smallest of equals; may be empty"),
    description=(pa.string(), "what all passages say of it, put together; may be empty"),
    tokens=(pa.int32(), "of the text that is embedded, special tokens included"),
    digest=(pa.string(), "of that text"),
    pieces=(pa.int32(), "distinct descriptions that it was put together from"),
    passages=(pa.int32(), "how many the entity was extracted from"),
    stand_in=(pa.bool_(), "the pieces joined: no model wrote the description although one was asked"),
)
"""The entities that were extracted, ordered by entity_id."""

RELATED = _table(
    "related/<entity shard>",
    "pairs of entities that a relation leads between, in the shard of the source",
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id"),
    kind=(pa.string(), "the most frequent one, the smallest of equals; may be empty"),
    description=(pa.string(), "of all relations from source to target, put together"),
    digest=(pa.string(), "of the description"),
    relations=(pa.int32(), "how many lead from the source to the target"),
    stand_in=(pa.bool_(), "the pieces joined: no model wrote the description although one was asked"),
)
"""Pairs of entities that a relation leads between, ordered by (source, target); in the shard of the source."""

SAME_AS = _table(
    "same_as",
    "entities whose names are nearly the same",
    entity_id=pa.string(),
    other_id=(pa.string(), "the greater id"),
    cosine=(pa.float32(), "of the vectors of the two names"),
    likeness=(pa.float32(), "of the letters of the two names, 0 to 1"),
)
"""Entities whose names are nearly the same, ordered by (entity_id, other_id)."""

COMMUNITIES = _table(
    "communities/<group>",
    "the communities of community_tree, with their reports",
    community_id=pa.string(),
    level=(pa.int32(), "1 is the lowest"),
    title=pa.string(),
    text=(pa.string(), "the summary"),
    findings=pa.list_(pa.struct([pa.field("summary", pa.string()), pa.field("explanation", pa.string())])),
    rating=(pa.float32(), "how much it matters, 0 to 10"),
    rating_explanation=pa.string(),
    members=(pa.int32(), "how many there are"),
    tokens=(pa.int32(), "of the text that is embedded: title, line feed, text"),
    digest=(pa.string(), "of that text"),
    made_of=(pa.string(), "hash of all that the report is made of: what has the same is not made again"),
    stand_in=(pa.bool_(), "no model wrote the report although one was asked"),
)
"""Ordered by community_id."""

COMMUNITY_MEMBERS = _table(
    "community_members/<group>",
    "the members of communities",
    community_id=pa.string(),
    member_id=(pa.string(), "the id of an entity or, above the first level, of a community"),
    member_digest=(pa.string(), "of the member's text"),
    shard=(pa.string(), "where the member's text lies"),
)
"""Ordered by (community_id, member_id)."""

COMMUNITY_RELATIONS = _schema(
    community_id=pa.string(),  # of the first level: that of both ends
    source=pa.string(),  # entity_id
    target=pa.string(),  # entity_id
    digest=pa.string(),  # of the description
    shard=pa.string(),  # where the description lies
)
"""Ordered by (community_id, source, target); read by the stage that writes the reports alone."""

COMMUNITY_SOURCES = _schema(
    community_id=pa.string(),
    source_id=pa.string(),  # of a passage, or the `made_of` of a report that a model was asked for
)
"""What a report is about, ordered by (community_id, source_id); read by the stages of communities alone."""

HETERO_NODES = _table(
    "heterograph/nodes",
    "the nodes of the graph, by kind in this order, then by id; no two ids are alike",
    node_id=pa.string(),
    kind=(
        pa.string(),
        (
            "`T`, a passage; `S`, a unit; `A`, an attribute; `H`, a high-level element; `R`, a relation; `N`, an "
            "entity; `O`, an overview"
        ),
    ),
)

HETERO_EDGES = _table(
    "heterograph/edges",
    "the edges of the graph, by kind in this order, then by their ends in the order of nodes; "
    "no two nodes are linked twice",
    source=(pa.string(), "node_id"),
    target=(pa.string(), "node_id"),
    kind=(
        pa.string(),
        (
            "`mention` (S to N), `source` (N to R), `target` (R to N), `same_as` (N, N), `attribute` (N to A), "
            "`overview` (H to O), `text` (T to S), `match` (S or A to H), `near` (T, S, A, H), `subject` (S to N)"
        ),
    ),
    weight=(pa.float32(), "1"),
)

HETERO_RELATIONS = _table(
    "heterograph/relations",
    "the relation nodes: relations of one wording between the same entities are one",
    node_id=pa.string(),
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id"),
    text=(pa.string(), "the wording, read from source to target"),
    said=(pa.string(), "the whole text: both ends as they are shown, with the wording between them"),
)
"""Ordered by node_id."""

HETERO_ATTRIBUTES = _table(
    "attributes/<entity shard>",
    "what is written of important entities, for heterograph",
    attribute_id=pa.string(),
    entity_id=pa.string(),
    text=pa.string(),
    tokens=(pa.int32(), "of the text, special tokens included"),
    digest=(pa.string(), "of the text"),
    made_of=(pa.string(), "hash of all that the attribute is made of: what has the same is not made again"),
    stand_in=(pa.bool_(), "no model wrote the text although one was asked"),
)
"""Ordered by attribute_id."""

HETERO_ELEMENTS = _table(
    "elements/<group>",
    "the high-level elements of heterograph, with their overviews",
    element_id=pa.string(),
    overview_id=pa.string(),
    community_id=pa.string(),
    title=(pa.string(), "the overview"),
    text=pa.string(),
    tokens=(pa.int32(), "of the text, special tokens included"),
    digest=(pa.string(), "of the text"),
    made_of=(pa.string(), "hash of all that the elements of the community are made of"),
    stand_in=(pa.bool_(), "no model wrote the text although one was asked"),
)
"""High-level elements with their overviews, ordered by element_id."""

HETERO_COMMUNITIES = _schema(node_id=pa.string(), community_id=pa.string())
"""Ordered by node_id."""

HETERO_READ = _schema(
    owner=pa.string(),  # entity_id, or community_id
    node_id=pa.string(),
    kind=pa.string(),  # of the node
    digest=pa.string(),  # of the node's text: see tasks.stages.embed.embed.row_key, 32 hex digits
    text=pa.string(),
)
"""The nodes that a text is made of, ordered by owner, then by kind in the order of KINDS and node_id."""

HETERO_MADE = _schema(
    owner=pa.string(),
    shown=pa.string(),  # an entity's name, or the names that stand in most texts of a community
    made_of=pa.string(),  # of all that is read for it: what has the same is not made again
    nodes=pa.int32(),  # that are read
    tokens=pa.int64(),  # of their texts
)
"""Ordered by owner."""

HETERO_SOURCES = _schema(
    owner=pa.string(),
    source_id=pa.string(),  # of a passage, or the `made_of` of an attribute that a model was asked for
)
"""What a text is about, ordered by (owner, source_id); read by the stages that ask a model for it alone."""

QUARANTINE = _schema(
    nullable=("line", "document_id"),
    file=pa.string(),  # the corpus file
    line=pa.int64(),  # 1 is the first; a row number for Parquet; null for a whole file
    document_id=pa.string(),
    reason=pa.string(),  # a short word: see tasks.stages.ingest
    detail=pa.string(),  # what was found and what was expected
)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly this schema: columns in order, types cast safely.

    Raises ValueError where a column is missing, cannot be cast without loss, or has nulls where none may be.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ValueError(f"table lacks the columns {missing}; it has {table.column_names}")
    conformed = table.select(schema.names).cast(schema, safe=True).combine_chunks()
    for field in schema:
        if not field.nullable and conformed.column(field.name).null_count:
            raise ValueError(f"column {field.name!r} has nulls, which its schema forbids")
    return conformed
