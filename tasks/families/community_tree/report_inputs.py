"""What the report on a community is made of: texts of its members and of the relations between them, within bounds.

`chosen` says which (ArchRAG, Algorithm 1, line 7): as far as `input_tokens` go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from indexmill.store.canonical import canonical_json, digest_of
from tasks.core.shards import estimate_tokens

__all__ = ["Member", "Relation", "ReportInput", "chosen"]

_MEMBERS_SHARE = 2 / 3
"""Of `input_tokens`, what members may take while there are relations to tell."""


@dataclass(frozen=True)
class Member:
    """An entity or, above the first level, a community. name: its title; body: its description or summary.

    text: what is embedded of it, both. size: the members that it has itself, 0 of an entity.
    """

    id: str
    digest: str
    name: str
    body: str
    text: str
    size: int = 0


@dataclass(frozen=True)
class Relation:
    """What is said of two members. digest: of the description."""

    source: str
    target: str
    digest: str
    description: str

    def text(self, names: Mapping[str, str]) -> str:
        """As a model reads it; names: of the members, by id."""
        return f"{names[self.source]} -> {names[self.target]}: {self.description}"


@dataclass(frozen=True)
class ReportInput:
    """What a report is made of, in the order of its telling.

    above: of communities, not of entities. alone: the community has one member.
    """

    members: Sequence[Member]
    relations: Sequence[Relation]
    above: bool
    alone: bool = False

    def digest(self, level: int, summariser: Mapping[str, Any]) -> str:
        """The hash of all that the report is made of, 32 hex digits."""
        members = [[one.id, one.digest] for one in self.members]
        relations = [[one.source, one.target, one.digest] for one in self.relations]
        return digest_of(canonical_json([level, dict(summariser), self.alone, members, relations]))[:32]


def chosen(members: Sequence[Member], relations: Sequence[Relation], room: int, *, above: bool = False) -> ReportInput:
    """What a report is made of: about `room` tokens of members and relations.

    Members come in classes, those with the most relations or, above, the most members first: a class is a power of two,
    so that one relation more seldom changes it. Within a class they come by id, which is a hash. So what an edit or a
    deletion touches is mostly what it is about (ours; the published code takes them by exact degree). Members fill two
    thirds of the room, relations between these what is left of it, by the class of their lesser end; then come more
    members. What does not fit is passed over.
    """
    degree = Counter(end for one in relations for end in (one.source, one.target))
    rank = {one.id: -((one.size if above else degree[one.id]) + 1).bit_length() for one in members}
    ordered = sorted(members, key=lambda one: (rank[one.id], one.id))
    place = {one.id: number for number, one in enumerate(ordered)}
    between = [one for one in relations if one.source in place and one.target in place]
    cost = {one.id: estimate_tokens(len(one.text.encode())) for one in ordered}
    first, left = _fitting(ordered, [cost[one.id] for one in ordered], int(room * _MEMBERS_SHARE) if between else room)
    if not first:  # one member has a long text, which is cut when it is told
        first, left = ordered[:1], ordered[1:]
    ids = {one.id for one in first}
    room -= sum(cost[one.id] for one in first)
    ranked = sorted(
        (one for one in between if one.source in ids and one.target in ids),
        key=lambda one: (max(rank[one.source], rank[one.target]), one.source, one.target),
    )
    names = {one.id: one.name for one in ordered}
    costs = {one: estimate_tokens(len(one.text(names).encode())) for one in ranked}
    told, _ = _fitting(ranked, [costs[one] for one in ranked], room)
    more, _ = _fitting(left, [cost[one.id] for one in left], room - sum(costs[one] for one in told))
    return ReportInput(sorted([*first, *more], key=lambda one: place[one.id]), told, above, alone=len(members) == 1)


_T = TypeVar("_T")


def _fitting(items: Sequence[_T], costs: Sequence[int], room: int) -> tuple[list[_T], list[_T]]:
    """Those of the items, in turn, that fit into what is left of the room, and the others."""
    taken: list[_T] = []
    left: list[_T] = []
    for one, cost in zip(items, costs, strict=True):
        fits = cost <= room
        (taken if fits else left).append(one)
        room -= cost if fits else 0
    return taken, left
