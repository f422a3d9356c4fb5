"""Search for names that contain another name, word by word (NodeRAG, section 2.5: exact matching).

Names are canonical (``indexmill.text.canonical_names``), so single spaces separate words. A name contains a shorter
name if that name's words occur in it consecutively: ``1921 nobel prize in physics`` contains ``nobel prize``,
``prizes of alfred nobel`` does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import best_of_each, distinct, positions, runs
from indexmill.retrieve.matrices import Integers, Rows, Sparse
from indexmill.retrieve.retrieval_method import Allowed
from indexmill.text.terms import term_keys

_TOGETHER = 32
"""The number of names searched at once: all names with the rarest word of any of them are in memory together."""


@dataclass(frozen=True, slots=True)
class NameWords:
    """The words of some names, by row; the arrays may be memory maps.

    keys: ``(n_words,) uint64``, ``term_keys`` of the distinct words, ascending. holders: words x names, the names that
    contain each word. words: ``int32`` rows of ``keys``, name by name. starts: ``(n_names + 1,)``, where each name
    begins in ``words``.
    """

    keys: npt.NDArray[np.uint64]
    holders: Sparse
    starts: Integers
    words: Integers

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, as stored in a pack."""
        return {"keys": self.keys, **self.holders.arrays("holders"), "starts": self.starts, "words": self.words}

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> NameWords:
        """Load the words from a pack's arrays."""
        return cls(arrays["keys"], Sparse.of(arrays, "holders"), arrays["starts"], arrays["words"])

    def find_each(self, names: Sequence[str], most: int, allowed: Allowed | None = None) -> list[Rows]:
        """Find, for each name, at most ``most`` names that contain it: their rows, fewest words first, ties by row.

        allowed: ``(n_names,)``, a mask of the names that may be found; None for all.
        """
        tiles = (names[first : first + _TOGETHER] for first in range(0, len(names), _TOGETHER))
        return [rows for tile in tiles for rows in self._find([name.split() for name in tile], most, allowed)]

    def find_all(self, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None = None) -> list[Rows]:
        """Find, per question, the rows of names that contain any of its names, ascending, at most ``most`` per name."""
        every = list(dict.fromkeys(name for of_one in names for name in of_one))
        matches = dict(zip(every, self.find_each(every, most, allowed), strict=True))
        none = np.empty(0, dtype=np.int64)
        return [distinct(np.concatenate([none, *(matches[name] for name in of_one)])) for of_one in names]

    def _find(self, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None) -> list[Rows]:
        counts = np.array([len(words) for words in names], dtype=np.int64)
        begins = counts.cumsum() - counts
        numbers, indexed = positions(term_keys([word for words in names for word in words]), self.keys)
        of_name = np.arange(len(names)).repeat(counts)
        whole = np.bincount(of_name[indexed], minlength=len(names)) == counts
        indexed &= whole[of_name]
        (at,) = indexed.nonzero()
        # The rarest word of each name: only names that contain it are compared.
        asking, _, rarest = best_of_each(of_name[at], -self.holders.degrees(numbers[at]).astype(np.float64))
        owners, rows, _ = self.holders.links(numbers[at[rarest]])
        name_numbers = asking[owners]
        lengths, sizes = self.starts.take(rows + 1) - self.starts.take(rows), counts[name_numbers]
        likely = lengths >= sizes
        if allowed is not None:
            likely &= allowed[rows]
        name_numbers, rows, lengths, sizes = name_numbers[likely], rows[likely], lengths[likely], sizes[likely]
        # Start from every run of that many words in each candidate, and drop the runs that differ, word by word.
        counted = lengths - sizes + 1
        holder, first = np.arange(len(rows)).repeat(counted), runs(self.starts.take(rows), counted)
        for place in range(int(sizes.max(initial=0))):
            after = sizes[holder] <= place
            number = numbers.take(begins[name_numbers[holder]] + place, mode="clip")
            same = after | (self.words.take(first + place, mode="clip") == number)
            holder, first = holder[same], first[same]
        matches = distinct(holder)
        matches = matches[np.lexsort((rows[matches], lengths[matches], name_numbers[matches]))]
        cuts = name_numbers[matches].searchsorted(np.arange(len(names) + 1)).tolist()
        return [rows[matches[begin : min(end, begin + most)]] for begin, end in pairwise(cuts)]
