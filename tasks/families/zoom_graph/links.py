"""Stage `zoom_links`: the links between similar documents and between similar entities (ZoomRAG, section 3.1, eq. 2).

A row's links are the others whose exp(cos) exceeds the row's mean by `threshold` standard deviations. The part of each
kind (`documents`, `entities`) holds the vectors on the grid of indexmill.retrieve.grid, and, per row, the candidates
that those links are chosen from, with slack (CANDIDATES).

Every number is a function of the set of vectors. Products on the grid are exact integers, and moments are sums of
integers, exp(cos) - 1 in steps of 1 / 1024 by a table, so that adding a row and taking it out again leaves nothing
behind. That is how a refresh compares only what is new, and what is gone, with all: the rows of an earlier part are
found by key, get and lose those contributions, and end in the bits that a rebuild would have made.

A level is a multiple of 1 / 64 in cosine: the last one not above the threshold, or the least that `room` candidates
reach, where more do. Only a row whose level falls is compared with all again, and 1 / 64 makes that rare.

Up to `exact_rows` rows the moments are exact. Above, exp(cos) is split into its second-order polynomial, whose moments
follow exactly from the sum and the Gram matrix of the vectors, and a remainder, estimated from SAMPLE rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import VECTORS
from indexmill.retrieve.grid import SCALE, UNIT, on_grid
from indexmill.retrieve.matrices import pointers
from indexmill.retrieve.shared_schema import NAMES
from indexmill.retrieve.shared_schema import VECTORS as PASSAGE_VECTORS
from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import DOCUMENTS, PASSAGES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage, worker_arg

__all__ = [
    "CANDIDATES",
    "SAMPLE",
    "STAGE",
    "Candidates",
    "LinkSettings",
    "chosen_links",
    "drive",
    "exponentials",
    "find_candidates",
    "row_keys",
]

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

STEPS = 1024
"""Steps per unit of exp(cos) - 1, so that its square fits 24 bits."""

LEVELS = 64
"""Levels per unit of cosine."""

SAMPLE = 8192
"""Rows from which the remainder of estimated moments is taken: those with the smallest keys."""

_STEP = int(UNIT) // LEVELS
_LOWEST, _HIGHEST = -LEVELS - 2, LEVELS + 2  # a vector on the grid may be a little longer than one
_STRIP = 512  # rows compared at once
_TILE = 8192  # columns whose exponentials are held at once
_MOST = 1 << 24  # above every product on the grid
_GRAIN_BITS = 8  # products that differ in these bits alone, by 2e-5 in cosine, have the same exponential


CANDIDATES = PackSchema(
    "the pairs that links are chosen from, and what the thresholds come from",
    {
        "keys": Array("uint8", ("rows", 16), "the keys of the vectors"),
        "indptr": Array("int64", ("rows + 1",), "where each row's candidates begin, and the end", into="pairs"),
        "partners": Array("int32", ("pairs",), "every row whose product with this one reaches this one's level"),
        "products": Array("int32", ("pairs",), "that product"),
        "levels": Array("int16", ("rows",), "each row's level"),
        "below": Array("int32", ("rows",), "how many products reach the level below"),
        "sums": Array("int64", ("rows",), "the sum of exp(cos) - 1, in steps of 1 / STEPS"),
        "squares": Array("int64", ("rows",), "the sum of squares of these steps"),
        "thresholds": Array("float64", ("rows",), "the whole product that a row's links exceed"),
    },
)


@dataclass(frozen=True)
class LinkSettings(Settings):
    """The settings of the links of one kind.

    threshold: standard deviations above a row's mean. cap: most links that a row chooses. exact_rows: most rows whose
    moments are exact. encoder: what determines the vectors.
    """

    threshold: float = 3.0
    cap: int = 64
    exact_rows: int = 65_536
    encoder: Mapping[str, Any] | None = worker_arg(None)

    def row_space(self) -> Mapping[str, Any]:
        return {"encoder": self.encoder, "links": self.keyed()}

    @property
    def room(self) -> int:
        """The most candidates of a row."""
        return 4 * self.cap


@dataclass
class Candidates:
    """The part's contents: see the module. computed: the number of rows compared with all; the rest were reused."""

    vectors: Floats
    keys: NDArray[np.uint8]
    sums: Rows
    squares: Rows
    thresholds: NDArray[np.float64]
    levels: Rows
    below: Rows
    indptr: Rows
    partners: Rows
    products: Rows
    computed: int = 0

    def packs(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The arrays as the part keeps them."""
        arrays: dict[str, NDArray[Any]] = {
            name: getattr(self, name) for name in ("keys", "sums", "squares", "thresholds", "indptr")
        }
        arrays |= {name: getattr(self, name).astype(np.int32) for name in ("below", "partners", "products")}
        arrays["levels"] = self.levels.astype(np.int16)
        return {"zoom_candidates": arrays, "zoom_vectors": {"keys": self.keys, "vectors": self.vectors}}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], vectors: Floats) -> Candidates:
        """The candidates of a part's arrays."""
        return cls(
            vectors=vectors,
            keys=arrays["keys"],
            sums=arrays["sums"],
            squares=arrays["squares"],
            thresholds=arrays["thresholds"],
            levels=arrays["levels"].astype(np.int64),
            below=arrays["below"].astype(np.int64),
            indptr=arrays["indptr"],
            partners=arrays["partners"].astype(np.int64),
            products=arrays["products"].astype(np.int64),
        )


def row_keys(vectors: Floats) -> NDArray[np.uint8]:
    """The keys (n, 16) uint8 of vectors on the grid."""
    small = np.ascontiguousarray(vectors.astype(np.int16))
    data = b"".join(hashlib.sha256(row.tobytes()).digest()[:16] for row in small)
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 16)


