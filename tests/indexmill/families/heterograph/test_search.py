"""What a question is given of a heterograph (NodeRAG, section 2.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.heterograph import search as heterograph
from indexmill.families.heterograph.explanations import through
from indexmill.families.heterograph.parameters import HeterographParameters
from indexmill.families.heterograph.search import (
    EDGES,
    KINDS,
    Entries,
    Heterograph,
    PageRankNodes,
    WalkSteps,
    within_budget,
)
from indexmill.retrieve.matrices import Sparse
from indexmill.store.packs import open_pack, write_pack
from tests.deep import examples

NONE = np.empty(0, dtype=np.int64)

Pairs = Sequence[tuple[int, int]]


def rows(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def sparse(height: int, pairs: Pairs) -> Sparse:
    ordered = sorted(set(pairs))
    indptr = np.searchsorted([row for row, _ in ordered], np.arange(height + 1))
    return Sparse(indptr.astype(np.int64), np.array([column for _, column in ordered], dtype=np.int32))


def graph_of(sizes: tuple[int, ...], edges: Pairs, passages: Pairs = ()) -> Heterograph:
    """A graph of so many nodes of each kind, in the order of KINDS, with links of one kind."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    both = [pair for one, other in edges for pair in ((one, other), (other, one)) if one != other]
    links = sparse(int(offsets[-1]), both)
    return Heterograph(offsets, links, sparse(int(offsets[5]), passages), np.zeros(len(links.indices), np.uint8))


def small() -> Heterograph:
    """T 0 1, S 2 3 4, A 5, H 6, R 7, N 8 9, O 10. Passage 0 says unit 2, passage 1 the units 3 and 4.

    Unit 2 names 8, unit 3 names 8 and 9, unit 4 names 9; relation 7 leads from 8 to 9; 5 tells of 8; 6 is near to 2.
    """
    edges = [(0, 2), (1, 3), (1, 4), (2, 8), (3, 8), (3, 9), (4, 9), (8, 7), (7, 9), (8, 5), (2, 6), (6, 10)]
    passages = [(0, 0), (1, 1), (2, 0), (3, 1), (4, 1), (5, 0), (5, 1), (6, 0), (7, 1)]
    return graph_of((2, 3, 1, 1, 1, 2, 1), edges, passages)


def test_rows_and_kinds() -> None:
    graph = small()
    assert len(graph) == 11
    assert graph.kinds(np.arange(11)) == list("TTSSSAHRNNO")
    assert (graph.rows("S"), graph.rows("S", "H"), graph.rows("N", "O")) == (slice(2, 5), slice(2, 7), slice(8, 11))
    assert tuple("TSAHRNO") == KINDS


def test_a_walk_by_hand() -> None:
    """From entity 8, of degree 4 (units 2 and 3, relation 7, attribute 5), with alpha 0.5 and two steps.

    pi(1) = 1/2 on 8 and 1/8 on 2, 3, 7 and 5. pi(2): 8 has 1/2 + (1/8 / 3 + 1/8 / 3 + 1/8 / 2 + 1/8) / 2, its
    neighbours 1/4 * 1/4 = 1/16 each; 2 leads to 0 and 6, 3 to 1 and 9, 1/48 each; 7 to 9, 1/32.
    """
    (scores,) = small().walk([Entries.alike(rows(8))], WalkSteps(0.5, 2))
    expected = np.zeros(11)
    expected[8] = 1 / 2 + (1 / 24 + 1 / 24 + 1 / 16 + 1 / 8) / 2
    expected[[2, 3, 7, 5]] = 1 / 16
    expected[[0, 6, 1]] = 1 / 48
    expected[9] = 1 / 48 + 1 / 32
    assert scores == pytest.approx(expected)
    assert scores.sum() == pytest.approx(1)
    assert small().walk([Entries.alike(rows(2, 8))], WalkSteps(0.5, 0))[0][[2, 8]].tolist() == [0.5, 0.5]


