"""Codes of passages: 8-bit steps that are scanned for the nearest ones, which their vectors then rank.

A code stands for a passage's vector plus ``weight`` times that of its document's title, with a step of REACH / 127 /
sqrt(d) for every component; a component beyond the reach is cut. faiss multiplies codes by the question, in steps of
its own, as integers, so that a scan has the same result everywhere. How far a scanned product may be from the exact one
is known: by Cauchy and Schwarz, the distance of a passage from its code, which the pack has, plus that of the question
from its own steps. So rows are taken in the order of their scanned products until none of the rest can be among the k
best; the exact products of those taken decide. The result is that of scanning all vectors
(``indexmill.retrieve.dense``), bit for bit; only the time differs.

Rejected: scanning float16 (twice the bytes, and twice the time); learned ranges per dimension, which would change every
code with each passage that is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import Allowed, Vectors
from indexmill.store.pack_schema import Arrays

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Exact = Callable[[Rows], Scores]
"""The exact products of some ascending rows with one question."""

REACH = 5.5
"""The largest component of a code, in units of 1 / sqrt(d), the typical component of a unit vector."""

_MOST = 127
_MIDDLE = 128
_TAKEN = 32
"""The rows taken first, besides 4 for each that is wanted: nine of ten questions need 2 for each."""

_SCANNED_SHARE = 8
"""Where more than 1 / _SCANNED_SHARE of the rows would have to be taken, all vectors are scanned instead."""

_FAR = 0.999
"""The share of rows whose distance from their code bounds that of all others; the rest are always taken."""


def encoded(vectors: Vectors, weight: float) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a pack of codes: see ``indexmill.retrieve.shared_schema.CODES``.

    vectors: ``(n, d) float32``, those of titles added with ``weight``.
    """
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
    """The codes of some shards, at least one, as an index that faiss maps: see ``PassageCodes``.

    index: ``(bytes,) uint8``, an index of faiss as it serialises it. bound, far: the distance that no row exceeds but
    those listed. scale: as in the packs. Raises ImportError without faiss.
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
    """The codes of all passages of a snapshot. Thread-safe: faiss only reads."""

    def __init__(self, arrays: Arrays) -> None:
        """arrays: those of ``joined_codes``, which stay where they are. Raises ImportError without faiss."""
        import faiss

        self._faiss: Any = faiss  # its stubs lack some of what it has
        self._bytes = arrays["index"]  # the index points into it
        reader = self._faiss.ZeroCopyIOReader(self._faiss.swig_ptr(self._bytes), self._bytes.size)
        self._index = self._faiss.read_index(reader)
        self.step, self.weight = arrays["scale"].tolist()
        """The size of a step, and the weight of a title."""
        self._bound, self._far = float(arrays["bound"][0]), arrays["far"]
        self._longest = 1.0 + self.weight + self._bound

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def nearest(
        self, question: npt.NDArray[np.float32], k: int, exact: Exact, allowed: Allowed | None = None
    ) -> tuple[Rows, Scores] | None:
        """The k rows of largest exact product with a question ``(d,)``, and the products; ties by row.

        allowed: ``(n,)``, a mask of the rows that may be found. None where scanning all vectors is no slower.
        """
        length = float(np.sqrt(np.add.reduce(question.astype(np.float64) ** 2)))
        largest = float(np.abs(question).max(initial=0.0))
        if not largest or not np.isfinite(length):
            return None
        asked = np.rint(question * np.float32(_MOST / largest))
        scale = largest / _MOST
        rest = question.astype(np.float64) - asked.astype(np.float64) * scale
        off = self._bound * length + self._longest * float(np.sqrt(np.add.reduce(rest * rest)))
        able = len(self) if allowed is None else int(np.count_nonzero(allowed))
        far = self._far if allowed is None else self._far[allowed[self._far]]
        taken = _TAKEN + 4 * k
        while taken * _SCANNED_SHARE <= able:
            found, rows = self._index.search(asked[None], min(taken, able), params=self._chosen(allowed))
            rows = np.union1d(rows[0], far)
            scores = exact(rows)
            best = np.lexsort((rows, -scores))[:k]
            if taken >= able or found[0, -1] * self.step * scale + off < scores[best[-1]]:
                return rows[best], scores[best]
            taken *= 4
        return None

    def _chosen(self, allowed: Allowed | None) -> Any:
        """What tells faiss to look at some rows alone; None for all."""
        if allowed is None:
            return None
        mask = np.packbits(allowed, bitorder="little")
        return self._faiss.SearchParameters(sel=self._faiss.IDSelectorBitmap(mask))


def passage_codes_of(artifacts: Artifacts) -> PassageCodes | None:
    """The codes of a snapshot, opened once; None for a snapshot without them, or where faiss is not installed."""

    def opened() -> tuple[PassageCodes | None]:
        shards = artifacts.shards("passage_codes")
        if not shards:
            return (None,)

        def join() -> dict[str, npt.NDArray[Any]]:
            return joined_codes([artifacts.arrays(one.name) for one in shards])

        try:
            import faiss

            # As faiss serialises an index, which another release may do otherwise.
            return (PassageCodes(artifacts.assembled(f"passage_codes.{faiss.__version__}.1", join)),)
        except ImportError:
            return (None,)

    (found,) = artifacts.once("passage codes", opened)
    return found
