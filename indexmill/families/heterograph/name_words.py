"""Finding names that hold another name word by word (NodeRAG, section 2.5: exact matching on names and overviews).

Names are canonical (``indexmill.text.names``), so single spaces separate words. A name is found in another if its words
are consecutive there: ``nobel prize`` in ``1921 nobel prize in physics``, not in ``prizes of alfred
nobel``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import Allowed
from indexmill.retrieve.columns import best_of_each, distinct, positions, runs
from indexmill.retrieve.matrices import Integers, Rows, Sparse
from indexmill.text.terms import term_keys

_TOGETHER = 32
"""The number of names searched at once: all names with the rarest word of any of them are in memory together."""


@dataclass(frozen=True, slots=True)
class NameWords:
    """The words of some names, by row; may be memory maps.

    keys: ``(n_words,) uint64``, of the distinct words (``term_keys``), ascending. holders: words x names. starts:
    ``(n_names + 1,)``, the start of each name in ``words``, which are ``int32`` rows of ``keys``, name by name.
    """

    keys: npt.NDArray[np.uint64]
    holders: Sparse
    starts: Integers
    words: Integers

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, as a pack holds them."""
        return {"keys": self.keys, **self.holders.arrays("holders"), "starts": self.starts, "words": self.words}

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> NameWords:
        """Load the words from a pack's arrays."""
        return cls(arrays["keys"], Sparse.of(arrays, "holders"), arrays["starts"], arrays["words"])

    def find(self, name: str, most: int, allowed: Allowed | None = None) -> Rows:
        """The rows of at most ``most`` names that contain a name: those with the fewest words first, ties by row.

        allowed: ``(n_names,)``, a mask of the names that may be found; None for all.
        """
        return self.find_each([name], most, allowed)[0]

    def find_each(self, names: Sequence[str], most: int, allowed: Allowed | None = None) -> list[Rows]:
        """The rows for each of some names: see ``find``."""
        tiles = (names[first : first + _TOGETHER] for first in range(0, len(names), _TOGETHER))
        return [rows for tile in tiles for rows in self._find([name.split() for name in tile], most, allowed)]

    def find_all(self, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None = None) -> list[Rows]:
        """The rows, ascending, that contain any of each question's names, at most ``most`` per name: see ``find``."""
        every = list(dict.fromkeys(name for of_one in names for name in of_one))
        known = dict(zip(every, self.find_each(every, most, allowed), strict=True))
        none = np.empty(0, dtype=np.int64)
        return [distinct(np.concatenate([none, *(known[name] for name in of_one)])) for of_one in names]

    def _find(self, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None) -> list[Rows]:
        """The rows for each of some names, by their words."""
        counts = np.array([len(words) for words in names], dtype=np.int64)
        begins = counts.cumsum() - counts
        numbers, known = positions(term_keys([word for words in names for word in words]), self.keys)
        of_name = np.arange(len(names)).repeat(counts)
        whole = np.bincount(of_name[known], minlength=len(names)) == counts
        known &= whole[of_name]
        (at,) = known.nonzero()
        # The rarest word of each name: only names that contain it are compared.
        asking, _, rarest = best_of_each(of_name[at], -self.holders.degrees(numbers[at]).astype(np.float64))
        owners, rows, _ = self.holders.links(numbers[at[rarest]])
        asked = asking[owners]
        lengths, wanted = self.starts.take(rows + 1) - self.starts.take(rows), counts[asked]
        likely = lengths >= wanted
        if allowed is not None:
            likely &= allowed[rows]
        asked, rows, lengths, wanted = asked[likely], rows[likely], lengths[likely], wanted[likely]
        # Every run of as many words, of each name: where it begins, and whether it is the one that is looked for.
        counted = lengths - wanted + 1
        holder, first = np.arange(len(rows)).repeat(counted), runs(self.starts.take(rows), counted)
        for place in range(int(wanted.max(initial=0))):
            after = wanted[holder] <= place
            number = numbers.take(begins[asked[holder]] + place, mode="clip")
            same = after | (self.words.take(first + place, mode="clip") == number)
            holder, first = holder[same], first[same]
        held = distinct(holder)
        held = held[np.lexsort((rows[held], lengths[held], asked[held]))]
        cuts = asked[held].searchsorted(np.arange(len(names) + 1)).tolist()
        return [rows[held[begin : min(end, begin + most)]] for begin, end in pairwise(cuts)]
