"""The nodes that were chosen for a neighbourhood, and the edges between them, as they are drawn and listed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from indexmill.explore.found import lines
from indexmill.explore.graph import Edge, Node, Part, Role, Start, Step
from indexmill.explore.rows import ReadableRows
from indexmill.hits import Hit

_EDGES = 4
"""The most edges, as a multiple of the nodes: more are no picture."""

_LABEL, _TEXT, _SHOWN = 120, 4_000, 12
_UNSEEN = re.compile("[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]+")
"""Characters that break or turn a line."""


class Key(NamedTuple):
    """A node before it is described. other: a hit that is none of the rest, by its rank."""

    kind: Literal["passage", "entity", "community", "other"]
    row: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes of a neighbourhood, and what the retrieval said of them.

    places: each node's position, in the order in which they were chosen. hits: with their ranks. steps: of the
    retrieval: role, node, source, score, text; path: what it went along, from one node to another: kind and text. Both
    may name nodes for which there was no room.
    """

    places: dict[Key, int] = field(default_factory=dict)
    roles: dict[Key, Role] = field(default_factory=dict)
    hits: dict[Key, tuple[int, Hit]] = field(default_factory=dict)
    steps: list[tuple[Role, Key, Key | None, float | None, str]] = field(default_factory=list)
    path: dict[tuple[Key, Key], tuple[str, str]] = field(default_factory=dict)


def described(rows: ReadableRows, chosen: Chosen, start: Start) -> Part:
    """The nodes chosen, the edges between them, and the steps of the retrieval that lead to them."""
    return _Description(rows, chosen).part(start)


