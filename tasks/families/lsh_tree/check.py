"""What `check` refuses of lsh_tree: summaries that do not fit their segments, and a tree that is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import SUMMARY_VECTORS, TREE
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES
from tasks.core.checks import Check, check_parents, refuse_if
from tasks.core.stage import Input, Part
from tasks.families.lsh_tree.segments import LETTERS
from tasks.stages.write.check import check_written

__all__ = ["CHECKS", "check_summaries", "check_tree", "check_whole"]


def check_summaries(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Hold a group's summaries against their segments, and their vectors; returns how many they are."""
    return check_written(
        part,
        "summaries",
        key="node_id",
        layer="layer",
        letters=LETTERS,
        made_of="segments",
        vectors="summary_vectors",
    )


def check_whole(part: Part[Any], counted: Mapping[str, int]) -> dict[str, int]:
    """Hold the tree against the numbers of passages and summaries."""
    check_tree(part.pack("lsh_tree/tree"), counted["passages"], counted["summaries"])
    return {}


def check_tree(pack: Mapping[str, NDArray[Any]], passages: int, summaries: int) -> None:
    """Raise CheckError where the tree of lsh_tree is not one over all passages, within its bounds."""
    smallest, largest, layers, _ = pack["bounds"].tolist()
    offsets = pack["layer_offsets"]
    sizes = np.diff(offsets)
    built, rows = len(sizes) - 1, passages + summaries
    parents = len(pack["parents"])
    fits = offsets[0] == 0 and sizes[0] == passages and parents == len(pack["codes"]) == offsets[-1] == rows
    refuse_if(not fits, f"lsh_tree: {parents} rows for {passages} passages and {summaries} summaries")
    refuse_if(built > layers or bool((sizes[:-1] <= largest).any()), f"lsh_tree: layers of {sizes.tolist()} nodes")
    refuse_if(built < layers and bool(sizes[-1] > largest), f"lsh_tree: {sizes[-1]} roots, and no layer over them")
    held = check_parents("lsh_tree", pack, sizes)
    broken = (held < smallest) | (held > largest)
    refuse_if(bool(broken.any()), f"lsh_tree: {np.count_nonzero(broken)} segments are not of {smallest} to {largest}")


CHECKS = (
    Check(
        (Input("summaries", LSH_SUMMARIES), Input("summary_vectors", SUMMARY_VECTORS), Input("segments", LSH_SEGMENTS)),
        check_summaries,
    ),
    Check((Input("lsh_tree/tree", TREE),), check_whole, whole=True),
)
