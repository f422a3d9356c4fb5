"""Retrieval over the Tri-graph: the paper's equations by hand, and what must hold for every graph."""

from __future__ import annotations

from dataclasses import replace
from math import e, log
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.tri_graph import search as tri_graph
from indexmill.families.tri_graph.parameters import PAPER, TriGraphParameters
from indexmill.families.tri_graph.search import Retrieved, TriGraph
from indexmill.retrieve.columns import parts
from indexmill.retrieve.linking import Links, link_known
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.retrieval_method import Encode, QueryBatch
from indexmill.text.canonical_names import NameIndex, canonical_name, entity_id
from tests.deep import examples
from tests.indexmill.small_snapshot import matrices_of

PLAIN = TriGraphParameters(agreement=0.0, bridge_residual=0.0, rank_residual=0.0)


def unit(*rows: list[float]) -> np.ndarray:
    """Unit rows ``(n, d + 1)`` whose inner products with (1, 0, ...) are their first numbers."""
    array = np.array(rows, dtype=np.float64)
    rest = np.sqrt(1.0 - (array**2).sum(axis=1, keepdims=True))
    return np.concatenate([array, rest], axis=1).astype(np.float32)


def graph(
    mentions: list[tuple[int, int, str]],
    sentence_passage: list[int],
    passages: np.ndarray,
    sentences: np.ndarray,
    parameters: TriGraphParameters = PLAIN,
    titles: list[tuple[int, str]] | None = None,
    **more: Any,
) -> tuple[TriGraph, list[str]]:
    """A graph from mentions (passage, sentence, name), and its names in row order."""
    rows = [(p, s, canonical_name(n), "name") for p, s, n in mentions]
    rows += [(p, -1, canonical_name(n), "title") for p, n in titles or []]
    names = sorted({row[2] for row in rows}, key=entity_id)
    linked = [(passage, sentence, names.index(name), kind) for passage, sentence, name, kind in rows]
    matrices = matrices_of(linked, sentence_passage, len(names), range(len(passages)))
    index = NameIndex(NameIndex.keys([entity_id(name) for name in names]))
    return TriGraph([passages], [sentences], matrices, index, parameters=parameters, **more), names


QUESTION = np.array([[1.0, 0.0]], dtype=np.float32)


def alpha(**changes: Any) -> tuple[TriGraph, list[str]]:
    """Alpha and Beta share a sentence of similarity 0.8, Beta and Gamma one of 0.4."""
    return graph(
        [(0, 0, "Alpha"), (0, 0, "Beta"), (1, 1, "Beta"), (1, 1, "Gamma")],
        [0, 1],
        unit([0.9], [0.3]),
        unit([0.8], [0.4]),
        replace(PLAIN, **changes),
    )


class Activation(NamedTuple):
    """An activated entity, and the sentence and the entity that it was reached from."""

    entity: int
    score: float
    level: int
    sentence: int | None = None
    source: int | None = None


def activations(found: Retrieved) -> tuple[Activation, ...]:
    """The activated entities by falling score, ties by row."""
    active = found.active
    order = (-active.scores).argsort(kind="stable")
    columns = (parts(active.pairs)[1], active.scores, active.levels, active.sentences, active.sources)
    return tuple(
        Activation(entity, score, level, None if sentence < 0 else sentence, None if source < 0 else source)
        for entity, score, level, sentence, source in zip(*(one[order].tolist() for one in columns), strict=True)
    )


def retrieve(
    tri: TriGraph, vectors: np.ndarray, questions: list[str], k: int, encode: Encode | None = None
) -> list[Retrieved]:
    batch = QueryBatch(questions, vectors, encode)
    return [found for tile in tri.tiles(batch, k) for found in tile]


def link(tri: TriGraph, question: str) -> Links:
    """The entities in passages that a question names."""
    return link_known([question], tri.names, lambda rows: tri.matrices.contained_in.degrees(rows) > 0)[0]


def with_parameters(tri: TriGraph, **changes: Any) -> TriGraph:
    return replace(tri, parameters=replace(tri.parameters, **changes))


def activated(found: Retrieved, names: list[str]) -> dict[str, tuple[float, int]]:
    return {names[a.entity]: (a.score, a.level) for a in activations(found)}


