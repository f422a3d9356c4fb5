"""The checks of tri_graph: they refuse matrices that do not fit the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.families.tri_graph.schema import MATRICES
from tasks.core.checks import Check, check_pack
from tasks.core.stage import Input, Part

__all__ = ["CHECKS"]


def _check(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    check_pack(MATRICES, part.pack("tri_graph/matrices"), "tri_graph/matrices", counts)
    return {}


CHECKS = (Check((Input("tri_graph/matrices", MATRICES),), _check, whole=True),)
