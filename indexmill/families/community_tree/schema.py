"""The packs of the family community_tree: entities and communities as one tree, and C-HNSW over them (ArchRAG, 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.store.pack_checks import layers_of, row_lengths
from indexmill.store.pack_schema import Array, PackCheck, PackSchema, indices, keys, pointers, vectors


def _tree_problems(
    offsets: npt.NDArray[Any], indptr: npt.NDArray[Any], children: npt.NDArray[Any], parents: npt.NDArray[Any]
) -> Iterator[str]:
    if len(offsets) < 2 or len(indptr) != len(parents) - int(offsets[1]) + 1:
        yield f"{len(indptr) - 1} nodes have children; expected those above the lowest of {len(offsets) - 1} layers"
        return
    layers = layers_of(offsets)
    owners = np.arange(int(offsets[1]), len(parents)).repeat(row_lengths(indptr))
    again = (children[1:] <= children[:-1]) & (owners[1:] == owners[:-1])
    if again.any() or len(children) != np.count_nonzero(parents >= 0) or (parents[children] != owners).any():
        yield "children and parents do not agree"
    if (layers[children] + 1 != layers[owners]).any():
        yield "a node's parent is not in the layer above it"


TREE = PackSchema(
    "the tree; its rows are nodes: level 0, the rows of `described`, then those of `communities`, level by level",
    {
        "level_offsets": pointers("levels", "nodes", "where each level begins, and the end"),
        "children.indptr": pointers("communities", "children", "where each community's members begin, and the end"),
        "children.indices": indices("children", "nodes", "rows of the level below, ascending"),
        "parents": indices("nodes", "nodes", "-1 for a root", least=-1),
        "passages.indptr": pointers(
            "described", "extracted", "where the passages that each entity was extracted from begin, and the end"
        ),
        "passages.indices": indices("extracted", "passages", "rows of passages, ascending"),
        "passages.about": Array("uint8", ("extracted",), "1 where the passage is about the entity", least=0),
        "relations.indptr": pointers(
            "described", "ends", "where the entities that each is related to, in either direction, begin, and the end"
        ),
        "relations.indices": indices("ends", "described", "rows of entities, ascending; twice if related both ways"),
        "relations.rows": indices("ends", "related", "the relation's row in `related`"),
        "stand_ins": Array("uint8", ("communities",), "1 if a model was asked for the report but did not write it"),
        "quality": Array(
            "float64", ("levels - 1", 2), "CHI and Sim of each level of communities; NaN where not defined"
        ),
        "bounds": Array("int64", (3,), "the maximum number of levels, the minimum number of nodes below a level, M"),
        "entity_keys": keys("described", "the first 16 digits of each entity's id"),
    },
    tables=("passages", "extracted", "described", "related", "communities"),
    checks=(
        PackCheck(
            "each child is one layer below its only parent",
            ("level_offsets", "children.indptr", "children.indices", "parents"),
            _tree_problems,
        ),
    ),
)


def _index_problems(
    offsets: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    linked: npt.NDArray[Any],
    down: npt.NDArray[Any],
    entries: npt.NDArray[Any],
) -> Iterator[str]:
    levels, sizes = layers_of(offsets), row_lengths(offsets)
    if (levels[linked] != levels.repeat(row_lengths(indptr))).any():
        yield "a link leads to another level"
    below = np.concatenate([[0], sizes])[levels]  # the size of the level below each node
    if ((down >= 0) != (below > 0)).any() or (levels[down[down >= 0]] + 1 != levels[down >= 0]).any():
        yield "a link down does not lead to the level below"
    entered = np.flatnonzero(sizes)
    if (entries[entered] < 0).any() or (levels[entries[entered]] != entered).any():
        yield "a level has no entry point on it"


INDEX = PackSchema(
    "C-HNSW over the nodes of the tree; its rows are by level and, within a level, by id",
    {
        "vectors": vectors("nodes", "vectors times 4,000, rounded", dtype="int16"),
        "level_offsets": pointers("levels", "nodes", "where each level begins, and the end"),
        "indptr": pointers("nodes", "links", "where the links of each row begin, and the end"),
        "indices": indices("links", "nodes", "the rows that a row is linked to on its level, both ways, ascending"),
        "down": indices(
            "nodes", "nodes", "the nearest row one level below; -1 on level 0, and above a level without rows", least=-1
        ),
        "entries": indices(
            "levels",
            "nodes",
            "the entry point of each level: the row nearest to its mean; -1 without rows",
            least=-1,
        ),
        "rows": indices("nodes", "nodes", "the row of each node in the tree", dtype="int64"),
    },
    checks=(
        PackCheck(
            "links stay on their level, links down lead to the level below, each level with rows has an entry point",
            ("level_offsets", "indptr", "indices", "down", "entries"),
            _index_problems,
        ),
    ),
)

PACKS = {"community_tree/tree": TREE, "community_tree/index": INDEX}
