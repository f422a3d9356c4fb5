"""A bounded neighbourhood of an entity, a community or a question: which nodes and edges are drawn.

What the start itself consists of comes first: the entity; the community with what it holds; of a question its hits and
what led to them. Then nodes are added in rounds until the bound is reached. A round takes, in equal parts, the
passages and the entities that are linked most to those that were chosen before, where an entity that many passages
name counts less (``indexmill.retrieve.matrices.rarity``), and one that no other passage names comes last. A round fills
at most half of what is left, a quarter with each kind, so that a start with very many neighbours leaves room for
theirs. Ties break by row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from indexmill.errors import BadInput
from indexmill.explore.found import Reason, lines, passages_behind, reasons
from indexmill.explore.graph import Edge, Node, Part, Role, Start, Step
from indexmill.explore.rows import ReadableRows
from indexmill.hits import Hit
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.snapshot import sound
from indexmill.text.names import canonical_name, entity_id

if TYPE_CHECKING:
    from indexmill.retrieve.rights import Principals
    from indexmill.snapshot import Snapshot

__all__ = ["HITS", "MOST_NODES", "NODES", "neighbourhood"]

NODES = 300
"""The nodes of a neighbourhood if nothing else is said."""

MOST_NODES = 2_000

HITS = 10
"""The hits of a question, the first of the neighbourhood."""

_EDGES = 4
"""The most edges, as a multiple of the nodes: more are no picture."""

_LONE = 0.1
"""What an entity that one passage names counts, as a share: nothing leads on from it."""

_LABEL, _TEXT, _SHOWN = 120, 4_000, 12
_UNSEEN = re.compile("[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]+")
"""Characters that break or turn a line."""

Kind = Literal["passage", "entity", "community", "other"]


class _Key(NamedTuple):
    """A node before it is described. other: a hit that is none of the rest, by its rank."""

    kind: Kind
    row: int


def neighbourhood(
    snapshot: Snapshot,
    *,
    entity: str | None = None,
    community: str | None = None,
    question: str | None = None,
    method: str | None = None,
    nodes: int = NODES,
    principals: Principals = None,
) -> Part:
    """The neighbourhood of an entity, a community or a question; of the most connected entities without any.

    entity: a name in any spelling, or an id. community: an id. method: of the retrieval for a question. nodes: at
    most, ``MOST_NODES`` at the highest. principals: as ``Snapshot.retrieve`` takes them: nothing that they may not read
    takes part, not even as a number.

    Raises BadInput for an entity or a community that is not there for the reader, for several starts and a number out
    of bounds, and as ``Snapshot.retrieve`` does.
    """
    given = [name for name, value in _starts(entity, community, question) if value is not None]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} are given: a neighbourhood has one start")
    if method is not None and question is None:
        raise BadInput("a method is given and no question: only a question is retrieved")
    if not 1 <= nodes <= MOST_NODES:
        raise BadInput(f"nodes is {nodes}; expected 1 to {MOST_NODES:,}")
    hits: list[Hit] = []
    if question is not None:
        method = method or snapshot.default_method
        hits = snapshot.retrieve(question, method=method, k=min(HITS, nodes), principals=principals)
    with sound(snapshot.path, "entities and passages"):
        part = _Part(ReadableRows(snapshot, principals), nodes)
        if question is not None:
            return part.of_question(Start("question", question, method), hits)
        if community is not None:
            return part.of_community(community)
        return part.of_index() if entity is None else part.of_entity(entity)


def _starts(entity: str | None, community: str | None, question: str | None) -> Iterator[tuple[str, str | None]]:
    yield from (("an entity", entity), ("a community", community), ("a question", question))


class _Part:
    """Chooses nodes in order, then describes them and their edges."""

    def __init__(self, rows: ReadableRows, most: int) -> None:
        self._rows, self._most = rows, most
        self._chosen: dict[_Key, int] = {}
        self._roles: dict[_Key, Role] = {}
        self._hits: dict[_Key, tuple[int, Hit]] = {}
        self._steps: list[tuple[Role, _Key, _Key | None, float | None, str]] = []
        self._path: dict[tuple[_Key, _Key], tuple[str, str]] = {}
        self._weights = {
            "entity": np.zeros(len(rows.labels)),
            "passage": np.zeros(len(rows.passages)),
        }
        """How much each row is linked to what was chosen; what was chosen itself has -1."""

    # Starts

    def of_entity(self, name: str) -> Part:
        row = self._rows.entity(name)
        self._add(_Key("entity", row), "start")
        self._fill()
        return self._described(Start("entity", _one_line(self._label_of_entity(row))))

    def of_index(self) -> Part:
        degrees = self._rows.degrees
        order = np.argsort(-degrees, kind="stable")[: max(1, self._most // 20)]
        for row in order[degrees[order] > 0].tolist():
            self._add(_Key("entity", row))
        if not self._chosen:  # no entities: what there is to see
            for row in self._some_passages():
                self._add(_Key("passage", row))
        self._fill()
        return self._described(Start("index", "the most connected entities"))

    def of_community(self, community_id: str) -> Part:
        row = self._rows.community(community_id)
        self._add(_Key("community", row), "start")
        self._add_above(row)
        held, shown = self._rows.communities, self._rows.shown_communities
        assert held is not None  # noqa: S101 - else there was no such community
        ahead = [row]
        while ahead and len(self._chosen) < self._most // 4:
            below = np.flatnonzero(np.isin(held.parents, ahead) & shown).tolist()
            for one in below[: self._most // 4 - len(self._chosen)]:
                self._add(_Key("community", one))
            ahead = below
        inside = {key.row for key in self._chosen if key.kind == "community" and self._is_below(key.row, row)}
        members = np.flatnonzero(np.isin(held.of_entities, sorted(inside)) & (self._rows.degrees > 0))
        members = members[np.argsort(-self._rows.degrees[members], kind="stable")]
        for one in members[: self._most // 2].tolist():
            self._add(_Key("entity", one))
        self._fill()
        return self._described(Start("community", _one_line(held.label(row).title or community_id)))

    def of_question(self, start: Start, hits: Sequence[Hit]) -> Part:
        keys = [self._key_of(rank, hit) for rank, hit in enumerate(hits, start=1)]
        for rank, (key, hit) in enumerate(zip(keys, hits, strict=True), start=1):
            if key is not None:
                self._hits[key] = rank, hit
                self._add(key, "hit")
        led = [(key, list(self._led_by(hit))) for key, hit in zip(keys, hits, strict=True) if key is not None]
        best: dict[_Key, Reason] = {}
        for _, found in led:
            for key, reason in found:
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
            self._steps.append((role, key, source, reason.score, reason.sentence))
            if source is not None:
                self._path[source, key] = "bridge", reason.sentence
        for key, found in led:
            rank, hit = self._hits[key]
            self._steps.append(("hit", key, None, hit.score, f"rank {rank}"))
            for other, _ in found:
                self._path[other, key] = "found", ""
            for row in self._rows.passage_rows(passages_behind(hit)[:_SHOWN]):
                self._add(_Key("passage", row))
                self._path[key, _Key("passage", row)] = "found", ""
        self._fill()
        return self._described(start)

    def _key_of(self, rank: int, hit: Hit) -> _Key | None:
        """The node of a hit; None for a passage that is no longer to be seen."""
        if hit.kind == "passage":
            rows = self._rows.passage_rows([hit.id])
            return _Key("passage", rows[0]) if rows else None
        if hit.kind == "entity" and (row := self._rows.entity_rows([hit.id])[0]) >= 0:
            return _Key("entity", row)
        if hit.kind == "community" and (key := self._community(hit.id)) is not None:
            return key
        return _Key("other", rank)

    def _led_by(self, hit: Hit) -> Iterator[tuple[_Key, Reason]]:
        """What led to a hit, as nodes."""
        for reason in reasons(hit):
            if reason.kind == "community":
                key = self._community(reason.id)
            else:
                row = self._rows.entity_rows([reason.id])[0]
                key = _Key("entity", row) if row >= 0 else None
            if key is not None:
                yield key, reason

    def _community(self, community_id: str) -> _Key | None:
        held = self._rows.communities
        row = -1 if held is None else held.row(community_id)
        return _Key("community", row) if row >= 0 and self._rows.shown_communities[row] else None

    def _source_of(self, reason: Reason) -> _Key | None:
        """The entity that another was reached from, which an explanation names as it is shown."""
        if reason.source is None:
            return None
        row = self._rows.entity_rows([entity_id(canonical_name(reason.source))])[0]
        return _Key("entity", row) if row >= 0 else None

    def _some_passages(self) -> list[int]:
        readable = self._rows.readable
        rows = np.arange(len(self._rows.passages)) if readable is None else np.flatnonzero(readable)
        return [int(row) for row in rows[: self._most]]

    # Choosing

    def _add(self, key: _Key, role: Role = "") -> bool:
        """Choose a node unless there is no room; the first role that it was given stays."""
        if key not in self._chosen:
            if len(self._chosen) >= self._most:
                return False
            self._chosen[key] = len(self._chosen)
            if key.kind in self._weights:
                self._weights[key.kind][key.row] = -1
        if role:
            self._roles.setdefault(key, role)
        return True

    def _fill(self) -> None:
        """Add neighbours until there is no room, or none is left."""
        done = 0
        most = self._most - self._most // 20  # room for the communities of what is chosen
        while True:
            fresh = list(self._chosen)[done:]
            done = len(self._chosen)
            self._weigh(fresh)
            left = most - done
            if left <= 0 or not (added := self._round((left + 3) // 4)):
                break
            for key in added:
                self._add(key)
        self._add_communities()
        while (left := self._most - len(self._chosen)) > 0 and (added := self._round((left + 1) // 2)):
            for key in added:
                self._add(key)
            self._weigh(added)

    def _weigh(self, fresh: Iterable[_Key]) -> None:
        """Let what was chosen last count for its neighbours."""
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

    def _round(self, most: int) -> list[_Key]:
        """The nodes that are linked most to those chosen: so many passages and so many entities at most."""
        kinds: tuple[Kind, ...] = ("passage", "entity")
        return [_Key(kind, row) for kind in kinds for row in self._heaviest(kind, most)]

    def _heaviest(self, kind: str, most: int) -> list[int]:
        weights = self._weights[kind]
        rows = np.flatnonzero(weights > 0)
        found: list[int] = rows[np.argsort(-weights[rows], kind="stable")[:most]].tolist()
        return found

    def _add_communities(self) -> None:
        """Add the communities that hold at least two of the entities chosen, those with the most first."""
        held = self._rows.communities
        if held is None:
            return
        entities = np.array([key.row for key in self._chosen if key.kind == "entity"], dtype=np.int64)
        above = held.of_entities[entities]
        above = above[above >= 0]
        counts = np.bincount(above, minlength=len(held.parents))
        rows = np.flatnonzero((counts > 1) & self._rows.shown_communities)
        rows = rows[np.argsort(-counts[rows], kind="stable")]
        for row in rows[: max(1, self._most // 20)].tolist():
            self._add(_Key("community", row))

    def _add_above(self, row: int) -> None:
        """Add the communities above one."""
        held = self._rows.communities
        while held is not None and (row := int(held.parents[row])) >= 0 and self._rows.shown_communities[row]:
            self._add(_Key("community", row))

    def _is_below(self, row: int, top: int) -> bool:
        held = self._rows.communities
        while held is not None and row >= 0 and row != top:
            row = int(held.parents[row])
        return row == top

    # Describing

    def _described(self, start: Start) -> Part:
        edges = self._edges()
        most = _EDGES * len(self._chosen)
        place = self._chosen
        return Part(
            version=self._rows.snapshot.version,
            start=start,
            nodes=tuple(self._nodes()),
            edges=tuple(edges[:most]),
            path=tuple(
                Step(role, place[key], place.get(source) if source is not None else None, score, _cut(text, _TEXT))
                for role, key, source, score, text in self._steps
                if key in place
            ),
            totals=self._rows.totals,
            cut=max(0, len(edges) - most),
        )

    def _edges(self) -> list[Edge]:
        """The edges between the nodes chosen: those of the path first, then by how rare what they name is."""
        place, found = self._chosen, dict[tuple[int, int], Edge]()
        for (source, target), (kind, text) in self._path.items():
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
            if (at := place.get(_Key("entity", entity))) is not None:
                ends = place[_Key("passage", int(passages[owner]))], at
                found.setdefault(ends, Edge(*ends, "mentions"))
        return list(found.values())

    def _names(self, passage: int, entity: int) -> bool:
        """True if a passage names an entity."""
        return bool((self._rows.entities_of(np.array([passage]))[1] == entity).any())

    def _members(self) -> Iterator[Edge]:
        held = self._rows.communities
        for key, at in self._chosen.items() if held is not None else ():
            if key.kind in ("entity", "community") and held is not None:
                above = int((held.of_entities if key.kind == "entity" else held.parents)[key.row])
                if (top := self._chosen.get(_Key("community", above))) is not None:
                    yield Edge(top, at, "member")

    def _related(self) -> Iterator[Edge]:
        """The relations that readable passages state between the entities chosen, the first of each pair."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = [key for key in self._chosen if key.kind == "entity"]
        ids = self._rows.labels.ids(np.array([key.row for key in keys], dtype=np.int64))
        places = dict(zip(ids, (self._chosen[key] for key in keys), strict=True))
        wanted, snapshot = pa.array(ids, pa.string()), self._rows.snapshot
        for artifact in snapshot.shards("relations"):
            table = snapshot.table(artifact.name, ["passage_id", "source", "target", "kind", "text"])
            inside = pc.and_(*(pc.is_in(table[end], value_set=wanted) for end in ("source", "target")))
            stated = table.filter(inside).to_pylist()
            readable = self._readable([one["passage_id"] for one in stated])
            for one, may in zip(stated, readable, strict=True):
                if may:
                    text = one["text"] or one["kind"]
                    yield Edge(places[one["source"]], places[one["target"]], "related", _one_line(text, _TEXT))

    def _readable(self, passage_ids: Sequence[str]) -> list[bool]:
        rows = self._rows.passages.rows_of(passage_ids)
        readable = self._rows.readable
        return [row >= 0 and (readable is None or bool(readable[row])) for row in rows.tolist()]

    def _nodes(self) -> Iterator[Node]:
        """The nodes chosen, described, in their order."""
        by_kind: dict[str, list[int]] = {}
        for key in self._chosen:
            by_kind.setdefault(key.kind, []).append(key.row)
        described: dict[_Key, Node] = {}
        passages, entities = by_kind.get("passage", []), by_kind.get("entity", [])
        for row, node in zip(passages, self._passages(passages), strict=True):
            described[_Key("passage", row)] = node
        for row, node in zip(entities, self._entities(entities), strict=True):
            described[_Key("entity", row)] = node
        for key in self._chosen:
            if key.kind == "community":
                described[key] = self._a_community(key)
            elif key.kind == "other":
                described[key] = self._other(key)
            yield described[key]

    def _passages(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        named = np.bincount(self._rows.entities_of(array)[0], minlength=len(rows)).tolist()
        for row, hit, links in zip(rows, self._rows.passages.hits(array, np.zeros(len(rows))), named, strict=True):
            key = _Key("passage", row)
            rank, found = self._hits.get(key, (None, None))
            yield Node(
                id=f"passage:{hit.id}",
                kind="passage",
                label=_one_line(hit.title or hit.text),
                text=_cut(hit.text, _TEXT),
                section=tuple(_one_line(one) for one in hit.section[:_SHOWN]),
                document_ids=tuple(_one_line(one, _TEXT) for one in hit.document_ids),
                url=hit.url,
                role=self._roles.get(key, ""),
                rank=rank,
                score=None if found is None else found.score,
                why=() if found is None else tuple(_one_line(line, _TEXT) for line in lines(found)),
                links=links,
            )

    def _entities(self, rows: Sequence[int]) -> Iterator[Node]:
        array = np.array(rows, dtype=np.int64)
        labels = self._rows.labels
        ids, shown = labels.ids(array), labels.shown(array, self._rows.readable)
        degrees = self._rows.degrees[array].tolist()
        for row, identity, label, links in zip(rows, ids, shown, degrees, strict=True):
            yield self._plain(_Key("entity", row), f"entity:{identity}", label, links)

    def _label_of_entity(self, row: int) -> str:
        return self._rows.labels.shown(np.array([row], dtype=np.int64), self._rows.readable)[0]

    def _plain(self, key: _Key, identity: str, label: str, links: int, text: str = "") -> Node:
        rank, found = self._hits.get(key, (None, None))
        return Node(
            id=identity,
            kind=key.kind,
            label=_one_line(label),
            text=_cut(text or ("" if found is None else found.text), _TEXT),
            role=self._roles.get(key, ""),
            rank=rank,
            score=None if found is None else found.score,
            why=() if found is None else tuple(_one_line(line, _TEXT) for line in lines(found)),
            links=links,
        )

    def _a_community(self, key: _Key) -> Node:
        held = self._rows.communities
        assert held is not None  # noqa: S101 - else none was chosen
        label = held.label(key.row)
        links = int((held.of_entities == key.row).sum() + (held.parents == key.row).sum())
        return self._plain(key, f"community:{label.id}", label.title or label.text, links, label.text)

    def _other(self, key: _Key) -> Node:
        rank, hit = self._hits[key]
        return Node(
            id=f"{hit.kind}:{hit.id}",
            kind=hit.kind,
            label=_one_line(hit.title or hit.text),
            text=_cut(hit.text, _TEXT),
            document_ids=tuple(_one_line(one, _TEXT) for one in hit.document_ids[:_SHOWN]),
            role="hit",
            rank=rank,
            score=hit.score,
            why=tuple(_one_line(line, _TEXT) for line in lines(hit)),
        )


def _says_more(reason: Reason, other: Reason) -> bool:
    """True if one of two reasons alone says how an entity was reached, or else has the higher score."""
    said, before = (one.hop is not None for one in (reason, other))
    return said if said is not before else (reason.score or 0) > (other.score or 0)


def _order(reason: Reason) -> tuple[bool, int, float]:
    """Where a reason stands on the path: by its hop, and by falling score."""
    return reason.hop is None, reason.hop or 0, -(reason.score or 0)


def _one_line(text: str, most: int = _LABEL) -> str:
    """A text as one line, without characters that turn the writing's direction for what follows."""
    return _cut(" ".join(_UNSEEN.sub(" ", text[: 4 * most]).split()), most) or "(no name)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
