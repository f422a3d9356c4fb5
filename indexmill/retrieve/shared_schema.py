"""The packs that no family owns: vectors of passages, sentences, titles and names, and the links of mentions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.store.pack_schema import (
    SMALLEST,
    Array,
    PackCheck,
    PackSchema,
    hashes,
    indices,
    keys,
    pointers,
    sparse,
    vectors,
)

VECTORS = PackSchema(
    "vectors of passages and sentences; a shard's pieces, in the order of their labels, match the rows of its tables",
    {
        "passages": vectors("passages here", "the vector of each passage"),
        "sentences": Array(
            "int8", ("sentences here", "dimensions"), "the direction of each sentence's vector, in 8 bits"
        ),
        "passage_keys": hashes("passages here", "what each vector was computed from"),
        "sentence_keys": hashes("sentences here", "what each vector was computed from"),
    },
)

CODES = PackSchema(
    "codes to find the nearest of the shard's passages: their vectors plus the vectors of their titles, quantised to 8 "
    "bits, where 128 is zero",
    {
        "codes": Array("uint8", ("own passages", "dimensions"), "the code of each passage"),
        "distances": Array("float32", ("own passages",), "the maximum distance of each passage from its code"),
        "scale": Array("float64", (2,), "the quantisation step, and the weight of a title"),
    },
    tables=("own passages",),
)

TITLES = PackSchema(
    "vectors of the titles of the shard's documents, one row per row of `documents`; absent if "
    "`split.title_in_passage` is off",
    {
        "vectors": Array(
            "int8",
            ("own documents", "dimensions"),
            "the direction of each title's vector, in 8 bits; zeros without a title",
        ),
        "text_keys": hashes("own documents", "what each vector was computed from"),
        "passage_document": indices("own passages", "own documents", "the row of each passage's document"),
    },
    tables=("own passages", "own documents"),
)

NAMES = PackSchema(
    "vectors of the canonical names of some of the shard's entities",
    {
        "vectors": Array("int8", ("names", "dimensions"), "the direction of each name's vector, in 8 bits"),
        "entity_keys": keys("names", "the entity of each name: the first 16 digits of its id"),
        "keys": hashes("names", "what each vector was computed from"),
    },
)


def _not_ascending(values: npt.NDArray[Any]) -> Iterator[str]:
    if bool((values[1:] <= values[:-1]).any()):
        yield "'entity_keys' contains an entity twice"


def _ascending_rows(name: str) -> PackCheck:
    problems = partial(_falling_row, name)  # no closure: checks are sent to workers
    return PackCheck(f"the columns of each row of `{name}` ascend", (f"{name}.indptr", f"{name}.indices"), problems)


def _falling_row(name: str, indptr: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Iterator[str]:
    falls = columns[1:] <= columns[:-1]
    starts = indptr[(indptr > 0) & (indptr < len(columns))].astype(np.int64)
    falls[starts - 1] = False  # the first link of a row
    if falls.any():
        yield f"the columns of a row of {name!r} do not ascend"


_TYPES = (SMALLEST, SMALLEST)

MENTION_LINKS = PackSchema(
    "which entities the shard's sentences and passages mention; absent if no family needs it",
    {
        "entity_keys": keys(
            "listed",
            "the entities that the shard mentions or that are extracted from it: the first 16 digits of each id. All "
            "shards together contain the entities of the table `entities`",
        ),
        "document_passages": pointers(
            "own documents", "own passages", "where each document's passages begin, and the end", SMALLEST
        ),
        "passage_sentences": pointers(
            "own passages", "own sentences", "where each passage's sentences begin, and the end", SMALLEST
        ),
        **sparse("mentions", "own sentences", "listed", "sentences by entities", _TYPES),
        **sparse("contents", "own passages", "listed", "passages by entities", _TYPES),
        "contents.counts": Array(SMALLEST, ("contents links",), "how often the entity occurs in the passage", least=1),
        "titles": Array(
            SMALLEST,
            ("titles",),
            "the links of `contents` whose entity is the document's title or a subject of the passage",
            below="contents links",
            least=0,
            rising=True,
        ),
    },
    tables=("own documents", "own passages", "own sentences"),
    checks=(
        PackCheck("no entity occurs twice", ("entity_keys",), _not_ascending),
        _ascending_rows("mentions"),
        _ascending_rows("contents"),
    ),
)

PACKS = {
    "vectors/<piece>": VECTORS,
    "passage_codes/<shard>": CODES,
    "titles/<shard>": TITLES,
    "names/<entity shard>": NAMES,
    "mention_links/<shard>": MENTION_LINKS,
}
