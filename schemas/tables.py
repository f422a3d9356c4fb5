"""One Arrow schema per table that crosses a boundary, and the check that a table has it.

Rows of a shard's tables are ordered by (document id, position), so that the bytes of a part tell nothing of its
history. Offsets count Unicode code points (Python's string indices), the end excluded.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = [
    "DOCUMENTS",
    "ENTITIES",
    "MENTIONS",
    "NAMES",
    "PASSAGES",
    "QUARANTINE",
    "SENTENCES",
    "SURFACES",
    "TITLE_SENTENCE",
    "conform",
]

TITLE_SENTENCE = -1
"""The sentence ordinal of a mention that stands in the document's title."""


def _schema(*, nullable: tuple[str, ...] = (), **fields: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in fields.items()])


DOCUMENTS = _schema(
    nullable=("source",),
    document_id=pa.string(),
    title=pa.string(),  # may be empty
    text=pa.string(),
    source=pa.string(),  # what the record itself says, or a text file's path below the corpus; never the record file
    metadata=pa.string(),  # canonical JSON object: types are kept
    content_hash=pa.string(),  # SHA-256 of title, text, source and metadata, 64 hex digits
)

PASSAGES = _schema(
    passage_id=pa.string(),
    document_id=pa.string(),
    ordinal=pa.int32(),  # position in the document
    start=pa.int32(),  # in the document's text
    end=pa.int32(),
    text=pa.string(),
    tokens=pa.int32(),  # of the embedded text, special tokens included
)

SENTENCES = _schema(
    passage_id=pa.string(),
    ordinal=pa.int32(),  # position in the passage
    start=pa.int32(),  # in the passage's text
    end=pa.int32(),
)

MENTIONS = _schema(
    passage_id=pa.string(),
    sentence=pa.int32(),  # ordinal of the sentence in its passage, or TITLE_SENTENCE
    start=pa.int32(),  # in the passage's text, or in the title
    end=pa.int32(),
    surface=pa.string(),
    name=pa.string(),  # canonical
    entity_id=pa.string(),
    kind=pa.string(),
)

ENTITIES = _schema(
    entity_id=pa.string(),
    name=pa.string(),  # canonical
    surface=pa.string(),  # the most frequent one, the smallest of equals
    mentions=pa.int64(),
    passages=pa.int64(),
    documents=pa.int64(),
)

NAMES = _schema(entity_id=pa.string(), name=pa.string())

SURFACES = _schema(entity_id=pa.string(), surface=pa.string(), mentions=pa.int64())

QUARANTINE = _schema(
    nullable=("line", "document_id"),
    file=pa.string(),  # the corpus file
    line=pa.int64(),  # 1 is the first; a row number for Parquet; null for a whole file
    document_id=pa.string(),
    reason=pa.string(),  # a short word: see tasks.ingest
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
