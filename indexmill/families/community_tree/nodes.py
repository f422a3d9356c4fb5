"""The entities and communities of a snapshot by row: what turns the nodes that community_tree found into hits.

A row is a node's place in the pack ``community_tree/tree``: the tables ``described/<e>`` one after the other, then the
tables ``communities/<g>``, level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.families.community_tree.names import EntityNames
from indexmill.families.community_tree.search import CommunityTree
from indexmill.hits import Hit
from indexmill.retrieve.matrices import Integers, Sparse
from indexmill.retrieve.opened import arrays_of, check_sizes
from indexmill.retrieve.passages import passages_of
from indexmill.retrieve.rows import Rows
from indexmill.text.names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["INDEX", "TREE", "Communities", "NodeLabel", "communities_of", "open_tree"]

TREE = "community_tree/tree"
"""The artifact that holds the tree."""

INDEX = "community_tree/index"
"""The artifact that holds the C-HNSW index over its nodes."""

_OF_TREE = (
    "level_offsets",
    "children.indptr",
    "children.indices",
    "parents",
    "passages.indptr",
    "passages.indices",
    "relations.indptr",
    "relations.indices",
    "relations.rows",
    "quality",
)
_OF_INDEX = ("vectors", "level_offsets", "indptr", "indices", "down", "entries", "rows")


class NodeLabel(NamedTuple):
    """What is said of a node where it is named: its id, its name or title, and its text."""

    id: str
    title: str
    text: str


class Communities:
    """Rows of all entities and communities, the tree that they stand in, and the hits made of them.

    names: of the entities, to find them by.

    Raises FamilyNotFound for a snapshot without community_tree.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        if "community_tree" not in artifacts.manifest.families:
            raise FamilyNotFound(
                f"{artifacts.path}: the snapshot does not hold 'community_tree', so it has no communities"
            )
        self._version = artifacts.version
        self._passages = passages_of(artifacts)
        self._entities = Rows(
            artifacts, "described", ["entity_id", "surface", "type", "description", "tokens", "stand_in"]
        )
        self._communities = Rows(
            artifacts, "communities", ["community_id", "title", "text", "rating", "tokens", "stand_in"]
        )
        self._related = Rows(artifacts, "related", ["source", "kind", "description"])
        self.tree = open_tree(artifacts)
        self.names = EntityNames.of(artifacts, self._keys(artifacts))
        if _above(self.tree.relation_rows, len(self._related)):
            raise CorruptBlob(f"{artifacts.path}: {TREE!r} names relations that the tables do not have")
        check_sizes(
            artifacts,
            TREE,
            ("entities", self.tree.entities, len(self._entities)),
            ("communities", len(self.tree.parents) - self.tree.entities, len(self._communities)),
            ("ends of relations", len(self.tree.relation_rows), 2 * len(self._related)),
        )

    def __len__(self) -> int:
        return len(self._communities)

    def _keys(self, artifacts: Artifacts) -> npt.NDArray[np.uint64]:
        """The start of the id of every entity, ascending: of snapshots that do not hold them, read from the table."""
        keys = artifacts.arrays(TREE).get("entity_keys")
        if keys is None:
            columns = (self._entities.shard(number)["entity_id"] for number in range(len(self._entities.tables)))
            keys = NameIndex.keys([identity for column in columns for identity in column.to_pylist()])
        if len(keys) != self.tree.entities:
            raise CorruptBlob(f"{artifacts.path}: {TREE!r} has keys of {len(keys)} entities, not {self.tree.entities}")
        return keys

    def told(self, row: int) -> NodeLabel:
        """The id, the name or title, and the text of one node."""
        first = self.tree.entities
        if row < first:
            told = (self._entities.value(row, name) for name in ("entity_id", "surface", "description"))
        else:
            told = (self._communities.value(row - first, name) for name in ("community_id", "title", "text"))
        return NodeLabel(*map(str, told))

    def rating(self, row: int) -> float:
        """How much a community matters, 0 to 10."""
        return round(float(self._communities.value(row - self.tree.entities, "rating")), 3)  # a float32

    def tokens(self, row: int) -> int:
        """The tokens of one node's text, its name or title included."""
        first = self.tree.entities
        of = self._entities.value(row, "tokens") if row < first else self._communities.value(row - first, "tokens")
        return int(of)

    def hits(self, rows: Sequence[int], scores: Sequence[float], explain: bool = True) -> list[Hit]:
        """The nodes of these rows as hits, in the order given.

        The explanation of an entity holds the relations with those entities that stand before it.
        """
        hits = []
        before: list[int] = []
        for row, score in zip(rows, scores, strict=True):
            entity = row < self.tree.entities
            explanation = None
            if explain:
                explanation = self._of_entity(row, before) if entity else self._of_community(row)
            if entity:
                before.append(row)
            hits.append(self._hit(row, score, explanation))
        return hits

    def _hit(self, row: int, score: float, explanation: dict[str, Any] | None) -> Hit:
        told = self.told(row)
        return Hit(
            kind="entity" if row < self.tree.entities else "community",
            id=told.id,
            score=score,
            text=told.text or told.title,
            title=told.title,
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
            self._relation(row, other, int(self.tree.relation_rows[place]))
            for other, place in zip(others.tolist(), places.tolist(), strict=True)
            if other in before
        ]
        return explanation

    def _relation(self, row: int, other: int, relation: int) -> dict[str, Any]:
        one, two = self.told(row), self.told(other)
        source, target = (one, two) if self._related.value(relation, "source") == one.id else (two, one)
        return {
            "source": source.title,
            "target": target.title,
            "kind": str(self._related.value(relation, "kind")),
            "description": str(self._related.value(relation, "description")),
            "entity_id": two.id,
        }

    def _of_community(self, row: int) -> dict[str, Any]:
        explanation: dict[str, Any] = {
            "level": self.tree.level(row),
            "rating": self.rating(row),
            "size": int(self.tree.sizes[row]),
            "members": [self.told(member).id for member in self.tree.members(row).tolist()],
        }
        if self._communities.value(row - self.tree.entities, "stand_in"):
            explanation["stand_in"] = True
        return explanation


