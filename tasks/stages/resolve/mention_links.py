"""Which sentences and passages mention which entities, over the rows of the whole corpus: what graphs are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Matrices, Sparse, link_matrices, sentence_links
from indexmill.text.names import NameIndex
from tasks.core.stage import Part
from tasks.stages.resolve.resolve import UNLINKED_KINDS, entity_keys

__all__ = ["Mentioned", "mentioned"]

Integers = NDArray[np.integer]


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
            self.passage,
            self.sentence,
            self.entity,
            self.title,
            self.subject,
            sentence_passage=self.sentence_passage,
            passage_document=self.passage_document,
            passages=len(self.passage_document),
            entities=len(self.entity_keys),
        )

    def sentences(self) -> tuple[Sparse, Sparse]:
        """Sentences by entities, and its transpose."""
        return sentence_links(
            self.passage,
            self.sentence,
            self.entity,
            self.title,
            self.subject,
            sentence_passage=self.sentence_passage,
            entities=len(self.entity_keys),
        )


def mentioned(part: Part[Any]) -> Mentioned:
    """The mentions of all shards: reads `passages`, `sentences`, `mentions` and `entities`."""
    keys = entity_keys(part.tables("entities", "entity_id").column("entity_id"))
    columns: dict[str, list[NDArray[Any]]] = {"passage": [], "sentence": [], "entity": [], "title": [], "subject": []}
    sentence_passage: list[Integers] = []
    passage_document: list[Integers] = []
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
        for kind in ("title", "subject"):
            columns[kind].append(pc.equal(mentions.column("kind"), kind).to_numpy())
        sentence_passage.append((owners + passages).astype(np.int32))
        # A shard has no more documents than passages.
        passage_document.append((document + passages).astype(np.int32))
        passages += len(ids)
        sentences += len(owners)

    def joined(arrays: list[NDArray[Any]], kind: Any = np.int32) -> NDArray[Any]:
        whole = np.concatenate([np.empty(0, dtype=kind), *arrays])
        arrays.clear()
        return whole

    return Mentioned(
        entity_keys=keys,
        passage=joined(columns["passage"]),
        sentence=joined(columns["sentence"]),
        entity=joined(columns["entity"]),
        title=joined(columns["title"], np.bool_),
        subject=joined(columns["subject"], np.bool_),
        sentence_passage=joined(sentence_passage),
        passage_document=joined(passage_document),
    )


def _rows_of(values: pa.ChunkedArray, ids: pa.Array) -> Integers:
    rows: Integers = pc.index_in(values, ids).to_numpy().astype(np.int64)
    return rows
