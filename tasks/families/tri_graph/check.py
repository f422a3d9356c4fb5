"""What `check` refuses of tri_graph: matrices that do not fit the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.families.tri_graph.schema import MATRICES
from tasks.core.checks import Check, refuse_if
from tasks.core.stage import Input, Part

__all__ = ["CHECKS"]


def _check(part: Part[Any], counts: Mapping[str, int]) -> dict[str, int]:
    pack = part.pack("tri_graph/matrices")
    for name, array, more in (
        ("passages", "contents.indptr", 1),
        ("sentences", "sentence_passage", 0),
        ("entities", "entity_keys", 0),
    ):
        rows = len(pack[array]) - more
        refuse_if(rows != counts[name], f"tri_graph: {rows} rows for {counts[name]} {name}")
    return {}


CHECKS = (Check((Input("tri_graph/matrices", MATRICES),), _check, whole=True),)
