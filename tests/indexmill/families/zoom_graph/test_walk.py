"""The coarse walk against its definition: eq. 3 on the whole matrix of eq. 1, one question at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.zoom_graph import walk as zoom_walk
from indexmill.families.zoom_graph.walk import CsrBlock, QuestionLinks, Shared, Walk, WalkResult, shared


def block(dense: np.ndarray) -> CsrBlock:
    rows, columns = dense.nonzero()
    indptr = np.concatenate([[0], np.bincount(rows, minlength=len(dense)).cumsum()])
    return CsrBlock(indptr.astype(np.int64), columns.astype(np.int32), dense[rows, columns])


def dense(graph: Shared) -> np.ndarray:
    n = len(graph.sums)
    made = np.zeros((n, n))
    made[np.arange(n).repeat(np.diff(graph.indptr)), graph.indices] = graph.weights
    return made


def world(seed: int, n: int = 9, m: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    documents = np.triu(np.exp(draw.random((n, n))) * (draw.random((n, n)) < 0.3), 1)
    contents = (draw.random((n, m)) < 0.3) * draw.choice([1.0, 8.0], (n, m))
    return documents + documents.T, contents, np.zeros((m, m))


def made(seed: int, scale: zoom_walk.Scale = "cells") -> Shared:
    documents, contents, entities = world(seed)
    return shared(block(documents), block(contents), block(entities), contents.shape[1], scale)


def links(seed: int, nodes: int) -> QuestionLinks:
    draw = np.random.default_rng(seed)
    weights = draw.random(nodes) * (draw.random(nodes) < 0.5)
    (linked,) = weights.nonzero()
    return QuestionLinks(np.zeros(len(linked), dtype=np.int64), linked, weights[linked])


def walk(
    graph: Shared, question: QuestionLinks, steps: int, restart: float, follow: float = 0.0
) -> tuple[np.ndarray, float]:
    """Where one question's walk ends: the scores of all nodes, and what the question holds."""
    walked = Walk(graph, 1).walk(question, 1, steps, restart, follow)
    return scores(graph, walked, 0), float(walked.remaining[0])


def scores(graph: Shared, walked: WalkResult, question: int) -> np.ndarray:
    """The scores of all nodes."""
    nodes = np.arange(len(graph.sums))
    return walked.of_nodes(np.full_like(nodes, question), nodes)


def by_definition(graph: Shared, question: QuestionLinks, steps: int, restart: float) -> np.ndarray:
    nodes = len(graph.sums)
    matrix = np.zeros((nodes + 1, nodes + 1))
    matrix[1:, 1:] = dense(graph)
    matrix[0, question.nodes + 1] = matrix[question.nodes + 1, 0] = question.weights
    sums = matrix.sum(axis=0)
    matrix = matrix / np.where(sums > 0, sums, 1.0)
    score = start = np.eye(nodes + 1)[0]
    for _ in range(steps):
        score = (1 - restart) * matrix @ score + restart * start
    return score


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["cells", "links"]), st.booleans())
def test_the_matrix_has_all_blocks_at_one_average_weight(seed: int, scale: zoom_walk.Scale, alike: bool) -> None:
    documents, contents, entities = world(seed)
    if alike:
        entities = world(seed + 1, n=7)[0]
    linked = int((contents.sum(axis=0) > 0).sum())
    graph = shared(block(documents), block(contents), block(entities), linked, scale)
    assert np.array_equal(np.diff(graph.indptr), (dense(graph) != 0).sum(axis=1))

    def scaled(of: np.ndarray, cells: int) -> np.ndarray:
        over = np.count_nonzero(of) if scale == "links" else cells
        return of / (of.sum() / over if of.any() else 1.0)

    across = scaled(contents, 9 * linked)
    whole = np.block([[scaled(documents, 81), across], [across.T, scaled(entities, linked**2)]])
    assert np.allclose(dense(graph), whole, rtol=1e-12)
    assert np.allclose(graph.sums, whole.sum(axis=0), rtol=1e-12)


