"""The loop over levels as pure code over arrays, with any clustering (ArchRAG, Algorithm 1).

What summarises, adds links and clusters is handed in. The nodes of level 1 are entities; those of each further level
are the communities of the level below, with the vectors of their summaries. Two communities are linked if members of
them are, in the graph with the added links. A community of one member is kept: its summary is the member's own text,
the summariser's business.

A clustering may start from an earlier membership. On level 1 nodes are matched by id. A community whose members changed
has another id, so from level 2 on it goes by the name of the earlier community that holds most of its members (ours).

The pipeline does the same stage by stage (tasks/families/community_tree/steps.py); its tests compare the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.communities.augment import Augment, weighted
from tasks.core.communities.clusterings import Stops, community_id
from tasks.core.communities.graph import ALONE, Edges, Floats, Graph, Labels, Weighted, coarser, graph_of

Membership = Mapping[str, str]
"""The community's id of each node's id."""

Cluster = Callable[[Weighted, NDArray[np.int64] | None], Labels]
"""A graph and where its nodes start, see `start_from`, or None; gives a label per node."""


@dataclass(frozen=True)
class Level:
    """Level `number` before it is summarised: edges with the added ones, labels of the nodes below, community ids."""

    number: int
    below: Graph
    edges: Edges
    labels: Labels
    ids: list[str]

    def members(self) -> Iterator[tuple[str, list[str]]]:
        """(community id, ids of its members in their order) of each community."""
        return zip(self.ids, _held(self.below.ids, self.labels), strict=True)

    def membership(self) -> dict[str, str]:
        """Each node's community: what the next build starts from."""
        return {node: self.ids[label] for node, label in zip(self.below.ids, self.labels.tolist(), strict=True)}

    def above(self, vectors: Floats) -> Graph:
        """The graph of the communities, given the vectors of their summaries in the order of ids."""
        return graph_of(self.ids, vectors, coarser(self.edges, self.labels))


Summarise = Callable[[Level], Floats]
"""Gives the vectors of a level's summaries, in the order of its ids."""


def start_from(ids: Sequence[str], membership: Mapping[str, str]) -> NDArray[np.int64]:
    """Where nodes start, (n,): nodes of one community have one number; ALONE for those the membership does not hold."""
    numbers: dict[str, int] = {}
    return np.array(
        [numbers.setdefault(membership[one], len(numbers)) if one in membership else ALONE for one in ids],
        dtype=np.int64,
    )


def level_over(number: int, graph: Graph, augment: Augment, cluster: Cluster, start: Membership | None = None) -> Level:
    """The communities of a graph; `start` names the earlier community of a node's id."""
    edges = augment(graph)
    labels = cluster(weighted(graph, edges), None if start is None else start_from(graph.ids, start))
    return Level(number, graph, edges, labels, [community_id(number, held) for held in _held(graph.ids, labels)])


def levels_over(
    entities: Graph,
    summarise: Summarise,
    augment: Augment,
    cluster: Cluster,
    stops: Stops,
    before: Sequence[Membership] = (),
) -> list[Level]:
    """All levels, from the one over the entities up; `before` is the membership of an earlier build's levels.

    Ends as `stops` says, or where a clustering leaves every node alone: such a level is not kept. The last level's
    summaries are made, too: `summarise` is called once for each level.
    """
    levels: list[Level] = []
    graph = entities
    names: Membership = {node: node for node in entities.ids}
    while stops.want_another(len(levels), len(graph.ids)):
        start = None
        if len(levels) < len(before):
            known = before[len(levels)]
            start = {node: known[name] for node, name in names.items() if name in known}
        level = level_over(len(levels) + 1, graph, augment, cluster, start)
        if len(level.ids) == len(graph.ids):
            break
        levels.append(level)
        names = earlier_names(level, start or {})
        graph = level.above(summarise(level))
    return levels


def earlier_names(level: Level, start: Membership) -> dict[str, str]:
    """The earlier community that holds most members of each community, the smallest id of equals; none of new ones."""
    names = {}
    for community, members in level.members():
        held = Counter(start[node] for node in members if node in start)
        if held:
            names[community] = min(held, key=lambda name: (-held[name], name))
    return names


def _held(nodes: Sequence[str], labels: Labels) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(int(labels.max(initial=-1)) + 1)]
    for node, label in zip(nodes, labels.tolist(), strict=True):
        found[label].append(node)
    return found
