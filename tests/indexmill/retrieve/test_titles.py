"""Titles beside passages: what the nearest passages are, to the bit, and where titles do not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill.errors import ConfigurationError, CorruptBlob
from indexmill.retrieve import dense
from indexmill.retrieve.columns import paired, products
from indexmill.retrieve.dense import Beside, nearest, similarities
from indexmill.retrieve.directions import directions_of, unit_vectors
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.retrieval_method import QueryBatch, Vectors
from tests.indexmill.retrieve.test_dense import some_vectors
from tests.indexmill.small_snapshot import EMBEDDER, writer_of
from tests.storage.quick import quick_folder

QUESTION = "Who paid for the Marrow Bridge?"
QUESTIONS = [QUESTION, "Where was Ada Venn born?", "the Ilse", "lamps", "Which river is cold?"]
EVERY = 5


@pytest.fixture
def store() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder / "store"


def publish(path: Path, titles: bool = True, **parameters: float) -> None:
    writer = writer_of(path)
    if titles:
        writer.titles(**parameters)
    writer.publish()


def world(rows: int, titles: int, dimensions: int, weight: float) -> tuple[list[Vectors], Beside]:
    """Passages in three shards, and titles in two, some of them empty."""
    passages, above = some_vectors(rows, dimensions), some_vectors(titles, dimensions, 1)
    above[::7] = 0
    owners = np.sort(np.random.default_rng(2).integers(0, titles, rows))
    cuts = [rows // 3, rows // 2]
    return np.split(passages, cuts), Beside(np.split(above, [titles // 2]), owners, weight)


def expected(shards: list[Vectors], beside: Beside, question: Vectors) -> dense.Scores:
    """The formula, row by row."""
    rows = np.arange(len(beside.rows))
    titles = products([np.concatenate(beside.shards)], question[None], beside.rows)
    found: dense.Scores = products([np.concatenate(shards)], question[None], rows) + np.float32(beside.weight) * titles
    return found


@pytest.mark.parametrize("weight", [0.2, 3.0])
@pytest.mark.parametrize("kept", [1.0, 0.6, 0.1])
def test_top_k_is_what_a_full_sort_gives(weight: float, kept: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "ROW_TILE", 16)
    monkeypatch.setattr(dense, "BLOCK_ROWS", 64)
    shards, beside = world(300, 90, 24, weight)
    allowed = None if kept == 1 else np.random.default_rng(3).random(300) < kept
    questions = some_vectors(9, 24, 4)
    for asked in (questions, questions[:2]):
        for question, (rows, scores) in zip(asked, nearest(shards, asked, 20, allowed, beside), strict=True):
            values = expected(shards, beside, question)
            order = np.argsort(-values, kind="stable")
            order = order[:20] if allowed is None else order[allowed[order]][:20]
            assert rows.tolist() == order.tolist()
            assert scores.tobytes() == values[order].tobytes()


@pytest.mark.parametrize(("rows", "dimensions"), [(7, 33), (1300, 384), (9000, 96)])
@pytest.mark.parametrize("kept", [1.0, 0.3])
def test_a_question_gets_the_same_bits_alone_and_in_any_batch(rows: int, dimensions: int, kept: float) -> None:
    shards, beside = world(rows, rows // 4 + 1, dimensions, 0.2)
    allowed = None if kept == 1 else np.random.default_rng(3).random(rows) < kept
    questions = some_vectors(37, dimensions, 2)
    alone = [nearest(shards, question[None], 10, allowed, beside)[0] for question in questions]
    for batch in (
        nearest(shards, questions, 10, allowed, beside),
        nearest(shards, questions[::-1], 10, allowed, beside)[::-1],
    ):
        assert [found.tolist() for found, _ in batch] == [found.tolist() for found, _ in alone]
        assert [scores.tobytes() for _, scores in batch] == [scores.tobytes() for _, scores in alone]


def test_rows_that_differ_by_rounding_alone_come_in_the_order_of_their_scores() -> None:
    close = np.repeat(some_vectors(1, 384), 3000, axis=0) + np.float32(1e-7) * some_vectors(3000, 384, 1)
    titles = np.repeat(some_vectors(1, 384, 5), 3000, axis=0) + np.float32(1e-7) * some_vectors(3000, 384, 6)
    beside = Beside([titles], np.arange(3000), 2.0)
    questions = some_vectors(9, 384, 2)
    for question, (rows, scores) in zip(questions, nearest([close], questions, 20, None, beside), strict=True):
        values = expected([close], beside, question)
        order = np.argsort(-values, kind="stable")[:20]
        assert rows.tolist() == order.tolist()
        assert scores.tobytes() == values[order].tobytes()


def test_titles_of_no_weight_and_none_at_all_change_no_bit() -> None:
    shards, beside = world(300, 90, 24, 0.2)
    nothing = beside._replace(shards=[np.zeros_like(shard) for shard in beside.shards])
    questions = some_vectors(9, 24, 4)
    plain = nearest(shards, questions, 20)
    for found in (
        nearest(shards, questions, 20, None, nothing),
        nearest(shards, questions, 20, None, beside._replace(weight=0.0)),
    ):
        assert [rows.tolist() for rows, _ in found] == [rows.tolist() for rows, _ in plain]
        assert [scores.tobytes() for _, scores in found] == [scores.tobytes() for _, scores in plain]
    pairs = paired(np.arange(9), np.arange(9))
    assert similarities(shards, questions, pairs, nothing).tobytes() == products(shards, questions, pairs).tobytes()


@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
def test_the_score_of_dense_is_that_of_the_passage_and_its_title(store: Path, weight: float) -> None:
    publish(store, title=weight)
    vector = EMBEDDER.encode([QUESTION])[0]
    with indexmill.open(store) as snapshot:
        hits = snapshot.retrieve(QUESTION, method="dense", k=EVERY)
    assert len(hits) == EVERY
    for hit in hits:
        title = unit_vectors(directions_of(EMBEDDER.encode([hit.title])))[0] @ vector if hit.title else 0.0
        assert hit.score == pytest.approx(EMBEDDER.encode([hit.text])[0] @ vector + weight * title, abs=1e-6)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_snapshot_without_titles_answers_by_its_passages(store: Path) -> None:
    publish(store, titles=False)
    vector = EMBEDDER.encode([QUESTION])[0]
    with indexmill.open(store) as snapshot:
        assert passage_vectors_of(snapshot).weight == 0
        for given in ({}, {"title": 2.0}):
            for hit in snapshot.retrieve(QUESTION, method="dense", k=EVERY, parameters=given):
                assert hit.score == pytest.approx(EMBEDDER.encode([hit.text])[0] @ vector, abs=1e-6)


def test_an_unknown_parameter_of_dense_asks_for_a_newer_program(store: Path) -> None:
    publish(store, colour=1.0)
    with indexmill.open(store) as snapshot, pytest.raises(ConfigurationError, match="dense has no parameters"):
        snapshot.retrieve(QUESTION, method="dense")


def test_nothing_of_titles_is_read_before_a_question_is_asked(store: Path) -> None:
    publish(store)
    with indexmill.open(store) as snapshot:
        snapshot.retriever("dense")
        assert not any("titles/p0" in names for _, names in snapshot._values)
        snapshot.retrieve(QUESTION, method="dense")
        assert any("titles/p0" in names for _, names in snapshot._values)


def test_methods_that_weigh_titles_alike_share_one_list(store: Path) -> None:
    publish(store)
    with indexmill.open(store) as snapshot:
        near, asked = passage_vectors_of(snapshot), QueryBatch(QUESTIONS, snapshot.encode(QUESTIONS))
        found = near.nearest_to(asked, 3)
        assert near.weighed(near.weight).nearest_to(asked, 3) is found
        plain = near.untitled.nearest_to(asked, 3)
        assert plain is not found
        assert near.nearest_to(asked, 3) is found
        assert [rows.tolist() for rows, _ in near.nearest_to(asked, 2)] == [rows[:2].tolist() for rows, _ in found]
        assert near.most == 1.2
        assert near.untitled.most == 1.0


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        ("vectors", lambda held: held[:-1]),
        ("vectors", lambda held: held[:, :-1]),
        ("passage_document", lambda held: held[:-1]),
        ("passage_document", lambda held: held + 2),
        ("passage_document", lambda held: held - 1),
    ],
)
def test_titles_that_do_not_fit_are_refused(store: Path, array: str, wrong: Callable[[np.ndarray], np.ndarray]) -> None:
    writer = writer_of(store)
    writer._titles["p0"][array] = wrong(writer._titles["p0"][array])
    writer.titles()
    writer.publish()
    with indexmill.open(store) as snapshot, pytest.raises(CorruptBlob, match="titles"):
        snapshot.retrieve(QUESTION, method="dense")


def test_titles_of_some_shards_alone_are_refused(store: Path) -> None:
    writer = writer_of(store)
    del writer._titles["p1"]
    writer.titles()
    writer.publish()
    with indexmill.open(store) as snapshot, pytest.raises(CorruptBlob, match="not in the same shards"):
        snapshot.retrieve(QUESTION, method="dense")
