"""The interface of the communities that a family provides under the name ``communities``."""

from __future__ import annotations

from typing import Protocol

from indexmill.hits import NodeLabel
from indexmill.retrieve.matrices import Rows
from indexmill.retrieve.retrieval_method import Allowed


class Communities(Protocol):
    """Communities by row, and the entities below them by their rows in the table of entities.

    parents: ``(n_communities,) int64``, the row of the community above, -1 for a root. of_entities: ``(n_entities,)
    int64``, the row of the community directly above each entity, -1 for none.
    """

    parents: Rows
    of_entities: Rows

    def row(self, community_id: str) -> int:
        """Return the row of a community, -1 for an unknown id."""
        ...

    def label(self, row: int) -> NodeLabel:
        """Return the id, title and text of a community."""
        ...

    def shown(self, readable: Allowed) -> Allowed:
        """Return a mask of the communities whose texts may be shown to a user who can read only these passages."""
        ...
