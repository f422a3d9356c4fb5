"""Schemas of the arrays in packs, declared once for the writer, the reader and the documentation.

A dimension is a length: an integer, or a name, optionally plus an integer (``"nodes"``, ``"nodes + 1"``). Equal
names in one pack mean equal lengths. The name ``dimensions`` is the length of a passage's vector. The names listed in
``PackSchema.tables`` are row counts of a table: in all shards (``"passages"``) or, with the prefix ``own``, in the
shard or group of the artifact's label (``"own passages"``). Every other name is local to the pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]
Dimension = str | int

SMALLEST = "uint*"
"""The smallest unsigned type that holds the values."""


def smallest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert values of at least 0 to the smallest unsigned type that can represent all of them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


@cache
def split_dimension(dimension: Dimension) -> tuple[str, int]:
    """Split a dimension into the name of a length (empty for an integer) and the integer added to it."""
    if isinstance(dimension, int):
        return "", dimension
    name, _, number = dimension.replace(" - ", " + -").partition(" + ")
    return name, int(number or 0)


@dataclass(frozen=True)
class Array:
    """One array: its type, dimensions, content, and the bounds of its values.

    holds: describes the content, for the documentation. into: the name of a length, if the values are the offsets of
    the rows' entries followed by their end; the values then ascend from 0 to this length. below, least: every value is
    less than `below` and at least `least`. rising: True if the values never decrease.
    """

    dtype: str
    shape: tuple[Dimension, ...]
    holds: str
    into: str = ""
    below: Dimension = ""
    least: int | None = None
    rising: bool = False

    @cached_property
    def kind(self) -> str:
        """The kind of type that a reader accepts: ``float``, ``integer`` of any width and sign, or ``unsigned``."""
        if self.dtype == SMALLEST:
            return "integer"
        return {"f": "float", "i": "integer", "u": "unsigned"}[np.dtype(self.dtype).kind]

    @property
    def lengths(self) -> set[str]:
        """The names of the lengths in its dimensions."""
        return {name for name, _ in map(split_dimension, self.shape) if name}

    def fits(self, dtype: np.dtype[Any]) -> bool:
        """Return True if a writer may use values of this type."""
        return dtype.kind == "u" if self.dtype == SMALLEST else dtype == np.dtype(self.dtype)


@dataclass(frozen=True)
class PackCheck:
    """A condition that relates several arrays.

    holds: the condition as a sentence. arrays: the names of the arrays that ``problems`` takes, in order. problems: a
    function that yields the violations; called after types, shapes and bounds are checked.
    """

    holds: str
    arrays: tuple[str, ...]
    problems: Callable[..., Iterator[str]]


@dataclass(frozen=True)
class PackSchema:
    """The arrays of a pack by name, and the tables whose row counts are among their dimensions."""

    holds: str
    arrays: Mapping[str, Array]
    tables: tuple[str, ...] = ()
    checks: tuple[PackCheck, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        shapes = {name for array in self.arrays.values() for name in array.lengths}
        bounds = {name for array in self.arrays.values() for name in (array.into, split_dimension(array.below)[0])}
        if unknown := bounds - shapes - {"", *self.tables}:
            raise ValueError(f"values are bounded by {sorted(unknown)}, which is not a dimension of any array")
        if unused := set(self.tables) - shapes - bounds:
            raise ValueError(f"no array refers to the tables {sorted(unused)}")
        for check in self.checks:
            for name in set(check.arrays) - set(self.arrays):
                raise ValueError(f"the check {check.holds!r} is about {name!r}, which is not an array of the pack")

    def conform(self, arrays: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Check the arrays' names, types and shapes, not their values, and return them; raises ValueError."""
        if missing := sorted(set(self.arrays) - set(arrays)):
            raise ValueError(f"the pack lacks {missing}; it has {sorted(arrays)}")
        if unknown := sorted(set(arrays) - set(self.arrays)):
            raise ValueError(f"the pack's schema has no arrays {unknown}; it has {sorted(self.arrays)}")
        sizes: dict[str, int] = {}
        for name, values in arrays.items():
            declared = self.arrays[name]
            if not declared.fits(values.dtype):
                raise ValueError(f"array {name!r} is {values.dtype}; its schema says {declared.dtype}")
            if problem := shape_problem(name, values.shape, declared, sizes):
                raise ValueError(problem)
        return dict(arrays)


def shape_problem(name: str, shape: tuple[int, ...], array: Array, sizes: dict[str, int]) -> str:
    """Describe how a shape differs from the array's dimensions; empty if it fits. Adds new lengths to `sizes`."""
    if len(shape) != len(array.shape):
        return f"{name!r} has the shape {shape}; expected {len(array.shape)} dimensions"
    for actual, dimension in zip(shape, array.shape, strict=True):
        length, more = split_dimension(dimension)
        expected = (sizes.setdefault(length, actual - more) if length else 0) + more
        if actual != expected or actual < more:
            return f"{name!r} has the shape {shape}; expected {expected} where it has {actual}"
    return ""


def gathered(*packs: Mapping[str, PackSchema]) -> dict[str, PackSchema]:
    """Merge the schemas of several modules, by artifact; raises ValueError if two declare the same artifact."""
    schemas: dict[str, PackSchema] = {}
    for some in packs:
        for name in schemas.keys() & some.keys():
            raise ValueError(f"two schemas are declared for the artifact {name!r}")
        schemas |= some
    return schemas


def schema_of(name: str, packs: Mapping[str, PackSchema]) -> PackSchema | None:
    """Find the schema of an artifact among schemas by pattern, such as ``vectors/<shard>``; None if none matches."""
    if name in packs:
        return packs[name]
    folder = name.partition("/")[0] + "/<"
    return next((schema for pattern, schema in packs.items() if pattern.startswith(folder)), None)


def vectors(rows: str, holds: str, dtype: str = "float32") -> Array:
    """Declare an array with a vector in each row."""
    return Array(dtype, (rows, "dimensions"), holds)


def hashes(rows: str, holds: str, width: int = 16) -> Array:
    """Declare an array with the first bytes of a SHA-256 in each row."""
    return Array("uint8", (rows, width), holds)


def keys(rows: str, holds: str) -> Array:
    """Declare an array of ascending integers, used as lookup keys."""
    return Array("uint64", (rows,), holds, rising=True)


def pointers(rows: str, into: str, holds: str, dtype: str = "int64") -> Array:
    """Declare an array of the offsets of the rows' entries, followed by the end of the last row."""
    return Array(dtype, (f"{rows} + 1",), holds, into=into)


def indices(length: str, below: Dimension, holds: str, least: int = 0, dtype: str = "int32") -> Array:
    """Declare an array of indices less than the length ``below``."""
    return Array(dtype, (length,), holds, below=below, least=least)


def sparse(
    name: str,
    rows: str,
    columns: str,
    holds: str,
    types: tuple[str, str] = ("int64", "int32"),
    **beside: tuple[str, str],
) -> dict[str, Array]:
    """Declare the arrays of a sparse matrix in compressed row form.

    types: the types of the pointers and the column indices. beside: type and content of additional arrays, by suffix.
    """
    links = f"{name} links"
    return {
        f"{name}.indptr": pointers(rows, links, f"{holds}: where each row's links begin, and the end", types[0]),
        f"{name}.indices": indices(links, columns, "the columns of the links", dtype=types[1]),
        **{f"{name}.{suffix}": Array(dtype, (links,), content) for suffix, (dtype, content) in beside.items()},
    }
