"""The checks of lsh_tree: summaries match their segments, and the tree is valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.lsh_tree.schema import SUMMARY_VECTORS, TREE
from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.store.pack_checks import row_lengths
from tasks.core.checks import Check, check_pack, columns, refuse_if
from tasks.core.groups import hex_ids
from tasks.core.stage import Input, Part
from tasks.families.lsh_tree.blocks import LETTERS, bits_of_paths
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_SUMMARIES
from tasks.stages.write.text_checks import check_rows


def check_summaries(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Check a group's summaries against their segments and vectors, block by block, and return their number."""
    counted = Counter[str]()
    for label in part.labels("summaries"):
        segments = part.pack(f"segments/{label}")
        counted.update(
            check_rows(
                columns(part, f"summaries/{label}", "node_id", "layer", "text", "digest"),
                hex_ids(segments["ids"]),
                bits_of_paths(segments["ids"], segments["codes"]),
                part.pack(f"summary_vectors/{label}"),
                label=label,
                names=("summaries", "segments", "summary_vectors"),
                letters=LETTERS,
            )
        )
    return counted


def check_whole(part: Part[Any], counted: Mapping[str, int]) -> None:
    """Check the tree against the numbers of passages and summaries."""
    check_tree(part.pack("lsh_tree/tree"), counted["passages"], counted["summaries"])


def check_tree(pack: Mapping[str, NDArray[Any]], passages: int, summaries: int) -> None:
    """Raise CheckError unless the tree covers all passages within its bounds."""
    smallest, largest, layers, _ = pack["bounds"].tolist()
    check_pack(TREE, pack, "lsh_tree/tree", {"summaries": summaries})
    offsets = pack["layer_offsets"]
    sizes = np.diff(offsets)
    built = len(sizes) - 1
    refuse_if(sizes[0] != passages, f"lsh_tree: the lowest layer has {sizes[0]} nodes for {passages} passages")
    refuse_if(built > layers or bool((sizes[:-1] <= largest).any()), f"lsh_tree: layers have {sizes.tolist()} nodes")
    refuse_if(built < layers and bool(sizes[-1] > largest), f"lsh_tree: there is no layer above {sizes[-1]} roots")
    child_counts = row_lengths(LayeredTree.of_parents(offsets, pack["above"]).children.indptr)
    broken = (child_counts < smallest) | (child_counts > largest)
    refuse_if(bool(broken.any()), f"lsh_tree: {np.count_nonzero(broken)} segments are not of {smallest} to {largest}")


CHECKS = (
    Check(
        (
            Input("summaries", LSH_SUMMARIES, each=True),
            Input("summary_vectors", SUMMARY_VECTORS, each=True),
            Input("segments", LSH_SEGMENTS, each=True),
        ),
        check_summaries,
    ),
    Check((Input("lsh_tree/tree", TREE),), check_whole, whole=True),
)
