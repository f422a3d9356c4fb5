"""The Tri-graph's matrices (LinearRAG, section 3.1, eqs. 1 and 2): built from mention columns, read by rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Integers",
    "Matrices",
    "Rows",
    "Scores",
    "Sparse",
    "TooManyLinks",
    "both_ways",
    "build_matrices",
    "link_matrices",
    "rarity",
    "sentence_links",
]

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]


class TooManyLinks(Exception):
    """More links were asked for than may be laid out at once."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """A matrix by rows (CSR): row i has the columns ``indices[indptr[i]:indptr[i + 1]]``, ascending, with ``counts``.

    indptr: ``(n_rows + 1,) int64``. indices: ``(n_links,) int32``. counts: ``(n_links,)``, or None where all are one.
    """

    indptr: Integers
    indices: Integers
    counts: Integers | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Sparse:
        """The matrix that a pack holds as ``name.indptr``, ``name.indices`` and perhaps ``name.counts``."""
        return cls(arrays[f"{name}.indptr"], arrays[f"{name}.indices"], arrays.get(f"{name}.counts"))

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, as a pack holds them."""
        counts = {} if self.counts is None else {f"{name}.counts": self.counts}
        return {f"{name}.indptr": self.indptr, f"{name}.indices": self.indices, **counts}

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def links(self, rows: Rows, most: int | None = None) -> tuple[Rows, Rows, Rows]:
        """For some rows: the position in ``rows`` of every link, its column, and its place in ``indices``.

        Raises TooManyLinks where there are more than ``most``.
        """
        starts = self.indptr.take(rows)
        lengths = self.indptr.take(rows + 1) - starts
        ends = lengths.cumsum()
        if most is not None and len(ends) and ends[-1] > most:
            raise TooManyLinks
        owners = np.arange(len(rows)).repeat(lengths)
        places = (starts - ends + lengths).repeat(lengths)
        places += np.arange(len(places))
        return owners, self.indices.take(places).astype(np.int64), places

    def occurrences(self, places: Rows) -> Scores:
        """The counts at some places of ``indices``."""
        return np.ones(len(places)) if self.counts is None else self.counts.take(places).astype(np.float64)

    def degrees(self, rows: Rows) -> Rows:
        """The number of links of some rows."""
        return (self.indptr.take(rows + 1) - self.indptr.take(rows)).astype(np.int64, copy=False)


def rarity(documents: Integers) -> Scores:
    """How much entities tell, by the documents that each is in: 1 for one, falling with the logarithm."""
    weight: Scores = 1.0 / np.log(math.e - 1 + np.maximum(documents, 1))
    return weight


@dataclass(frozen=True, slots=True)
class Matrices:
    """The graph's matrices (eqs. 1, 2), each by rows and by columns.

    mentions: sentences x entities [M]; mentioned_in: its transpose. contents: passages x entities with occurrence
    counts [C, N]; contained_in: its transpose. strengths: ``(n_entities,) int64``, the links of an entity, each as
    often as N says. documents: ``(n_entities,)``, in how many documents an entity is; None where every document is one
    passage.
    """

    mentions: Sparse
    mentioned_in: Sparse
    contents: Sparse
    contained_in: Sparse
    strengths: Integers
    documents: Integers | None = None

    def spread(self, entities: Rows) -> Rows:
        """In how many documents some entities are."""
        if self.documents is None:
            return self.contained_in.degrees(entities)
        return self.documents.take(entities).astype(np.int64, copy=False)

    def rarity(self, entities: Rows) -> Scores:
        """How much some entities tell: see ``rarity``."""
        return rarity(self.spread(entities))


def build_matrices(
    passage: Integers,
    sentence: Integers,
    entity: Integers,
    kind: npt.NDArray[np.str_] | Sequence[str],
    *,
    sentence_passage: Integers,
    passages: int,
    entities: int,
    passage_document: Integers | None = None,
    title_occurrences: int = 8,
    ignored_kinds: Sequence[str] = ("date", "number"),
) -> Matrices:
    """Build the matrices from mention columns: column operations only, in any order of the mentions.

    passage, sentence, entity: ``(n_mentions,)`` rows; ``sentence`` is -1 for a mention in the title. kind: of each
    mention, as the recogniser says; of a ``subject`` the sentence from which on it is one. sentence_passage:
    ``(n_sentences,)``, ascending. passages, entities: their numbers.
    passage_document: ``(passages,)``, the document of each passage, any integers; None where every document is one.
    title_occurrences: what a mention in the title counts in N (eq. 7). ignored_kinds: dates and numbers link passages
    that have nothing else in common.
    """
    kinds = np.asarray(kind)
    used = ~np.isin(kinds, list(ignored_kinds))
    return link_matrices(
        passage[used],
        sentence[used],
        entity[used],
        kinds[used] == "title",
        kinds[used] == "subject",
        sentence_passage=sentence_passage,
        passages=passages,
        entities=entities,
        passage_document=passage_document,
        title_occurrences=title_occurrences,
    )


