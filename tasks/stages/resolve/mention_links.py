"""Which sentences and passages mention which entities, by rows of the whole corpus: the edges of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Matrices, Sparse, link_matrices, sentence_links
from indexmill.text.names import NameIndex
from tasks.core.estimate import Range
from tasks.core.stage import Part
from tasks.stages.resolve.resolve import UNLINKED_KINDS, entity_keys

__all__ = ["Links", "Mentioned", "links", "mentioned"]

Integers = NDArray[np.integer]

_FLAGS = ("title", "subject")
_ROWS = ("passage", "sentence", "entity", "sentence_passage", "passage_document")


@dataclass(frozen=True)
class Mentioned:
    """The mentions of the graph as columns, by rows of the whole corpus: not those of the kinds outside it.

    entity_keys: the start of each entity id. passage, sentence (-1: the title), entity, whether it is the document's
    title, and whether it is a subject, of the sentences from its own on: of each mention. sentence_passage: the
    passage of each sentence. passage_document: some number of each passage's document.
    """

    entity_keys: NDArray[np.uint64]
    passage: Integers
    sentence: Integers
    entity: Integers
    title: NDArray[np.bool_]
    subject: NDArray[np.bool_]
    sentence_passage: Integers
    passage_document: Integers

    def matrices(self) -> Matrices:
        """Sentences and passages by entities."""
        return link_matrices(
            *self._columns(),
            sentence_passage=self.sentence_passage,
            passage_document=self.passage_document,
            passages=len(self.passage_document),
            entities=len(self.entity_keys),
        )

    def sentences(self) -> tuple[Sparse, Sparse]:
        """Sentences by entities, and its transpose."""
        entities = len(self.entity_keys)
        return sentence_links(*self._columns(), sentence_passage=self.sentence_passage, entities=entities)

    def _columns(self) -> tuple[Integers, Integers, Integers, NDArray[np.bool_], NDArray[np.bool_]]:
        return self.passage, self.sentence, self.entity, self.title, self.subject


def mentioned(part: Part[Any]) -> Mentioned:
    """The mentions of all shards: reads `passages`, `sentences`, `mentions` and `entities`."""
    keys = entity_keys(part.tables("entities", "entity_id").column("entity_id"))
    columns: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, np.int32)] for name in _ROWS}
    columns |= {name: [np.empty(0, np.bool_)] for name in _FLAGS}
    passages = sentences = 0
    for label in part.labels("passages"):
        table = part.table(f"passages/{label}", "passage_id", "document_id")
        ids = table.column("passage_id").combine_chunks()
        document = table.column("document_id").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        owners = _rows_of(part.table(f"sentences/{label}", "passage_id").column("passage_id"), ids)
        mentions = part.table(f"mentions/{label}", "passage_id", "sentence", "entity_id", "kind")
        mentions = mentions.filter(pc.invert(pc.is_in(mentions.column("kind"), pa.array(UNLINKED_KINDS))))
        passage = _rows_of(mentions.column("passage_id"), ids)
        ordinal = mentions.column("sentence").to_numpy().astype(np.int64)
        first_sentence = np.searchsorted(owners, np.arange(len(ids)))
        columns["passage"].append((passage + passages).astype(np.int32))
        in_text = first_sentence[passage] + ordinal + sentences
        columns["sentence"].append(np.where(ordinal < 0, -1, in_text).astype(np.int32))
        entity = mentions.column("entity_id").combine_chunks().dictionary_encode()
        rows = np.searchsorted(keys, NameIndex.keys(entity.dictionary.to_pylist())).astype(np.int32)
        columns["entity"].append(rows[entity.indices.to_numpy()])
        for kind in _FLAGS:
            columns[kind].append(pc.equal(mentions.column("kind"), kind).to_numpy())
        columns["sentence_passage"].append((owners + passages).astype(np.int32))
        # A shard has no more documents than passages.
        columns["passage_document"].append((document + passages).astype(np.int32))
        passages += len(ids)
        sentences += len(owners)
    return Mentioned(keys, **{name: np.concatenate(columns.pop(name)) for name in (*_ROWS, *_FLAGS)})


@dataclass(frozen=True)
class Links:
    """How many links the matrices hold: sentences to entities, passages to entities, documents to entities."""

    mentions: Range
    passages: int
    documents: int


def links(part: Part[Any]) -> Links:
    """The links of all shards, counted in a stream: reads `passages`, `sentences` and `mentions`.

    The title's entity is in every sentence of a passage, a subject's in some, and may be mentioned in some of them too.
    """
    if not part.paths("mentions"):
        return Links(Range.exactly(0), 0, 0)
    linked = pl.scan_parquet(part.paths("mentions")).filter(~pl.col("kind").is_in(UNLINKED_KINDS))
    owners = pl.scan_parquet(part.paths("passages")).select("passage_id", "document_id")
    sentences = pl.scan_parquet(part.paths("sentences")).group_by("passage_id").agg(count=pl.len())
    in_passage = linked.select("passage_id", "entity_id").unique()
    in_text = linked.filter(pl.col("sentence") >= 0).select("passage_id", "sentence", "entity_id").unique()
    titles, subjects = (
        linked.filter(pl.col("kind") == kind).select("passage_id", "entity_id").unique()
        for kind in ("title", "subject")
    )
    counted = [
        in_passage.select(pl.len()),
        in_passage.join(owners, on="passage_id").select("document_id", "entity_id").unique().select(pl.len()),
        in_text.select(pl.len()),
        titles.join(sentences, on="passage_id").select(pl.col("count").sum()),
        subjects.join(sentences, on="passage_id").select(pl.col("count").sum()),
    ]
    passages, documents, text, title, subject = (int(one.item()) for one in pl.collect_all(counted, engine="streaming"))
    return Links(Range(max(text, title), text + title + subject), passages, documents)


def _rows_of(values: pa.ChunkedArray, ids: pa.Array) -> Integers:
    rows: Integers = pc.index_in(values, ids).to_numpy().astype(np.int64)
    return rows