def communities_of(artifacts: Artifacts) -> Communities:
    """The entities and communities of a snapshot, opened once.

    Raises FamilyNotFound where there are none, CorruptBlob where tree, index and tables do not fit each other.
    """
    return artifacts.once("communities", lambda: Communities(artifacts))


def open_tree(artifacts: Artifacts) -> CommunityTree:
    """The snapshot's tree over mapped arrays; raises CorruptBlob where arrays are missing or do not fit each other."""
    arrays, index = arrays_of(artifacts, TREE, _OF_TREE), arrays_of(artifacts, INDEX, _OF_INDEX)
    tree = CommunityTree(
        offsets=arrays["level_offsets"],
        children=Sparse(arrays["children.indptr"], arrays["children.indices"]),
        parents=arrays["parents"],
        passages=Sparse(arrays["passages.indptr"], arrays["passages.indices"]),
        relations=Sparse(arrays["relations.indptr"], arrays["relations.indices"]),
        relation_rows=arrays["relations.rows"],
        quality=arrays["quality"],
        index=Chnsw.of(index),
        index_rows=index["rows"],
        about=arrays.get("passages.about"),
    )
    if not _fits(tree):
        raise CorruptBlob(f"{artifacts.path}: {TREE!r} holds arrays that do not fit each other")
    if not _fits_index(tree, artifacts.dimensions):
        raise CorruptBlob(f"{artifacts.path}: {INDEX!r} is not an index of the nodes of {TREE!r}")
    if _above(tree.passages.indices, len(passages_of(artifacts))):
        raise CorruptBlob(f"{artifacts.path}: {TREE!r} names passages that the snapshot does not have")
    return tree


def _fits(tree: CommunityTree) -> bool:
    nodes = len(tree.parents)
    if len(tree.offsets) < 2 or tree.offsets[0] != 0 or tree.offsets[-1] != nodes or (np.diff(tree.offsets) < 0).any():
        return False
    return (
        _pointers_fit(tree.children, nodes - tree.entities)
        and _pointers_fit(tree.passages, tree.entities)
        and _pointers_fit(tree.relations, tree.entities)
        and len(tree.relation_rows) == len(tree.relations.indices)
        and (tree.about is None or len(tree.about) == len(tree.passages.indices))
        and not _above(tree.children.indices, nodes)
        and not _above(tree.relations.indices, tree.entities)
        and not _above(tree.parents, nodes, least=-1)
        and tree.quality.shape == (tree.levels, 2)
    )


def _pointers_fit(links: Sparse, rows: int) -> bool:
    return len(links) == rows and links.indptr[0] == 0 and links.indptr[-1] == len(links.indices)


def _fits_index(tree: CommunityTree, dimensions: int | None) -> bool:
    index, nodes = tree.index, len(tree.parents)
    return (
        np.array_equal(index.level_offsets, tree.offsets)
        and len(index.vectors) == len(tree.index_rows) == len(index.down) == nodes
        and (not nodes or index.vectors.shape[1] == dimensions)
        and len(index.entries) == tree.levels + 1
        and _pointers_fit(Sparse(index.indptr, index.indices), nodes)
        and not _above(index.down, nodes, least=-1)
        and not _above(index.entries, nodes, least=-1)
        and not _above(tree.index_rows, nodes)
    )


def _above(rows: Integers, bound: int, least: int = 0) -> bool:
    """Whether any row is not below the bound, or less than the least."""
    return bool(len(rows)) and not (least <= int(rows.min()) and int(rows.max()) < bound)