# Rarity of an entity in one passage is 1 / ln(e - 1 + 1) = 1; in two passages:
IN_TWO = 1 / log(e + 1)


def test_equation_3_links_equal_names_longest_first() -> None:
    tri, names = graph(
        [(0, 0, "Lord of the Rings"), (0, 0, "Rings"), (0, 0, "The Hague"), (0, 0, "river")],
        [0],
        unit([0.5]),
        unit([0.5]),
    )

    def linked(question: str) -> set[str]:
        return {names[link.entity] for link in link(tri, question)}

    assert linked("Who wrote the Lord Of The Rings' music?") == {"lord of the rings"}
    assert linked("who wrote lord of the rings?") == {"lord of the rings"}
    assert linked("Which Rings lie in the Hague?") == {"rings", "hague"}
    assert linked("which river is it?") == set()  # one common word is no name
    assert linked("Is the River long?") == {"river"}
    assert linked("") == set()


def test_equation_3_takes_the_nearest_name_for_an_unknown_one() -> None:
    tri, names = alpha()
    by_name = {"alpha": [1.0, 0.0], "beta": [0.0, 1.0], "gamma": [-1.0, 0.0]}
    vectors = np.array([by_name[name] for name in names], dtype=np.float32)
    tri = replace(tri, name_vectors=[vectors])
    asked: list[list[str]] = []

    def encode(wanted: list[str]) -> np.ndarray:
        asked.append(wanted)
        return np.array([[0.8, 0.6] if name == "alphaa" else [-0.6, -0.8] for name in wanted], dtype=np.float32)

    question = "Where is Alphaa or Nowhere, and is Beta there?"
    assert [names[link.entity] for link in retrieve(tri, QUESTION, [question], 2)[0].links] == ["beta"]
    links = retrieve(tri, QUESTION, [question], 2, encode)[0].links
    assert asked == [["alphaa", "nowhere"]]
    assert {names[link.entity]: (link.name, round(link.score, 4)) for link in links} == {
        "alpha": ("alphaa", 0.8),
        "beta": ("beta", 1.0),
    }
    assert retrieve(tri, QUESTION, ["Where is Beta?"], 2, encode)[0].links == link(tri, "Where is Beta?")
    assert len(asked) == 1


def test_equation_5_activates_over_sentences_until_the_threshold() -> None:
    tri, names = alpha()
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
    # Similarities are relative to the best touched first, 0.8. Beta: 1 * rarity(Alpha) * 0.8 / 0.8.
    assert activated(found, names) == {"alpha": (1.0, 1), "beta": (pytest.approx(1.0), 2)}
    # Gamma: 1 * sqrt(rarity(Beta)) * 0.4 / 0.8 = 0.44 is pruned at 0.6 and kept at 0.3.
    tri, names = alpha(activation_threshold=0.3)
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
    assert activated(found, names)["gamma"] == (pytest.approx(IN_TWO**0.5 * 0.5, abs=1e-6), 3)


def test_an_activation_names_the_sentence_that_bridged() -> None:
    tri, names = alpha(activation_threshold=0.3)
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
    by_name = {names[a.entity]: a for a in activations(found)}
    assert (by_name["alpha"].sentence, by_name["alpha"].source) == (None, None)
    assert (by_name["beta"].sentence, names[by_name["beta"].source or 0]) == (0, "alpha")
    assert (by_name["gamma"].sentence, names[by_name["gamma"].source or 0]) == (1, "beta")
    assert [link.name for link in found.links] == ["alpha"]


def test_equation_5_takes_the_best_path_or_adds_all() -> None:
    def score(reading: str) -> float:
        tri, names = graph(
            [(0, 0, "Alpha"), (0, 0, "Beta"), (1, 1, "Alpha"), (1, 1, "Beta")],
            [0, 1],
            unit([0.9], [0.3]),
            unit([0.8], [0.6]),
            replace(PLAIN, reading=reading, hops=1),
        )
        found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
        return activated(found, names)["beta"][0]

    assert score("max") == pytest.approx(IN_TWO**0.5 * 1.0, abs=1e-6)
    assert score("sum") == pytest.approx(IN_TWO**0.5 * (1.0 + 0.75), abs=1e-6)


