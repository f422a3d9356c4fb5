"""Similarity links between documents, and between entities, in blocks, and the vectors of documents (ZoomRAG, eq. 2).

Rows have names of 64 bits, which do not change when other rows are added or removed: a document's name is the start of
the SHA-256 of its id, an entity's name is its key. A block lists pairs of rows by name, so it changes only if one of
its pairs does. A pair is listed once, under the lower of its names, with its cosine in steps of 1 / STEPS_PER_UNIT.

A reader needs the links of each row in both directions, with the weights exp(cos): ``linked`` assembles them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.families.zoom_graph.walk import CsrBlock
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.grid import UNIT
from indexmill.retrieve.matrices import Rows
from indexmill.retrieve.retrieval_method import Vectors
from indexmill.store.pack_checks import row_lengths

_DOCUMENTS: CacheKey[DocumentVectors] = CacheKey("zoom_graph documents")

Names = npt.NDArray[np.uint64]

STEP = 512
"""The size of a similarity step in products on the grid (``indexmill.retrieve.grid``): 3e-5 of cosine."""

STEPS_PER_UNIT = int(UNIT) // STEP
"""The number of similarity steps per unit of cosine."""

LARGEST_STEP = (1 << 15) - 1
"""The largest step that fits into int16; a product on the grid is below 2^24, which is one step more."""


class UnknownName(ValueError):
    """A block names a row that does not exist."""


class NamedRows:
    """Rows by name. names: ``(n,) uint64``, in the order of the rows."""

    def __init__(self, names: Names) -> None:
        self._order = names.argsort(kind="stable")
        self._names = names[self._order]

    def __len__(self) -> int:
        return len(self._names)

    def of(self, names: Names) -> Rows:
        """Return the row of each name; raises UnknownName."""
        places = self._names.searchsorted(names)
        if len(names) and (int(places.max()) >= len(self._names) or (self._names[places] != names).any()):
            raise UnknownName("a similarity link leads to a row that does not exist")
        return self._order[places]


class Pairs(NamedTuple):
    """Pairs of rows: the rows with the lower names, the rows with the higher names, and similarities in steps."""

    low: Rows
    high: Rows
    steps: npt.NDArray[np.int16]


class DocumentVectors(NamedTuple):
    """The vectors of documents on the grid, ``(n, d) float32``, and their rows by name."""

    vectors: Vectors
    rows: NamedRows


@lru_cache(maxsize=1)
def weights() -> npt.NDArray[np.float32]:
    """Return a table of exp(cos) by similarity in steps, with 0 steps in its middle; cos is the middle of the step.

    The table is the same on all machines: numpy's exponentials may differ in the last bit of float64, but no value is
    so close to the midpoint of two float32 numbers that the difference changes its rounding.
    """
    steps = np.arange(-LARGEST_STEP - 1, LARGEST_STEP + 1)
    table: npt.NDArray[np.float32] = np.exp((steps + 0.5) * STEP / UNIT).astype(np.float32)
    return table


def pairs_of(block: Mapping[str, npt.NDArray[Any]], rows: NamedRows) -> Pairs:
    """Return the pairs of a block; raises UnknownName."""
    ends = rows.of(block["names"])
    low = ends.repeat(row_lengths(block["indptr"]))
    return Pairs(low, ends.take(block["partners"]), block["steps"].astype(np.int16, copy=False))


def linked(blocks: Iterable[Mapping[str, npt.NDArray[Any]]], rows: NamedRows) -> CsrBlock:
    """Assemble the links of each row in both directions, in no particular order. Raises UnknownName.

    Links are placed block by block, where their ends are numbers of 16 bits, which numpy sorts in linear time: one sort
    of all links would take several times as long.
    """
    counts = np.zeros(len(rows), dtype=np.int64)
    read = list(_ends(blocks, rows))
    for ends, block, degrees in read:
        counts[ends] += row_lengths(block["indptr"]) + degrees
    indptr = np.concatenate([[0], counts.cumsum()])
    cursor = indptr[:-1].copy()
    indices = np.empty(indptr[-1], dtype=np.int32)
    weight = np.empty(indptr[-1], dtype=np.float32)
    table, narrow = weights(), np.int32
    for ends, block, degrees in read:
        partners, steps = block["partners"], block["steps"].astype(np.int64)
        steps += LARGEST_STEP + 1
        shown = ends.astype(narrow)
        order = partners.argsort(kind="stable")
        lengths = row_lengths(block["indptr"])
        owners = np.arange(len(ends)).repeat(lengths)
        value = table.take(steps)
        for columns, values, degree in (
            (shown.take(partners), value, lengths),
            (shown.take(owners.take(order)), value.take(order), degrees),
        ):
            ended = degree.cumsum()
            places = (cursor.take(ends) - ended + degree).repeat(degree)
            places += np.arange(len(places))
            indices[places] = columns
            weight[places] = values
            cursor[ends] += degree
    return CsrBlock(indptr, indices, weight)


def _ends(
    blocks: Iterable[Mapping[str, npt.NDArray[Any]]], rows: NamedRows
) -> Iterator[tuple[Rows, Mapping[str, npt.NDArray[Any]], Rows]]:
    """Yield each block with the rows that it names, and how many pairs list each row as the higher one."""
    for block in blocks:
        ends = rows.of(block["names"])
        yield ends, block, np.bincount(block["partners"], minlength=len(ends)).astype(np.int64, copy=False)


def documents_of(artifacts: Artifacts) -> DocumentVectors:
    """Return the vectors of documents. Raises CorruptBlob."""
    return artifacts.once(_DOCUMENTS, lambda: _documents(artifacts))


def _documents(artifacts: Artifacts) -> DocumentVectors:
    def join() -> dict[str, npt.NDArray[Any]]:
        shards = artifacts.vectors("document_vectors", "vectors")
        vectors = np.empty((sum(map(len, shards)), shards[0].shape[1] if shards else 1), dtype=np.float32)
        if shards:
            np.concatenate(shards, out=vectors, casting="unsafe")
        names: list[npt.NDArray[Any]] = [*artifacts.vectors("document_vectors", "keys")]
        return {"vectors": vectors, "names": np.concatenate([np.empty(0, dtype=np.uint64), *names])}

    arrays = artifacts.assembled("zoom_graph.documents.1", join)
    return DocumentVectors(arrays["vectors"], NamedRows(arrays["names"]))


def document_links(artifacts: Artifacts) -> CsrBlock:
    """Return the links between documents, by rows. Raises CorruptBlob."""
    return _linked(artifacts, "document_links", documents_of(artifacts).rows)


def entity_links(artifacts: Artifacts, keys: Names) -> CsrBlock:
    """Return the links between entities, or none if the snapshot has none. keys: one per row. Raises CorruptBlob."""
    return _linked(artifacts, "entity_links", NamedRows(keys))


def _linked(artifacts: Artifacts, name: str, rows: NamedRows) -> CsrBlock:
    def join() -> dict[str, npt.NDArray[Any]]:
        try:
            return linked((artifacts.arrays(one.name) for one in artifacts.shards(name)), rows)._asdict()
        except UnknownName as error:
            raise CorruptBlob(f"{artifacts.path}: {name}: {error}") from error

    return CsrBlock(**artifacts.assembled(f"zoom_graph.{name}.1", join))
