"""The family community_tree in a small snapshot: entities, relations and communities as a test names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from indexmill.store.canonical import content_id, digest_of
from indexmill.store.manifest import Family
from indexmill.text.names import NameIndex, canonical_name, entity_id
from schemas.tables import COMMUNITIES, COMMUNITY_MEMBERS, DESCRIBED, RELATED
from tasks.families.community_tree.chnsw import Level, build_chnsw
from tests.indexmill.small_snapshot import EMBEDDER, SnapshotWriter


@dataclass(frozen=True)
class Thing:
    """An entity: its name, what is said of it, and the passages it was extracted from, by their row.

    about: those of the passages that are about it; None for all.
    """

    surface: str
    description: str
    passages: Sequence[int]
    type: str = "thing"
    stand_in: bool = False
    about: Sequence[int] | None = None


@dataclass(frozen=True)
class Group:
    """A community: its title, its summary, and its members by their place in the level below as it is given."""

    title: str
    text: str
    members: Sequence[int]
    rating: float = 5.0
    stand_in: bool = False


@dataclass(frozen=True)
class Related:
    """A relation between two entities, by their places."""

    source: int
    target: int
    description: str
    kind: str = "knows"


@dataclass
class Written:
    """What was written: of each level the row in the tree of every node as given, and the ids by row."""

    rows: list[list[int]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def write_communities(
    writer: SnapshotWriter,
    things: Sequence[Thing],
    levels: Sequence[Sequence[Group]],
    related: Sequence[Related] = (),
    vectors: Mapping[str, Sequence[float]] | None = None,
    **parameters: JsonValue,
) -> Written:
    """The community_tree family over the passages written so far; vectors: of texts, in place of the encoder's.

    The text of an entity is ``surface: description``, that of a community ``title`` and ``text`` on two lines.
    """
    written = Written()
    keys = [entity_id(canonical_name(thing.surface)) for thing in things]
    texts = [[f"{thing.surface}: {thing.description}" for thing in things]]
    texts += [[f"{group.title}\n{group.text}" for group in level] for level in levels]
    all_ids = [keys]
    for number, level in enumerate(levels, start=1):
        below = all_ids[-1]
        all_ids.append(
            [content_id("community", str(number), *sorted(below[one] for one in its.members)) for its in level]
        )
    offsets = [0]
    orders = []
    for ids in all_ids:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        rows = [0] * len(ids)
        for place, one in enumerate(order):
            rows[one] = offsets[-1] + place
        orders.append(order)
        written.rows.append(rows)
        written.ids += [ids[one] for one in order]
        offsets.append(offsets[-1] + len(ids))
    _entities(writer, things, keys, texts[0], orders[0])
    places = _relations(writer, related, keys)
    children: list[list[int]] = []
    parents = [-1] * offsets[-1]
    for number, level in enumerate(levels, start=1):
        _level(writer, number, level, all_ids, texts, orders[number])
        for one in orders[number]:
            children.append(sorted(written.rows[number - 1][member] for member in level[one].members))
            for child in children[-1]:
                parents[child] = written.rows[number][one]
    ends: list[list[tuple[int, int]]] = [[] for _ in things]
    for place, relation in enumerate(places):
        source, target = (written.rows[0][one] for one in (related[relation].source, related[relation].target))
        ends[source].append((target, place))
        ends[target].append((source, place))
    encoded = []
    for of_level, order in zip(texts, orders, strict=True):
        made = [(vectors or {}).get(of_level[one], EMBEDDER.encode([of_level[one]])[0]) for one in order]
        encoded.append(np.array(made, np.float32).reshape(len(made), 64))
    nodes = [
        Level([ids[one] for one in order], held) for ids, order, held in zip(all_ids, orders, encoded, strict=True)
    ]
    built = build_chnsw(nodes)
    starts = np.repeat(offsets[:-1], np.diff(offsets))
    numbers = range(1, len(levels) + 1)
    stand_ins = [levels[number - 1][one].stand_in for number in numbers for one in orders[number]]
    arrays: dict[str, Any] = {
        "level_offsets": np.array(offsets, np.int64),
        "parents": np.array(parents, np.int32),
        "relations.rows": np.array([place for its in ends for _, place in sorted(its)], np.int32),
        "stand_ins": np.array(stand_ins, np.uint8),
        "entity_keys": NameIndex.keys([keys[one] for one in orders[0]]),
        "passages.about": np.array(
            [
                things[one].about is None or passage in (things[one].about or ())
                for one in orders[0]
                for passage in sorted(things[one].passages)
            ],
            np.uint8,
        ),
        "quality": np.array([[10.0 + number, 0.5 + number / 100] for number in numbers]).reshape(-1, 2),
    }
    for name, links in (
        ("children", children),
        ("passages", [sorted(things[one].passages) for one in orders[0]]),
        ("relations", [[other for other, _ in sorted(its)] for its in ends]),
    ):
        arrays[f"{name}.indptr"] = np.cumsum([0, *map(len, links)]).astype(np.int64)
        arrays[f"{name}.indices"] = np.array([one for its in links for one in its], np.int32)
    writer.pack("community_tree/tree", arrays)
    writer.pack("community_tree/index", {**built.index.arrays(), "rows": built.sources + starts})
    counts = {"entities": len(things), "levels": len(levels), "communities": offsets[-1] - len(things)}
    counts |= {f"level_{number}": len(level) for number, level in enumerate(levels, start=1)}
    counts |= {"roots": parents.count(-1), "relations": len(related)}
    writer.families["community_tree"] = Family(parameters=parameters, counts=counts, history_dependent=True)
    written.arrays = arrays
    return written


def _halves(order: Sequence[int], ids: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The rows of the two shards of a level; none where one is empty."""
    halves = [(half, [one for one in order if (ids[one] >= "8") == (half == "1")]) for half in "01"]
    return [(half, held) for half, held in halves if held]