def with_kinds(graph: Heterograph, kind_of: Callable[[int, int], str]) -> Heterograph:
    """The graph with a kind for each link, by its ends."""
    owners = np.arange(len(graph)).repeat(np.diff(graph.links.indptr)).tolist()
    ends = zip(owners, graph.links.indices.tolist(), strict=True)
    kinds = np.array([EDGES.index(kind_of(min(pair), max(pair))) for pair in ends], dtype=np.uint8)
    return replace(graph, edge_kinds=kinds)


def test_a_walk_by_kinds_passes_on_as_much_along_each_kind_of_links() -> None:
    """Entity 3 has the units 0, 1 and 2 by mention, and the attribute-like 4 alone by another kind."""
    star = graph_of((0, 3, 0, 0, 0, 2, 0), [(0, 3), (1, 3), (2, 3), (3, 4)])
    graph = with_kinds(star, lambda _, end: "same_as" if end == 4 else "mention")
    (scores,) = graph.walk([Entries.alike(rows(3))], WalkSteps(0.5, 1, by_kind=True))
    assert scores.tolist() == pytest.approx([1 / 12, 1 / 12, 1 / 12, 1 / 2, 1 / 4])
    (scores,) = graph.walk([Entries.alike(rows(3))], WalkSteps(0.5, 1))
    assert scores.tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 8, 1 / 2, 1 / 8])


def test_subjects_are_no_links_of_the_walk_that_the_paper_has() -> None:
    pair = graph_of((0, 2, 0, 0, 0, 1, 0), [(0, 2), (1, 2)])
    graph = with_kinds(pair, lambda one, _: "subject" if one == 1 else "mention")
    (scores,) = graph.walk([Entries.alike(rows(2))], WalkSteps(0.5, 1))
    assert scores.tolist() == [0.5, 0, 0.5]
    (scores,) = graph.walk([Entries.alike(rows(2))], WalkSteps(0.5, 1, by_kind=True))
    assert scores.tolist() == [0.1, 0.4, 0.5]


def test_entries_of_names_are_not_retrieved_and_texts_and_relations_are() -> None:
    (found,) = retrieve(small(), [rows(8)], [NONE])
    assert found.rows.tolist() == [2, 3, 5, 7, 0, 1, 6]  # as in the walk above; equal scores by row
    assert not found.entries.any()
    assert (np.diff(found.scores) <= 0).all()


def test_entries_by_vector_are_always_retrieved_and_others_up_to_a_bound_of_their_kind() -> None:
    setting = HeterographParameters(texts=1, units=1, attributes=0, high_level=0, relations=0)
    (found,) = retrieve(small(), [NONE], [rows(3, 4, 5)], setting)
    assert set(found.rows[found.entries].tolist()) == {3, 4, 5}
    assert found.rows[~found.entries].tolist() == [1]  # the best unit is an entry
    setting = HeterographParameters(texts=0, units=0, attributes=0, high_level=0, relations=0)
    (found,) = retrieve(small(), [rows(8, 10)], [rows(4)], setting)
    assert found.rows.tolist() == [4]


def test_a_question_without_entries_is_given_nothing() -> None:
    (found,) = retrieve(small(), [NONE], [NONE])
    assert (found.rows.tolist(), found.scores.tolist(), found.entries.tolist()) == ([], [], [])
    (found,) = retrieve(graph_of((0,) * 7, []), [NONE], [NONE])
    assert found.rows.tolist() == []
    assert list(retrieve(small(), [], [])) == []


def test_a_node_without_links_passes_nothing_on() -> None:
    graph = graph_of((0, 2, 0, 0, 0, 1, 0), [(1, 2)])
    (found,) = retrieve(graph, [NONE], [rows(0, 1)])
    assert dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True)) == {
        0: 0.25,
        1: pytest.approx(0.25 + 0.5 * 0.25),
    }


