"""Stage `bm25`: which terms a shard's passages hold, and how often.

A shard's pack `bm25` has no texts and nothing of the rest of the corpus, so that a refresh makes the changed shards
alone; a reader adds up document frequencies and lengths over the shards. Each integer array is of the smallest unsigned
type that holds it:

    keys        (n_terms,) uint64, ascending: the key of each term, see `indexmill.terms`
    indptr      (n_terms + 1,) where the postings of each term begin
    passages    (n_postings,) a term's passages, ascending: rows of the shard's table `passages`
    counts      (n_postings,) how often the term is there
    lengths     (n_passages,) the terms of each passage
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.packs import pack_size
from indexmill.terms import Analyser, term_keys
from schemas.tables import DOCUMENTS, PASSAGES
from tasks.estimate import Estimate, Range
from tasks.split import title_prefix
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "counts", "estimate", "postings"]


def counts(packs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, int]:
    """The sizes of a built index, as the manifest states them; a word counts as often as it occurs."""
    return {
        "passages": sum(len(pack["lengths"]) for pack in packs),
        "words": sum(int(pack["lengths"].sum(dtype=np.int64)) for pack in packs),
        "postings": sum(len(pack["passages"]) for pack in packs),
    }


def postings(titles: Sequence[str], texts: Sequence[str], title_weight: int) -> dict[str, NDArray[Any]]:
    """The arrays of some passages: their texts, and the titles above them, each counted `title_weight` times."""
    terms = Analyser().terms
    numbers: dict[str, int] = {}
    found: list[int] = []
    lengths = np.zeros(len(texts), np.int64)
    title, above = "", list[int]()
    for row, text in enumerate(texts):
        if titles[row] != title:
            title = titles[row]
            above = [numbers.setdefault(term, len(numbers)) for term in terms(title)] * title_weight
        inside = [numbers.setdefault(term, len(numbers)) for term in terms(text)]
        found += above
        found += inside
        lengths[row] = len(above) + len(inside)
    keys, key_of = np.unique(term_keys(numbers), return_inverse=True)  # terms of one key are one term
    place = key_of[np.array(found, np.int64)] * len(texts) + np.arange(len(texts)).repeat(lengths)
    place, occurrences = np.unique(place, return_counts=True)
    term, passage = np.divmod(place, max(len(texts), 1))
    return {
        "keys": keys,
        "indptr": _small(np.searchsorted(term, np.arange(len(keys) + 1))),
        "passages": _small(passage),
        "counts": _small(occurrences),
        "lengths": _small(lengths),
    }


def _small(values: NDArray[Any]) -> NDArray[Any]:
    """The values in the smallest unsigned type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _compute(inputs: Inputs) -> Outputs:
    return Outputs(packs={"bm25": _postings(inputs)})


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """The size of the postings, which is known once they are made: a second for 600,000 tokens. No LLM."""
    arrays = _postings(inputs)
    size = pack_size({name: (array.dtype, array.shape) for name, array in arrays.items()})
    return Estimate(bytes={"bm25": Range.exactly(size)}, rows={"bm25": Range.exactly(len(arrays["passages"]))})


def _postings(inputs: Inputs) -> dict[str, NDArray[Any]]:
    passages = inputs.table("passages", PASSAGES, "document_id", "text")
    weight = int(inputs.settings["title_weight"])
    titles = [""] * len(passages)
    if weight:
        documents = inputs.table("documents", DOCUMENTS, "document_id", "title")
        rows = pc.index_in(passages.column("document_id"), documents.column("document_id").combine_chunks())
        titles = [title_prefix(title) for title in documents.column("title").take(rows).to_pylist()]
    return postings(titles, passages.column("text").to_pylist(), weight)


STAGE = Stage("bm25", version=1, compute=_compute, libraries=("numpy",), estimate=estimate)