def find_candidates(vectors: Floats, setting: LinkSettings, known: Candidates | None = None) -> Candidates:
    """The candidates of vectors (n, d) on the grid; `known` are those of an earlier set, made with the same settings.

    The result, but for `computed`, does not depend on `known`.
    """
    n = len(vectors)
    exact = n <= setting.exact_rows
    keys = row_keys(vectors)
    old = np.full(n, -1, dtype=np.int64) if known is None else _matched(keys, known.keys)
    gone = np.empty(0, dtype=np.int64)
    if known is not None:
        gone = np.setdiff1d(np.arange(len(known.keys)), old[old >= 0])
        was_exact = len(known.keys) <= setting.exact_rows
        if was_exact != exact or 4 * (len(gone) + np.count_nonzero(old < 0)) > n:
            old[:] = -1
    (fresh,), (kept,) = (old < 0).nonzero(), (old >= 0).nonzero()

    thresholds = np.empty(n) if exact else _estimated(vectors, keys, setting.threshold)
    sums, squares = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    levels, below = np.full(n, _HIGHEST, dtype=np.int64), np.zeros(n, dtype=np.int64)
    links: list[tuple[Rows, Rows, Rows]] = []
    if known is not None and len(kept):
        rows_of = np.full(len(known.keys), -1, dtype=np.int64)
        rows_of[old[kept]] = kept
        sums[kept], squares[kept] = known.sums[old[kept]], known.squares[old[kept]]
        levels[kept], below[kept] = known.levels[old[kept]], known.below[old[kept]]
        owners = rows_of[np.repeat(np.arange(len(known.keys)), np.diff(known.indptr))]
        partners = rows_of[known.partners]
        stay = (owners >= 0) & (partners >= 0)
        links.append((owners[stay], partners[stay], known.products[stay]))
        others, floor = vectors[kept], ((levels[kept] - 1) * _STEP).astype(np.float32)
        for first in range(0, len(gone), _STRIP):
            strip = known.vectors[gone[first : first + _STRIP]] @ others.T
            below[kept] -= np.count_nonzero(strip >= floor, axis=0)
            if exact:
                for tile, at in _exponentials(strip):
                    sums[kept[at]] -= tile.sum(axis=0).astype(np.int64)
                    squares[kept[at]] -= np.einsum("ij,ij->j", tile, tile).astype(np.int64)

    reach = np.full(n, np.inf, dtype=np.float32)  # of the kept rows, what a new row's product must reach
    reach[kept] = (levels[kept] - 1) * _STEP
    for rows, strip in _strips(vectors, fresh):
        if len(kept):
            found, column = (strip >= reach).nonzero()
            values = strip[found, column].astype(np.int64)
            np.add.at(below, column, 1)
            high = values >= levels[column] * _STEP
            links.append((column[high], rows[found[high]], values[high]))
        if exact:
            for tile, at in _exponentials(strip):
                sums[rows] += tile.sum(axis=1).astype(np.int64)
                squares[rows] += np.einsum("ij,ij->i", tile, tile).astype(np.int64)
                mine = np.isin(np.arange(at.start, at.stop), kept, assume_unique=True)
                if mine.any():
                    columns = np.arange(at.start, at.stop)[mine]
                    sums[columns] += tile[:, mine].sum(axis=0).astype(np.int64)
                    squares[columns] += np.einsum("ij,ij->j", tile[:, mine], tile[:, mine]).astype(np.int64)
            thresholds[rows] = _thresholds(sums[rows], squares[rows], n, setting.threshold)
        levels[rows], below[rows], listed = _listed(rows, strip, thresholds[rows], setting.room)
        links.append(listed)

    lowered = np.empty(0, dtype=np.int64)
    if len(kept):
        if exact:
            thresholds[kept] = _thresholds(sums[kept], squares[kept], n, setting.threshold)
        lowered = _settle(kept, thresholds, levels, below, links, setting.room)
        for rows, strip in _strips(vectors, lowered):
            levels[rows], below[rows], listed = _listed(rows, strip, thresholds[rows], setting.room)
            links.append(listed)
    owners, partners, products = _joined(links)
    order = np.argsort(owners * n + partners, kind="stable")  # most are in order: what was known comes first
    indptr = pointers(owners, n)
    if not exact:
        sums[:], squares[:] = 0, 0
    return Candidates(
        vectors,
        keys,
        sums,
        squares,
        thresholds,
        levels,
        below,
        indptr,
        partners[order],
        products[order],
        len(fresh) + len(lowered),
    )