def _entities(
    writer: SnapshotWriter, things: Sequence[Thing], keys: Sequence[str], texts: Sequence[str], order: Sequence[int]
) -> None:
    for half, held in _halves(order, keys):
        rows = [
            {
                "entity_id": keys[one],
                "name": canonical_name(things[one].surface),
                "surface": things[one].surface,
                "type": things[one].type,
                "description": things[one].description,
                "tokens": len(texts[one].split()),
                "digest": digest_of(texts[one].encode())[:32],
                "pieces": 1,
                "passages": len(things[one].passages),
                "stand_in": things[one].stand_in,
            }
            for one in held
        ]
        writer.table(f"described/e{half}", pa.Table.from_pylist(rows, DESCRIBED), DESCRIBED)


def _relations(writer: SnapshotWriter, related: Sequence[Related], keys: Sequence[str]) -> list[int]:
    """Which relation each row of the tables is."""
    order = sorted(range(len(related)), key=lambda one: (keys[related[one].source], keys[related[one].target]))
    sources = [keys[one.source] for one in related]
    for half, held in _halves(order, sources):
        rows = [
            {
                "source": sources[one],
                "target": keys[related[one].target],
                "kind": related[one].kind,
                "description": related[one].description,
                "digest": digest_of(related[one].description.encode())[:32],
                "relations": 1,
                "stand_in": False,
            }
            for one in held
        ]
        writer.table(f"related/e{half}", pa.Table.from_pylist(rows, RELATED), RELATED)
    return order


def _level(
    writer: SnapshotWriter,
    number: int,
    groups: Sequence[Group],
    ids: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    order: Sequence[int],
) -> None:
    for half, held in _halves(order, ids[number]):
        label = f"{'stuvwxyz'[number - 1]}{half}"
        rows = [
            {
                "community_id": ids[number][one],
                "level": number,
                "title": groups[one].title,
                "text": groups[one].text,
                "findings": [],
                "rating": groups[one].rating,
                "rating_explanation": "",
                "members": len(groups[one].members),
                "tokens": len(texts[number][one].split()),
                "digest": digest_of(texts[number][one].encode())[:32],
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
                "member_digest": digest_of(texts[number - 1][member].encode())[:32],
                "shard": "e0",
            }
            for one in held
            for member in sorted(groups[one].members, key=ids[number - 1].__getitem__)
        ]
        writer.table(f"community_members/{label}", pa.Table.from_pylist(members, COMMUNITY_MEMBERS), COMMUNITY_MEMBERS)
