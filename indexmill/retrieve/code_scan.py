"""Passage codes: vectors quantised to 8 bits, scanned for the nearest passages, which exact vectors then rank.

A code encodes a passage's vector plus ``weight`` times the vector of its document's title, in steps of REACH / 127 /
sqrt(d) for every component; a component beyond the reach is clipped. faiss multiplies codes by the question, also
quantised to 8 bits, as integers, so a scan has the same result everywhere. By the Cauchy-Schwarz inequality, the error
of a scanned product is bounded by the distance of the passage from its code, which the pack stores, plus that of the
question from its quantised form. So rows become candidates in the order of their scanned products until none of the
remaining rows can be among the k best; the exact products of the candidates decide. The result is bit-identical to
scanning all vectors (``indexmill.retrieve.dense``); only the time differs.

Rejected: scanning float16 (twice the bytes, and twice the time); learned ranges per dimension, which would change every
code whenever a passage is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.retrieval_method import Allowed, Vectors
from indexmill.store.pack_schema import Arrays

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Exact = Callable[[Rows], Scores]
"""The exact products of some ascending rows with one question."""

_CODES: CacheKey[PassageCodes | None] = CacheKey("passage codes")

REACH = 5.5
"""The largest component of a code, in units of 1 / sqrt(d), the typical size of a unit vector's components."""

_MOST = 127
_MIDDLE = 128
_CANDIDATES = 32
"""The number of candidates of the first scan, plus 4 per requested row: nine out of ten questions need 2 per row."""

_SCANNED_SHARE = 8
"""If more than 1 / _SCANNED_SHARE of the rows would be candidates, all vectors are scanned instead."""

_FAR = 0.999
"""The quantile of the rows' distances from their codes that serves as bound; rows beyond it are always candidates."""


def encoded(vectors: Vectors, weight: float) -> dict[str, npt.NDArray[Any]]:
    """Encode vectors ``(n, d) float32``, titles added with this weight, as the pack ``shared_schema.CODES``."""
    step = np.float32(REACH / _MOST / np.sqrt(vectors.shape[1]))
    steps = np.rint(vectors / step).clip(-_MOST, _MOST)
    rest = vectors.astype(np.float64) - steps.astype(np.float64) * np.float64(step)
    distances = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    return {
        "codes": (steps + _MIDDLE).astype(np.uint8),
        "distances": np.nextafter(distances.astype(np.float32), np.float32(np.inf)),
        "scale": np.array([step, weight], dtype=np.float64),
    }


def joined_codes(packs: Sequence[Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Join the codes of one or more shards into an index that faiss can map: see ``PassageCodes``.

    index: ``(bytes,) uint8``, the serialised faiss index. bound: a distance from its code that almost no passage
    exceeds. far: the rows that exceed it. scale: as in the packs. Raises ImportError without faiss.
    """
    import faiss

    index = faiss.IndexScalarQuantizer(
        packs[0]["codes"].shape[1], faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
    )
    for pack in packs:
        index.add_sa_codes(np.ascontiguousarray(pack["codes"]))
    distances = np.concatenate([pack["distances"] for pack in packs])
    bound = float(np.quantile(distances, _FAR, method="higher")) if len(distances) else 0.0
    return {
        "index": faiss.serialize_index(index),
        "bound": np.array([bound], np.float64),
        "far": (distances > bound).nonzero()[0],
        "scale": packs[0]["scale"],
    }


class PassageCodes:
    """The codes of all passages of a snapshot. Thread-safe, since faiss only reads them."""

    def __init__(self, arrays: Arrays) -> None:
        """Map the result of ``joined_codes`` without copying it. Raises ImportError without faiss."""
        import faiss

        self._faiss: Any = faiss  # its stubs are incomplete
        self._bytes = arrays["index"]  # the index points into it
        reader = self._faiss.ZeroCopyIOReader(self._faiss.swig_ptr(self._bytes), self._bytes.size)
        self._index = self._faiss.read_index(reader)
        self.step, self.weight = arrays["scale"].tolist()
        """The quantisation step, and the weight of the title vectors."""
        self._bound, self._far = float(arrays["bound"][0]), arrays["far"]
        self._longest = 1.0 + self.weight + self._bound

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def nearest(
        self, question: npt.NDArray[np.float32], k: int, exact: Exact, allowed: Allowed | None = None
    ) -> tuple[Rows, Scores] | None:
        """Find the k rows with the largest exact products with a question ``(d,)``, and the products; ties by row.

        allowed: ``(n,)``, a mask of the rows that may be returned. Returns None if scanning all vectors is no slower.
        """
        length = float(np.sqrt(np.add.reduce(question.astype(np.float64) ** 2)))
        largest = float(np.abs(question).max(initial=0.0))
        if not largest or not np.isfinite(length):
            return None
        steps = np.rint(question * np.float32(_MOST / largest))
        scale = largest / _MOST
        rest = question.astype(np.float64) - steps.astype(np.float64) * scale
        off = self._bound * length + self._longest * float(np.sqrt(np.add.reduce(rest * rest)))
        able = len(self) if allowed is None else int(np.count_nonzero(allowed))
        far = self._far if allowed is None else self._far[allowed[self._far]]
        candidates = _CANDIDATES + 4 * k
        while candidates * _SCANNED_SHARE <= able:
            scanned, rows = self._index.search(steps[None], min(candidates, able), params=self._chosen(allowed))
            rows = np.union1d(rows[0], far)
            scores = exact(rows)
            best = np.lexsort((rows, -scores))[:k]
            if candidates >= able or scanned[0, -1] * self.step * scale + off < scores[best[-1]]:
                return rows[best], scores[best]
            candidates *= 4
        return None

    def _chosen(self, allowed: Allowed | None) -> Any:
        """Return the search parameters that limit faiss to some rows; None for all."""
        if allowed is None:
            return None
        mask = np.packbits(allowed, bitorder="little")
        return self._faiss.SearchParameters(sel=self._faiss.IDSelectorBitmap(mask))


def passage_codes_of(artifacts: Artifacts) -> PassageCodes | None:
    """Open a snapshot's codes, once; None for a snapshot without them, or if faiss is not installed."""
    return artifacts.once(_CODES, lambda: _open_codes(artifacts))


def _open_codes(artifacts: Artifacts) -> PassageCodes | None:
    shards = artifacts.shards("passage_codes")
    if not shards:
        return None

    def join() -> dict[str, npt.NDArray[Any]]:
        return joined_codes([artifacts.arrays(shard.name) for shard in shards])

    try:
        import faiss

        # The name contains faiss's version, since another release may serialise an index differently.
        return PassageCodes(artifacts.assembled(f"passage_codes.{faiss.__version__}.1", join))
    except ImportError:
        return None
