"""The checks of community_tree: reports match their communities, and the tree and its index are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.community_tree.schema import INDEX, TREE
from tasks.core.checks import Check, check_pack, columns, refuse_if
from tasks.core.groups import bits_of
from tasks.core.stage import Input, Part
from tasks.families.community_tree.graph import LETTERS
from tasks.families.community_tree.reports import community_text
from tasks.families.community_tree.tables import COMMUNITIES, COMMUNITY_MEMBERS
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.write.text_checks import check_rows

Pack = Mapping[str, NDArray[Any]]


def check_reports(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Check a group's reports against their communities and vectors, and return their number."""
    communities = columns(part, "members", "community_id")["community_id"].unique(maintain_order=True).to_list()
    return check_rows(
        columns(part, "communities", "community_id", "level", "title", "text", "digest"),
        communities,
        list(map(bits_of, communities)),
        part.pack("community_vectors"),
        label=part.job.shard,
        names=("communities", "members", "community_vectors"),
        letters=LETTERS,
        embedded=community_text,
    )


def check_whole(part: Part[Any], counted: Mapping[str, int]) -> None:
    """Check the tree and the index against the numbers of passages, entities, communities and related pairs."""
    check_communities(part.pack("community_tree/tree"), part.pack("community_tree/index"), counted)


def check_communities(tree: Pack, index: Pack, sizes: Mapping[str, int]) -> None:
    """Raise CheckError unless the tree covers all entities and the index covers the tree. sizes: each table's rows."""
    entities = sizes["described"]
    check_pack(TREE, tree, "community_tree/tree", sizes)
    check_pack(INDEX, index, "community_tree/index", {})
    levels, fewest, least = tree["bounds"].tolist()
    offsets, rows = tree["level_offsets"], len(tree["parents"])
    nodes = np.diff(offsets)
    refuse_if(nodes[0] != entities, f"community_tree: the lowest level has {nodes[0]} nodes for {entities} entities")
    shrinks = bool((np.diff(nodes) < 0).all()) and bool((nodes[1:] > 0).all())
    refuse_if(
        len(nodes) - 1 > levels or not shrinks or bool((nodes[:-1] < fewest).any()),
        f"community_tree: the levels have {nodes.tolist()} nodes, beyond the bounds",
    )
    refuse_if(bool((tree["parents"][: offsets[-2]] < 0).any()), "community_tree: there is a root below the top level")
    refuse_if(bool((np.diff(tree["children.indptr"]) < 1).any()), "community_tree: a community has no members")
    owners = np.repeat(np.arange(entities), np.diff(tree["relations.indptr"]))
    others, row = tree["relations.indices"], tree["relations.rows"]
    forward, backward = np.lexsort((row, others, owners)), np.lexsort((row, owners, others))
    same = all(np.array_equal(a[forward], b[backward]) for a, b in ((owners, others), (others, owners), (row, row)))
    refuse_if(not same, "community_tree: a relation is missing in one direction")
    once = bool((np.bincount(row, minlength=sizes["related"]) == 2).all())
    refuse_if(not once, "community_tree: not every related pair is present exactly once")
    refuse_if(
        not np.array_equal(np.sort(index["rows"]), np.arange(rows))
        or not np.array_equal(index["level_offsets"], offsets),
        f"community_tree: the index does not contain each of the {rows} rows once, level by level",
    )
    level = np.searchsorted(offsets, index["rows"], side="right")
    refuse_if(bool((np.diff(level) < 0).any()), "community_tree: the index has a row on another level than the tree")
    crowded = bool((np.diff(index["indptr"]) > 2 * least).any())
    refuse_if(crowded, f"community_tree: a node of the index has more than {2 * least} links")


CHECKS = (
    Check(
        (
            Input("communities", COMMUNITIES),
            Input("community_vectors", TEXT_VECTORS),
            Input("members", COMMUNITY_MEMBERS, output="community_members"),
        ),
        check_reports,
    ),
    Check((Input("community_tree/tree", TREE), Input("community_tree/index", INDEX)), check_whole, whole=True),
)
