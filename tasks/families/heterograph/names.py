"""The words of names and overviews, as arrays for looking up the names in a question."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.families.heterograph.name_words import NameWords
from indexmill.retrieve.columns import distinct
from indexmill.retrieve.matrices import Sparse
from indexmill.text.terms import term_keys


def name_words(names: pa.Array) -> NameWords:
    """Index canonical names by their words, keeping each name's word order; a name without words is never found."""
    lists = pc.split_pattern(names, " ")
    flat = lists.flatten()
    full = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    owners = np.arange(len(names)).repeat(pc.list_value_length(lists).to_numpy())[full]
    words = flat.filter(pa.array(full)).dictionary_encode()
    terms = words.dictionary.to_pylist()
    keys = term_keys(terms) if terms else np.empty(0, dtype=np.uint64)
    order = np.argsort(keys)
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    sequence = number[words.indices.to_numpy()]
    starts = owners.searchsorted(np.arange(len(names) + 1))
    pairs = distinct(sequence.astype(np.int64) * max(len(names), 1) + owners)
    indptr = pairs.searchsorted(np.arange(len(order) + 1, dtype=np.int64) * max(len(names), 1))
    holders = Sparse(indptr.astype(np.int64), (pairs % max(len(names), 1)).astype(np.int32))
    return NameWords(keys[order], holders, starts.astype(np.int64), sequence)
