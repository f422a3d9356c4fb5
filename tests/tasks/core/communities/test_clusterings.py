"""Clusters by bytes of ids: the same as the pure code's, whichever way round."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.communities.clusterings import Clusters, clusters_of, community_id, start_of
from tasks.core.communities.clusterings import earlier_names as earlier_ids
from tasks.core.communities.graph import ALONE, Graph, in_order
from tasks.core.groups import hex_ids, id_bytes
from tests.deep import examples
from tests.tasks.core.communities.reference import Level, earlier_names, start_from

Members = dict[int, int]
_MEMBERS = st.dictionaries(st.integers(0, 30), st.integers(0, 5), max_size=25)


def identity(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def clustered(level: int, members: Members) -> tuple[Clusters, Level]:
    """The same clustering as bytes and as a level of the pure code."""
    ids = sorted(map(identity, members))
    by_id = {identity(number): community for number, community in members.items()}
    labels = in_order(np.array([by_id[one] for one in ids], dtype=np.int64))
    made = clusters_of(level, id_bytes(ids), labels)
    held = [
        [one for one, label in zip(ids, labels, strict=True) if label == of] for of in range(labels.max(initial=-1) + 1)
    ]

    graph = Graph(ids, np.zeros((len(ids), 2), dtype=np.float32), np.empty((0, 2), dtype=np.int64))
    return made, Level(level, graph, graph.edges, labels, [community_id(level, one) for one in held])


def known(clusters: Clusters) -> dict[str, str]:
    communities = hex_ids(clusters.communities)
    return {node: communities[row] for node, row in zip(hex_ids(clusters.nodes), clusters.labels.tolist(), strict=True)}


@examples(30, deep=150)
@given(_MEMBERS)
def test_communities_are_those_of_the_pure_code(members: Members) -> None:
    made, level = clustered(1, members)
    assert known(made) == level.membership()
    assert hex_ids(made.communities) == sorted(level.ids)
    assert made.joins == (len(level.ids) < len(members))


@examples(30, deep=150)
@given(_MEMBERS, _MEMBERS)
def test_a_start_and_earlier_names_are_those_of_the_pure_code(now: Members, then: Members) -> None:
    made, level = clustered(1, now)
    before, _ = clustered(1, then)
    start = start_of(made.nodes, before)
    wanted = start_from(level.below.ids, known(before))
    assert (start == ALONE).tolist() == (wanted == ALONE).tolist()
    assert np.array_equal(in_order(start), in_order(wanted))
    names = earlier_names(level, known(before))
    found = dict(zip(hex_ids(made.communities), hex_ids(earlier_ids(made, made.nodes, before)), strict=True))
    assert {one: name for one, name in found.items() if int(name, 16)} == names


def test_nodes_are_known_by_their_earlier_names() -> None:
    """Nodes 1, 2 and 3 were called 11, 12 and nothing; 11 and 12 were one community."""
    before, _ = clustered(2, {11: 0, 12: 0, 13: 1})
    names = id_bytes([identity(11), identity(12), "0" * 32])
    assert start_of(names, before).tolist() == [0, 0, ALONE]
    nothing, _ = clustered(2, {})
    assert start_of(names, nothing).tolist() == [ALONE] * 3


def test_a_communitys_id_is_of_its_level_and_members() -> None:
    assert community_id(1, ["b", "a"]) == hashlib.sha256(b'[1,["a","b"]]\n').hexdigest()[:32]
    assert community_id(1, ["a", "b"]) == community_id(1, ["b", "a"])
    assert len({community_id(1, ["a"]), community_id(2, ["a"]), community_id(1, ["a", "b"])}) == 3
