"""The entities and communities of a snapshot by row, and their conversion into hits.

A row is a node's position in the pack ``community_tree/tree``: the rows of the tables ``described/<e>`` in order, then
those of the tables ``communities/<g>``, level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.families.community_tree.names import EntityNames
from indexmill.families.community_tree.search import CommunityTree
from indexmill.hits import Hit, NodeLabel
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.matrices import Rows, Sparse
from indexmill.retrieve.method_registry import check_family
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Allowed
from indexmill.retrieve.table_rows import TableRows

_COMMUNITIES: CacheKey[CommunityNodes] = CacheKey("communities")

TREE = "community_tree/tree"

INDEX = "community_tree/index"
"""The artifact that contains the C-HNSW index over the tree's nodes."""


class CommunityNodes:
    """All entities and communities by row, their tree and their hits. Raises FamilyNotFound without community_tree."""

    def __init__(self, artifacts: Artifacts) -> None:
        check_family(artifacts.manifest, artifacts.path, "community_tree", ", so it has no communities")
        self._version = artifacts.version
        self._passages = passages_of(artifacts)
        self._entities = TableRows(
            artifacts, "described", ["entity_id", "surface", "type", "description", "tokens", "stand_in"]
        )
        self._communities = TableRows(
            artifacts, "communities", ["community_id", "title", "text", "rating", "tokens", "stand_in"]
        )
        self._related = TableRows(artifacts, "related", ["source", "kind", "description"])
        self._labels = entity_labels_of(artifacts)
        self.tree = open_tree(artifacts)
        self.names = EntityNames.of(artifacts, artifacts.arrays(TREE)["entity_keys"])

    def __len__(self) -> int:
        return len(self._communities)

    def spelled(self, readable: Allowed) -> Allowed:
        """Return a mask ``(n_entities,)`` of the entities whose displayed name occurs in a readable passage."""
        rows = self.label_rows
        return (rows >= 0) & self._labels.spelled(readable)[rows] if len(self._labels) else rows >= 0

    @cached_property
    def label_rows(self) -> Rows:
        """The row of each entity among the labels of all entities, -1 for an entity without a label."""
        shards = (self._entities.shard(number)["entity_id"] for number in range(len(self._entities.tables)))
        rows = [self._labels.rows_of(ids) for ids in shards]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def row_of(self, community_id: str) -> int:
        """Return the row of a community in its table, -1 for an unknown id."""
        for number, first in enumerate(self._communities.starts[:-1]):
            place = self._communities.shard(number)["community_id"].index(community_id).as_py()
            if place >= 0:
                return int(first + place)
        return -1

    def label(self, row: int) -> NodeLabel:
        """Return the id, name or title, and text of one node."""
        first = self.tree.leaves
        if row < first:
            values = (self._entities.value(row, name) for name in ("entity_id", "surface", "description"))
        else:
            values = (self._communities.value(row - first, name) for name in ("community_id", "title", "text"))
        return NodeLabel(*map(str, values))

    def rating(self, row: int) -> float:
        """Return the rating of a community, 0 to 10."""
        return round(float(self._communities.value(row - self.tree.leaves, "rating")), 3)  # a float32

    def tokens(self, row: int) -> int:
        """Return the number of tokens of a node's text, including its name or title."""
        first = self.tree.leaves
        count = self._entities.value(row, "tokens") if row < first else self._communities.value(row - first, "tokens")
        return int(count)

    def hits(self, rows: Sequence[int], scores: Sequence[float], explain: bool = True) -> list[Hit]:
        """Convert nodes into hits. An entity's explanation lists its relations with the entities before it."""
        hits = []
        before: list[int] = []
        for row, score in zip(rows, scores, strict=True):
            entity = row < self.tree.leaves
            explanation = None
            if explain:
                explanation = self._of_entity(row, before) if entity else self._of_community(row)
            if entity:
                before.append(row)
            hits.append(self._hit(row, score, explanation))
        return hits

    def _hit(self, row: int, score: float, explanation: dict[str, Any] | None) -> Hit:
        label = self.label(row)
        return Hit(
            kind="entity" if row < self.tree.leaves else "community",
            id=label.id,
            score=score,
            text=label.text or label.title,
            title=label.title,
            document_ids=tuple(sorted(set(self._passages.documents_of(self.tree.passages_under(row))))),
            tokens=self.tokens(row),
            version=self._version,
            explanation=explanation,
        )

    def _of_entity(self, row: int, before: Sequence[int]) -> dict[str, Any]:
        explanation: dict[str, Any] = {"type": str(self._entities.value(row, "type"))}
        if self._entities.value(row, "stand_in"):
            explanation["stand_in"] = True
        _, others, places = self.tree.relations.links(np.array([row]))
        explanation["relations"] = [
            self._relation(row, neighbour, int(self.tree.relation_rows[place]))
            for neighbour, place in zip(others.tolist(), places.tolist(), strict=True)
            if neighbour in before
        ]
        return explanation

    def _relation(self, row: int, neighbour: int, relation: int) -> dict[str, Any]:
        entity, related = self.label(row), self.label(neighbour)
        source, target = (
            (entity, related) if self._related.value(relation, "source") == entity.id else (related, entity)
        )
        return {
            "source": source.title,
            "target": target.title,
            "kind": str(self._related.value(relation, "kind")),
            "description": str(self._related.value(relation, "description")),
            "entity_id": related.id,
        }

    def _of_community(self, row: int) -> dict[str, Any]:
        explanation: dict[str, Any] = {
            "level": self.tree.layer(row),
            "rating": self.rating(row),
            "size": int(self.tree.sizes[row]),
            "members": [self.label(member).id for member in self.tree.members(row).tolist()],
        }
        if self._communities.value(row - self.tree.leaves, "stand_in"):
            explanation["stand_in"] = True
        return explanation


def communities_of(artifacts: Artifacts) -> CommunityNodes:
    """Open a snapshot's entities and communities once. Raises FamilyNotFound, or CorruptBlob if they do not match."""
    return artifacts.once(_COMMUNITIES, lambda: CommunityNodes(artifacts))


def open_tree(artifacts: Artifacts) -> CommunityTree:
    """Open the snapshot's tree over mapped arrays; raises CorruptBlob if arrays are missing or do not match."""
    arrays, index = artifacts.arrays(TREE), artifacts.arrays(INDEX)
    tree = CommunityTree(
        offsets=arrays["level_offsets"],
        children=Sparse.of(arrays, "children"),
        parents=arrays["parents"],
        passages=Sparse.of(arrays, "passages"),
        relations=Sparse.of(arrays, "relations"),
        relation_rows=arrays["relations.rows"],
        quality=arrays["quality"],
        index=Chnsw.of(index),
        index_rows=index["rows"],
        about=arrays["passages.about"],
    )
    if len(tree.passages) != tree.leaves or not np.array_equal(tree.index.level_offsets, tree.offsets):
        raise CorruptBlob(f"{artifacts.path}: {TREE!r}, {INDEX!r} and the tables do not contain the same nodes")
    return tree
