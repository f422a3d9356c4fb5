"""The checks of zoom_graph: they refuse matrices that do not fit the corpus, and asymmetric links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from tasks.core.checks import Check, check_pack, refuse_if
from tasks.core.stage import Input, Part

__all__ = ["CHECKS", "check_matrices"]


def _check(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    check_matrices(part.pack("zoom_graph/matrices"), counts)
    return {}


def check_matrices(pack: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> None:
    """Raise CheckError where the graph's arrays do not fit tables of these sizes, or links are not symmetric."""
    check_pack(MATRICES, pack, "zoom_graph/matrices", sizes)
    for name in ("documents", "entities"):
        indptr, indices = pack[f"{name}.indptr"], pack[f"{name}.indices"]
        owners = np.repeat(np.arange(sizes[name]), np.diff(indptr))
        back = np.lexsort((owners, indices))  # a symmetric matrix by columns is itself by rows
        same = np.array_equal(indices[back], owners) and np.array_equal(owners[back], indices)
        same = same and np.array_equal(pack[f"{name}.weights"][back], pack[f"{name}.weights"])
        refuse_if(not same, f"zoom_graph: the links of {name} are not symmetric")
        refuse_if(bool((owners == indices).any()), f"zoom_graph: some of {name} are linked to themselves")


CHECKS = (Check((Input("zoom_graph/matrices", MATRICES),), _check, whole=True),)
