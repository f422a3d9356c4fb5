"""Telling apart, many at a time and without a digest, what may be a name from what is none.

A question has a hundred runs of words, a handful of which are names, and a name is looked up by its SHA-256. For some
questions together it is faster to ask a Bloom filter of one hash first: what it lets through is looked up, and nearly
all of the rest is not. The hash is a polynomial modulo 2^64 over the bytes, of which prefix sums give that of any run
in one operation.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["NameFilter"]

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15  # odd, so that its powers have inverses
_INVERSE = pow(_BASE, -1, 1 << 64)
_MIX = 0xD6E8FEB86659FD93

_BITS_PER_NAME = 32
"""Of the filter, at least: one in 32 of what is no name is let through."""


class NameFilter:
    """A set of names that may take others for its own, never the other way round: four to eight bytes a name."""

    def __init__(self, names: Iterable[tuple[Bytes, Rows]], count: int) -> None:
        """names: the names' bytes one after the other, with where each begins and the last ends. count: of all."""
        self._shift = np.uint64(64 - max(16, (_BITS_PER_NAME * count - 1).bit_length()))
        self._bits = np.zeros(1 << (61 - int(self._shift)), dtype=np.uint8)
        for text, bounds in names:
            at = self._places(text, bounds[:-1], bounds[1:])
            np.bitwise_or.at(self._bits, at >> 3, np.uint8(1) << (at & 7).astype(np.uint8))

    def likely(self, text: Bytes, begins: Rows, ends: Rows) -> npt.NDArray[np.bool_]:
        """Which runs of a text may be names: all that are, and few others."""
        at = self._places(text, begins, ends)
        found: npt.NDArray[np.bool_] = ((self._bits.take(at >> 3) >> (at & 7).astype(np.uint8)) & 1).astype(np.bool_)
        return found

    def _places(self, text: Bytes, begins: Rows, ends: Rows) -> Rows:
        """The bit of each run of a text."""
        powers, inverses = _powers(_BASE, len(text)), _powers(_INVERSE, len(text) + 1)
        upto = np.zeros(len(text) + 1, dtype=np.uint64)
        np.cumsum((text.astype(np.uint64) + np.uint64(1)) * powers, out=upto[1:])
        hashed = (upto.take(ends) - upto.take(begins)) * inverses.take(begins)
        hashed ^= hashed >> np.uint64(32)
        hashed *= np.uint64(_MIX)
        return (hashed >> self._shift).astype(np.int64)


def _powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    """The first powers of a number modulo 2^64, from 1 on."""
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors, out=factors)
