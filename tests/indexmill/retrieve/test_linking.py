"""Linking: which names in a question become which entities."""

from __future__ import annotations

import numpy as np

from indexmill.retrieve.linking import Link, link_known, link_named, link_nearest, mentioned
from indexmill.retrieve.retrieval_method import QueryBatch
from indexmill.text.canonical_names import NameIndex, entity_id

NAMES = sorted(["ada venn", "marrow bridge", "bridge", "river"], key=entity_id)
INDEX = NameIndex(NameIndex.keys([entity_id(name) for name in NAMES]))
QUESTIONS = ["Who paid for the Marrow Bridge?", "what is a river?", "Did Ada Venn cross the Bridge or the River?"]


def every(rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), dtype=np.bool_)


def named(links: tuple[Link, ...]) -> set[str]:
    assert [link.entity for link in links] == sorted(link.entity for link in links)
    assert all(NAMES[link.entity] == link.name and link.score == 1.0 for link in links)
    return {link.name for link in links}


def test_all_questions_of_a_batch_are_linked_at_once() -> None:
    linked = link_known(QUESTIONS, INDEX, every)
    assert [named(links) for links in linked] == [{"marrow bridge"}, set(), {"ada venn", "bridge", "river"}]
    assert [link_known([question], INDEX, every)[0] for question in QUESTIONS] == linked
    assert link_known([], INDEX, every) == []


def test_a_row_that_does_not_count_covers_no_words() -> None:
    (links,) = link_known(QUESTIONS[:1], INDEX, lambda rows: rows != NAMES.index("marrow bridge"))
    assert named(links) == {"bridge"}


def test_an_unknown_name_stands_for_the_nearest_that_is_near_enough() -> None:
    vectors = [np.float32([[1, 0]]), np.float32([[0, 1]])]
    rows = np.array([1, 3])  # of two entities alone there are vectors

    def encode(names: list[str]) -> np.ndarray:
        return np.float32([{"esme quill": [0.6, 0.8], "orla": [0.8, 0.6]}[name] for name in names])

    question = "Did Esme Quill or Orla know Ada Venn?"
    known = link_known([question], INDEX, every)
    (links,) = link_nearest([question], known, encode, vectors, rows, 0.7)
    assert {(link.name, link.entity, round(link.score, 4)) for link in links if link.name != "ada venn"} <= {
        ("esme quill", 3, 0.8),
        ("orla", 1, 0.8),
    }
    assert {link.entity for link in links} == {1, 3, NAMES.index("ada venn")}
    assert next(link for link in links if link.entity == NAMES.index("ada venn")).score == 1.0
    assert link_nearest([question], known, encode, vectors, rows, 0.9) == known
    (links,) = link_nearest([question], known, encode, vectors, rows, 0.55, counts=lambda some: some != 3)
    assert {link.entity for link in links} == {1, NAMES.index("ada venn")}  # the nearest of those that count
    assert link_nearest([question], known, encode, vectors, rows, 0.1, counts=lambda some: some < 0) == known


def test_names_that_a_question_is_known_to_mention_are_linked_beside_those_that_stand_in_it() -> None:
    question = "Who paid for the Marrow Bridge?"
    known = link_known([question], INDEX, every)
    (links,) = link_named([["ada venn", "marrow bridge", "nobody"]], known, INDEX, every)
    assert named(links) == {"marrow bridge", "ada venn"}
    assert link_named([[]], known, INDEX, every) == known
    (links,) = link_named([["ada venn"]], known, INDEX, lambda rows: rows != NAMES.index("ada venn"))
    assert named(links) == {"marrow bridge"}
    vectors, rows = [np.float32([[1, 0]])], np.array([NAMES.index("river")])
    (links,) = link_nearest([question], known, lambda _: np.float32([[1, 0]]), vectors, rows, 0.9, [["the stream"]])
    assert {(link.name, link.entity) for link in links} >= {("the stream", NAMES.index("river"))}


def test_a_question_mentions_what_stands_in_it_what_rules_recognise_and_what_it_is_known_to() -> None:
    questions = ["who paid for the marrow bridge", "Did Esme Quill know Ada Venn?", "river"]
    nothing = np.empty((3, 0), np.float32)
    assert mentioned(QueryBatch(questions, nothing), INDEX) == [["marrow bridge"], ["ada venn", "esme quill"], []]
    names = (["orla", "marrow bridge"], [], ["orla"])
    assert mentioned(QueryBatch(questions, nothing, names=names), INDEX) == [
        ["marrow bridge", "orla"],
        ["ada venn", "esme quill"],
        ["orla"],
    ]
    assert mentioned(QueryBatch([], nothing), INDEX) == []
