"""What `check` refuses of zoom_graph: matrices that do not fit the corpus, or links that do not lead both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from tasks.core.checks import Check, refuse_if
from tasks.core.stage import Input, Part

__all__ = ["CHECKS", "check_matrices"]


def _check(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    sizes = {name: counts[name] for name in ("documents", "passages", "entities")}
    check_matrices(part.pack("zoom_graph/matrices"), **sizes)
    return {}


def check_matrices(pack: Mapping[str, NDArray[Any]], *, documents: int, passages: int, entities: int) -> None:
    """Raise CheckError where the graph's arrays do not fit so many rows, or their links are not symmetric."""
    refuse_if(len(pack["passage_document"]) != passages, "zoom_graph: not every passage has a document")
    for name, rows in (("documents", documents), ("entities", entities)):
        indptr, indices = pack[f"{name}.indptr"], pack[f"{name}.indices"]
        refuse_if(len(indptr) - 1 != rows, f"zoom_graph: {len(indptr) - 1} rows of links for {rows} {name}")
        owners = np.repeat(np.arange(rows), np.diff(indptr))
        back = np.lexsort((owners, indices))  # a symmetric matrix by columns is itself by rows
        same = np.array_equal(indices[back], owners) and np.array_equal(owners[back], indices)
        same = same and np.array_equal(pack[f"{name}.weights"][back], pack[f"{name}.weights"])
        refuse_if(not same, f"zoom_graph: the links of {name} are not symmetric")
        refuse_if(bool((owners == indices).any()), f"zoom_graph: some of {name} are linked to themselves")


CHECKS = (Check((Input("zoom_graph/matrices", MATRICES),), _check, whole=True),)
