"""The communities of a snapshot, for code that works with any family: see ``indexmill.retrieve.community_rows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.community_tree.nodes import communities_of
from indexmill.hits import NodeLabel
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.matrices import Rows
from indexmill.retrieve.retrieval_method import Allowed

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class CommunityRows:
    """The communities of a snapshot by row. Raises FamilyNotFound without communities, CorruptBlob."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._communities = communities_of(artifacts)
        tree = self._communities.tree
        above = np.asarray(tree.parents).astype(np.int64)
        above = np.where(above < tree.leaves, -1, above - tree.leaves)
        self.parents: Rows = above[tree.leaves :]
        self.of_entities: Rows = np.full(len(entity_labels_of(artifacts)), -1, dtype=np.int64)
        rows = self._communities.label_rows
        labelled = rows >= 0
        self.of_entities[rows[labelled]] = above[: tree.leaves][labelled]

    def row(self, community_id: str) -> int:
        """Return the row of a community, -1 for an unknown id."""
        return self._communities.row_of(community_id)

    def label(self, row: int) -> NodeLabel:
        """Return the id, title and text of a community."""
        return self._communities.label(row + self._communities.tree.leaves)

    def shown(self, readable: Allowed) -> Allowed:
        """Return a mask of the communities that a retrieval may show to a user who can read only these passages."""
        tree = self._communities.tree
        visible = tree.allowed(readable) & tree.allowed_above(self._communities.spelled(readable))
        shown: Allowed = visible[tree.leaves :]
        return shown