def test_what_comes_from_a_passage_that_is_not_allowed_takes_no_part() -> None:
    graph = small()
    allowed = graph.allowed(np.array([False, True]))
    assert np.flatnonzero(~allowed).tolist() == [0, 2, 5, 6, 10]  # 5 is made of both passages, 10 the title of 6
    assert graph.allowed(np.array([True, True])).all()
    (found,) = retrieve(graph, [rows(8, 10)], [rows(2, 4)], allowed=allowed)
    without = [(1, 3), (1, 4), (3, 8), (3, 9), (4, 9), (8, 7), (7, 9)]
    (alone,) = retrieve(graph_of((2, 3, 1, 1, 1, 2, 1), without), [rows(8)], [rows(4)])
    assert np.array_equal(found.rows, alone.rows)
    assert np.array_equal(found.scores, alone.scores)


def test_a_name_is_not_allowed_for_its_link_to_another_name() -> None:
    """Text 0 has the unit 2 of the name 4, text 1 the unit 3 of the name 5; both names are nearly the same."""
    graph = graph_of((2, 2, 0, 0, 0, 2, 0), [(0, 2), (1, 3), (2, 4), (3, 5), (4, 5)], [(0, 0), (1, 1), (2, 0), (3, 1)])
    assert graph.allowed(np.array([True, False])).tolist() == [True, False, True, False, True, False]


def test_what_spells_names_in_a_way_that_a_reader_may_not_see_is_not_shown() -> None:
    graph = small()
    for plain, hidden in (([True, True], []), ([True, False], [5]), ([False, True], [5, 6, 10])):
        shown = graph.showable(np.ones(len(graph), dtype=np.bool_), np.array(plain))
        assert np.flatnonzero(~shown).tolist() == hidden  # 5 is made of both passages, 10 the title of 6
    few = graph.allowed(np.array([True, False]))
    assert not graph.showable(few, np.array([True, True]))[~few].any()


def test_a_relation_is_allowed_where_one_of_its_passages_is() -> None:
    graph = graph_of((2, 0, 1, 0, 1, 0, 0), [], [(0, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)])
    assert graph.allowed(np.array([True, False])).tolist() == [True, False, False, True]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]]:
    """A graph of up to three nodes of each kind with any links, and the entries of some questions."""
    sizes = tuple(draw(st.lists(st.integers(0, 3), min_size=7, max_size=7)))
    total, upto = sum(sizes), np.cumsum(sizes)
    node = st.integers(0, max(total - 1, 0))
    edges = draw(st.lists(st.tuples(node, node), max_size=40)) if total else []
    near, named = range(upto[0], upto[3]), range(upto[4], upto[6])
    asked = []
    for _ in range(draw(st.integers(1, 5))):
        chosen = [draw(st.lists(st.sampled_from(some), max_size=4)) if len(some) else [] for some in (named, near)]
        asked.append(tuple(np.array(sorted(set(one)), dtype=np.int64) for one in chosen))
    return graph_of(sizes, edges), asked


def retrieve(
    graph: Heterograph,
    named: Sequence[np.ndarray],
    near: Sequence[np.ndarray],
    setting: HeterographParameters | None = None,
    allowed: np.ndarray | None = None,
) -> Iterator[PageRankNodes]:
    """The nodes of each question, as with ``preset: paper``, from the rows that it names and the nearest ones."""
    setting = setting or HeterographParameters()
    starts = graph.starts(named, near, allowed)
    how = WalkSteps(setting.restart, setting.steps, allowed)
    walked = (scores for _, tile in graph.tiles(starts, how) for scores in tile)
    for entries, scores in zip(starts, walked, strict=True):
        yield graph.chosen(entries.rows, scores, setting.most())


def same(found: list[PageRankNodes], other: list[PageRankNodes]) -> bool:
    both = zip(found, other, strict=True)
    return all(np.array_equal(one, two) for pair in both for one, two in zip(*pair, strict=True))


