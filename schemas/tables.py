"""One Arrow schema per table that crosses a boundary, and the check that a table conforms to it.

Rows of a shard's tables are ordered by (document id, position), so that the bytes of a part do not depend on its
history. Offsets count Unicode code points (Python's string indices), the end excluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from indexmill.store.table_reader import LOCATIONS, locations_type

TITLE_SENTENCE = -1
"""The sentence ordinal of a mention in the document's title."""


@dataclass(frozen=True)
class Table:
    """A published table: a description of its rows, its schema, and descriptions of columns with unclear names."""

    holds: str
    schema: pa.Schema
    columns: Mapping[str, str]


TABLES: dict[str, Table] = {}
"""The published tables by artifact; stages declare their private ones."""

_Column: TypeAlias = pa.DataType | tuple[pa.DataType, str]


def published(artifact: str, holds: str, *, nullable: tuple[str, ...] = (), **columns: _Column) -> pa.Schema:
    """Declare a published table. Its descriptions are not part of the schema, so files do not contain them."""
    pairs = {name: column if isinstance(column, tuple) else (column, "") for name, column in columns.items()}
    schema = private(nullable=nullable, **{name: kind for name, (kind, _) in pairs.items()})
    TABLES[artifact] = Table(holds, schema, {name: what for name, (_, what) in pairs.items()})
    return schema


def private(*, nullable: tuple[str, ...] = (), **fields: pa.DataType) -> pa.Schema:
    """Return the schema of a table that only stages read."""
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in fields.items()])


DOCUMENTS = published(
    "documents/<shard>",
    "the documents",
    nullable=("source", LOCATIONS),
    document_id=pa.string(),
    title=(pa.string(), "may be empty"),
    text=pa.string(),
    source=(pa.string(), "the record's own source, or a text file's path below the corpus; never the record file"),
    metadata=(pa.string(), "canonical JSON object, which keeps types"),
    content_hash=(pa.string(), "SHA-256 of title, text, source, metadata and, if any, locations; 64 hex digits"),
    locations=(
        locations_type(),
        "the location of the text from `start` on: `page` from 1; `box` (left, top, right, bottom) in points",
    ),
)

PASSAGES = published(
    "passages/<shard>",
    "the passages of the documents",
    passage_id=pa.string(),
    document_id=pa.string(),
    ordinal=(pa.int32(), "position in the document"),
    start=(pa.int32(), "offset in the document's text"),
    end=(pa.int32(), "end offset in the document's text, excluded"),
    text=pa.string(),
    tokens=(pa.int32(), "number of tokens of the embedded text, including special tokens"),
    section=(pa.string(), "the headings above its start, one per line, outermost first; may be empty"),
    language=(pa.string(), "two letters (ISO 639-1), empty if unknown; the document's, unless the script differs"),
)

LANGUAGES = private(
    document_id=pa.string(),
    language=pa.string(),
    documents=pa.int64(),  # 1 for the language of most passages, else 0
    passages=pa.int64(),
    tokens=pa.int64(),
    unknown=pa.int64(),
    joints=pa.int64(),
    cuts=pa.int64(),
)
"""The languages of each document's passages, with the counts of `indexmill.store.manifest.LanguageCounts`."""

SENTENCES = published(
    "sentences/<shard>",
    "the sentences of the passages",
    passage_id=pa.string(),
    ordinal=(pa.int32(), "position in the passage"),
    start=(pa.int32(), "offset in the passage's text"),
    end=(pa.int32(), "end offset in the passage's text, excluded"),
)

MENTIONS = published(
    "mentions/<shard>",
    "the mentions of entities in passages and titles",
    passage_id=pa.string(),
    sentence=(pa.int32(), "ordinal of the sentence in the passage; -1: the title"),
    start=(pa.int32(), "offset in the passage's text or in the title"),
    end=(pa.int32(), "end offset in the same text, excluded"),
    surface=pa.string(),
    name=(pa.string(), "canonical"),
    entity_id=pa.string(),
    kind=(pa.string(), "`subject`: the passage is about the entity up to its next subject; the span is empty"),
)

PLAIN = private(
    document_id=pa.string(),
    text=pa.string(),  # the visible text of the document
    starts=pa.list_(pa.int32()),  # start in `text` of each run copied unchanged from the document's text
    origins=pa.list_(pa.int32()),  # the start of each run in the document's text
    ends=pa.list_(pa.int32()),  # the end of each run's source in the document's text
    passage_starts=pa.list_(pa.int32()),  # start of each passage in the plain text
    passage_ends=pa.list_(pa.int32()),
    headings=pa.list_(pa.string()),  # above each passage, the header of its table or the line before its list last
    targets=pa.list_(pa.string()),  # the words in the targets of each passage's links
)
"""The plain text of the documents that have markup, in their order: see tasks.text.markup."""

STAND_INS = private(document_id=pa.string())  # documents with fallbacks for a model's results

UNITS = published(
    "units/<shard>",
    "the units of passages, each one statement or event",
    unit_id=pa.string(),
    passage_id=pa.string(),
    ordinal=(pa.int32(), "position in the passage"),
    text=(pa.string(), "what the passage says, in one or a few sentences"),
)

UNIT_ENTITIES = published(
    "unit_entities/<shard>",
    "the entities that a unit is about, with the ends of its relations",
    passage_id=pa.string(),
    unit_id=pa.string(),
    entity_id=pa.string(),
)

