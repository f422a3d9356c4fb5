"""The inputs of a community's report: texts of its members and of the relations between them, within `input_tokens`.

`chosen` selects them (ArchRAG, Algorithm 1, line 7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from indexmill.store.canonical import canonical_json, digest_of
from tasks.core.shards import estimate_tokens

_MEMBERS_SHARE = 2 / 3
"""The share of `input_tokens` for members if there are relations between them."""


@dataclass(frozen=True)
class Member:
    """An entity or, above the first level, a community. name: its name or title. body: its description or summary.

    text: the embedded text, which contains both. size: the number of a community's members, 0 for an entity.
    """

    id: str
    digest: str
    name: str
    body: str
    text: str
    size: int = 0


@dataclass(frozen=True)
class DescribedRelation:
    """A described relation between two members. digest: the digest of the description."""

    source: str
    target: str
    digest: str
    description: str

    def text(self, names: Mapping[str, str]) -> str:
        """Return the relation as a model reads it. names: the names of the members, by id."""
        return f"{names[self.source]} -> {names[self.target]}: {self.description}"


@dataclass(frozen=True)
class ReportInput:
    """A report's ordered inputs. above: whether members are communities. alone: whether the community has only one."""

    members: Sequence[Member]
    relations: Sequence[DescribedRelation]
    above: bool
    alone: bool = False

    def digest(self, level: int, summariser: Mapping[str, Any]) -> str:
        """Return the hash of all inputs of the report, 32 hex digits."""
        members = [[member.id, member.digest] for member in self.members]
        relations = [[relation.source, relation.target, relation.digest] for relation in self.relations]
        return digest_of(canonical_json([level, dict(summariser), self.alone, members, relations]))[:32]


def chosen(
    members: Sequence[Member], relations: Sequence[DescribedRelation], room: int, *, above: bool = False
) -> ReportInput:
    """Choose the inputs of a report: about `room` tokens of members and relations.

    Members are ranked by their number of relations or, if `above`, of members, highest first. The numbers are compared
    only as powers of two, so one more relation seldom changes a member's rank; members of equal rank are ordered by id,
    a hash. So an edit or a deletion mostly changes only the reports that it concerns. (The published code ranks by
    exact degree.) Members fill two thirds of the room; then relations between them fill the rest, ordered by the rank
    of their lower-ranked end; then more members. Items that do not fit are skipped.
    """
    degree = Counter(end for relation in relations for end in (relation.source, relation.target))
    rank = {member.id: -((member.size if above else degree[member.id]) + 1).bit_length() for member in members}
    ordered = sorted(members, key=lambda member: (rank[member.id], member.id))
    place = {member.id: number for number, member in enumerate(ordered)}
    between = [relation for relation in relations if relation.source in place and relation.target in place]
    cost = {member.id: estimate_tokens(len(member.text.encode())) for member in ordered}
    members_room = int(room * _MEMBERS_SHARE) if between else room
    first, remaining = _fitting(ordered, [cost[member.id] for member in ordered], members_room)
    if not first:  # no member fits: take the first, whose text the prompt truncates
        first, remaining = ordered[:1], ordered[1:]
    ids = {member.id for member in first}
    room -= sum(cost[member.id] for member in first)
    ranked = sorted(
        (relation for relation in between if relation.source in ids and relation.target in ids),
        key=lambda relation: (max(rank[relation.source], rank[relation.target]), relation.source, relation.target),
    )
    names = {member.id: member.name for member in ordered}
    costs = {relation: estimate_tokens(len(relation.text(names).encode())) for relation in ranked}
    shown, _ = _fitting(ranked, [costs[relation] for relation in ranked], room)
    room -= sum(costs[relation] for relation in shown)
    more, _ = _fitting(remaining, [cost[member.id] for member in remaining], room)
    ordered = sorted([*first, *more], key=lambda member: place[member.id])
    return ReportInput(ordered, shown, above, alone=len(members) == 1)


_T = TypeVar("_T")


def _fitting(items: Sequence[_T], costs: Sequence[int], room: int) -> tuple[list[_T], list[_T]]:
    """Split the items into those that fit into the room, taken greedily in order, and the others."""
    fitting: list[_T] = []
    remaining: list[_T] = []
    for item, cost in zip(items, costs, strict=True):
        fits = cost <= room
        (fitting if fits else remaining).append(item)
        room -= cost if fits else 0
    return fitting, remaining
