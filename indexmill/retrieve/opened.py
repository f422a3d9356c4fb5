"""The arrays of artifacts as retrievers open them: all there, and of the sizes that the snapshot says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.matrices import Sparse

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["Arrays", "arrays_of", "check_sizes", "sparse"]

Arrays = Mapping[str, npt.NDArray[Any]]


def arrays_of(artifacts: Artifacts, name: str, needed: Iterable[str]) -> Arrays:
    """The arrays of one artifact; raises CorruptBlob where some that are needed are missing."""
    arrays = artifacts.arrays(name)
    if missing := sorted(set(needed) - set(arrays)):
        raise CorruptBlob(f"{artifacts.path}: {name!r} has no arrays {missing}; it has {', '.join(arrays)}")
    return arrays


def sparse(artifacts: Artifacts, artifact: str, name: str) -> Sparse:
    """The matrix ``name.indptr``, ``name.indices`` and, where there are some, ``name.counts`` of an artifact.

    Raises CorruptBlob where they do not fit each other.
    """
    arrays = artifacts.arrays(artifact)
    indptr, indices = arrays[f"{name}.indptr"], arrays[f"{name}.indices"]
    counts = arrays.get(f"{name}.counts")
    if not len(indptr) or indptr[-1] != len(indices) or (counts is not None and len(counts) != len(indices)):
        raise CorruptBlob(f"{artifacts.path}: {artifact!r} holds a matrix {name!r} whose arrays do not fit each other")
    return Sparse(indptr, indices, counts)


def check_sizes(artifacts: Artifacts, name: str, *sizes: tuple[str, int, int]) -> None:
    """Raise CorruptBlob unless an artifact has as many of everything as expected: what, how many, how many expected."""
    for what, held, expected in sizes:
        if held != expected:
            raise CorruptBlob(f"{artifacts.path}: {name!r} has {held} {what}; the snapshot has {expected}")
