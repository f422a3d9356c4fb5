"""The links from sentences and passages to the entities they mention, by rows of the whole corpus: edges of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Matrices, Sparse, both_ways, distinct
from indexmill.text.names import NameIndex
from tasks.core.stage import Part
from tasks.stages.resolve.resolve import UNLINKED_KINDS, entity_keys

__all__ = ["Mentioned", "mentioned"]

Integers = NDArray[np.integer]

TITLE_OCCURRENCES = 8
"""The number of occurrences that a mention in the title, or of a subject, counts as (LinearRAG, eq. 7)."""

_FLAGS = ("title", "subject")
_ROWS = ("passage", "sentence", "entity", "sentence_passage", "passage_document")


@dataclass(frozen=True)
class Mentioned:
    """The mentions of the graph as columns, by rows of the whole corpus, without the kinds outside the graph.

    entity_keys: the start of each entity id. One value per mention: passage; sentence (-1: the title); entity; title,
    True for the document's title; subject, True for the subject of the sentences from its own on. sentence_passage: the
    passage of each sentence. passage_document: a number that identifies each passage's document.
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
        """Sentences and passages by entities (LinearRAG, eqs. 1 and 2)."""
        passages, entities = len(self.passage_document), len(self.entity_keys)
        mentions, mentioned_in = self.sentences()
        occurrences = np.where((self.sentence >= 0) & ~self.subject, 1, TITLE_OCCURRENCES).astype(np.int32)
        contents, contained_in = both_ways(self.passage, self.entity, occurrences, passages, entities)
        strengths = np.bincount(self.entity, weights=occurrences, minlength=entities).astype(np.int64)
        _, of_passage = np.unique(self.passage_document, return_inverse=True)
        pairs = distinct(self.entity.astype(np.int64) * max(passages, 1) + of_passage[self.passage])
        documents = np.bincount(pairs // max(passages, 1), minlength=entities).astype(np.int64)
        return Matrices(mentions, mentioned_in, contents, contained_in, strengths, documents)

    def sentences(self) -> tuple[Sparse, Sparse]:
        """Sentences by entities, and its transpose.

        The title's entity counts as mentioned in every sentence of the passage, a subject from its sentence to the next
        subject.
        """
        passage, sentence, entity, title, subject = self.passage, self.sentence, self.entity, self.title, self.subject
        in_text = (sentence >= 0) & ~subject
        begins = np.unique(sentence[subject])
        ends = np.append(begins[1:], len(self.sentence_passage))[np.searchsorted(begins, sentence[subject])]
        first = np.concatenate([np.searchsorted(self.sentence_passage, passage[title]), sentence[subject]])
        last = np.searchsorted(self.sentence_passage, np.concatenate([passage[title], passage[subject]]), side="right")
        last[len(last) - len(ends) :] = np.minimum(last[len(last) - len(ends) :], ends)
        lengths = last - first
        places = np.arange(int(lengths.sum())) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
        return both_ways(
            np.concatenate([sentence[in_text], places.astype(sentence.dtype)]),
            np.concatenate([entity[in_text], np.repeat(np.concatenate([entity[title], entity[subject]]), lengths)]),
            None,
            len(self.sentence_passage),
            len(self.entity_keys),
        )


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


def _rows_of(values: pa.ChunkedArray, ids: pa.Array) -> Integers:
    rows: Integers = pc.index_in(values, ids).to_numpy().astype(np.int64)
    return rows
