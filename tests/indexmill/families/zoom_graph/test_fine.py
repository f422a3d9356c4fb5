"""The fine walk against its closed form (eq. 10)."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.zoom_graph import fine as zoom_fine
from indexmill.families.zoom_graph.fine import FineWalk, LocalGraphs, sentence_scores
from tests.deep import examples


def local(seed: int, sentences: int = 14, entities: int = 6) -> LocalGraphs:
    draw = np.random.default_rng(seed)
    vectors = draw.standard_normal((sentences, 12))
    owners, columns = (draw.random((sentences, entities)) < 0.4).nonzero()
    return LocalGraphs(
        (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float32),
        np.array([sentences]),
        np.arange(sentences),
        np.sort(draw.integers(0, 4, sentences)),
        owners,
        columns,
        np.array([entities]),
        draw.random(entities) + 0.01,
    )


def closed_form(graph: LocalGraphs, beta: float, sigma: float, omega: float, linear: bool = False) -> np.ndarray:
    n, h = len(graph.documents), len(graph.entities)
    apart = np.arange(n)[:, None] - np.arange(n)
    temporal = np.exp(-(apart**2) / (2 * sigma**2)) * (graph.documents[:, None] == graph.documents)
    cosine = graph.vectors.astype(np.float64) @ graph.vectors.T
    semantic = 1 + cosine if linear else np.exp(cosine)
    chunks = omega * temporal / temporal.sum(axis=0) + (1 - omega) * semantic / semantic.sum(axis=0)
    across = np.zeros((n, h))
    across[graph.owners, graph.columns] = 1
    matrix = np.zeros((n + h, n + h))
    matrix[:n, :n] = chunks / chunks.mean()
    if across.any():
        matrix[:n, n:] = across / across.mean()
        matrix[n:, :n] = matrix[:n, n:].T
    sums = matrix.sum(axis=0)
    matrix /= np.where(sums > 0, sums, 1)
    start = np.concatenate([np.zeros(n), graph.entities / graph.entities.sum()])
    return np.linalg.solve(np.eye(n + h) - (1 - beta) * matrix, beta * start)[:n]


def scores_of(graph: LocalGraphs, setting: FineWalk) -> np.ndarray:
    return sentence_scores(graph, setting)


def joined(graphs: list[LocalGraphs]) -> LocalGraphs:
    sentences, entities = (
        np.cumsum([0, *(int(getattr(one, name)[0]) for one in graphs)]) for name in ("counts", "named")
    )
    moved = [
        replace(one, rows=one.rows + above, owners=one.owners + above, columns=one.columns + before)
        for one, above, before in zip(graphs, sentences[:-1].tolist(), entities[:-1].tolist(), strict=True)
    ]
    return LocalGraphs(*(np.concatenate([getattr(one, field.name) for one in moved]) for field in fields(LocalGraphs)))


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.sampled_from([0.3, 0.9]), st.sampled_from([0.5, 2.0]), st.sampled_from([0.0, 0.4, 1.0])
)
def test_the_iteration_reaches_the_closed_form(seed: int, beta: float, sigma: float, omega: float) -> None:
    graph = local(seed)
    scores = scores_of(graph, FineWalk(beta, sigma, omega))
    assert np.allclose(scores, closed_form(graph, beta, sigma, omega), atol=1e-12)


def test_many_sentences_are_walked_without_their_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = local(3, sentences=40)
    monkeypatch.setattr(zoom_fine, "DENSE_SENTENCES", 10)
    scores = scores_of(graph, FineWalk(0.9, 1.5, 0.5))
    assert np.allclose(scores, closed_form(graph, 0.9, 1.5, 0.5, linear=True), atol=1e-8)


def test_ten_thousand_sentences_take_no_square_of_memory() -> None:
    graph = local(4, sentences=10_000)
    scores = scores_of(graph, FineWalk(0.9, 1.0, 0.5))
    assert scores.shape == (10_000,)
    assert (scores > 0).any()


@pytest.mark.parametrize(("semantic", "temporal"), [(True, False), (False, True), (False, False)])
def test_links_can_be_left_out(semantic: bool, temporal: bool) -> None:
    graph = local(5)
    scores = scores_of(graph, FineWalk(0.9, 1.0, 0.5, semantic, temporal))
    if semantic or temporal:
        assert np.allclose(scores, closed_form(graph, 0.9, 1.0, float(temporal)), atol=1e-12)
    else:
        assert (scores[np.setdiff1d(np.arange(14), graph.owners)] == 0).all()


def test_no_entity_no_scores() -> None:
    graph = local(6)
    none = replace(graph, entities=np.zeros_like(graph.entities))
    assert not scores_of(none, FineWalk(0.9, 1.0, 0.5)).any()


@examples(5, deep=25)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 150), st.integers(1, 9)), min_size=1, max_size=12))
def test_a_graph_gets_to_the_bit_what_it_gets_alone(drawn: list[tuple[int, int, int]]) -> None:
    graphs = [local(seed, sentences, entities) for seed, sentences, entities in drawn]
    setting = FineWalk(0.9, 1.0, 0.5)
    together = sentence_scores(joined(graphs), setting)
    assert np.array_equal(together, np.concatenate([scores_of(graph, setting) for graph in graphs]))


@pytest.mark.parametrize("sentences", [1, 2, 14, 40, 128])
def test_a_matrix_and_links_one_by_one_give_the_same(monkeypatch: pytest.MonkeyPatch, sentences: int) -> None:
    graph, setting = local(7, sentences), FineWalk(0.9, 1.0, 0.5)
    folded = scores_of(graph, setting)
    monkeypatch.setattr(zoom_fine, "_FOLDED", 0)
    assert np.allclose(scores_of(graph, setting), folded, atol=1e-14)
