"""Trees of layers: what is above and below each node, and which may be shown."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.retrieve.matrices import Sparse
from tests.deep import examples


def tree_of(leaves: int, layers: list[list[list[int]]]) -> LayeredTree:
    """layers: of each node, its members by their place in the layer below."""
    offsets = np.cumsum([0, leaves, *map(len, layers)])
    parents = np.full(offsets[-1], -1, np.int32)
    children: list[list[int]] = []
    for number, layer in enumerate(layers):
        for place, members in enumerate(layer):
            children.append([int(offsets[number]) + member for member in members])
            parents[children[-1]] = offsets[number + 1] + place
    indptr = np.cumsum([0, *map(len, children)])
    return LayeredTree(offsets, Sparse(indptr, np.array([row for rows in children for row in rows], np.int32)), parents)


def test_a_tree_tells_what_is_above_and_below() -> None:
    tree = tree_of(5, [[[0, 2, 4], [1, 3]], [[0]]])
    assert (tree.leaves, tree.height, tree.rows(1)) == (5, 2, range(5, 7))
    assert [tree.layer(row) for row in range(8)] == [0, 0, 0, 0, 0, 1, 1, 2]
    assert tree.roots().tolist() == [6, 7]
    assert (tree.members(7).tolist(), tree.members(6).tolist()) == ([5], [1, 3])
    assert (tree.ancestors(2), tree.ancestors(3), tree.ancestors(7)) == ([5, 7], [6], [])
    owners, leaves = tree.leaves_under(np.array([7, 3, 6]))
    assert (owners.tolist(), leaves.tolist()) == ([1, 2, 2, 0, 0, 0], [3, 1, 3, 0, 2, 4])
    assert tree.summed(np.array([1, 2, 3, 4, 5])).tolist() == [1, 2, 3, 4, 5, 9, 6, 9]


def test_one_forbidden_leaf_forbids_every_node_above_it() -> None:
    tree = tree_of(5, [[[0, 2, 4], [1, 3]], [[0, 1]]])
    allowed = tree.allowed_above(np.array([True, True, True, False, True]))
    assert allowed.tolist() == [True, True, True, False, True, True, False, False]
    assert tree.allowed_above(np.ones(5, np.bool_)).all()


@examples(20, deep=100)
@given(st.data())
def test_what_is_under_a_node_is_what_it_is_above_of(data: st.DataObject) -> None:
    leaves = count = data.draw(st.integers(0, 40), label="leaves")
    layers: list[list[list[int]]] = []
    while count > 1 and len(layers) < 4 and data.draw(st.booleans(), label="another layer"):
        homes = data.draw(st.lists(st.integers(0, count // 2), min_size=count, max_size=count))
        layers.append([[row for row in range(count) if homes[row] == home] for home in sorted(set(homes))])
        count = len(layers[-1])
    tree = tree_of(leaves, layers)
    by_number = tree.parents[: tree.offsets[-2]] - tree.offsets[1:-1].repeat(np.diff(tree.offsets[:-1]))
    again = LayeredTree.of_parents(tree.offsets, by_number.astype(np.uint8))
    assert np.array_equal(again.parents, tree.parents)
    assert np.array_equal(again.children.indptr, tree.children.indptr)
    assert np.array_equal(again.children.indices, tree.children.indices)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=leaves, max_size=leaves)), np.bool_)
    allowed, sizes = tree.allowed_above(chosen), tree.summed(np.ones(leaves, np.int64))
    for row in range(len(tree.parents)):
        under = sorted(tree.leaves_under(np.array([row]))[1].tolist())
        assert under == [one for one in range(leaves) if one == row or row in tree.ancestors(one)]
        assert allowed[row] == chosen[under].all()
        assert sizes[row] == len(under) > 0
    assert sorted(tree.leaves_under(tree.roots())[1].tolist()) == list(range(leaves))