def test_equations_6_and_7_rank_passages() -> None:
    tri, _ = alpha(steps=1)
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
    # Eq. 7, lambda = 1, W_p = 0.1: similarity scales to 1 and 0; ln(1 + N) = ln 2; L is 1 for Alpha, 2 for Beta.
    first = (1 + log(1 + log(2) + IN_TWO * log(2) / 2)) * 0.1
    second = log(1 + IN_TWO * log(2) / 2) * 0.1
    total = first + second + 1 + IN_TWO
    # Eq. 6, d = 0.5, one step: Alpha gives all to the first passage, Beta half to each.
    expected = [
        (0.5 * first + 0.5 * (1 + IN_TWO / 2)) / total,
        (0.5 * second + 0.5 * (IN_TWO / 2)) / total,
    ]
    assert found.passages.tolist() == [0, 1]
    assert found.scores == pytest.approx(expected, abs=1e-6)


def test_without_pagerank_the_start_ranks() -> None:
    tri, _ = alpha(pagerank=False)
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0]
    assert found.scores[1] == pytest.approx(log(1 + IN_TWO * log(2) / 2) * 0.1, abs=1e-6)


def test_without_activation_only_the_question_counts() -> None:
    tri, names = alpha(activation=False)
    assert activated(retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0], names) == {"alpha": (1.0, 1)}


def test_without_pruning_everything_reachable_is_active() -> None:
    tri, names = alpha(pruning=False, widest_entity=0)
    assert set(activated(retrieve(tri, QUESTION, ["Where is Alpha?"], 2)[0], names)) == {"alpha", "beta", "gamma"}


def test_greedy_and_beam_pass_fewer_sentences() -> None:
    mentions = [(0, s, n) for s in range(4) for n in ("Alpha", f"Target{s}")]
    sentences = unit([0.6], [0.9], [0.8], [0.7])

    def reached(**changes: Any) -> set[str]:
        tri, names = graph(mentions, [0] * 4, unit([0.5]), sentences, replace(PLAIN, hops=1, **changes))
        return set(activated(retrieve(tri, QUESTION, ["Where is Alpha?"], 1)[0], names)) - {"alpha"}

    assert reached() == {"target0", "target1", "target2", "target3"}
    assert reached(sentences_per_step=1) == {"target1"}
    assert reached(sentences_per_step=3) == {"target1", "target2", "target3"}
    assert reached(sentences_per_entity=2) == {"target1", "target2"}


def test_what_the_title_names_is_the_subject_of_every_sentence() -> None:
    tri, names = graph([(0, 1, "Tallow")], [0, 0], unit([0.5]), unit([0.5], [0.9]), titles=[(0, "Ada Venn")])
    found = retrieve(tri, QUESTION, ["Where was Ada Venn born?"], 1)[0]
    assert activated(found, names)["tallow"][1] == 2
    venn = names.index("ada venn")
    assert tri.matrices.contents.occurrences(np.arange(2))[tri.matrices.contents.indices == venn].tolist() == [8.0]


def test_rarity_counts_documents_and_not_their_passages() -> None:
    mentions = [(0, 0, 0, "name"), (1, 1, 0, "name"), (2, 2, 0, "name"), (2, 2, 1, "name")]
    matrices = matrices_of(mentions, range(3), 2, [7, 7, 4])
    assert matrices.documents.tolist() == [2, 1]
    assert matrices.spread(np.array([0, 1])).tolist() == [2, 1]


def test_a_question_that_names_nothing_gets_the_nearest_passages() -> None:
    tri, _ = alpha()
    found = retrieve(tri, QUESTION, ["what is this?"], 2)[0]
    assert found.dense
    assert found.passages.tolist() == [0, 1]
    assert found.scores == pytest.approx([0.9, 0.3])
    assert activations(found) == ()


def test_an_entity_of_dates_only_is_no_link() -> None:
    names = [entity_id("1956")]
    matrices = matrices_of([], [0], 1, [0])
    tri = TriGraph([unit([0.5])], [unit([0.5])], matrices, NameIndex(NameIndex.keys(names)))
    assert link(tri, "What happened in 1956?") == ()
    assert retrieve(tri, QUESTION, ["What happened in 1956?"], 3)[0].dense


