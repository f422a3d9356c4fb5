"""The family community_tree in a small snapshot: entities, relations and communities as a test names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from indexmill.store.canonical import content_id, digest_of
from indexmill.store.manifest import FamilyRecord
from indexmill.text.canonical_names import NameIndex, canonical_name, entity_id
from schemas.tables import DESCRIBED, RELATED
from tasks.families.community_tree.chnsw import ChnswLevel, build_chnsw
from tasks.families.community_tree.tables import COMMUNITIES, COMMUNITY_MEMBERS
from tests.indexmill.small_snapshot import EMBEDDER, Layout, SnapshotWriter, halves, sparse_of


@dataclass(frozen=True)
class Thing:
    """An entity: its surface, what is said of it, and the passages it was extracted from, by their row.

    about: those of the passages that are about it; None for all. name: the canonical one, if not the surface's.
    """

    surface: str
    description: str
    passages: Sequence[int]
    type: str = "thing"
    stand_in: bool = False
    about: Sequence[int] | None = None
    name: str = ""

    @property
    def id(self) -> str:
        return entity_id(self.name or canonical_name(self.surface))

    @property
    def text(self) -> str:
        return f"{self.surface}: {self.description}"


@dataclass(frozen=True)
class Group:
    """A community: its title, its summary, and its members by their place in the level below as it is given."""

    title: str
    text: str
    members: Sequence[int]
    rating: float = 5.0
    stand_in: bool = False
    findings: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Related:
    """A relation between two entities, by their places, and in how many pieces it was found."""

    source: int
    target: int
    description: str
    kind: str = "knows"
    relations: int = 1


def write_communities(
    writer: SnapshotWriter,
    things: Sequence[Thing],
    levels: Sequence[Sequence[Group]],
    related: Sequence[Related] = (),
    vectors: Mapping[str, Sequence[float]] | None = None,
    **parameters: JsonValue,
) -> None:
    """The community_tree family over the passages written so far; vectors: of texts, in place of the encoder's.

    The text of an entity is ``surface: description``, that of a community ``title`` and ``text`` on two lines.
    """
    texts = [[thing.text for thing in things], *([f"{one.title}\n{one.text}" for one in level] for level in levels)]
    ids = [[thing.id for thing in things]]
    for number, level in enumerate(levels, start=1):
        members = [sorted(ids[-1][member] for member in group.members) for group in level]
        ids.append([content_id("community", str(number), *own) for own in members])
    layout = Layout.of(ids, [[group.members for group in level] for level in levels])
    ordered = [things[one] for one in layout.orders[0]]
    places = write_described(writer, things, related)
    for number, level in enumerate(levels, start=1):
        _level(writer, number, level, ids, texts, layout.orders[number])
    ends: list[list[tuple[int, int]]] = [[] for _ in things]
    for place, relation in enumerate(places):
        source, target = (layout.rows[0][one] for one in (related[relation].source, related[relation].target))
        ends[source].append((target, place))
        ends[target].append((source, place))
    nodes = []
    for of_level, own, order in zip(texts, ids, layout.orders, strict=True):
        encoded = [(vectors or {}).get(of_level[one], EMBEDDER.encode([of_level[one]])[0]) for one in order]
        nodes.append(ChnswLevel([own[one] for one in order], np.array(encoded, np.float32).reshape(len(order), 64)))
    built = build_chnsw(nodes)
    numbers = range(1, len(levels) + 1)
    stand_ins = [levels[number - 1][one].stand_in for number in numbers for one in layout.orders[number]]
    about = [thing.about is None or one in thing.about for thing in ordered for one in sorted(thing.passages)]
    arrays = {
        **layout.arrays,
        **sparse_of([sorted(thing.passages) for thing in ordered]).arrays("passages"),
        **sparse_of([[other for other, _ in sorted(its)] for its in ends]).arrays("relations"),
        "level_offsets": layout.offsets,
        "relations.rows": np.array([place for its in ends for _, place in sorted(its)], np.int32),
        "stand_ins": np.array(stand_ins, np.uint8),
        "entity_keys": NameIndex.keys([thing.id for thing in ordered]),
        "passages.about": np.array(about, np.uint8),
        "quality": np.array([[10.0 + number, 0.5 + number / 100] for number in numbers]).reshape(-1, 2),
    }
    writer.pack("community_tree/tree", arrays)
    starts = np.repeat(layout.offsets[:-1], np.diff(layout.offsets))
    writer.pack("community_tree/index", {**built.index.arrays(), "rows": built.sources + starts})
    parents = layout.arrays["parents"].tolist()
    counts = {"entities": len(things), "levels": len(levels), "communities": len(parents) - len(things)}
    counts |= {f"level_{number}": len(level) for number, level in enumerate(levels, start=1)}
    counts |= {"roots": parents.count(-1), "relations": len(related)}
    writer.families["community_tree"] = FamilyRecord(parameters=parameters, counts=counts, history_dependent=True)


def write_described(writer: SnapshotWriter, things: Sequence[Thing], related: Sequence[Related]) -> list[int]:
    """The tables of entities and relations; which relation each row is."""
    keys = [thing.id for thing in things]
    for half, held in halves(sorted(range(len(things)), key=keys.__getitem__), keys) or [("0", [])]:
        rows = [
            {
                "entity_id": thing.id,
                "name": thing.name or canonical_name(thing.surface),
                "surface": thing.surface,
                "type": thing.type,
                "description": thing.description,
                "tokens": len(thing.text.split()),
                "digest": _digest(thing.text),
                "pieces": 1,
                "passages": len(thing.passages),
                "stand_in": thing.stand_in,
            }
            for thing in (things[one] for one in held)
        ]
        writer.table(f"described/e{half}", pa.Table.from_pylist(rows, DESCRIBED), DESCRIBED)
    order = sorted(range(len(related)), key=lambda one: (keys[related[one].source], keys[related[one].target]))
    for half, held in halves(order, [keys[one.source] for one in related]) or [("0", [])]:
        rows = [
            {
                "source": keys[one.source],
                "target": keys[one.target],
                "kind": one.kind,
                "description": one.description,
                "digest": _digest(one.description),
                "relations": one.relations,
                "stand_in": False,
            }
            for one in (related[place] for place in held)
        ]
        writer.table(f"related/e{half}", pa.Table.from_pylist(rows, RELATED), RELATED)
    return order


def _digest(text: str) -> str:
    return digest_of(text.encode())[:32]


def _level(
    writer: SnapshotWriter,
    number: int,
    groups: Sequence[Group],
    ids: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    order: Sequence[int],
) -> None:
    for half, held in halves(order, ids[number]):
        label = f"{'stuvwxyz'[number - 1]}{half}"
        rows: list[dict[str, Any]] = [
            {
                "community_id": ids[number][one],
                "level": number,
                "title": groups[one].title,
                "text": groups[one].text,
                "findings": [{"summary": summary, "explanation": why} for summary, why in groups[one].findings],
                "rating": groups[one].rating,
                "rating_explanation": f"rated {groups[one].rating}",
                "members": len(groups[one].members),
                "tokens": len(texts[number][one].split()),
                "digest": _digest(texts[number][one]),
                "made_of": digest_of(texts[number][one].encode()),
                "stand_in": groups[one].stand_in,
            }
            for one in held
        ]
        writer.table(f"communities/{label}", pa.Table.from_pylist(rows, COMMUNITIES), COMMUNITIES)
        members = [
            {
                "community_id": ids[number][one],
                "member_id": ids[number - 1][member],
                "member_digest": _digest(texts[number - 1][member]),
                "shard": "e0",
            }
            for one in held
            for member in sorted(groups[one].members, key=ids[number - 1].__getitem__)
        ]
        writer.table(f"community_members/{label}", pa.Table.from_pylist(members, COMMUNITY_MEMBERS), COMMUNITY_MEMBERS)
