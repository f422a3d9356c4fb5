"""Stage `bm25`: the terms of a shard's passages, with their counts.

A shard's pack `bm25` contains no text and does not depend on other shards, so a refresh rebuilds only changed shards;
a reader adds up document frequencies and lengths over the shards. Two fields are counted: the passage's text with its
document's title, and, under names that begin with ``titles.``, the title alone. The arrays are
described in indexmill.families.bm25.schema.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.bm25.schema import POSTINGS
from indexmill.retrieve.term_index import FIELDS
from indexmill.store.pack_schema import smallest
from indexmill.text.terms import Analyser, stemmer_of, term_keys
from schemas.tables import PLAIN
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, shared_tables
from tasks.core.unchanged import unchanged
from tasks.stages.split.plain import Plain
from tasks.stages.split.split import title_prefix


@dataclass(frozen=True, kw_only=True)
class PostingsSettings(StageSettings):
    """title_weight: how many times a title counts in each passage of its document."""

    title_weight: int


def settings_of(run: Run) -> PostingsSettings:
    configuration = run.configuration
    weight = configuration.families.bm25.title_weight if configuration.split.title_in_passage else 0
    return PostingsSettings(title_weight=weight)


def counts(*packs: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the sizes of a built index, as the manifest states them; every occurrence of a word counts."""
    return {
        "passages": sum(len(pack["lengths"]) for pack in packs),
        "words": sum(int(pack["lengths"].sum(dtype=np.int64)) for pack in packs),
        "postings": sum(len(pack["passages"]) for pack in packs),
    }


def postings(
    titles: Sequence[str], texts: Sequence[str], title_weight: int, languages: Sequence[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Count the terms of passages, with each passage's title counted `title_weight` times.

    languages: of the passages, which determine the stems; None for English.
    """
    stemmers = [stemmer_of(language) for language in languages or [""] * len(texts)]
    terms_by_stemmer = {stemmer: Analyser([stemmer]).terms for stemmer in sorted(set(stemmers))}
    numbers: dict[str, int] = {}
    latest, above = ("", ""), list[int]()
    text_terms, title_terms = list[list[int]](), list[list[int]]()
    for title, text, stemmer in zip(titles, texts, stemmers, strict=True):
        terms = terms_by_stemmer[stemmer]
        if (title, stemmer) != latest:
            latest = (title, stemmer)
            above = [numbers.setdefault(term, len(numbers)) for term in terms(title)]
        inside = [numbers.setdefault(term, len(numbers)) for term in terms(text)]
        text_terms.append(above * title_weight + inside)
        title_terms.append(above)
    keys = term_keys(numbers)
    fields = zip(FIELDS, (text_terms, title_terms), strict=True)
    return {f"{field}{name}": array for field, held in fields for name, array in _field(keys, held).items()}


def _field(keys: NDArray[np.uint64], passage_terms: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of one field. keys: the keys of all terms.

    passage_terms: the terms of each passage, as row numbers in `keys`.
    """
    lengths = np.fromiter(map(len, passage_terms), np.int64, len(passage_terms))
    term_rows = np.fromiter(itertools.chain.from_iterable(passage_terms), np.int64, int(lengths.sum()))
    keys, key_of = np.unique(keys[term_rows], return_inverse=True)  # terms with the same key count as one
    place = key_of * len(passage_terms) + np.arange(len(passage_terms)).repeat(lengths)
    place, occurrences = np.unique(place, return_counts=True)
    term, passage = np.divmod(place, max(len(passage_terms), 1))
    return {
        "keys": keys,
        "indptr": smallest(np.searchsorted(term, np.arange(len(keys) + 1))),
        "passages": smallest(passage),
        "counts": smallest(occurrences),
        "lengths": smallest(lengths),
    }


def merged(
    packs: Sequence[tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]], passages: int
) -> dict[str, NDArray[Any]]:
    """Merge packs into one with `passages` rows. packs: pairs of a pack and its passages' new rows, -1 if deleted."""
    return {
        f"{field}{name}": array for field in FIELDS for name, array in _merged_field(field, packs, passages).items()
    }


def _merged_field(
    field: str, packs: Sequence[tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]], passages: int
) -> dict[str, NDArray[Any]]:
    lengths = np.zeros(passages, np.int64)
    columns = []
    for pack, row_of in packs:
        lengths[row_of[row_of >= 0]] = pack[f"{field}lengths"][row_of >= 0]
        ends = pack[f"{field}indptr"].astype(np.int64)
        passage_counts = np.diff(ends)
        rows, keys = row_of[pack[f"{field}passages"]], pack[f"{field}keys"].repeat(passage_counts)
        columns.append((keys[rows >= 0], rows[rows >= 0], pack[f"{field}counts"][rows >= 0].astype(np.int64)))
    keys, rows, counts = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((rows, keys))
    distinct, first = np.unique(keys[order], return_index=True)
    return {
        "keys": distinct,
        "indptr": smallest(np.append(first, len(keys))),
        "passages": smallest(rows[order]),
        "counts": smallest(counts[order]),
        "lengths": smallest(lengths),
    }


def _postings(inputs: Part[PostingsSettings]) -> dict[str, NDArray[Any]]:
    documents = inputs.table("documents", "document_id", "title", "content_hash")
    passages = inputs.table("passages", "passage_id", "document_id", "ordinal", "start", "end", "text", "language")
    weight = inputs.settings.title_weight
    earlier_parts, copied = unchanged(inputs, documents)
    owner = pc.index_in(passages["document_id"], documents["document_id"].combine_chunks()).to_numpy()
    fresh = ~copied[owner]
    titles = [""] * int(fresh.sum())
    if weight:
        titles = [title_prefix(title) for title in documents["title"].take(pa.array(owner[fresh])).to_pylist()]
    new = passages.filter(pa.array(fresh))
    arrays = postings(titles, _read(Plain.of(inputs, new)), weight, new["language"].to_pylist())
    if not earlier_parts:
        return arrays
    packs: list[tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]] = [(arrays, np.flatnonzero(fresh))]
    for part in earlier_parts:
        rows = np.flatnonzero(pc.is_in(passages["document_id"], part.ids).to_numpy())
        earlier_passages = part.table("passages", "passage_id")
        row_of = np.full(len(earlier_passages), -1, np.int64)
        row_of[
            pc.index_in(passages["passage_id"].take(pa.array(rows)), earlier_passages["passage_id"].combine_chunks())
        ] = rows
        packs.append((inputs.pack_at(part.digests["bm25"]), row_of))
    return merged(packs, len(passages))


def _read(plain: Plain) -> list[str]:
    """Return the words of each passage: its visible text and the words in its link targets."""
    texts: list[str] = plain.passages["text"].to_pylist()
    return [f"{text} {words}" if words else text for text, words in zip(texts, plain.targets, strict=True)]


STAGE: Stage[PostingsSettings] = Stage(
    "bm25",
    version=5,
    compute=lambda part: Outputs(packs={"bm25": _postings(part)}),
    libraries=("PyStemmer", "numpy"),
    expensive=True,
    inputs=(
        *shared_tables("documents", "passages"),
        Input("plain", PLAIN),
    ),
    outputs=(Output("bm25", POSTINGS, artifact="bm25/{label}"),),
    per_document=True,
)
