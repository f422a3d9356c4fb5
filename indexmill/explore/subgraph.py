"""A bounded subgraph of an index, which ``indexmill explore`` draws and prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

KINDS = ("passage", "entity", "community")
"""The kinds of nodes in every subgraph; a method's hits may have other kinds, such as summaries."""

Role = Literal["", "start", "seed", "bridge", "through", "hit"]
"""A node's role: the start; named by the question; reached by a sentence; led to a hit; a hit."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a subgraph. kind: its type; ``index`` if the subgraph starts from the most connected entities."""

    kind: Literal["entity", "community", "question", "index"]
    text: str
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entity, a passage, a community, or another hit.

    id: the kind and the id in the snapshot's tables, such as ``entity:0f…``. section, place, document_ids, url: only
    for passages; ``place`` is the page, such as ``p. 3``. rank, score, why: only for hits. links: how many readable
    passages name the entity, entities the passage names, or children the community has, in the complete index; the
    subgraph may show fewer.
    """

    id: str
    kind: str
    label: str
    text: str = ""
    section: tuple[str, ...] = ()
    place: str = ""
    document_ids: tuple[str, ...] = ()
    url: str | None = None
    role: Role = ""
    rank: int | None = None
    score: float | None = None
    why: tuple[str, ...] = ()
    links: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two nodes, given by their positions.

    kind: ``mentions`` from a passage to an entity, ``related`` between entities, ``member`` from a community to its
    child, ``bridge`` between entities that a sentence connects in the retrieval, ``found`` from a node to the hit that
    it led to. text: the relation, or the sentence. path: True if the retrieval followed the link.
    """

    source: int
    target: int
    kind: str
    text: str = ""
    path: bool = False


@dataclass(frozen=True, slots=True)
class RetrievalStep:
    """A step of a retrieval. node, source: the positions of its end and start; source is None for the question."""

    role: Role
    node: int
    source: int | None = None
    score: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """Nodes, nearest to the start first, and the edges between them.

    path: the steps of the retrieval in order; empty without a question. totals: the number of readable nodes in the
    whole index, by kind. cut: the number of omitted edges.
    """

    version: int | None
    start: Start
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    path: tuple[RetrievalStep, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the subgraph as a JSON object; edges and steps name nodes by their ids."""
        ids = [node.id for node in self.nodes]
        return {
            "version": self.version,
            "start": _named(self.start),
            "totals": dict(self.totals),
            "cut_edges": self.cut,
            "nodes": [_named(node) for node in self.nodes],
            "edges": [_named(edge) | {"source": ids[edge.source], "target": ids[edge.target]} for edge in self.edges],
            "path": [
                {
                    "role": step.role,
                    "node": ids[step.node],
                    "from": None if step.source is None else ids[step.source],
                    "score": step.score,
                    "text": step.text,
                }
                for step in self.path
            ],
        }


def _named(values: Start | Node | Edge) -> dict[str, Any]:
    """Return the fields by name, without copying every text as ``asdict`` does."""
    return {field.name: getattr(values, field.name) for field in fields(values)}
