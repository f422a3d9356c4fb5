"""Choosing the nodes of a bounded neighbourhood of an entity, a community or a question.

The start comes first: the entity; the community with its members; for a question, its hits and the nodes that led to
them. Then rounds add nodes until the bound is reached. A round adds equally many passages and entities: those with the
most links to the nodes chosen before. Links of an entity that many passages name count less
(``indexmill.retrieve.matrices.rarity``), and an entity that no other passage names comes last. A round fills at most
half of the remaining room, a quarter with each kind, so that a start with very many neighbours leaves room. Ties
are broken by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from indexmill.errors import BadInput
from indexmill.explore.describing import Chosen, Key, NodeDescriptions, label_of
from indexmill.explore.found import Reason, passages_behind, reasons
from indexmill.explore.readable_rows import ReadableRows
from indexmill.explore.subgraph import Role, Start, Subgraph
from indexmill.hits import Hit
from indexmill.retrieve.artifacts import sound
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.text.canonical_names import canonical_name, entity_id

if TYPE_CHECKING:
    from indexmill.retrieve.rights import Principals
    from indexmill.snapshot import Snapshot

NODES = 300
"""The default number of nodes."""

MOST_NODES = 2_000

HITS = 10
"""The number of hits of a question, the first nodes of its neighbourhood."""

_BEHIND = 12  # the maximum passages shown behind a hit that is not a passage

_LONE = 0.1  # the factor on the weight of an entity that only one passage names: it leads nowhere


def neighbourhood(
    snapshot: Snapshot,
    *,
    entity: str | None = None,
    community: str | None = None,
    question: str | None = None,
    method: str | None = None,
    nodes: int = NODES,
    principals: Principals = None,
) -> Subgraph:
    """Return the neighbourhood of an entity, a community or a question; by default of the most connected entities.

    entity: a name in any spelling, or an id. community: an id. method: the retrieval method for the question. nodes:
    the maximum number of nodes, up to ``MOST_NODES``. principals: as for ``Snapshot.retrieve``; unreadable documents
    are not even counted.

    Raises BadInput for a missing or unreadable entity or community, for more than one start, for a method without a
    question, and for ``nodes`` out of bounds; otherwise as ``Snapshot.retrieve`` does.
    """
    possible = {"an entity": entity, "a community": community, "a question": question}
    starts = [name for name, value in possible.items() if value is not None]
    if len(starts) > 1:
        raise BadInput(f"{' and '.join(starts)} are given; give only one of them")
    if method is not None and question is None:
        raise BadInput("a method is given without a question; it only determines how a question's hits are retrieved")
    if not 1 <= nodes <= MOST_NODES:
        raise BadInput(f"nodes is {nodes}; expected 1 to {MOST_NODES:,}")
    hits: list[Hit] = []
    if question is not None:
        method = method or snapshot.default_method
        hits = snapshot.retrieve(question, method=method, k=min(HITS, nodes), principals=principals)
    with sound(snapshot.path, "entities and passages"):
        choice = _Choice(ReadableRows(snapshot, principals), nodes)
        if question is not None:
            return choice.of_question(Start("question", question, method), hits)
        if community is not None:
            return choice.of_community(community)
        return choice.of_index() if entity is None else choice.of_entity(entity)


class _Choice:
    """Chooses nodes in order: the start, then neighbours."""

    def __init__(self, rows: ReadableRows, most: int) -> None:
        self._rows, self._most = rows, most
        self._chosen = Chosen()
        self._weights = {
            "entity": np.zeros(len(rows.labels)),
            "passage": np.zeros(len(rows.passages)),
        }
        """The weight of each row's links to chosen nodes; -1 for chosen rows."""

    # Starts

    def of_entity(self, name: str) -> Subgraph:
        row = self._rows.entity(name)
        self._add(Key("entity", row), "start")
        return self._describe(Start("entity", label_of(self._rows.label(row))))

    def of_index(self) -> Subgraph:
        degrees = self._rows.degrees
        order = np.argsort(-degrees, kind="stable")[: max(1, self._most // 20)]
        for row in order[degrees[order] > 0].tolist():
            self._add(Key("entity", row))
        if not self._chosen.places:  # no entities: start from passages
            readable = self._rows.readable
            rows = np.arange(len(self._rows.passages)) if readable is None else np.flatnonzero(readable)
            for row in rows[: self._most].tolist():
                self._add(Key("passage", row))
        return self._describe(Start("index", "the most connected entities"))

    def of_community(self, community_id: str) -> Subgraph:
        row = self._rows.community(community_id)
        self._add(Key("community", row), "start")
        self._add_above(row)
        communities, shown = self._rows.communities, self._rows.shown_communities
        assert communities is not None  # noqa: S101 - the community was found
        ahead = [row]
        while ahead and len(self._chosen.places) < self._most // 4:
            below = np.flatnonzero(np.isin(communities.parents, ahead) & shown).tolist()
            for child in below[: self._most // 4 - len(self._chosen.places)]:
                self._add(Key("community", child))
            ahead = below
        inside = {key.row for key in self._chosen.places if key.kind == "community" and self._is_below(key.row, row)}
        members = np.flatnonzero(np.isin(communities.of_entities, sorted(inside)) & (self._rows.degrees > 0))
        members = members[np.argsort(-self._rows.degrees[members], kind="stable")]
        for member in members[: self._most // 2].tolist():
            self._add(Key("entity", member))
        return self._describe(Start("community", label_of(communities.label(row).title or community_id)))

    def of_question(self, start: Start, hits: Sequence[Hit]) -> Subgraph:
        keys = [self._key_of(rank, hit) for rank, hit in enumerate(hits, start=1)]
        for rank, (key, hit) in enumerate(zip(keys, hits, strict=True), start=1):
            if key is not None:
                self._chosen.hits[key] = rank, hit
                self._add(key, "hit")
        led = [(key, list(self._led_by(hit))) for key, hit in zip(keys, hits, strict=True) if key is not None]
        best: dict[Key, Reason] = {}
        for _, led_by in led:
            for key, reason in led_by:
                if key not in best or _says_more(reason, best[key]):
                    best[key] = reason
        sources = {key: self._source_of(reason) for key, reason in best.items()}
        for key, source in sources.items():
            if source is not None and source not in best:
                best[source] = Reason("entity", "", None, 0 if best[key].hop == 1 else None)
        order = sorted(best, key=lambda key: (*_order(best[key]), key))
        for key in order:
            reason, source = best[key], sources.get(key)
            role: Role = "bridge" if source is not None else "seed" if reason.hop == 0 else "through"
            self._add(key, role)
            self._chosen.steps.append((role, key, source, reason.score, reason.sentence))
            if source is not None:
                self._chosen.path[source, key] = "bridge", reason.sentence
        for key, led_by in led:
            rank, hit = self._chosen.hits[key]
            self._chosen.steps.append(("hit", key, None, hit.score, f"rank {rank}"))
            for source_key, _ in led_by:
                self._chosen.path[source_key, key] = "found", ""
            for row in self._rows.passage_rows(passages_behind(hit)[:_BEHIND]):
                self._add(Key("passage", row))
                self._chosen.path[key, Key("passage", row)] = "found", ""
        return self._describe(start)

    def _key_of(self, rank: int, hit: Hit) -> Key | None:
        """Return the node of a hit; None for a passage that is no longer readable."""
        if hit.kind == "passage":
            rows = self._rows.passage_rows([hit.id])
            return Key("passage", rows[0]) if rows else None
        if hit.kind == "entity" and (row := self._rows.entity_rows([hit.id])[0]) >= 0:
            return Key("entity", row)
        if hit.kind == "community" and (key := self._community(hit.id)) is not None:
            return key
        return Key("other", rank)

    def _led_by(self, hit: Hit) -> Iterator[tuple[Key, Reason]]:
        for reason in reasons(hit):
            if reason.kind == "community":
                key = self._community(reason.id)
            else:
                row = self._rows.entity_rows([reason.id])[0]
                key = Key("entity", row) if row >= 0 else None
            if key is not None:
                yield key, reason

    def _community(self, community_id: str) -> Key | None:
        communities = self._rows.communities
        row = -1 if communities is None else communities.row(community_id)
        return Key("community", row) if row >= 0 and self._rows.shown_communities[row] else None

    def _source_of(self, reason: Reason) -> Key | None:
        """Return the entity from which the retrieval reached ``reason``; explanations give only its surface."""
        if reason.source is None:
            return None
        row = self._rows.entity_rows([entity_id(canonical_name(reason.source))])[0]
        return Key("entity", row) if row >= 0 else None

    def _describe(self, start: Start) -> Subgraph:
        self._fill()
        return NodeDescriptions(self._rows, self._chosen).subgraph(start)

    # Choosing

    def _add(self, key: Key, role: Role = "") -> bool:
        """Choose a node if there is room; a node keeps its first role."""
        if key not in self._chosen.places:
            if len(self._chosen.places) >= self._most:
                return False
            self._chosen.places[key] = len(self._chosen.places)
            if key.kind in self._weights:
                self._weights[key.kind][key.row] = -1
        if role:
            self._chosen.roles.setdefault(key, role)
        return True

    def _fill(self) -> None:
        """Add neighbours until there is no room or no neighbour."""
        done = 0
        most = self._most - self._most // 20  # room for the communities of chosen entities
        while True:
            fresh = list(self._chosen.places)[done:]
            done = len(self._chosen.places)
            self._weigh(fresh)
            room = most - done
            if room <= 0 or not (added := self._round((room + 3) // 4)):
                break
            for key in added:
                self._add(key)
        self._add_communities()
        while (room := self._most - len(self._chosen.places)) > 0 and (added := self._round((room + 1) // 2)):
            for key in added:
                self._add(key)
            self._weigh(added)

    def _weigh(self, fresh: Iterable[Key]) -> None:
        """Add the weight of newly chosen nodes to their neighbours."""
        entities, passages = (
            np.array([key.row for key in fresh if key.kind == kind], dtype=np.int64) for kind in ("entity", "passage")
        )
        owners, rows, counts = self._rows.passages_of(entities)
        self._count("passage", rows, self._rows.rarity[entities][owners] * (1 + np.log(counts)))
        _, rows = self._rows.entities_of(passages)
        alone = np.where(self._rows.degrees[rows] > 1, 1.0, _LONE)
        self._count("entity", rows, self._rows.rarity[rows] * alone)

    def _count(self, kind: str, rows: Rows, amounts: Scores) -> None:
        weights = self._weights[kind]
        added = np.bincount(rows, amounts, len(weights)) if len(rows) else 0
        weights[:] = np.where(weights < 0, weights, weights + added)

    def _round(self, most: int) -> list[Key]:
        """Return the nodes with the heaviest links to chosen nodes: at most ``most`` passages and ``most`` entities."""
        passages = [Key("passage", row) for row in self._heaviest("passage", most)]
        return [*passages, *(Key("entity", row) for row in self._heaviest("entity", most))]

    def _heaviest(self, kind: str, most: int) -> list[int]:
        weights = self._weights[kind]
        rows = np.flatnonzero(weights > 0)
        heaviest: list[int] = rows[np.argsort(-weights[rows], kind="stable")[:most]].tolist()
        return heaviest

    def _add_communities(self) -> None:
        """Add the communities that have at least two chosen entities; communities with more come first."""
        communities = self._rows.communities
        if communities is None:
            return
        entities = np.array([key.row for key in self._chosen.places if key.kind == "entity"], dtype=np.int64)
        above = communities.of_entities[entities]
        above = above[above >= 0]
        counts = np.bincount(above, minlength=len(communities.parents))
        rows = np.flatnonzero((counts > 1) & self._rows.shown_communities)
        rows = rows[np.argsort(-counts[rows], kind="stable")]
        for row in rows[: max(1, self._most // 20)].tolist():
            self._add(Key("community", row))

    def _add_above(self, row: int) -> None:
        communities = self._rows.communities
        while (
            communities is not None
            and (row := int(communities.parents[row])) >= 0
            and self._rows.shown_communities[row]
        ):
            self._add(Key("community", row))

    def _is_below(self, row: int, top: int) -> bool:
        communities = self._rows.communities
        while communities is not None and row >= 0 and row != top:
            row = int(communities.parents[row])
        return row == top


def _says_more(reason: Reason, previous: Reason) -> bool:
    """Return True if only ``reason`` has a hop, or both or neither has one and ``reason`` has the higher score."""
    has_hop, previous_has_hop = (candidate.hop is not None for candidate in (reason, previous))
    return has_hop if has_hop is not previous_has_hop else (reason.score or 0) > (previous.score or 0)


def _order(reason: Reason) -> tuple[bool, int, float]:
    """Return the sort key of a reason on the path: by hop, then by descending score."""
    return reason.hop is None, reason.hop or 0, -(reason.score or 0)