@examples(20, deep=100)
@given(graphs(), st.floats(0.05, 0.95), st.integers(0, 4))
def test_a_walk_is_the_formula_with_dense_matrices(
    drawn: tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]], alpha: float, steps: int
) -> None:
    graph, asked = drawn
    size = len(graph)
    matrix = np.zeros((size, size))
    owners = np.arange(size).repeat(np.diff(graph.links.indptr))
    matrix[owners, graph.links.indices] = 1
    matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    starts = [np.unique(np.concatenate(both)) for both in asked]
    found = graph.walk([Entries.alike(one) for one in starts], WalkSteps(alpha, steps))
    for entries, scores in zip(starts, found, strict=True):
        p = np.zeros(size)
        p[entries] = 1 / max(len(entries), 1)
        pi = p
        for _ in range(steps):
            pi = alpha * p + (1 - alpha) * matrix.T @ pi
        assert scores == pytest.approx(pi)


@pytest.mark.slow
@given(graphs())
def test_a_question_gets_in_a_batch_what_it_gets_alone(
    drawn: tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]],
) -> None:
    graph, asked = drawn
    setting = HeterographParameters(texts=2, units=1, steps=3)
    named, near = zip(*asked, strict=True)
    together = list(retrieve(graph, named, near, setting))
    alone = [found for one, other in asked for found in retrieve(graph, [one], [other], setting)]
    assert same(together, alone)


@settings(max_examples=40)
@given(graphs(), st.integers(1, 9), st.integers(1, 60))
def test_bounds_of_memory_leave_no_trace(
    drawn: tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]], links: int, cells: int
) -> None:
    graph, asked = drawn
    named, near = zip(*asked, strict=True)
    expected = list(retrieve(graph, named, near))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heterograph, "_LINKS", links)
        patch.setattr(heterograph, "_TILE", cells)
        assert same(list(retrieve(graph, named, near)), expected)


@examples(20, deep=100)
@given(graphs(), st.integers(0, 3))
def test_what_is_retrieved_is_of_the_right_kinds(
    drawn: tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]], most: int
) -> None:
    graph, asked = drawn
    setting = HeterographParameters(texts=most, units=most, attributes=most, high_level=most, relations=most)
    named, near = zip(*asked, strict=True)
    for (names, vectors), found in zip(asked, retrieve(graph, named, near, setting), strict=True):
        assert set(found.rows[found.entries].tolist()) == set(vectors.tolist())
        kinds = graph.kinds(found.rows)
        assert not {"N", "O"} & set(kinds)
        added = [kind for kind, entry in zip(kinds, found.entries.tolist(), strict=True) if not entry]
        assert all(added.count(kind) <= most for kind in KINDS)
        assert (np.lexsort((found.rows, -found.scores)) == np.arange(len(found.rows))).all()
        assert len(set(found.rows.tolist())) == len(found.rows)
        assert (found.scores > 0).all()
        (scores,) = graph.walk([Entries.alike(np.union1d(names, vectors))], WalkSteps(setting.restart, setting.steps))
        assert np.array_equal(scores[found.rows], found.scores)
        for kind in KINDS[:5]:  # none that is left out is better than one that was added
            own = np.arange(len(graph))[graph.rows(kind)]
            left = np.setdiff1d(own, found.rows)
            taken = [row for row, entry in zip(found.rows, found.entries, strict=True) if row in own and not entry]
            if taken and len(left):
                assert scores[left].max() <= scores[taken].min()