def chosen_links(
    candidates: Mapping[str, NDArray[Any]], cap: int
) -> tuple[tuple[Rows, NDArray[np.int32], NDArray[np.float32]], dict[str, int]]:
    """The symmetric links of a part's `zoom_candidates` (indptr, indices, exp(cos) as float32) and their counts.

    A row chooses its `cap` nearest beyond its threshold, ties by row; a pair stays if either of the two chose it.
    Counts: `links` pairs, `cut` choices that the cap left out (of those among the candidates), `full` rows that have
    more than they may choose.
    """
    n = len(candidates["keys"])
    owners = np.repeat(np.arange(n), np.diff(candidates["indptr"]))
    beyond = candidates["products"] > candidates["thresholds"][owners]
    owners = owners[beyond]
    partners, products = (candidates[name][beyond].astype(np.int64) for name in ("partners", "products"))
    order = np.argsort(owners * (1 << 26) - products, kind="stable")  # partners are in order
    owners, partners, products = owners[order], partners[order], products[order]
    first = np.searchsorted(owners, np.arange(n))
    chosen = np.arange(len(owners)) - first[owners] < cap
    low, high = np.minimum(owners, partners)[chosen], np.maximum(owners, partners)[chosen]
    pairs, at = np.unique(low * n + high, return_index=True)
    values = products[chosen][at]
    low, high = np.divmod(pairs, max(n, 1))
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((columns, rows))
    weights = np.exp(np.concatenate([values, values])[order] / UNIT).astype(np.float32)
    indptr = pointers(rows, n)
    counts = {
        "links": len(pairs),
        "cut": int(np.count_nonzero(~chosen)),
        "full": int(np.count_nonzero(np.bincount(owners, minlength=n) > cap)),
    }
    return (indptr, columns[order].astype(np.int32), weights), counts


# --- comparing ---


