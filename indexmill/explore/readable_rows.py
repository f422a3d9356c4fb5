"""The entities, passages and communities of a snapshot by row, limited to those that a reader may see."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from indexmill.errors import BadInput
from indexmill.retrieve.community_rows import Communities
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.matrices import Rows, Scores, rarity
from indexmill.retrieve.method_registry import provided
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Allowed
from indexmill.text.canonical_names import canonical_name, entity_id

if TYPE_CHECKING:
    from indexmill.retrieve.rights import Principals
    from indexmill.snapshot import Snapshot

_ALIKE = 2_000  # the maximum number of names that are compared with an unknown name

_SUGGESTED = 5


class ReadableRows:
    """The rows of a snapshot that some principals may see.

    readable: a mask of the passages that they may read; None for all. degrees: ``(n_entities,) int64``, the number of
    readable passages that name each entity; an entity without such passages is treated as missing.
    """

    def __init__(self, snapshot: Snapshot, principals: Principals) -> None:
        self.snapshot = snapshot
        self.passages = passages_of(snapshot)
        self.labels = entity_labels_of(snapshot)
        documents = snapshot.readable_documents(principals)
        self.readable: Allowed | None = None if documents is None else documents[self.passages.documents]
        self._of_entities, self._of_passages = self.labels.passages()
        every = np.arange(len(self.labels), dtype=np.int64)
        readable = self.readable
        self.degrees: Rows = (
            self._of_entities.degrees(every) if readable is None else self._of_entities.counts_of(readable)
        )
        self.rarity: Scores = rarity(self.degrees)

    @cached_property
    def communities(self) -> Communities | None:
        """The communities of the snapshot; None if it has none."""
        return cast("Communities | None", provided(self.snapshot, "communities"))

    @cached_property
    def shown_communities(self) -> Allowed:
        """A mask of the communities that the reader may see."""
        if self.communities is None:
            return np.zeros(0, dtype=np.bool_)
        if self.readable is None:
            return np.ones(len(self.communities.parents), dtype=np.bool_)
        return self.communities.shown(self.readable)

    @property
    def totals(self) -> dict[str, int]:
        """The number of visible rows, by kind."""
        passages = len(self.passages) if self.readable is None else int(self.readable.sum())
        totals = {"passage": passages, "entity": int((self.degrees > 0).sum())}
        return totals if self.communities is None else {**totals, "community": int(self.shown_communities.sum())}

    def passages_of(self, entities: Rows) -> tuple[Rows, Rows, Scores]:
        """Find the readable passages that name some entities: position in ``entities``, passage row, mention count."""
        owners, rows, places = self._of_entities.links(entities)
        counts = self._of_entities.occurrences(places)
        if self.readable is not None:
            is_readable = self.readable[rows]
            owners, rows, counts = owners[is_readable], rows[is_readable], counts[is_readable]
        return owners, rows, counts

    def entities_of(self, passages: Rows) -> tuple[Rows, Rows]:
        """Find the entities that some readable passages name: position in ``passages``, entity row."""
        owners, rows, _ = self._of_passages.links(passages)
        return owners, rows

    def passage_rows(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of passages by id, without missing and unreadable passages."""
        rows = self.passages.rows_of(ids)
        rows = rows[rows >= 0]
        passage_rows: list[int] = (rows if self.readable is None else rows[self.readable[rows]]).tolist()
        return passage_rows

    def entity_rows(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of entities by id; -1 for a missing or unreadable entity."""
        import pyarrow as pa

        if not len(self.labels):
            return [-1] * len(ids)
        rows = self.labels.rows_of(pa.array(ids, pa.string()))
        entity_rows: list[int] = np.where((rows >= 0) & (self.degrees[rows] > 0), rows, -1).tolist()
        return entity_rows

    def label(self, entity: int) -> str:
        """Return the name under which the reader sees an entity."""
        return self.labels.shown(np.array([entity], dtype=np.int64), self.readable)[0]

    def entity(self, name: str) -> int:
        """Find an entity's row by any spelling of its name, or by id. Raises BadInput, which suggests similar names."""
        name = _text(name)
        canonical = canonical_name(name)
        by_name, by_id = self.entity_rows([entity_id(canonical), name])
        if canonical and by_name >= 0:
            return by_name
        if by_id >= 0:
            return by_id
        suggestions = self._alike(canonical)
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        raise BadInput(f"there is no entity {name!r:.200}{hint}")

    def community(self, community_id: str) -> int:
        """Return the row of a community by id. Raises BadInput for a missing or unreadable community."""
        if self.communities is None:
            raise BadInput("the index has no communities: start from an entity or a question")
        row = self.communities.row(_text(community_id))
        if row < 0 or not self.shown_communities[row]:
            raise BadInput(f"there is no community {community_id!r:.200}; `indexmill show` draws them with their ids")
        return row

    def _alike(self, name: str) -> list[str]:
        """Return the labels of readable entities whose names are similar to ``name`` or contain its words."""
        if not name:
            return []
        (readable_rows,) = (self.degrees > 0).nonzero()
        names = self.labels.names(readable_rows)
        words = name.split()
        longest = max(words, key=len)
        near = [at for at, candidate in enumerate(names) if longest in candidate or candidate[:3] == name[:3]]
        near.sort(key=lambda at: (-int(self.degrees[readable_rows[at]]), names[at]))
        near = near[:_ALIKE]
        close = difflib.get_close_matches(name, [names[at] for at in near], n=_SUGGESTED, cutoff=0.6)
        containing = [names[at] for at in near if set(words) <= set(names[at].split())]
        chosen = list(dict.fromkeys([*close, *containing]))[:_SUGGESTED]
        by_name = {names[at]: int(readable_rows[at]) for at in near}
        rows = np.array([by_name[name] for name in chosen], dtype=np.int64)
        return self.labels.shown(rows, self.readable)


def _text(text: str) -> str:
    """Replace invalid Unicode in text from a command line or a URL, since no table contains it."""
    return text.encode("utf-8", "replace").decode("utf-8")