def test_many_columns_are_put_in_order() -> None:
    columns = np.random.default_rng(5).integers(0, 300_000, 5_000).astype(np.int32)
    assert np.array_equal(zoom_walk._by_column(columns), columns.argsort(kind="stable"))
    assert np.array_equal(zoom_walk._by_column(columns % 9), (columns % 9).argsort(kind="stable"))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 8), st.sampled_from([0.2, 0.5, 0.8]))
def test_the_decoupled_walk_is_the_walk_on_the_whole_matrix(seed: int, steps: int, restart: float) -> None:
    graph = made(seed)
    question = links(seed + 1, 16)
    score, asked = walk(graph, question, steps, restart)
    if len(question.nodes):
        expected = by_definition(graph, question, steps, restart)
        assert np.allclose([asked, *score], expected, atol=1e-12)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_scores_add_up_to_one(seed: int, steps: int) -> None:
    graph, question = made(seed), links(seed + 1, 16)
    score, asked = walk(graph, question, steps, 0.8)
    # A node that the walk reaches has a link back: no column on its way is empty.
    assert score.sum() + asked == pytest.approx(1.0, abs=1e-12)
    assert (score >= 0).all()


def test_what_is_not_followed_is_lost_and_nothing_else() -> None:
    graph, question = made(3), links(4, 16)
    whole, _ = walk(graph, question, 5, 0.8)
    less, _ = walk(graph, question, 5, 0.8, follow=1e-3)
    assert (less <= whole + 1e-15).all()
    assert 0 < whole.sum() - less.sum() < 5 * 16 * 1e-3


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 20), min_size=2, max_size=5), st.sampled_from([0.0, 1e-3, 0.05]))
def test_questions_that_walk_together_end_where_each_ends_alone(seed: int, seeds: list[int], follow: float) -> None:
    graph = made(seed)
    alone = [links(one, 16) for one in seeds]
    together = QuestionLinks(
        np.arange(len(seeds)).repeat([len(one.nodes) for one in alone]),
        np.concatenate([one.nodes for one in alone]),
        np.concatenate([one.weights for one in alone]),
    )
    walks = Walk(graph, len(seeds))
    for _ in range(2):  # what one walk leaves behind is nothing to the next
        walked = walks.walk(together, len(seeds), 5, 0.6, follow)
        for i, one in enumerate(alone):
            score, held = walk(graph, one, 5, 0.6, follow)
            assert scores(graph, walked, i).tolist() == score.tolist()
            assert walked.remaining[i] == held
            cut = together.slice(i, i + 1)
            assert cut.nodes.tolist() == one.nodes.tolist()
            assert cut.weights.tolist() == one.weights.tolist()


@pytest.mark.parametrize("scale", ["cells", "links"])
def test_blocks_have_the_same_average_weight(scale: zoom_walk.Scale) -> None:
    matrix = dense(made(7, scale))
    n = len(world(7)[0])
    for part in (matrix[:n, :n], matrix[:n, n:], matrix[n:, :n]):
        assert part.sum() / (part.size if scale == "cells" else np.count_nonzero(part)) == pytest.approx(1.0)
    assert (matrix == matrix.T).all()
    assert np.allclose(matrix.sum(axis=0), made(7, scale).sums)


def test_a_document_that_is_left_out_is_not_walked_through() -> None:
    graph = made(8)
    gone = np.arange(9) == 2
    less = graph.without(gone)
    matrix = dense(less)
    assert not matrix[2].any()
    assert not matrix[:, 2].any()
    rest = np.arange(16) != 2
    assert (matrix[np.ix_(rest, rest)] == dense(graph)[np.ix_(rest, rest)]).all()


def test_a_question_without_links_stays_where_it_is() -> None:
    nothing = QuestionLinks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    score, asked = walk(made(9), nothing, 5, 0.8)
    assert (score.sum(), asked) == (0.0, 1.0)
