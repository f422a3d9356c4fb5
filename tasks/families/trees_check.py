"""What `check` refuses of trees: groups of texts that do not fit what they are of, and trees that are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.checks import check_lengths, columns, refuse_if
from tasks.core.groups import COMMUNITY_LETTERS, bits_of
from tasks.core.shards import id_hashes
from tasks.core.stage import Inputs
from tasks.families.community_tree.report_writer import community_text
from tasks.families.lsh_tree import segments as lsh_segments
from tasks.stages.embed.embed import row_key

__all__ = ["REPORTS", "SUMMARIES", "Grouped", "check_communities", "check_group", "check_tree"]

Pack = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Grouped:
    """What a group of nodes of one layer became, by names: the table of their texts, and the two that must agree.

    title: whether the embedded text begins with the column `title`.
    """

    table: str
    key: str
    layer: str
    vectors: str
    made_of: str
    letters: str
    title: bool


SUMMARIES = Grouped("summaries", "node_id", "layer", "summary_vectors", "segments", lsh_segments.LETTERS, False)
REPORTS = Grouped("communities", "community_id", "level", "community_vectors", "members", COMMUNITY_LETTERS, True)


def check_group(inputs: Inputs[Any], what: Grouped) -> dict[str, int]:
    """Hold a group's texts against what they are made of, and their vectors; returns how many they are."""
    label = inputs.job.shard
    rows = columns(inputs, what.table, what.key, what.layer, *(["title"] if what.title else []), "text", "digest")
    nodes, where = rows[what.key].to_list(), f"{what.table}/{label}"
    of = columns(inputs, what.made_of, what.key)[what.key].unique(maintain_order=True).to_list()
    refuse_if(nodes != of, f"{where}: not one row for each of {what.made_of}, in the order of their ids")
    refuse_if(bool((rows[what.layer] != what.letters.index(label[0]) + 1).any()), f"{where}: nodes of another layer")
    strange = [node for node in nodes if not bits_of(node).startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: {strange[:1]} belongs to another group")
    texts = rows["text"].to_list()
    if what.title:
        texts = [community_text(*both) for both in zip(rows["title"].to_list(), texts, strict=True)]
    digests = [row_key(text).hex() for text in texts]
    refuse_if(digests != rows["digest"].to_list(), f"{where}: a text is not that of its digest")
    pack, where = inputs.pack(inputs.job.inputs[what.vectors]), f"{what.vectors}/{label}"
    refuse_if(len(pack["vectors"]) != len(nodes), f"{where}: {len(pack['vectors'])} rows for {len(nodes)} nodes")
    refuse_if(not np.array_equal(pack["keys"], id_hashes(nodes)), f"{where}: vectors of other nodes")
    own = [key.tobytes().hex() for key in pack["text_keys"]]
    refuse_if(own != digests, f"{where}: vectors of other texts")
    check_lengths(pack["vectors"], where)
    return {what.table: len(nodes)}


def check_tree(pack: Pack, passages: int, summaries: int) -> None:
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
    held = _check_parents("lsh_tree", pack, sizes)
    broken = (held < smallest) | (held > largest)
    refuse_if(bool(broken.any()), f"lsh_tree: {np.count_nonzero(broken)} segments are not of {smallest} to {largest}")


def _check_parents(name: str, pack: Pack, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Raise CheckError where parents and children of layers of these sizes do not agree; how many children each has.

    Each row below the uppermost layer has its parent in the next, which makes each reachable from one root.
    """
    parents, rows = pack["parents"].astype(np.int64), int(sizes.sum())
    layer = np.repeat(np.arange(len(sizes)), sizes)
    refuse_if(bool((parents[layer == len(sizes) - 1] != -1).any()), f"{name}: a root has a parent")
    below = np.flatnonzero(layer < len(sizes) - 1)
    above = parents[below]
    inside = bool(((above >= sizes[0]) & (above < rows)).all()) and bool((layer[above] == layer[below] + 1).all())
    refuse_if(not inside, f"{name}: a node's parent is not in the layer above it")
    indptr, indices = pack["children.indptr"], pack["children.indices"]
    held: NDArray[np.int64] = np.diff(indptr)
    refuse_if(len(held) != rows - sizes[0] or indptr[0] != 0, f"{name}: not every inner node has children")
    owners = np.repeat(np.arange(sizes[0], rows), held)
    same = len(owners) == len(indices) == len(below) and np.array_equal(np.sort(indices), below)
    same = same and np.array_equal(parents[indices], owners)
    refuse_if(not same, f"{name}: children and parents do not agree")
    return held


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
    held = _check_parents("community_tree", tree, sizes)
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