EXTRACTED = published(
    "extracted/<shard>",
    "each entity as one passage describes it",
    passage_id=pa.string(),
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "the form in the passage or its document's title"),
    type=(pa.string(), "may be empty"),
    description=(pa.string(), "what this passage says about it; may be empty"),
)

RELATIONS = published(
    "relations/<shard>",
    "relations between two entities of the passage in `extracted`",
    relation_id=pa.string(),
    passage_id=pa.string(),
    unit_id=pa.string(),
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id, never the source"),
    kind=(pa.string(), "in folded words; may be empty"),
    text=(pa.string(), "the wording, read from source to target"),
    description=pa.string(),
)

ENTITIES = published(
    "entities/<entity shard>",
    "the entities",
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "the most frequent form; ties: the smallest"),
    mentions=pa.int64(),
    passages=pa.int64(),
    documents=pa.int64(),
)

NAMES = private(entity_id=pa.string(), name=pa.string())

SURFACES = published(
    "surfaces/<entity shard>",
    "the surface forms of entities",
    entity_id=pa.string(),
    surface=pa.string(),
    mentions=pa.int64(),
)

PIECES = private(
    entity_id=pa.string(),
    part=pa.string(),  # "name" (canonical), "surface" (how it is shown), "type" or "description"
    text=pa.string(),
    passages=pa.int32(),  # number of passages with this text; for name and surface: passages of the entity
    passage_id=pa.string(),  # the smallest id of these; for the surface: of those that use this form
)
"""The distinct texts about extracted entities, ordered by (entity_id, part, text); only one stage reads them."""

RELATION_PIECES = private(
    source=pa.string(),  # entity_id
    target=pa.string(),  # entity_id
    part=pa.string(),  # "source", "target" (how that end is shown), "kind", "description" or, for lack of it, "wording"
    text=pa.string(),
    relations=pa.int32(),  # number of relations with this text; for the ends: of all relations
    passage_id=pa.string(),  # the smallest id with one of them; for an end: with this form
)
"""The distinct texts about relations, ordered by (source, target, part, text); in the shard of the source."""

CONSOLIDATED = private(
    made_of=pa.string(),  # hash of all inputs of a description, 32 hex digits; equal hashes share it
    text=pa.string(),
)
"""Descriptions that a model wrote, ordered by made_of; only the stage that makes them reads them."""

DESCRIBED = published(
    "described/<entity shard>",
    "the extracted entities, each with a description from all passages",
    entity_id=pa.string(),
    name=(pa.string(), "canonical"),
    surface=(pa.string(), "the surface form that is shown"),
    type=(pa.string(), "the most frequent type; ties: the smallest; may be empty"),
    description=(pa.string(), "what all passages say about it, combined; may be empty"),
    tokens=(pa.int32(), "number of tokens of the embedded text, including special tokens"),
    digest=(pa.string(), "digest of the embedded text"),
    pieces=(pa.int32(), "the number of distinct descriptions that it was made from"),
    passages=(pa.int32(), "the number of passages that the entity was extracted from"),
    stand_in=(pa.bool_(), "true if the pieces are only joined, since the model gave no usable description"),
)
"""The extracted entities, ordered by entity_id."""

RELATED = published(
    "related/<entity shard>",
    "pairs of related entities, in the shard of the source",
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id"),
    kind=(pa.string(), "the most frequent kind; ties: the smallest; may be empty"),
    description=(pa.string(), "combined from all relations from source to target"),
    digest=(pa.string(), "digest of the description"),
    relations=(pa.int32(), "the number of relations from the source to the target"),
    stand_in=(pa.bool_(), "true if the pieces are only joined, since the model gave no usable description"),
)
"""Pairs of related entities, ordered by (source, target); in the shard of the source."""

SAME_AS = published(
    "same_as",
    "entities whose names are nearly the same",
    entity_id=pa.string(),
    other_id=(pa.string(), "the greater id"),
    cosine=(pa.float32(), "cosine of the vectors of the two names"),
    likeness=(pa.float32(), "similarity of the letters of the two names, 0 to 1"),
)
"""Entities whose names are nearly the same, ordered by (entity_id, other_id)."""

QUARANTINE = private(
    nullable=("line", "document_id"),
    file=pa.string(),  # the corpus file
    line=pa.int64(),  # from 1; a row number for Parquet; null for a whole file
    document_id=pa.string(),
    reason=pa.string(),  # a short word: see tasks.stages.ingest
    detail=pa.string(),  # what was found and what was expected
)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to exactly this schema: columns in order, types cast safely, missing locations null.

    Raises ValueError if a column is missing, cannot be cast without loss, or has forbidden nulls.
    """
    if LOCATIONS in schema.names and LOCATIONS not in table.column_names:
        table = table.append_column(LOCATIONS, pa.nulls(len(table), locations_type()))
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ValueError(f"table lacks the columns {missing}; it has {table.column_names}")
    chosen = table.select(schema.names)
    if not chosen.schema.equals(schema, check_metadata=True):
        chosen = chosen.cast(schema, safe=True)
    conformed = chosen.combine_chunks()
    for field in schema:
        if not field.nullable and conformed.column(field.name).null_count:
            raise ValueError(f"column {field.name!r} has nulls, which its schema forbids")
    return conformed


def stored(table: pa.Table) -> pa.Table:
    """Return the table as it is stored: without the locations if all are null."""
    if LOCATIONS in table.column_names and table.column(LOCATIONS).null_count == len(table):
        return table.drop_columns(LOCATIONS)
    return table
