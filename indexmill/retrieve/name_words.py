"""Finding names that hold another name word by word (NodeRAG, section 2.5: exact matching on names and overviews).

A name is a canonical one (``indexmill.names``), so words are what single spaces part. It is found in another where its
words follow one another there: ``nobel prize`` in ``1921 nobel prize in physics``, not in ``prizes of alfred nobel``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import Allowed
from indexmill.retrieve.matrices import Integers, Rows, Sparse
from indexmill.terms import term_keys

__all__ = ["NameWords"]


@dataclass(frozen=True, slots=True)
class NameWords:
    """The words of some names, by row; may be memory maps.

    keys: ``(n_words,) uint64``, of the distinct words (``term_keys``), ascending. holders: words x names. starts:
    ``(n_names + 1,)``, where each name begins in ``words``, ``int32`` rows of ``keys`` in the order in which the names
    have them.
    """

    keys: npt.NDArray[np.uint64]
    holders: Sparse
    starts: Integers
    words: Integers

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, as a pack holds them."""
        holders = {"holders.indptr": self.holders.indptr, "holders.indices": self.holders.indices}
        return {"keys": self.keys, **holders, "starts": self.starts, "words": self.words}

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> NameWords:
        """The words that a pack holds."""
        holders = Sparse(arrays["holders.indptr"], arrays["holders.indices"])
        return cls(arrays["keys"], holders, arrays["starts"], arrays["words"])

    def find(self, name: str, most: int, allowed: Allowed | None = None) -> Rows:
        """The rows of at most so many names that hold a name: those of fewest words first, ties by row.

        allowed: ``(n_names,)``, which may be found; None for all.
        """
        numbers = self._numbers(name.split())
        if not len(numbers) or not most:
            return np.empty(0, dtype=np.int64)
        rarest = int(self.holders.degrees(numbers).argmin())
        _, rows, _ = self.holders.links(numbers[rarest : rarest + 1])
        if allowed is not None:
            rows = rows[allowed[rows]]
        lengths = self.starts.take(rows + 1) - self.starts.take(rows)
        rows, lengths = rows[lengths >= len(numbers)], lengths[lengths >= len(numbers)]
        # Every run of as many words, of each name: where it begins, and whether it is the one that is looked for.
        runs = lengths - len(numbers) + 1
        owners = np.arange(len(rows)).repeat(runs)
        first = np.arange(len(owners)) - (runs.cumsum() - runs)[owners] + self.starts.take(rows)[owners]
        same = np.ones(len(owners), dtype=np.bool_)
        for place, number in enumerate(numbers.tolist()):
            same &= self.words.take(first + place) == number
        held = np.unique(owners[same])
        return rows[held[np.lexsort((rows[held], lengths[held]))[:most]]]

    def find_all(self, names: Sequence[Sequence[str]], most: int, allowed: Allowed | None = None) -> list[Rows]:
        """The rows, ascending, that hold any of each question's names, at most so many for each name: see ``find``."""
        known: dict[str, Rows] = {}
        found = []
        for of_one in names:
            for name in of_one:
                if name not in known:
                    known[name] = self.find(name, most, allowed)
            found.append(np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(known[name] for name in of_one)])))
        return found

    def _numbers(self, words: Sequence[str]) -> Rows:
        """The rows of some words in ``keys``; none where one of them is unknown."""
        wanted = term_keys(words)
        at = np.minimum(self.keys.searchsorted(wanted), max(len(self.keys) - 1, 0))
        if not len(self.keys) or (self.keys[at] != wanted).any():
            return np.empty(0, dtype=np.int64)
        return at.astype(np.int64)
