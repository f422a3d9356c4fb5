"""What `check` refuses of community_tree: reports that do not fit their communities, a tree or index that is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.community_tree.schema import INDEX, TREE
from schemas.tables import COMMUNITIES, COMMUNITY_MEMBERS
from tasks.core.checks import Check, check_parents, refuse_if
from tasks.core.stage import Input, Part
from tasks.families.community_tree.graph import LETTERS
from tasks.families.community_tree.report_writer import community_text
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.write.check import check_written

__all__ = ["CHECKS", "check_communities", "check_reports", "check_whole"]

Pack = Mapping[str, NDArray[Any]]


def check_reports(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Hold a group's reports against their communities, and their vectors; returns how many they are."""
    return check_written(
        part,
        "communities",
        key="community_id",
        layer="level",
        letters=LETTERS,
        made_of="members",
        vectors="community_vectors",
        columns_embedded=("title", "text"),
        embedded=community_text,
    )


def check_whole(part: Part[Any], counted: Mapping[str, int]) -> dict[str, int]:
    """Hold the tree and the index against the numbers of passages, entities, communities and related pairs."""
    tree, index = (part.pack(f"community_tree/{name}") for name in ("tree", "index"))
    sizes = {name: counted[name] for name in ("passages", "communities", "related")}
    check_communities(tree, index, entities=counted["described"], **sizes)
    return {}


def check_communities(tree: Pack, index: Pack, *, passages: int, entities: int, communities: int, related: int) -> None:
    """Raise CheckError where the tree is not one over all entities, or the index is not one over the tree.

    related: the rows of the tables of related pairs.
    """
    levels, fewest, least = tree["bounds"].tolist()
    offsets = tree["level_offsets"]
    sizes = np.diff(offsets)
    built, rows, parents = len(sizes) - 1, entities + communities, len(tree["parents"])
    fits = offsets[0] == 0 and sizes[0] == entities and parents == offsets[-1] == rows
    fits = fits and len(tree["stand_ins"]) == communities and len(tree["quality"]) == built
    refuse_if(not fits, f"community_tree: {parents} rows for {entities} entities and {communities} communities")
    shrinks = bool((np.diff(sizes) < 0).all()) and bool((sizes[1:] > 0).all())
    refuse_if(
        built > levels or not shrinks or bool((sizes[:-1] < fewest).any()),
        f"community_tree: levels of {sizes.tolist()} nodes",
    )
    held = check_parents("community_tree", tree, sizes)
    refuse_if(bool((held < 1).any()), "community_tree: a community has no members")
    _check_lists(tree, "passages", entities, passages)
    refuse_if(
        len(tree["passages.about"]) != len(tree["passages.indices"]),
        "community_tree: what passages are about does not fit the passages of entities",
    )
    keys = tree["entity_keys"]
    refuse_if(
        len(keys) != entities or bool((keys[1:] < keys[:-1]).any()), "community_tree: the keys are not the entities'"
    )
    _check_lists(tree, "relations", entities, entities)
    owners = np.repeat(np.arange(entities), np.diff(tree["relations.indptr"]))
    others, row = tree["relations.indices"], tree["relations.rows"]
    there, back = np.lexsort((row, others, owners)), np.lexsort((row, owners, others))
    same = len(row) == len(others) and all(
        np.array_equal(one[there], other[back]) for one, other in ((owners, others), (others, owners), (row, row))
    )
    refuse_if(not same, "community_tree: a relation does not lead both ways")
    twice = np.bincount(row, minlength=related)
    refuse_if(len(twice) != related or bool((twice != 2).any()), "community_tree: not every related pair is there once")
    refuse_if(
        not np.array_equal(np.sort(index["rows"]), np.arange(rows))
        or not np.array_equal(index["level_offsets"], offsets),
        f"community_tree: the index does not hold each of the {rows} rows once, level by level",
    )
    level = np.searchsorted(offsets, index["rows"], side="right")
    refuse_if(bool((np.diff(level) < 0).any()), "community_tree: a row of the index is on another level of the tree")
    degrees = np.diff(index["indptr"])
    fits = len(degrees) == rows and index["indptr"][-1] == len(index["indices"]) and bool((degrees <= 2 * least).all())
    refuse_if(not fits, "community_tree: the links of the index do not fit its rows")


def _check_lists(tree: Pack, name: str, entities: int, values: int) -> None:
    """Raise CheckError where what each entity holds of something is not a list of rows of it."""
    indptr, indices = tree[f"{name}.indptr"], tree[f"{name}.indices"]
    held = np.diff(indptr)
    fits = len(held) == entities and indptr[0] == 0 and indptr[-1] == len(indices) and bool((held >= 0).all())
    fits = fits and bool(((indices >= 0) & (indices < values)).all())
    refuse_if(not fits, f"community_tree: the {name} of entities do not fit each other")


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