@examples(20, deep=100)
@given(graphs(), st.floats(0.05, 0.95), st.integers(0, 3), st.data())
def test_a_score_is_what_neighbours_passed_on_and_what_returned(
    drawn: tuple[Heterograph, list[tuple[np.ndarray, np.ndarray]]], restart: float, steps: int, data: st.DataObject
) -> None:
    graph, asked = drawn
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), dtype=np.bool_)
    mask = data.draw(st.sampled_from((None, allowed)))
    starts = graph.starts(*zip(*asked, strict=True), mask)
    every = np.arange(len(graph))
    how = WalkSteps(restart, steps, mask)
    walks = (scores for _, tile in graph.tiles(starts, how) for scores in tile)
    told = through(graph, starts, [every] * len(starts), how, len(graph))
    alone = [next(through(graph, [one], [every], how, len(graph))) for one in starts]
    for entries, scores, found, again in zip(starts, walks, told, alone, strict=True):
        returned = np.zeros(len(graph))
        returned[entries.rows] = (restart if steps else 1) * entries.shares
        assert np.bincount(found.places, found.amounts, len(graph)) + returned == pytest.approx(scores)
        assert (found.amounts > 0).all()
        assert mask is None or mask[found.senders].all()
        assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
        assert (np.lexsort((found.senders, -found.amounts, found.places)) == np.arange(len(found.places))).all()


def test_only_the_neighbours_that_passed_on_most_are_told() -> None:
    """Two steps from entity 8, as in the walk by hand: unit 3 has 1/16 of it, relation 7 twice what unit 2 has."""
    (found,) = through(small(), [Entries.alike(rows(8))], [rows(8, 0)], WalkSteps(0.5, 2), 2)
    assert found.places.tolist() == [0, 0, 1]
    assert found.senders.tolist() == [5, 7, 2]
    assert found.amounts.tolist() == pytest.approx([1 / 16, 1 / 32, 1 / 48])


def test_texts_without_a_bound_are_all_that_the_walk_reaches() -> None:
    graph = graph_of((14, 1, 0, 0, 0, 0, 0), [(row, 14) for row in range(14)])
    assert [len(found.rows) for found in retrieve(graph, [NONE], [rows(14)])] == [15]
    (found,) = retrieve(graph, [NONE], [rows(14)], HeterographParameters(texts=3))
    assert found.rows.tolist() == [14, 0, 1, 2]


def walked(entries: str) -> PageRankNodes:
    """One node for each letter, best first; e for an entry."""
    return PageRankNodes(
        np.arange(len(entries)),
        np.linspace(1, 0.5, len(entries)),
        np.array([one == "e" for one in entries], dtype=bool),
    )


def test_a_budget_is_spent_on_entries_first() -> None:
    assert within_budget(walked("weww"), [10, 10, 10, 10], 10, 25) == [0, 1]
    assert within_budget(walked("wwwe"), [10, 10, 10, 10], 10, 10) == [3]
    assert within_budget(walked("wwwe"), [10, 40, 10, 10], 10, 30) == [0, 2, 3]  # the long one is passed over
    assert within_budget(walked("wwwe"), [10, 40, 10, 10], 2, None) == [0, 3]
    assert within_budget(walked("wwwe"), [10, 40, 10, 10], 10, None) == [0, 1, 2, 3]
    assert within_budget(walked("e"), [10], 1, 9) == []
    assert within_budget(walked(""), [], 5, None) == []


def test_a_graph_is_what_a_pack_holds_of_it(tmp_path: Path) -> None:
    for name, graph in (("small", small()), ("one", graph_of((1, 0, 0, 0, 0, 0, 0), []))):
        write_pack(tmp_path / name, graph.arrays())
        opened = Heterograph.of(open_pack(tmp_path / name))
        assert same(list(retrieve(opened, [rows(0)], [rows(0)])), list(retrieve(graph, [rows(0)], [rows(0)])))
        for array, values in graph.arrays().items():
            assert np.array_equal(opened.arrays()[array], values)
    arrays = small().arrays()
    with pytest.raises(ValueError, match="a graph of 11 nodes has kinds that begin at"):
        Heterograph.of(arrays | {"offsets": arrays["offsets"][:-1]})
    for array in ("passages.indptr", "links.kinds"):
        with pytest.raises(ValueError, match="a graph of 11 nodes has kinds that begin at"):
            Heterograph.of(arrays | {array: arrays[array][:-1]})