def _strips(vectors: Floats, rows: Rows) -> Iterator[tuple[Rows, Floats]]:
    """Yield the given rows in batches, with their products with all rows; a row's product with itself is 0."""
    for first in range(0, len(rows), _STRIP):
        some = rows[first : first + _STRIP]
        strip = vectors[some] @ vectors.T
        strip[np.arange(len(some)), some] = 0.0
        yield some, strip


def _exponentials(strip: Floats) -> Iterator[tuple[NDArray[np.float64], slice]]:
    """exp(cos) - 1 in steps, as whole numbers, a few columns at a time; that of a row with itself is 0."""
    table = exponentials()
    for first in range(0, strip.shape[1], _TILE):
        places = strip[:, first : first + _TILE].astype(np.int32)
        places >>= _GRAIN_BITS
        places += len(table) // 2
        yield table.take(places), slice(first, first + places.shape[1])


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.float64]:
    """exp(cos) - 1 in steps, as whole numbers, for each grain of products, the one that begins at 0 in the middle.

    A table, since numpy's exponentials differ in the last bit between processors. Here that would show only in a value
    within 1e-9 of a half, and none is.
    """
    grains = np.arange(-(_MOST >> _GRAIN_BITS), _MOST >> _GRAIN_BITS)
    middles = grains * (1 << _GRAIN_BITS) + ((1 << _GRAIN_BITS) - 1) / 2
    return np.asarray(np.rint(np.expm1(middles / UNIT) * STEPS))


def _thresholds(sums: Rows, squares: Rows, n: int, threshold: float) -> NDArray[np.float64]:
    """The product that a row's links exceed, from the moments of its n - 1 others."""
    others = max(n - 1, 1)
    mean = sums / others
    deviation = np.sqrt(np.maximum(squares / others - mean * mean, 0.0))
    return _product_at((mean + threshold * deviation) / STEPS)


