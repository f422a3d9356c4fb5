"""Checks of a snapshot's arrays, made before anything computes with them.

A pack may match its digest and still contain values that would make trusting code allocate any amount of memory, loop
forever, or read the wrong rows. So types, shapes and values are checked when a pack is opened: against its schema,
against each other, and against the row counts in the manifest.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.store.manifest import Manifest
from indexmill.store.pack_schema import Array, Arrays, PackSchema, shape_problem, split_dimension

_PIECE = 1 << 20
"""The number of values compared at a time."""

_KINDS = {"integer": "iu", "unsigned": "u", "float": "f"}


class ArrayLengths:
    """The lengths of a snapshot's arrays, and the bounds of their values, that its manifest requires."""

    def __init__(self, manifest: Manifest) -> None:
        self._all: dict[str, int] = {}
        self._by_label: dict[str, dict[str, int]] = {}
        for group in manifest.listing.groups:
            if group.kind != "table":
                continue
            table = group.folder
            for label, rows in zip(group.labels, group.rows or [], strict=False):
                if rows is not None:
                    self._all[table] = self._all.get(table, 0) + rows
                    self._all[f"{table}/{label}"] = rows
                    self._by_label.setdefault(label, {})[f"own {table}"] = rows
        for artifact in manifest.under("vectors"):
            declared: Any = artifact.schema_
            with contextlib.suppress(KeyError, IndexError, TypeError):  # a schema of another form
                self._all["dimensions"] = int(declared["passages"]["shape"][1])
                break

    def of(self, name: str) -> Mapping[str, int]:
        """Return the lengths that apply to an artifact.

        ``passages`` is the number of rows of that table in all shards, ``own passages`` the number in the shard of the
        artifact's label, ``dimensions`` the length of a passage's vector.
        """
        return ChainMap(self._by_label.get(name.partition("/")[2], {}), self._all)


def lengths_for(schema: PackSchema | None, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the lengths of ``ArrayLengths.of`` on which the check of a pack depends."""
    return {name: sizes[name] for name in (*(schema.tables if schema else ()), "dimensions") if name in sizes}


def check_arrays(schema: PackSchema | None, arrays: Arrays, sizes: Mapping[str, int]) -> str:
    """Return the first problem of a pack's arrays, such as "'parents' has values below -1"; empty if there is none.

    sizes: lengths by name, from ``ArrayLengths.of``. Arrays that the schema does not declare are ignored.
    """
    return "" if schema is None else next(_problems(schema, arrays, sizes), "")


def _problems(schema: PackSchema, arrays: Arrays, sizes: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{name!r} is missing" for name in schema.arrays if name not in arrays)
    lengths = lengths_for(schema, sizes)
    arrays = {name: arrays[name] for name in schema.arrays}  # a pack creates an array at each access
    for name, declared in schema.arrays.items():
        if arrays[name].dtype.kind not in _KINDS[declared.kind]:
            yield f"{name!r} contains {arrays[name].dtype}; expected {declared.kind}"
        if problem := shape_problem(name, arrays[name].shape, declared, lengths):
            yield problem
    for name, declared in schema.arrays.items():
        yield from _value_problems(name, arrays[name], declared, lengths)
    for check in schema.checks:
        yield from check.problems(*(arrays[name] for name in check.arrays))


def _value_problems(name: str, array: npt.NDArray[Any], declared: Array, lengths: Mapping[str, int]) -> Iterator[str]:
    into = lengths.get(declared.into)
    if into is not None and (int(array[0]), int(array[-1])) != (0, into):
        yield f"{name!r} runs from {array[0]} to {array[-1]}; expected from 0 to {into}"
    if (declared.into or declared.rising) and _falls(array):
        yield f"{name!r} does not ascend"
    unsigned = declared.least == 0 and array.dtype.kind == "u"
    if declared.least is not None and not unsigned and len(array) and int(array.min()) < declared.least:
        yield f"{name!r} has the value {array.min()}; expected at least {declared.least}"
    below, more = split_dimension(declared.below)
    bound = lengths.get(below) if below else more
    if declared.below and bound is not None and len(array) and int(array.max()) >= bound:
        yield f"{name!r} has the value {array.max()}; expected less than {bound}"


def _falls(array: npt.NDArray[Any]) -> bool:
    """Return True if any value is less than the one before it."""
    if len(array) <= _PIECE:
        return bool((array[1:] < array[:-1]).any())
    return any(
        bool((array[first + 1 : first + 1 + _PIECE] < array[first : first + _PIECE][: len(array) - first - 1]).any())
        for first in range(0, len(array) - 1, _PIECE)
    )


def row_lengths(bounds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the differences between consecutive bounds."""
    whole = bounds.astype(np.int64)
    lengths: npt.NDArray[np.int64] = whole[1:] - whole[:-1]
    return lengths


def layers_of(offsets: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the layer of each row. offsets: the first row of each layer, and the number of rows."""
    return np.arange(len(offsets) - 1).repeat(row_lengths(offsets))