def test_an_empty_graph_finds_nothing() -> None:
    matrices = matrices_of([], [], 0, [])
    empty = np.empty((0, 2), dtype=np.float32)
    tri = TriGraph([empty], [empty], matrices, NameIndex(np.array([], dtype=np.uint64)))
    assert len(retrieve(tri, QUESTION, ["Where is Alpha?"], 5)[0].passages) == 0
    assert retrieve(tri, np.empty((0, 2), dtype=np.float32), [], 5) == []


def test_ties_break_by_row() -> None:
    tri, _ = graph([(p, p, "Alpha") for p in range(4)], [0, 1, 2, 3], unit(*[[0.5]] * 4), unit(*[[0.5]] * 4))
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 3)[0]
    assert found.passages.tolist() == [0, 1, 2]
    assert len(set(found.scores.tolist())) == 1


def test_the_residual_query_ranks_what_the_name_would_hide() -> None:
    # Two passages mention Alpha alike; one looks like the name, the other like the rest of the question.
    name = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    passages = np.array([[0.8, 0.0, 0.6], [0.6, 0.3, np.sqrt(0.55)]], dtype=np.float32)
    question = np.array([[0.9, np.sqrt(0.19), 0.0]], dtype=np.float32)
    tri, _ = graph(
        [(0, 0, "Alpha"), (1, 1, "Alpha")],
        [0, 1],
        passages,
        passages,
        replace(PLAIN, agreement=1.0, similarity_weight=0.0),
        name_vectors=[name],
    )
    assert retrieve(tri, question, ["Where is Alpha?"], 2)[0].passages.tolist() == [0, 1]
    residual = with_parameters(tri, rank_residual=1.0)
    assert retrieve(residual, question, ["Where is Alpha?"], 2)[0].passages.tolist() == [1, 0]
    # The same where only some entities have vectors, and as before where this one has none.
    some = replace(residual, name_rows=np.array([0]))
    assert retrieve(some, question, ["Where is Alpha?"], 2)[0].passages.tolist() == [1, 0]
    other = replace(residual, name_rows=np.array([7]))
    assert retrieve(other, question, ["Where is Alpha?"], 2)[0].passages.tolist() == [0, 1]


def test_what_the_walk_does_not_reach_follows_by_similarity() -> None:
    tri, _ = graph(
        [(0, 0, "Alpha")],
        [0, 1, 2],
        unit([0.2], [0.5], [0.7]),
        unit([0.5], [0.5], [0.5]),
        replace(PLAIN, dense_passages=1),
    )
    found = retrieve(tri, QUESTION, ["Where is Alpha?"], 3)[0]
    assert found.passages.tolist() == [0, 2, 1]
    assert found.scores[2] == pytest.approx(0.5 - 1.0)


# --- for every graph ---


@st.composite
def graphs(draw: st.DrawFn) -> tuple[TriGraph, np.ndarray, list[str]]:
    """A random graph with its questions; vectors differ enough for every order to be clear."""
    seed = draw(st.integers(0, 2**32 - 1))
    chance = np.random.default_rng(seed)
    passages, entities = draw(st.integers(1, 12)), draw(st.integers(1, 10))
    of_passage = np.sort(np.concatenate([np.arange(passages), chance.integers(0, passages, draw(st.integers(0, 12)))]))
    count = draw(st.integers(1, 40))
    sentence = chance.integers(-1, len(of_passage), count)
    passage = np.where(sentence >= 0, of_passage[sentence], chance.integers(0, passages, count))
    names = sorted((f"entity {i}" for i in range(entities)), key=entity_id)
    kind = np.where(sentence >= 0, "name", chance.choice(["title", "part"], count))
    mentions = zip(passage, sentence, chance.integers(0, entities, count), kind, strict=True)
    matrices = matrices_of(list(mentions), of_passage.tolist(), entities, range(passages))

    def vectors(n: int) -> np.ndarray:
        values = np.abs(chance.normal(size=(n, 8)))
        return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)

    tri = TriGraph(
        [vectors(passages)],
        [vectors(len(of_passage))],
        matrices,
        NameIndex(NameIndex.keys([entity_id(name) for name in names])),
        [vectors(entities)],
        parameters=TriGraphParameters(
            activation_threshold=draw(st.sampled_from([0.0, 0.2, 0.5])),
            reading=draw(st.sampled_from(["max", "sum"])),
            dense_passages=draw(st.sampled_from([1, 3, 50])),
            widest_entity=draw(st.sampled_from([0, 2, 100])),
            sentences_per_entity=draw(st.sampled_from([0, 0, 0, 2])),
            sentences_per_step=draw(st.sampled_from([0, 0, 0, 1, 3])),
            pruning=draw(st.sampled_from([True, True, True, False])),
            pagerank=draw(st.sampled_from([True, True, True, False])),
        ),
        sentence_passage=draw(st.sampled_from([of_passage, of_passage.astype(np.int32), None])),
    )
    asked = [" and ".join(f"Entity {i}" for i in chance.integers(0, entities, n)) + "?" for n in (0, 1, 2, 3)]
    return tri, vectors(len(asked)), asked


