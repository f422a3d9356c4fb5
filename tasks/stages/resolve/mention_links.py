"""Stage `mention_links`: the entities that each sentence and passage mentions (LinearRAG, section 3.1, eqs. 1 and 2).

Rows and entities are numbered within the shard, entities in the order of their ids. An entity's id follows from its
name, so the pack depends on no other shard, and a reader joins the packs. The arrays are those of MENTION_LINKS
(indexmill.retrieve.shared_schema). They list all entities of the shard, even those outside the graph, so that all
shards together list exactly the entities of the table `entities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Sparse, both_ways
from indexmill.retrieve.shared_schema import MENTION_LINKS
from indexmill.store.pack_schema import smallest
from indexmill.text.canonical_names import NameIndex
from tasks.core.stage import NoSettings, Output, Outputs, Part, Stage, shared_tables
from tasks.stages.resolve.name_counts import UNLINKED_KINDS

Integers = NDArray[np.integer]

TITLE_OCCURRENCES = 8
"""The number of occurrences for which a mention in the title, or of a subject, counts (LinearRAG, eq. 7)."""


@dataclass(frozen=True)
class Mentioned:
    """Mentions as columns, one value per mention, without the kinds outside the graph.

    sentence: -1 for the title. title: True for the document's title. subject: True for the subject of its sentence and
    the following sentences. passage_sentences: where each passage's sentences begin, and the number of sentences.
    entities: the number of entities.
    """

    passage: Integers
    sentence: Integers
    entity: Integers
    title: NDArray[np.bool_]
    subject: NDArray[np.bool_]
    passage_sentences: Integers
    entities: int

    def sentences(self) -> Sparse:
        """Return the matrix of sentences by entities.

        The title's entity counts as mentioned in every sentence of the passage; a subject's entity counts up to the
        sentence of the next subject.
        """
        passage, sentence, entity, title, subject = self.passage, self.sentence, self.entity, self.title, self.subject
        count = int(self.passage_sentences[-1])
        in_text = (sentence >= 0) & ~subject
        begins = np.unique(sentence[subject])
        ends = np.append(begins[1:], count)[np.searchsorted(begins, sentence[subject])]
        ends = np.minimum(ends, self.passage_sentences[passage[subject] + 1])
        first = np.concatenate([self.passage_sentences[passage[title]], sentence[subject]])
        last = np.concatenate([self.passage_sentences[passage[title] + 1], ends])
        lengths = last - first
        places = np.arange(int(lengths.sum())) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
        rows = np.concatenate([sentence[in_text], places])
        columns = [entity[in_text], np.repeat(np.concatenate([entity[title], entity[subject]]), lengths)]
        return both_ways(rows, np.concatenate(columns), None, count, self.entities)[0]

    def passages(self) -> Sparse:
        """Return the matrix of passages by entities, with the number of occurrences."""
        occurrences = np.where((self.sentence >= 0) & ~self.subject, 1, TITLE_OCCURRENCES)
        height = len(self.passage_sentences) - 1
        return both_ways(self.passage, self.entity, occurrences.astype(np.int32), height, self.entities)[0]

    def titles(self, passages: Sparse) -> Integers:
        """Return the positions of the links in `passages` whose entity is a title or a subject, ascending."""
        width = max(self.entities, 1)
        links = np.arange(len(passages)).repeat(np.diff(passages.indptr)) * width + passages.indices
        marked = self.title | self.subject
        return np.unique(np.searchsorted(links, self.passage[marked].astype(np.int64) * width + self.entity[marked]))


def layout_of(documents: pa.Table, passages: pa.Table, sentences: pa.Table) -> dict[str, Integers]:
    """Return where each document's passages and each passage's sentences begin, each array with the total at its end.

    Raises ValueError if the rows are not in the order of their owners.
    """
    layout: dict[str, Integers] = {}
    for name, column, owners, owned in (
        ("document_passages", "document_id", documents, passages),
        ("passage_sentences", "passage_id", passages, sentences),
    ):
        rows = _rows_of(owned.column(column), owners.column(column).combine_chunks())
        if (rows[1:] < rows[:-1]).any():
            raise ValueError(f"rows are not in the order of their {column}")
        layout[name] = np.searchsorted(rows, np.arange(len(owners) + 1))
    return layout


def mention_links(
    documents: pa.Table, passages: pa.Table, sentences: pa.Table, mentions: pa.Table, extracted: pa.Table | None = None
) -> dict[str, NDArray[Any]]:
    """Compute the arrays (schema MENTION_LINKS) of a shard.

    mentions: columns `passage_id`, `sentence`, `entity_id` and `kind`. extracted: column `entity_id`; None without
    extraction.
    """
    ids = [mentions.column("entity_id").combine_chunks().dictionary_encode()]
    if extracted is not None:
        ids.append(extracted.column("entity_id").combine_chunks().dictionary_encode())
    every = [NameIndex.keys(some.dictionary.to_pylist()) for some in ids]
    keys = np.unique(np.concatenate(every))
    layout = layout_of(documents, passages, sentences)
    linked = pc.invert(pc.is_in(mentions.column("kind"), pa.array(UNLINKED_KINDS))).to_numpy()
    kind = mentions.column("kind").combine_chunks()
    entity = np.searchsorted(keys, every[0])[ids[0].indices.to_numpy()]
    passage = _rows_of(mentions.column("passage_id"), passages.column("passage_id").combine_chunks())
    ordinal = mentions.column("sentence").to_numpy().astype(np.int64)
    sentence = np.where(ordinal < 0, -1, layout["passage_sentences"][passage] + ordinal)
    title, subject = (pc.equal(kind, name).to_numpy(zero_copy_only=False)[linked] for name in ("title", "subject"))
    mentioned = Mentioned(
        passage[linked], sentence[linked], entity[linked], title, subject, layout["passage_sentences"], len(keys)
    )
    contents = mentioned.passages()
    arrays = {
        **layout,
        **mentioned.sentences().arrays("mentions"),
        **contents.arrays("contents"),
        "titles": mentioned.titles(contents),
    }
    return {"entity_keys": keys, **{name: smallest(array) for name, array in arrays.items()}}


def _rows_of(values: pa.ChunkedArray, ids: pa.Array) -> Integers:
    rows: Integers = pc.index_in(values, ids).to_numpy().astype(np.int64)
    return rows


def _compute(part: Part[NoSettings]) -> Outputs:
    arrays = mention_links(
        part.table("documents", "document_id"),
        part.table("passages", "passage_id", "document_id"),
        part.table("sentences", "passage_id"),
        part.table("mentions", "passage_id", "sentence", "entity_id", "kind"),
        part.table("extracted", "entity_id") if part.has("extracted") else None,
    )
    return Outputs(packs={"mention_links": arrays})


STAGE = Stage(
    "mention_links",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        *shared_tables("documents", "passages", "sentences", "mentions"),
        *shared_tables("extracted", optional=True),
    ),
    outputs=(Output("mention_links", MENTION_LINKS, artifact="mention_links/{label}"),),
)