def _product_at(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last whole product at which exp(cos) - 1 does not exceed the given value."""
    return np.floor(np.log1p(np.maximum(value, -0.9)) * UNIT)


def _listed(
    rows: Rows, strip: Floats, thresholds: NDArray[np.float64], room: int
) -> tuple[Rows, Rows, tuple[Rows, Rows, Rows]]:
    """Levels, counts below and candidates (row, partner, product) of the rows of a strip, which loses its diagonal."""
    strip[np.arange(len(rows)), rows] = -2 * UNIT
    base = _base(thresholds)
    owners, partners = (strip >= ((base - 1) * _STEP).astype(np.float32)[:, None]).nonzero()
    products = strip[owners, partners].astype(np.int64)
    reached = _reached(owners, products, len(strip))
    levels = _fitting(reached, base, room)
    held = products >= levels[owners] * _STEP
    below = reached[np.arange(len(strip)), levels - 1 - _LOWEST]
    return levels, below, (rows[owners[held]], partners[held], products[held])


def _settle(
    kept: Rows,
    thresholds: NDArray[np.float64],
    levels: Rows,
    below: Rows,
    links: list[tuple[Rows, Rows, Rows]],
    room: int,
) -> Rows:
    """Bring the levels of kept rows up to date, in place; returns the rows whose level falls, without their links."""
    owners, partners, products = _joined(links)
    is_kept = np.zeros(len(levels), dtype=bool)
    is_kept[kept] = True
    own = is_kept[owners]
    reached = _reached(owners[own], products[own], len(levels))[kept]
    before, base, place = levels[kept], _base(thresholds[kept]), np.arange(len(kept))
    falls = (base < before) & (below[kept] <= room)
    now = _fitting(reached, np.maximum(base, before), room)
    rises = now > before
    below[kept[rises]] = reached[place[rises], now[rises] - 1 - _LOWEST]
    levels[kept] = now
    fallen = np.zeros(len(levels), dtype=bool)
    fallen[kept[falls]] = True
    stay = ~own | (~fallen[owners] & (products >= levels[owners] * _STEP))
    links[:] = [(owners[stay], partners[stay], products[stay])]
    return kept[falls]


def _base(thresholds: NDArray[np.float64]) -> Rows:
    return np.clip(np.floor(thresholds / _STEP), _LOWEST + 2, _HIGHEST - 1).astype(np.int64)


def _reached(owners: Rows, products: Rows, n: int) -> Rows:
    """The number of each row's products that reach each level from _LOWEST on, (n, levels)."""
    width = _HIGHEST + 1 - _LOWEST
    at = np.clip(products // _STEP, _LOWEST, _HIGHEST) - _LOWEST
    counts = np.bincount(owners * width + at, minlength=n * width).reshape(n, width)
    return np.asarray(counts[:, ::-1].cumsum(axis=1)[:, ::-1])


def _fitting(reached: Rows, base: Rows, room: int) -> Rows:
    """The least level from `base` on that no more than `room` products reach."""
    fits = reached <= room
    fits[:, -1] = True
    fits &= np.arange(reached.shape[1]) >= (base - _LOWEST)[:, None]
    return np.asarray(fits.argmax(axis=1) + _LOWEST)


def _joined(links: list[tuple[Rows, Rows, Rows]]) -> tuple[Rows, Rows, Rows]:
    empty = np.empty(0, dtype=np.int64)
    owners, partners, products = (np.concatenate([empty, *(link[i] for link in links)]) for i in range(3))
    return owners, partners, products


def _matched(keys: NDArray[np.uint8], known: NDArray[np.uint8]) -> Rows:
    """The earlier row with the same key for each row, -1 for none; repeated keys are matched in order."""
    places: dict[bytes, list[int]] = {}
    for row, key in enumerate(_as_bytes(known)):
        places.setdefault(key, []).append(row)
    taken: dict[bytes, int] = {}
    found = np.full(len(keys), -1, dtype=np.int64)
    for row, key in enumerate(_as_bytes(keys)):
        number = taken.get(key, 0)
        if number < len(places.get(key, ())):
            found[row] = places[key][number]
            taken[key] = number + 1
    return found


def _as_bytes(keys: NDArray[np.uint8]) -> list[bytes]:
    data = np.ascontiguousarray(keys).tobytes()
    return [data[at : at + 16] for at in range(0, len(data), 16)]


# --- estimating ---


def _estimated(vectors: Floats, keys: NDArray[np.uint8], threshold: float) -> NDArray[np.float64]:
    """Thresholds from estimated moments: the polynomial part exact, the remainder from a sample.

    With c the cosine, exp(c) - 1 = c + c^2/2 + (remainder), and its square is c^2 + (remainder). Sums of c and c^2 over
    all rows are those of exact integers; the Gram matrix is rounded to whole numbers per row first, so that float64
    holds every sum, in any order.
    """
    n = len(vectors)
    others = max(n - 1, 1)
    total = np.zeros(vectors.shape[1])
    gram = np.zeros((vectors.shape[1],) * 2)
    for first in range(0, n, _TILE):
        block = vectors[first : first + _TILE].astype(np.float64)
        total += block.sum(axis=0)
        gram += block.T @ block
    gram = np.rint(gram / n * 16)
    mean, square = np.empty(n), np.empty(n)
    for first in range(0, n, _TILE):
        block = vectors[first : first + _TILE].astype(np.float64)
        own = np.einsum("ij,ij->i", block, block)
        mean[first : first + len(block)] = (block @ total - own) / UNIT / others
        whole = np.einsum("ij,ij->i", block @ gram, block) / 16 * n
        square[first : first + len(block)] = np.maximum(whole - own * own, 0.0) / UNIT / UNIT / others
    sample = np.sort(np.lexsort(keys.T[::-1])[:SAMPLE])
    in_sample = np.zeros(n)
    in_sample[sample] = 1.0
    low, high = np.empty(n), np.empty(n)
    chosen = vectors[sample]
    for first in range(0, n, _STRIP):
        strip = vectors[first : first + _STRIP] @ chosen.T
        inside = np.flatnonzero((sample >= first) & (sample < first + _STRIP))
        strip[sample[inside] - first, inside] = 0.0
        cosine = strip.astype(np.float64) / UNIT
        value = np.expm1(cosine)
        rows = slice(first, first + len(strip))
        held = len(sample) - in_sample[rows]
        low[rows] = (value - cosine - cosine * cosine / 2).sum(axis=1) / np.maximum(held, 1)
        high[rows] = (value * value - cosine * cosine).sum(axis=1) / np.maximum(held, 1)
    first_moment = mean + square / 2 + low
    deviation = np.sqrt(np.maximum(square + high - first_moment * first_moment, 0.0))
    return _product_at(first_moment + threshold * deviation)


# --- the stage ---


def drive(run: Run) -> None:
    """Compare documents with each other and, where the settings ask for it, entities (ZoomRAG)."""
    _compare(run, "documents", "documents", "passages", "vectors")
    if run.configuration.families.zoom_graph.entity_links:
        _compare(run, "entities", "names")


def _compare(run: Run, kind: str, *inputs: str) -> None:
    links = run.configuration.families.zoom_graph.links()
    settings = LinkSettings(**links, encoder=run.opened_encoder.numbers)
    run.make(STAGE, [PartSpec(kind, run.outputs(*inputs), settings)])


def _document_vectors(part: Part[LinkSettings]) -> Floats:
    """The vectors of documents on the grid, in the order of the documents: normalised means of their passages'.

    A document without passages has a vector of zeros.
    """
    found = []
    for label in part.labels("documents"):
        ids = part.table(f"documents/{label}", "document_id").column("document_id").combine_chunks()
        passages = part.table(f"passages/{label}", "document_id").column("document_id")
        owners = pc.index_in(passages, ids).to_numpy().astype(np.int64)
        vectors = np.concatenate([pack["passages"] for pack in part.packs("vectors", label)])
        sums = np.zeros((len(ids), vectors.shape[1]))
        first = np.flatnonzero(np.diff(owners, prepend=-1))  # a document's passages stand together
        sums[owners[first]] = np.add.reduceat(vectors, first, axis=0, dtype=np.float64) if len(first) else 0.0
        lengths = np.sqrt(np.add.reduce(sums * sums, axis=1))
        found.append(on_grid((sums / np.maximum(lengths, 1e-12)[:, None]).astype(np.float32)))
    return np.concatenate(found) if found else np.empty((0, 1), dtype=np.float32)


def _name_vectors(part: Part[LinkSettings]) -> Floats:
    """The vectors of names on the grid, in the order of the entities that have one."""
    packs = part.packs("names")
    return np.concatenate([on_grid(pack["vectors"]) for pack in packs]) if packs else np.empty((0, 1), dtype=np.float32)


def _compute(part: Part[LinkSettings]) -> Outputs:
    vectors = _document_vectors(part) if part.job.shard == "documents" else _name_vectors(part)
    found = find_candidates(vectors, part.settings, _known(part, vectors.shape[1]))
    return Outputs(
        packs=found.packs(),
        counts={"rows_compared": found.computed, "rows_found": len(vectors) - found.computed},
    )


def _known(part: Part[LinkSettings], dimension: int) -> Candidates | None:
    """The candidates of the first earlier part whose packs are both there."""
    packs = part.reusable_packs()
    for candidates in (pack for pack in packs if "partners" in pack):
        for vectors in (pack for pack in packs if "vectors" in pack):
            fits = vectors["vectors"].shape[1] == dimension and len(vectors["keys"])
            if fits and np.array_equal(candidates["keys"], vectors["keys"]):
                return Candidates.of(candidates, vectors["vectors"])
    return None


STAGE = Stage(
    "zoom_links",
    version=2,
    compute=_compute,
    settings=LinkSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("documents", DOCUMENTS, each=True, optional=True),
        Input("passages", PASSAGES, each=True, optional=True),
        Input("vectors", PASSAGE_VECTORS, each=True, optional=True),
        Input("names", NAMES, stage="embed_names", each=True, optional=True),
    ),
    outputs=(
        Output("zoom_vectors", VECTORS, artifact="zoom_graph/vectors", labels=("documents",)),
        Output("zoom_candidates", CANDIDATES),
    ),
)

assert SCALE * SCALE % LEVELS == 0  # noqa: S101 - levels are whole numbers
