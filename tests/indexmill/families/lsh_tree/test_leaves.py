"""The passages of lsh_tree: two lists, two rounds, and the cosines of their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.hits import Hit
from indexmill.retrieve.columns import reciprocal_ranks
from indexmill.retrieve.directions import directions_of
from indexmill.snapshot import Snapshot
from tests.indexmill.contract import gives_alone_what_a_batch_gives
from tests.indexmill.small_snapshot import SnapshotWriter, Text

TEXTS = [
    Text("film", "The Lamp", "The Lamp is a film directed by Ada Venn. It is short."),
    Text("venn", "Ada Venn", "Ada Venn was born in Tallow. She made clocks."),
    Text("river", "Ilse", "The Ilse is a cold river. It is long."),
    Text("hills", "Grey Hills", "Cold wind blows. Stones lie there."),
    Text("mill", "Old Mill", "A mill stands here. Its wheel turns."),
    Text("church", "Church", "A church of stone. Its tower is old."),
]
SUMMARIES = [[("people and films", [0, 1, 2]), ("rivers and hills", [3, 4, 5])]]
QUESTION = "Who directed the film The Lamp?"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("leaves") / "store", words=True)


def written(path: Path, words: bool) -> Path:
    writer = SnapshotWriter(path)
    writer.shard("p0", TEXTS[:3])
    writer.shard("p1", TEXTS[3:])
    writer.lsh_tree(SUMMARIES)
    if words:
        writer.bm25()
    writer.publish()
    return path


def passages(snapshot: Snapshot, question: str = QUESTION, k: int = 99, **given: Any) -> list[Hit]:
    where = given.pop("where", None)
    found = snapshot.retrieve(question, method="lsh_tree", k=k, where=where, parameters=given)
    return [hit for hit in found if hit.kind == "passage"]


def documents(hits: list[Hit]) -> list[str]:
    return [hit.document_ids[0] for hit in hits]


def test_reciprocal_ranks_by_hand() -> None:
    lists = [np.array([7, 3, 5]), np.array([5, 9])]
    # 5: 1/8 + 1/6 = 0.292; 7: 1/6; 3 and 9: 1/7
    assert reciprocal_ranks(lists, 5.0).tolist() == [5, 7, 3, 9]
    assert reciprocal_ranks([np.array([4, 2]), np.empty(0, np.int64)], 5.0).tolist() == [4, 2]
    assert reciprocal_ranks([np.array([4, 2]), np.array([2, 4])], 0.0).tolist() == [2, 4]


@given(st.lists(st.permutations(range(6)).map(lambda rows: rows[:4]), min_size=1, max_size=3), st.floats(0, 60))
def test_what_every_list_likes_better_stands_before(lists: list[list[int]], constant: float) -> None:
    found = reciprocal_ranks([np.array(rows, np.int64) for rows in lists], constant).tolist()
    assert sorted(found) == sorted(set().union(*lists))
    worst = len(found)
    for first in found:
        for second in found:
            places = [
                (rows.index(first) if first in rows else worst, rows.index(second) if second in rows else worst)
                for rows in lists
            ]
            if all(one < other for one, other in places):
                assert found.index(first) < found.index(second)


def test_the_second_round_takes_up_what_the_best_sentence_says(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = passages(snapshot)
        assert documents(found)[0] == "film"
        assert found[0].explanation is not None
        assert "directed by Ada Venn" in found[0].explanation["second_round"]
        one_round = passages(snapshot, carried=0)
        assert documents(one_round)[0] == "film"
        # Of Ada Venn the question says nothing.
        assert documents(found).index("venn") < documents(one_round).index("venn")
        assert one_round[0].explanation is not None
        assert "second_round" not in one_round[0].explanation


def test_one_round_adds_up_the_places_of_vectors_and_words(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in ("cold stone", QUESTION, "wheel of the mill"):
            lists = [
                [hit.document_ids[0] for hit in snapshot.retrieve(question, method=method, k=99)]
                for method in ("dense", "bm25")
            ]
            worth: dict[str, float] = {}
            for one in lists:
                for place, document in enumerate(one, start=1):
                    worth[document] = worth.get(document, 0) + 1 / (2 + place)
            found = documents(passages(snapshot, question, carried=0, constant=2))
            assert [worth[one] for one in found] == sorted(worth.values(), reverse=True)


def test_scores_are_the_cosines_of_their_places(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        cosines = [hit.score for hit in snapshot.retrieve(QUESTION, method="dense", k=99)]
        for given_ in ({}, {"pool": 1}, {"carried": 0}):
            found = passages(snapshot, **given_)
            assert [hit.score for hit in found] == cosines
            assert sorted(documents(found)) == sorted(text.id for text in TEXTS)
        ours = snapshot.retrieve(QUESTION, method="lsh_tree", k=99)
        paper = snapshot.retrieve(QUESTION, method="lsh_tree", k=99, parameters={"preset": "paper"})
        assert [(hit.kind, hit.score) for hit in ours] == [(hit.kind, hit.score) for hit in paper]


@pytest.mark.parametrize("pool", [1, 2, 100])
def test_fewer_hits_are_the_first_of_more(store: Path, pool: int) -> None:
    with indexmill.open(store) as snapshot:
        whole = snapshot.retrieve(QUESTION, method="lsh_tree", k=99, parameters={"pool": pool})
        for k in range(1, len(whole)):
            assert snapshot.retrieve(QUESTION, method="lsh_tree", k=k, parameters={"pool": pool}) == whole[:k]


QUESTIONS = [QUESTION, "", "cold stone", "nothing of the kind", "Ada Venn"]


@pytest.mark.parametrize("where", [None, {"document_id": ["film", "river", "mill"]}])
@pytest.mark.parametrize("words", [True, False])
def test_a_batch_gives_each_question_what_it_gets_alone(
    store: Path, tmp_path: Path, where: dict[str, Any] | None, words: bool
) -> None:
    path = store if words else written(tmp_path / "s", words=False)
    with indexmill.open(path) as snapshot:
        gives_alone_what_a_batch_gives(snapshot, QUESTIONS, method="lsh_tree", k=4, where=where)


def test_without_postings_both_rounds_are_of_vectors(tmp_path: Path) -> None:
    with indexmill.open(written(tmp_path / "s", words=False)) as snapshot:
        dense = [hit.document_ids[0] for hit in snapshot.retrieve(QUESTION, method="dense", k=99)]
        assert documents(passages(snapshot, carried=0)) == dense
        assert len(passages(snapshot)) == len(TEXTS)


def test_a_passage_without_sentences_leads_nowhere(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p0", TEXTS[:2])
    writer.lsh_tree([])
    for name in ("sentences", "vectors"):
        writer.artifacts = [one for one in writer.artifacts if one.name != f"{name}/p0"]
    from schemas.tables import SENTENCES
    from tests.indexmill.small_snapshot import EMBEDDER

    writer.table("sentences/p0", SENTENCES.empty_table(), SENTENCES)
    writer.pack(
        "vectors/p0",
        {
            "passages": EMBEDDER.encode([text.text for text in TEXTS[:2]]),
            "sentences": directions_of(EMBEDDER.encode([])),
        },
    )
    writer.publish()
    with indexmill.open(tmp_path / "s") as snapshot:
        found = passages(snapshot)
        assert len(found) == 2
        assert found[0].explanation == {"layer": 0, "above": []}