def same(left: Retrieved, right: Retrieved) -> bool:
    return (
        left.passages.tobytes() == right.passages.tobytes()
        and left.scores.tobytes() == right.scores.tobytes()
        and (left.links, activations(left), left.dense) == (right.links, activations(right), right.dense)
    )


@pytest.mark.slow
@settings(max_examples=100)
@given(graphs(), st.integers(1, 15), st.integers(1, 9), st.sampled_from([1, 4, 16, 1 << 18]), st.randoms())
def test_a_question_gets_in_any_batch_what_it_gets_alone(
    case: tuple[TriGraph, np.ndarray, list[str]], k: int, tile: int, links: int, chance: Random
) -> None:
    tri, vectors, asked = case
    alone = [retrieve(tri, vectors[i : i + 1], asked[i : i + 1], k)[0] for i in range(len(asked))]
    order = [chance.randrange(len(asked)) for _ in range(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tri_graph, "QUESTION_TILE", tile)
        patch.setattr(tri_graph, "TILE_LINKS", links)
        together = retrieve(tri, vectors[order], [asked[i] for i in order], k)
    assert len(together) == len(order)
    for i, found in zip(order, together, strict=True):
        assert same(found, alone[i])


def test_questions_that_touch_much_go_in_smaller_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    mentions = [(p, p, name) for p in range(8) for name in ("Alpha", "Beta")] + [(8, 8, "Gamma")]
    tri, _ = graph(mentions, list(range(9)), unit(*[[0.5]] * 9), unit(*[[0.5]] * 9), replace(PLAIN, dense_passages=1))
    monkeypatch.setattr(tri_graph, "TILE_LINKS", 20)  # Alpha or Beta touch 16 contents
    light, heavy = "Where is Gamma?", "Where is Alpha?"
    asked = [light] * 6 + [heavy] + [light] * 30

    tiles = list(tri.tiles(QueryBatch(asked, np.repeat(QUESTION, len(asked), axis=0)), 3))
    sizes = [len(tile) for tile in tiles]
    assert sum(sizes) == len(asked)
    assert 1 < len(sizes) < len(asked) / 2
    found = [one for tile in tiles for one in tile]
    assert all(same(one, found[0]) for one, question in zip(found, asked, strict=True) if question == light)
    assert same(found[6], retrieve(tri, QUESTION, [heavy], 3)[0])
    assert [len(tile) for tile in tri.tiles(QueryBatch([heavy] * 3, np.repeat(QUESTION, 3, axis=0)), 3)] == [1, 1, 1]


@examples(12, deep=60)
@given(graphs(), st.integers(1, 15))
def test_results_are_whole_distinct_and_in_order(case: tuple[TriGraph, np.ndarray, list[str]], k: int) -> None:
    tri, vectors, asked = case
    passages = len(tri.passages[0])
    for found in retrieve(tri, vectors, asked, k):
        rows, scores = found.passages.tolist(), found.scores.tolist()
        assert len(rows) == len(set(rows)) == min(k, passages)
        assert all(0 <= row < passages for row in rows)
        assert sorted(zip([-s for s in scores], rows, strict=True)) == list(
            zip([-s for s in scores], rows, strict=True)
        )
        assert np.isfinite(found.scores).all()
    for few, many in zip(retrieve(tri, vectors, asked, 2), retrieve(tri, vectors, asked, 9), strict=True):
        assert many.passages[:2].tolist() == few.passages.tolist()
        for a in activations(found):
            if a.sentence is not None and a.source is not None:
                mentioned = set(tri.matrices.mentions.links(np.array([a.sentence]))[1].tolist())
                assert {a.entity, a.source} <= mentioned


@examples(8, deep=40)
@given(graphs())
def test_arrays_in_pieces_or_mapped_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[TriGraph, np.ndarray, list[str]]
) -> None:
    tri, vectors, asked = case

    def pieces(array: np.ndarray) -> list[np.ndarray]:
        folder: Path = tmp_path_factory.mktemp("arrays")
        cut = [array[: len(array) // 3], array[len(array) // 3 :]]
        for i, piece in enumerate(cut):
            np.save(folder / f"{i}.npy", piece)
        return [np.load(folder / f"{i}.npy", mmap_mode="r" if len(piece) else None) for i, piece in enumerate(cut)]

    split = replace(
        tri,
        passages=pieces(tri.passages[0]),
        sentences=pieces(tri.sentences[0]),
        name_vectors=pieces(tri.name_vectors[0]),
    )
    for left, right in zip(retrieve(tri, vectors, asked, 5), retrieve(split, vectors, asked, 5), strict=True):
        assert left.passages.tolist() == right.passages.tolist()
        assert left.scores == pytest.approx(right.scores, rel=1e-4)


def dense(matrix: Sparse, width: int) -> np.ndarray:
    full = np.zeros((len(matrix), width))
    rows, columns, places = matrix.links(np.arange(len(matrix)))
    full[rows, columns] = matrix.occurrences(places)
    return full


@examples(12, deep=60)
@given(graphs())
def test_activation_follows_equation_5_on_full_matrices(case: tuple[TriGraph, np.ndarray, list[str]]) -> None:
    tri, vectors, asked = case
    tri = with_parameters(
        tri,
        reading="max",
        bridge_residual=0.0,
        widest_entity=10**6,
        sentences_per_entity=0,
        sentences_per_step=0,
        pruning=True,
    )
    mentions = dense(tri.matrices.mentions, len(tri.matrices.contained_in))
    in_passages = np.maximum((dense(tri.matrices.contents, mentions.shape[1]) > 0).sum(axis=0), 1)
    rarity = 1 / np.log(e - 1 + in_passages)
    for vector, question in zip(vectors, asked, strict=True):
        found = retrieve(tri, vector[None], [question], 3)[0]
        if found.dense:
            continue
        a = np.zeros(mentions.shape[1])
        a[[link.entity for link in found.links]] = 1.0
        seeds, frontier = a > 0, a.copy()
        similarity = tri.sentences[0].astype(np.float64) @ vector
        similarity /= max(similarity[mentions @ (frontier > 0) > 0], default=1.0)
        for _ in range(tri.parameters.hops):
            level = np.minimum(similarity, 1.0) * (mentions * (frontier * rarity**0.5)).max(axis=1, initial=0.0)
            reached = (mentions * level[:, None]).max(axis=0)
            new = (a == 0) & (reached > tri.parameters.activation_threshold)
            a = np.where(seeds, a, np.where((a > 0) | new, np.maximum(a, reached), 0.0))
            frontier = np.where(new, reached, 0.0)
        expected = {i: score for i, score in enumerate(a) if score > 0}
        assert {x.entity: x.score for x in activations(found)} == pytest.approx(expected, rel=1e-5)


@given(st.data())
@examples(12, deep=60)
def test_matrices_count_mentions_in_any_order(data: st.DataObject) -> None:
    of_passage = sorted(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))
    rows = data.draw(
        st.lists(
            st.tuples(
                st.integers(-1, len(of_passage) - 1),
                st.integers(0, 3),
                st.integers(0, 4),
                st.sampled_from(["name", "title", "part"]),
            ),
            max_size=25,
        )
    )
    placed = [(of_passage[s] if s >= 0 else p, s, x, k if s < 0 or k != "title" else "name") for s, p, x, k in rows]
    mentions = np.zeros((len(of_passage), 5))
    contents = np.zeros((4, 5))
    for passage, sentence, entity, kind in placed:
        contents[passage, entity] += 1 if sentence >= 0 else 8
        if sentence >= 0:
            mentions[sentence, entity] = 1
        elif kind == "title":
            mentions[[s for s, p in enumerate(of_passage) if p == passage], entity] = 1

    matrices = matrices_of(placed, of_passage, 5, range(4))
    assert (dense(matrices.mentions, 5) == mentions).all()
    assert (dense(matrices.mentioned_in, len(of_passage)) == mentions.T).all()
    assert (dense(matrices.contents, 5) == contents).all()
    assert (dense(matrices.contained_in, 4) == contents.T).all()
    assert (matrices.strengths == contents.sum(axis=0)).all()
    again = matrices_of(placed[::-1], of_passage, 5, range(4))
    assert (again.contents.indices == matrices.contents.indices).all()
    assert (again.strengths == matrices.strengths).all()


def test_a_subject_is_linked_to_its_sentences_up_to_the_next_one() -> None:
    mentions = [(0, 0, 0, "subject"), (0, 2, 1, "subject"), (0, 1, 2, "name"), (1, 4, 0, "subject")]
    matrices = matrices_of(mentions, [0, 0, 0, 0, 1, 1], 3, range(2))
    linked = [matrices.mentioned_in.links(np.array([one]))[1].tolist() for one in range(3)]
    assert linked == [[0, 1, 4, 5], [2, 3], [1]]
    assert matrices.contents.counts is not None
    assert matrices.contents.counts.tolist() == [8, 8, 1, 8]


def test_the_paper_s_settings_stand_where_ours_are_left_as_they_are() -> None:
    paper = with_parameters(alpha()[0], preset="paper", damping=0.6, hops=2).parameters
    assert (paper.damping, paper.hops) == (0.6, 2)
    left = {name: value for name, value in PAPER.items() if name not in ("damping", "agreement")}
    assert {name: getattr(paper, name) for name in left} == left


def test_without_rarity_every_entity_tells_as_much() -> None:
    found, _ = alpha(rarity=False)
    assert found.rarity(np.arange(3)).tolist() == [1.0, 1.0, 1.0]
    assert with_parameters(found, rarity=True).rarity(np.arange(3)).min() < 1.0


def test_the_threshold_falls_from_one_iteration_to_the_next() -> None:
    """Gamma is reached by the second iteration, with half of what Beta, in two passages, passes on."""

    def active(**changes: Any) -> set[str]:
        found, names = alpha(activation_threshold=0.6, **changes)
        (answer,) = retrieve(found, QUESTION, ["What is Alpha?"], 2)
        return {names[one.entity] for one in activations(answer)}

    assert "gamma" not in active()
    assert "gamma" in active(threshold_factor=0.5)
    assert "gamma" in active(threshold_step=0.3)


@pytest.mark.parametrize("agreement", [0.0, 0.5])
def test_an_encoder_whose_vectors_are_all_similar_activates_the_same(agreement: float) -> None:
    tri, names = alpha(agreement=agreement)
    (plain,) = retrieve(tri, QUESTION, ["Alpha?"], 2)

    def similar(vectors: np.ndarray) -> np.ndarray:
        """The same vectors with a part that all have in common: a cosine c becomes .7 + .3 c."""
        common = np.full((len(vectors), 1), np.sqrt(0.7))
        return np.concatenate([np.sqrt(0.3) * vectors, common], axis=1).astype(np.float32)

    shifted = replace(tri, passages=[similar(tri.passages[0])], sentences=[similar(tri.sentences[0])])
    (compressed,) = retrieve(shifted, similar(QUESTION), ["Alpha?"], 2)
    assert "gamma" in activated(compressed, names).keys() - activated(plain, names).keys()
    centre = similar(np.zeros((1, 2)))[0]
    (centred,) = retrieve(replace(shifted, centre=centre), similar(QUESTION), ["Alpha?"], 2)
    assert {name: value for name, (value, _) in activated(centred, names).items()} == pytest.approx(
        {name: value for name, (value, _) in activated(plain, names).items()}, abs=1e-5
    )
    assert centred.passages.tolist() == plain.passages.tolist()
