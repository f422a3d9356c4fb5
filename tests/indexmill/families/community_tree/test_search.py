"""The community tree as arrays: what is under what, what may be shown, and what nodes say for passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.families.community_tree.entities import BESIDE, NAMED, Gains, ScopeMasks, entities_of, gains, with_gains
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.ranking import evidence
from indexmill.families.community_tree.search import CommunityTree, LevelNodes, in_one_list, nodes_of
from indexmill.retrieve.columns import paired, parts
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.linking import Link, Links
from indexmill.retrieve.matrices import Sparse
from tasks.families.community_tree.chnsw import ChnswLevel, build_chnsw
from tests.deep import examples

NOTHING = Gains(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int8))


def sparse(links: list[list[int]]) -> Sparse:
    indptr = np.cumsum([0, *map(len, links)]).astype(np.int64)
    return Sparse(indptr, np.array([one for its in links for one in its], np.int32))


def tree_of(
    levels: list[list[list[int]]], passages: list[list[int]], vectors: np.ndarray | None = None
) -> CommunityTree:
    """levels: of each, the members of its communities by their place in the level below."""
    offsets = np.cumsum([0, len(passages), *map(len, levels)]).astype(np.int64)
    parents = np.full(offsets[-1], -1, np.int32)
    children = []
    for number, level in enumerate(levels):
        for place, members in enumerate(level):
            rows = sorted(int(offsets[number]) + member for member in members)
            parents[rows] = offsets[number + 1] + place
            children.append(rows)
    if vectors is None:
        vectors = np.eye(max(int(offsets[-1]), 1), dtype=np.float32)[: offsets[-1]]
    held = [vectors[offsets[number] : offsets[number + 1]] for number in range(len(offsets) - 1)]
    built = build_chnsw([ChnswLevel([f"{row:04}" for row in range(len(one))], one) for one in held])
    return CommunityTree(
        offsets=offsets,
        children=sparse(children),
        parents=parents,
        passages=sparse(passages),
        relations=sparse([[] for _ in passages]),
        relation_rows=np.empty(0, np.int32),
        quality=np.zeros((len(levels), 2)),
        index=built.index,
        index_rows=built.sources + np.repeat(offsets[:-1], np.diff(offsets)),
        about=np.ones(sum(map(len, passages)), np.uint8),
    )


def a_tree() -> CommunityTree:
    """Five entities; communities 5 = {0, 1}, 6 = {2, 3}, 7 = {4}; above them 8 = {5, 6}, 9 = {7}."""
    return tree_of([[[0, 1], [2, 3], [4]], [[0, 1], [2]]], [[0, 1], [1], [2], [2, 3], [4]])


def found(*levels: list[tuple[int, float]]) -> list[LevelNodes]:
    """The nodes of one question."""
    return [
        LevelNodes(
            np.array([[row for row, _ in level]], np.int64), np.array([[score for _, score in level]], np.float32)
        )
        for level in levels
    ]


def test_nodes_count_their_entities_and_the_passages_of_these() -> None:
    tree = a_tree()
    assert tree.passages_under(8).tolist() == [0, 1, 2, 3]
    assert tree.passages_under(5).tolist() == [0, 1]
    assert tree.sizes.tolist() == [1, 1, 1, 1, 1, 2, 2, 1, 4, 1]
    assert tree.extractions.tolist() == [2, 1, 1, 2, 1, 3, 3, 1, 6, 1]
    assert tree.single.nonzero()[0].tolist() == [7, 9]


def test_one_forbidden_passage_forbids_every_node_above_it() -> None:
    allowed = a_tree().allowed(np.array([True, False, True, True, True]))
    assert allowed.nonzero()[0].tolist() == [2, 3, 4, 6, 7, 9]  # 0 and 1 tell of passage 1, and 5 and 8 of them


def test_a_named_entity_leads_through_no_forbidden_passage_and_to_no_node_that_one_shaped() -> None:
    tree = a_tree()

    def reached(named: int, *forbidden: int) -> list[int]:
        passages = np.ones(5, np.bool_)
        passages[list(forbidden)] = False
        limits = ScopeMasks(passages, tree.allowed(passages)) if forbidden else None
        setting, about = CommunityTreeParameters(), tree.index.vectors[tree.index_places].astype(np.float32)
        residual = (about.sum(axis=0) / np.linalg.norm(about.sum(axis=0)))[None].astype(np.float32)
        return parts(gains(tree, [(Link(named, "x", 1.0),)], residual, setting, limits).pairs)[1].tolist()

    assert (reached(0), reached(2)) == ([0, 1], [2, 3])
    assert (reached(0, 1), reached(0, 0)) == ([0], [0, 1])
    assert (reached(2, 3), reached(2, 4)) == ([2], [2, 3])  # 3 tells of passage 3


def test_an_entity_without_passages_is_not_shown_under_a_filter() -> None:
    tree = tree_of([[[0], [1]]], [[0], []])
    assert tree.allowed(np.ones(1, np.bool_)).tolist() == [True, False, True, False]


# What nodes say for passages


def test_the_score_of_a_passage_by_hand() -> None:
    # Entity 0 is in passages 0 and 1, entity 1 in 1; community 5 has three extractions: 0 once, 1 twice.
    setting = CommunityTreeParameters(community_weight=0.4, spread=1.0)
    levels = found([(0, 0.8), (1, 0.5), (2, 0.2), (-1, 0.0)], [(5, 0.6), (6, 0.1)], [(9, 0.2)])
    told = evidence(a_tree(), levels, NOTHING, setting)
    assert told.pairs.tolist() == [0, 0, 1, 1, 1]
    assert told.nodes.tolist() == [0, 5, 0, 1, 5]  # what is no nearer than the least near entity says nothing
    assert told.amounts == pytest.approx([0.6 / 2, 0.4 * 0.4 / 3, 0.6 / 2, 0.3, 0.4 * 0.4 * 2 / 3])


def test_spread_zero_counts_every_extraction_of_an_entity_alike() -> None:
    setting = CommunityTreeParameters(community_weight=3.0, spread=0.0)
    told = evidence(a_tree(), found([(3, 0.5), (0, 0.25)], [(6, 0.375), (5, 0.125)]), NOTHING, setting)
    assert list(zip(told.pairs.tolist(), told.nodes.tolist(), told.amounts.tolist(), strict=True)) == [
        (2, 3, 0.25),
        (2, 6, 0.25),  # two of three extractions
        (3, 3, 0.25),
        (3, 6, 0.125),
    ]


def test_wide_nodes_and_those_without_weight_say_nothing() -> None:
    levels = found([(0, 0.5), (1, 0.25)], [(5, 0.75), (7, 0.5), (6, 0.25)])
    setting = CommunityTreeParameters(widest=2)
    assert evidence(a_tree(), levels, NOTHING, setting).nodes.tolist() == [0, 0, 7]
    assert evidence(a_tree(), levels, NOTHING, replace(setting, community_weight=0)).nodes.tolist() == [0, 0]
    assert evidence(a_tree(), levels, NOTHING, replace(setting, widest=1)).nodes.tolist() == [7]
    assert evidence(a_tree(), levels, NOTHING, CommunityTreeParameters()).nodes.tolist() == [0, 5, 0, 5, 7]
    assert not len(evidence(a_tree(), [], NOTHING, setting).nodes)


def test_the_least_near_node_is_the_last_that_was_found() -> None:
    scores = np.array([[0.5, 0.25], [-0.5, 0.0], [0.0, 0.0]], np.float32)
    level = LevelNodes(np.array([[4, 2], [1, -1], [-1, -1]]), scores)
    assert level.least.tolist() == [0.25, -0.5, 0.0]


@examples(12, deep=60)
@given(st.data())
def test_what_is_said_for_a_question_does_not_depend_on_the_others(data: st.DataObject) -> None:
    tree = a_tree()
    questions = data.draw(st.integers(1, 5))
    levels = []
    for level, width in ((0, 3), (1, 2), (2, 2)):
        held = st.lists(st.sampled_from([-1, *tree.rows(level)]), min_size=width, max_size=width)
        rows = np.array([data.draw(held) for _ in range(questions)], np.int64)
        levels.append(LevelNodes(rows, (rows % 7 / 8).astype(np.float32)))
    setting = CommunityTreeParameters(spread=data.draw(st.sampled_from([0.0, 0.5, 1.0])))
    together = evidence(tree, levels, NOTHING, setting)
    for one in range(questions):
        alone = evidence(tree, [level.of(slice(one, one + 1)) for level in levels], NOTHING, setting)
        its = (together.pairs >= paired(np.array([one]), np.array([0]))[0]) & (
            together.pairs < paired(np.array([one + 1]), np.array([0]))[0]
        )
        assert (together.pairs[its] - paired(np.array([one]), np.array([0]))[0]).tolist() == alone.pairs.tolist()
        assert together.nodes[its].tolist() == alone.nodes.tolist()
        assert together.amounts[its].tobytes() == alone.amounts.tobytes()


# What a question finds by words


def knowing(about: Sequence[int] = (1, 1, 1, 1, 1)) -> tuple[CommunityTree, np.ndarray]:
    """Four entities: 0 is named, 1 and 2 stand beside it, 3 does not; the vectors of a question for each of 1 and 2."""
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0.6, 0.8], [0, 0, 1], [1, 0, 0]], np.float32)
    tree = tree_of([[[0, 1, 2, 3]]], [[0, 1], [0], [1], [2]], vectors)
    return replace(tree, about=np.array(about, np.uint8)), vectors[[1, 2]]


def links(*rows: int) -> Links:
    return tuple(Link(row, f"name {row}", 1.0) for row in rows)


def amounts(found: Gains) -> dict[tuple[int, int], tuple[float, int]]:
    asking, rows = parts(found.pairs)
    return {
        (question, row): (pytest.approx(amount, abs=1e-3), way)
        for question, row, amount, way in zip(
            asking.tolist(), rows.tolist(), found.amounts.tolist(), found.ways.tolist(), strict=True
        )
    }


def test_what_names_and_those_beside_them_gain_by_hand() -> None:
    tree, asked = knowing()
    rare, common = 1.0, 1 / np.log(np.e + 1)
    setting = CommunityTreeParameters(hop_weight=0.5)
    found = gains(tree, [links(0), links(3)], asked, setting)
    assert amounts(found) == {
        (0, 0): (common, NAMED),  # it is in two passages
        (0, 1): (0.5 * common, BESIDE),  # the nearest to the question
        (0, 2): (0.5 * common * 0.6, BESIDE),
        (1, 3): (rare, NAMED),  # nothing stands beside it
    }
    assert amounts(gains(tree, [links(0)], asked[1:], setting)) == {
        (0, 0): (common, NAMED),
        (0, 1): (0.5 * common * 0.6, BESIDE),
        (0, 2): (0.5 * common, BESIDE),
    }


def test_a_name_leads_on_through_passages_about_it_first() -> None:
    tree, asked = knowing(about=[1, 0, 0, 0, 0])  # passage 0 is about entity 0
    setting = CommunityTreeParameters(mention_weight=0.25)
    found = amounts(gains(tree, [links(0)], asked[1:], setting))
    common = 1 / np.log(np.e + 1)
    assert found[0, 1] == (common * 0.6, BESIDE)
    assert found[0, 2] == (common * 0.25, BESIDE)


def test_names_that_are_not_followed_lead_nowhere() -> None:
    tree, asked = knowing()
    for changes in ({"hop_weight": 0.0}, {"widest_hop": 1}):
        found = gains(tree, [links(0)], asked[:1], CommunityTreeParameters(**changes))
        assert parts(found.pairs)[1].tolist() == [0]
    assert parts(gains(tree, [links(0)], asked[:1], CommunityTreeParameters(hops=1)).pairs)[1].tolist() == [0, 1]
    for linked, weight in (((), 1.0), (links(0), 0.0)):
        assert not len(gains(tree, [linked], asked[:1], CommunityTreeParameters(name_weight=weight)).pairs)


def test_an_entity_counts_by_the_better_of_its_vector_and_its_gain() -> None:
    nearest = found([(4, 0.75), (2, 0.5), (0, 0.25)])[0]
    gained = Gains(np.array([1, 2]), np.array([0.5, 0.125]), np.array([NAMED, BESIDE], np.int8))
    known = entities_of(nearest, nearest.least, gained)
    assert parts(known.pairs)[1].tolist() == [0, 1, 2, 4]
    assert known.beyond.tolist() == [0.0, 0.375, 0.25, 0.5]  # the gain of 2, 0.75 * 0.125, is less than its cosine's
    best = with_gains(nearest, nearest.least, gained, 3)
    assert (best.rows.tolist(), best.scores.tolist()) == ([[4, 1, 2]], [[0.75, 0.625, 0.5]])
    few = with_gains(nearest, nearest.least, gained, 6)
    assert (few.rows.tolist(), few.scores[0, 3:].tolist()) == ([[4, 1, 2, 0, -1, -1]], [0.25, 0.0, 0.0])


def test_a_passage_about_a_named_entity_counts_more_than_one_that_mentions_it() -> None:
    tree, _ = knowing(about=[0, 1, 0, 0, 0])
    gained = Gains(np.array([0]), np.array([0.5]), np.array([NAMED], np.int8))
    setting = CommunityTreeParameters(mention_weight=0.25, spread=1.0, community_weight=0)
    told = evidence(tree, found([(3, 0.5), (1, 0.2)]), gained, setting)
    assert list(zip(told.pairs.tolist(), told.nodes.tolist(), strict=True)) == [(0, 0), (1, 0), (2, 3)]
    assert told.amounts == pytest.approx([0.8 * 0.5 * 0.25 / 2, 0.8 * 0.5 / 2, 0.3 * 0.25])


@examples(12, deep=60)
@given(st.data())
def test_what_a_question_gains_does_not_depend_on_the_others(data: st.DataObject) -> None:
    tree, asked = random_tree(40, seed=data.draw(st.integers(0, 5)))
    rows = st.lists(st.integers(0, 39), max_size=4, unique=True).map(sorted)
    linked = [links(*data.draw(rows)) for _ in asked] * 7  # more than go together
    together = gains(tree, linked, np.tile(asked, (7, 1)), CommunityTreeParameters(hops=3))
    for one, its in enumerate(linked):
        alone = gains(tree, [its], asked[one % len(asked)][None], CommunityTreeParameters(hops=3))
        same = together.of(one, one + 1)
        assert [column.tobytes() for column in same] == [column.tobytes() for column in alone]


def test_the_paper_asks_for_no_names_and_no_passages() -> None:
    paper = CommunityTreeParameters(preset="paper", k_level=3, name_weight=1.0, passages=7).applied()
    assert (paper.k_level, paper.name_weight, paper.hop_weight, paper.passages, paper.ef) == (3, 0, 0, 0, 1)
    assert CommunityTreeParameters(k_level=3).applied() == CommunityTreeParameters(k_level=3)


# Which nodes a question finds


def random_tree(entities: int, seed: int, dimension: int = 16) -> tuple[CommunityTree, np.ndarray]:
    """Groups of two or three, every fifth alone, and groups of these; vectors at random."""
    draw = np.random.default_rng(seed)

    def groups(count: int) -> list[list[int]]:
        cut = np.cumsum(draw.integers(1, 4, count))
        homes = cut.searchsorted(np.arange(count), side="right")
        return [np.flatnonzero(homes == one).tolist() for one in np.unique(homes)]

    levels = [groups(entities)]
    levels.append(groups(len(levels[0])))
    nodes = entities + len(levels[0]) + len(levels[1])
    vectors = draw.standard_normal((nodes + 12, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    passages = [sorted(set(draw.integers(0, 30, 2).tolist())) for _ in range(entities)]
    return tree_of(levels, passages, vectors[:nodes]), vectors[nodes:]


def exactly(tree: CommunityTree, level: int, asked: np.ndarray, shown: np.ndarray, k: int) -> list[tuple[int, float]]:
    own = np.array([row for row in tree.rows(level) if shown[row]])
    place = np.argsort(tree.index_rows)
    products = tree.index.vectors[place[own]].astype(np.float64) @ on_grid(asked).astype(np.float64)
    order = np.lexsort((place[own], -products))[:k]
    return [(int(own[at]), float(np.float32(products[at] / UNIT))) for at in order]


@pytest.mark.parametrize("k", [1, 5, 400])
def test_the_nearest_of_every_level_are_found_without_those_that_may_not(k: int) -> None:
    tree, asked = random_tree(300, seed=3)
    shown = ~tree.single & (np.arange(len(tree.parents)) % 3 > 0)
    levels = nodes_of(tree, asked, k, CommunityTreeParameters(ef=8), shown)
    assert len(levels) == 3
    for number, level in enumerate(levels):
        for one, question in enumerate(asked):
            rows = [row for row in level.rows[one].tolist() if row >= 0]
            expected = exactly(tree, number, question, shown, k)
            assert list(zip(rows, level.scores[one].tolist(), strict=False)) == expected
            assert level.scores[one][len(rows) :].tolist() == [0.0] * (k - len(rows))


def test_only_so_many_levels_are_searched() -> None:
    tree, asked = random_tree(60, seed=1)
    shown = ~tree.single
    every = nodes_of(tree, asked, 4, CommunityTreeParameters(), shown)
    for levels in (0, 1, 2, 9):
        some = nodes_of(tree, asked, 4, CommunityTreeParameters(levels=levels), shown)
        assert len(some) == min(levels, 2) + 1
        for one, other in zip(some, every, strict=False):
            assert one.rows.tolist() == other.rows.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("filtered", [False, True])
def test_a_batch_finds_for_each_question_what_it_finds_alone(filtered: bool) -> None:
    tree, asked = random_tree(2000, seed=5)  # more than are compared as a whole: the index is walked
    shown = ~tree.single & (np.arange(len(tree.parents)) % 40 == 0 if filtered else True)
    setting = CommunityTreeParameters(ef=16)
    together = nodes_of(tree, asked, 7, setting, shown)
    for one in range(len(asked)):
        for level, alone in zip(together, nodes_of(tree, asked[one : one + 1], 7, setting, shown), strict=True):
            assert level.rows[one].tobytes() == alone.rows[0].tobytes()
            assert level.scores[one].tobytes() == alone.scores[0].tobytes()


def test_no_nodes_are_found_in_an_empty_tree() -> None:
    empty = CommunityTree(
        offsets=np.array([0, 0]),
        children=sparse([]),
        parents=np.empty(0, np.int32),
        passages=sparse([]),
        relations=sparse([]),
        relation_rows=np.empty(0, np.int32),
        quality=np.empty((0, 2)),
        index=Chnsw(np.empty((0, 1), np.int16), np.array([0, 0]), np.array([0]), *[np.empty(0, np.int32)] * 3),
        index_rows=np.empty(0, np.int64),
        about=np.empty(0, np.uint8),
    )
    assert nodes_of(empty, np.ones((2, 64), np.float32), 5, CommunityTreeParameters(), np.ones(0, np.bool_)) == []
    assert (empty.height, empty.roots().tolist(), empty.sizes.tolist()) == (0, [], [])


def test_levels_are_one_list_by_score_ties_by_row() -> None:
    levels = found([(2, 0.8), (0, 0.5), (-1, 0.0)], [(6, 0.8), (5, 0.5)], [(8, 1.0)])
    assert in_one_list(levels, 0, 1.0)[0].tolist() == [8, 2, 6, 0, 5]
    rows, scores = in_one_list(levels, 0, 0.5)
    assert rows.tolist() == [2, 0, 6, 5, 8]
    assert scores.tolist() == pytest.approx([0.8, 0.5, 0.4, 0.25, 0.25])
    assert in_one_list([], 0, 1.0)[0].tolist() == []