def label_of(text: str, most: int = _LABEL) -> str:
    """A text as one line, without characters that turn the writing's direction for what follows."""
    return _cut(" ".join(_UNSEEN.sub(" ", text[: 4 * most]).split()), most) or "(no name)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class _Description:
    """Describes nodes kind by kind, then their edges."""

    def __init__(self, rows: ReadableRows, chosen: Chosen) -> None:
        self._rows, self._chosen = rows, chosen

    def part(self, start: Start) -> Part:
        edges = self._edges()
        most = _EDGES * len(self._chosen.places)
        place = self._chosen.places
        return Part(
            version=self._rows.snapshot.version,
            start=start,
            nodes=tuple(self._nodes()),
            edges=tuple(edges[:most]),
            path=tuple(
                Step(role, place[key], place.get(source) if source is not None else None, score, _cut(text, _TEXT))
                for role, key, source, score, text in self._chosen.steps
                if key in place
            ),
            totals=self._rows.totals,
            cut=max(0, len(edges) - most),
        )

    def _edges(self) -> list[Edge]:
        """The edges between the nodes chosen: those of the path first, then by how rare what they name is."""
        place, found = self._chosen.places, dict[tuple[int, int], Edge]()
        for (source, target), (kind, text) in self._chosen.path.items():
            if source in place and target in place:
                ends = place[source], place[target]
                mentioned = kind == "found" and source.kind == "entity" and target.kind == "passage"
                if mentioned and self._names(target.row, source.row):
                    ends, kind = (ends[1], ends[0]), "mentions"
                found[ends] = Edge(*ends, kind, _cut(text, _TEXT), path=True)
        for edge in (*self._members(), *self._related()):
            found.setdefault((edge.source, edge.target), edge)
        passages = np.array([key.row for key in place if key.kind == "passage"], dtype=np.int64)
        owners, entities = self._rows.entities_of(passages)
        order = np.argsort(-self._rows.rarity[entities], kind="stable")
        for owner, entity in zip(owners[order].tolist(), entities[order].tolist(), strict=True):
            if (at := place.get(Key("entity", entity))) is not None:
                ends = place[Key("passage", int(passages[owner]))], at
                found.setdefault(ends, Edge(*ends, "mentions"))
        return list(found.values())

    def _names(self, passage: int, entity: int) -> bool:
        """True if a passage names an entity."""
        return bool((self._rows.entities_of(np.array([passage]))[1] == entity).any())

    def _members(self) -> Iterator[Edge]:
        held = self._rows.communities
        for key, at in self._chosen.places.items() if held is not None else ():
            if key.kind in ("entity", "community") and held is not None:
                above = int((held.of_entities if key.kind == "entity" else held.parents)[key.row])
                if (top := self._chosen.places.get(Key("community", above))) is not None:
                    yield Edge(top, at, "member")

    def _related(self) -> Iterator[Edge]:
        """The relations that readable passages state between the entities chosen, the first of each pair."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = [key for key in self._chosen.places if key.kind == "entity"]
        ids = self._rows.labels.ids(np.array([key.row for key in keys], dtype=np.int64))
        places = dict(zip(ids, (self._chosen.places[key] for key in keys), strict=True))
        wanted, snapshot = pa.array(ids, pa.string()), self._rows.snapshot
        for artifact in snapshot.shards("relations"):
            table = snapshot.table(artifact.name, ["passage_id", "source", "target", "kind", "text"])
            inside = pc.and_(*(pc.is_in(table[end], value_set=wanted) for end in ("source", "target")))
            stated = table.filter(inside).to_pylist()
            readable = self._readable([one["passage_id"] for one in stated])
            for one, may in zip(stated, readable, strict=True):
                if may:
                    text = one["text"] or one["kind"]
                    yield Edge(places[one["source"]], places[one["target"]], "related", label_of(text, _TEXT))

    def _readable(self, passage_ids: Sequence[str]) -> list[bool]:
        rows = self._rows.passages.rows_of(passage_ids)
        readable = self._rows.readable
        return [row >= 0 and (readable is None or bool(readable[row])) for row in rows.tolist()]

    def _nodes(self) -> Iterator[Node]:
        """The nodes chosen, described, in their order."""
        by_kind: dict[str, list[int]] = {}
        for key in self._chosen.places:
            by_kind.setdefault(key.kind, []).append(key.row)
        described: dict[Key, Node] = {}
        passages, entities = by_kind.get("passage", []), by_kind.get("entity", [])
        for row, node in zip(passages, self._passages(passages), strict=True):
            described[Key("passage", row)] = node
        for row, node in zip(entities, self._entities(entities), strict=True):
            described[Key("entity", row)] = node
        for key in self._chosen.places:
            if key.kind == "community":
                described[key] = self._a_community(key)
            elif key.kind == "other":
                described[key] = self._other(key)
            yield described[key]

    def _passages(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        named = np.bincount(self._rows.entities_of(array)[0], minlength=len(rows)).tolist()
        for row, hit, links in zip(rows, self._rows.passages.hits(array, np.zeros(len(rows))), named, strict=True):
            key = Key("passage", row)
            rank, found = self._chosen.hits.get(key, (None, None))
            yield Node(
                id=f"passage:{hit.id}",
                kind="passage",
                label=label_of(hit.title or hit.text),
                text=_cut(hit.text, _TEXT),
                section=tuple(label_of(one) for one in hit.section[:_SHOWN]),
                place=hit.place,
                document_ids=hit.document_ids,
                url=hit.url,
                role=self._chosen.roles.get(key, ""),
                rank=rank,
                score=None if found is None else found.score,
                why=() if found is None else tuple(label_of(line, _TEXT) for line in lines(found)),
                links=links,
            )

    def _entities(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        labels = self._rows.labels
        ids, names = labels.ids(array), labels.shown(array, self._rows.readable)
        degrees = self._rows.degrees[array].tolist()
        for row, identity, label, links in zip(rows, ids, names, degrees, strict=True):
            yield self._plain(Key("entity", row), f"entity:{identity}", label, links)

    def _plain(self, key: Key, identity: str, label: str, links: int, text: str = "") -> Node:
        rank, found = self._chosen.hits.get(key, (None, None))
        return Node(
            id=identity,
            kind=key.kind,
            label=label_of(label),
            text=_cut(text or ("" if found is None else found.text), _TEXT),
            role=self._chosen.roles.get(key, ""),
            rank=rank,
            score=None if found is None else found.score,
            why=() if found is None else tuple(label_of(line, _TEXT) for line in lines(found)),
            links=links,
        )

    def _a_community(self, key: Key) -> Node:
        held = self._rows.communities
        assert held is not None  # noqa: S101 - else none was chosen
        label = held.label(key.row)
        links = int((held.of_entities == key.row).sum() + (held.parents == key.row).sum())
        return self._plain(key, f"community:{label.id}", label.title or label.text, links, label.text)

    def _other(self, key: Key) -> Node:
        rank, hit = self._chosen.hits[key]
        return Node(
            id=f"{hit.kind}:{hit.id}",
            kind=hit.kind,
            label=label_of(hit.title or hit.text),
            text=_cut(hit.text, _TEXT),
            document_ids=tuple(hit.document_ids[:_SHOWN]),
            role="hit",
            rank=rank,
            score=hit.score,
            why=tuple(label_of(line, _TEXT) for line in lines(hit)),
        )
