"""The words of names and overviews, in the arrays that a question's names are looked up in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.name_words import NameWords
from indexmill.terms import term_keys

__all__ = ["name_words"]


def name_words(names: pa.Array) -> NameWords:
    """The words of canonical names, in their order; a name without words is found by nothing."""
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(names))
    words = lists.flatten().dictionary_encode()
    distinct = words.dictionary.to_pylist()
    keys = term_keys(distinct) if distinct else np.empty(0, dtype=np.uint64)
    order = np.argsort(keys)
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    sequence = number[words.indices.to_numpy()]
    starts = lists.offsets.to_numpy().astype(np.int64)
    owners = np.arange(len(names)).repeat(np.diff(starts))
    held = np.unique(sequence.astype(np.int64) * max(len(names), 1) + owners)
    indptr = held.searchsorted(np.arange(len(order) + 1, dtype=np.int64) * max(len(names), 1))
    holders = Sparse(indptr.astype(np.int64), (held % max(len(names), 1)).astype(np.int32))
    return NameWords(keys[order], holders, starts - starts[0], sequence)