def link_matrices(
    passage: Integers,
    sentence: Integers,
    entity: Integers,
    title: npt.NDArray[np.bool_],
    subject: npt.NDArray[np.bool_],
    *,
    sentence_passage: Integers,
    passages: int,
    entities: int,
    passage_document: Integers | None = None,
    title_occurrences: int = 8,
) -> Matrices:
    """As `build_matrices`, from mentions that all count; title: which are the document's title; subject: which say what
    sentences are about."""
    mentions, mentioned_in = sentence_links(
        passage, sentence, entity, title, subject, sentence_passage=sentence_passage, entities=entities
    )
    occurrences = np.where((sentence >= 0) & ~subject, 1, title_occurrences).astype(np.int32)
    contents, contained_in = both_ways(passage, entity, occurrences, passages, entities)
    strengths = np.bincount(entity, weights=occurrences, minlength=entities).astype(np.int64)
    documents = None
    if passage_document is not None:
        _, of_passage = np.unique(passage_document, return_inverse=True)
        pairs = np.unique(entity.astype(np.int64) * max(passages, 1) + of_passage[passage])
        documents = np.bincount(pairs // max(passages, 1), minlength=entities).astype(np.int64)
    return Matrices(mentions, mentioned_in, contents, contained_in, strengths, documents)


def sentence_links(
    passage: Integers,
    sentence: Integers,
    entity: Integers,
    title: npt.NDArray[np.bool_],
    subject: npt.NDArray[np.bool_],
    *,
    sentence_passage: Integers,
    entities: int,
) -> tuple[Sparse, Sparse]:
    """Sentences x entities and its transpose alone, from what `link_matrices` takes.

    The title's entity is mentioned in every sentence of the passage, a subject's from its sentence to the next subject.
    """
    in_text = (sentence >= 0) & ~subject
    begins = np.unique(sentence[subject])
    ends = np.append(begins[1:], len(sentence_passage))[np.searchsorted(begins, sentence[subject])]
    first = np.concatenate([np.searchsorted(sentence_passage, passage[title], side="left"), sentence[subject]])
    last = np.searchsorted(sentence_passage, np.concatenate([passage[title], passage[subject]]), side="right")
    last[len(last) - len(ends) :] = np.minimum(last[len(last) - len(ends) :], ends)
    lengths = last - first
    places = np.arange(int(lengths.sum())) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    return both_ways(
        np.concatenate([sentence[in_text], places.astype(sentence.dtype)]),
        np.concatenate([entity[in_text], np.repeat(np.concatenate([entity[title], entity[subject]]), lengths)]),
        None,
        len(sentence_passage),
        entities,
    )


def both_ways(
    rows: Integers, columns: Integers, counts: Integers | None, height: int, width: int
) -> tuple[Sparse, Sparse]:
    """A sparse matrix from links, repeated ones added up, by rows and by columns."""
    key = rows.astype(np.int64)
    key *= width
    key += columns
    total = None
    if counts is None:
        key.sort()
    else:
        order = np.argsort(key)
        key, counts = key[order], counts[order]
        del order
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    if counts is not None:
        starts = np.flatnonzero(first)
        total = np.add.reduceat(counts, starts, dtype=np.int64).astype(np.int32) if len(starts) else counts[:0]
    key = key[first]
    column = (key % max(width, 1)).astype(np.int32)
    key //= max(width, 1)
    row = key.astype(np.int32)
    del key, first
    across = np.argsort(column, kind="stable")  # rows are ascending
    return (
        Sparse(_pointers(row, height), column, total),
        Sparse(_pointers(column, width), row[across], None if total is None else total[across]),
    )


def _pointers(rows: Integers, height: int) -> Rows:
    pointers: Rows = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))]).astype(np.int64)
    return pointers
