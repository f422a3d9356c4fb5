"""Turning the chosen nodes of a neighbourhood into a graph: labels, texts, edges, and the retrieval's steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from indexmill.explore.found import cut, lines
from indexmill.explore.readable_rows import ReadableRows
from indexmill.explore.subgraph import Edge, Node, RetrievalStep, Role, Start, Subgraph
from indexmill.hits import Hit

_EDGES = 4  # the maximum edges per node: more cannot be drawn legibly

_LABEL, _TEXT, _SHOWN = 120, 4_000, 12
_UNSEEN = re.compile("[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]+")
"""Control characters, and characters that break a line or change the direction of text."""


class Key(NamedTuple):
    """A node's kind and row, before it is described. For the kind ``other`` (any other hit), the row is its rank."""

    kind: Literal["passage", "entity", "community", "other"]
    row: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes of a neighbourhood, and the retrieval's explanations of them.

    places: each node's position, in the order of choice. hits: the hits with their ranks. steps: the retrieval's steps:
    role, node, source, score, text. path: the kind and text of each edge that the retrieval followed. `steps` and
    `path` may contain nodes for which there was no room.
    """

    places: dict[Key, int] = field(default_factory=dict)
    roles: dict[Key, Role] = field(default_factory=dict)
    hits: dict[Key, tuple[int, Hit]] = field(default_factory=dict)
    steps: list[tuple[Role, Key, Key | None, float | None, str]] = field(default_factory=list)
    path: dict[tuple[Key, Key], tuple[str, str]] = field(default_factory=dict)


def label_of(text: str, most: int = _LABEL) -> str:
    """Return a text as one line, without control characters and characters that change the direction of text."""
    return cut(" ".join(_UNSEEN.sub(" ", text[: 4 * most]).split()), most) or "(no name)"


class NodeDescriptions:
    """Describes the chosen nodes, the edges between them, and the steps of the retrieval that lead to them."""

    def __init__(self, rows: ReadableRows, chosen: Chosen) -> None:
        self._rows, self._chosen = rows, chosen

    def subgraph(self, start: Start) -> Subgraph:
        """Build the chosen part of the index."""
        edges = self._edges()
        most = _EDGES * len(self._chosen.places)
        place = self._chosen.places
        return Subgraph(
            version=self._rows.snapshot.version,
            start=start,
            nodes=tuple(self._nodes()),
            edges=tuple(edges[:most]),
            path=tuple(
                RetrievalStep(
                    role, place[key], place.get(source) if source is not None else None, score, cut(text, _TEXT)
                )
                for role, key, source, score, text in self._chosen.steps
                if key in place
            ),
            totals=self._rows.totals,
            cut=max(0, len(edges) - most),
        )

    def _edges(self) -> list[Edge]:
        """Return the edges between the chosen nodes: path, members, relations, then mentions by the entity's rarity."""
        place, edges = self._chosen.places, dict[tuple[int, int], Edge]()
        for (source, target), (kind, text) in self._chosen.path.items():
            if source in place and target in place:
                ends = place[source], place[target]
                mentioned = kind == "found" and source.kind == "entity" and target.kind == "passage"
                if mentioned and (self._rows.entities_of(np.array([target.row]))[1] == source.row).any():
                    ends, kind = (ends[1], ends[0]), "mentions"
                edges[ends] = Edge(*ends, kind, cut(text, _TEXT), path=True)
        for edge in (*self._members(), *self._related()):
            edges.setdefault((edge.source, edge.target), edge)
        passages = np.array([key.row for key in place if key.kind == "passage"], dtype=np.int64)
        owners, entities = self._rows.entities_of(passages)
        order = np.argsort(-self._rows.rarity[entities], kind="stable")
        for owner, entity in zip(owners[order].tolist(), entities[order].tolist(), strict=True):
            if (at := place.get(Key("entity", entity))) is not None:
                ends = place[Key("passage", int(passages[owner]))], at
                edges.setdefault(ends, Edge(*ends, "mentions"))
        return list(edges.values())

    def _members(self) -> Iterator[Edge]:
        communities = self._rows.communities
        for key, at in self._chosen.places.items() if communities is not None else ():
            if key.kind in ("entity", "community") and communities is not None:
                above = int((communities.of_entities if key.kind == "entity" else communities.parents)[key.row])
                if (top := self._chosen.places.get(Key("community", above))) is not None:
                    yield Edge(top, at, "member")

    def _related(self) -> Iterator[Edge]:
        """Yield the relations between chosen entities in readable passages, at most one for each pair of entities."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = [key for key in self._chosen.places if key.kind == "entity"]
        ids = self._rows.labels.ids(np.array([key.row for key in keys], dtype=np.int64))
        places = dict(zip(ids, (self._chosen.places[key] for key in keys), strict=True))
        entity_ids, snapshot = pa.array(ids, pa.string()), self._rows.snapshot
        for artifact in snapshot.shards("relations"):
            table = snapshot.table(artifact.name, ["passage_id", "source", "target", "kind", "text"])
            inside = pc.and_(*(pc.is_in(table[end], value_set=entity_ids) for end in ("source", "target")))
            relations = table.filter(inside).to_pylist()
            readable = self._readable([relation["passage_id"] for relation in relations])
            for relation, is_readable in zip(relations, readable, strict=True):
                if is_readable:
                    text = relation["text"] or relation["kind"]
                    yield Edge(places[relation["source"]], places[relation["target"]], "related", label_of(text, _TEXT))

    def _readable(self, passage_ids: Sequence[str]) -> list[bool]:
        rows = self._rows.passages.rows_of(passage_ids)
        readable = self._rows.readable
        return [row >= 0 and (readable is None or bool(readable[row])) for row in rows.tolist()]

    def _nodes(self) -> Iterator[Node]:
        by_kind: dict[str, list[int]] = {}
        for key in self._chosen.places:
            by_kind.setdefault(key.kind, []).append(key.row)
        passages, entities = self._passages(by_kind.get("passage", [])), self._entities(by_kind.get("entity", []))
        for key in self._chosen.places:
            if key.kind == "passage":
                yield next(passages)
            elif key.kind == "entity":
                yield next(entities)
            else:
                yield self._a_community(key) if key.kind == "community" else self._other_hit(key)

    def _passages(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        entity_counts = np.bincount(self._rows.entities_of(array)[0], minlength=len(rows)).tolist()
        for row, hit, links in zip(
            rows, self._rows.passages.hits(array, np.zeros(len(rows))), entity_counts, strict=True
        ):
            yield replace(
                self._plain(Key("passage", row), f"passage:{hit.id}", hit.title or hit.text, links, hit.text),
                section=tuple(label_of(heading) for heading in hit.section[:_SHOWN]),
                place=hit.place,
                document_ids=hit.document_ids,
                url=hit.url,
            )

    def _entities(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        labels = self._rows.labels
        ids, names = labels.ids(array), labels.shown(array, self._rows.readable)
        degrees = self._rows.degrees[array].tolist()
        for row, identity, label, links in zip(rows, ids, names, degrees, strict=True):
            yield self._plain(Key("entity", row), f"entity:{identity}", label, links)

    def _plain(self, key: Key, identity: str, label: str, links: int, text: str = "") -> Node:
        rank, hit = self._chosen.hits.get(key, (None, None))
        return Node(
            id=identity,
            kind=key.kind,
            label=label_of(label),
            text=cut(text or ("" if hit is None else hit.text), _TEXT),
            role=self._chosen.roles.get(key, ""),
            rank=rank,
            score=None if hit is None else hit.score,
            why=() if hit is None else tuple(label_of(line, _TEXT) for line in lines(hit)),
            links=links,
        )

    def _a_community(self, key: Key) -> Node:
        communities = self._rows.communities
        assert communities is not None  # noqa: S101 - a community was chosen
        label = communities.label(key.row)
        links = int((communities.of_entities == key.row).sum() + (communities.parents == key.row).sum())
        return self._plain(key, f"community:{label.id}", label.title or label.text, links, label.text)

    def _other_hit(self, key: Key) -> Node:
        _, hit = self._chosen.hits[key]
        node = self._plain(key, f"{hit.kind}:{hit.id}", hit.title or hit.text, 0, hit.text)
        return replace(node, kind=hit.kind, document_ids=tuple(hit.document_ids[:_SHOWN]))
