"""How much of a question its names explain."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.linking import Link
from indexmill.retrieve.matrices import Rows, Scores

TOLD = np.array([1.0, 0.5, 0.25])


def rarity(rows: Rows) -> Scores:
    return TOLD[rows]


def test_words_in_names_count_by_what_their_entity_tells() -> None:
    # Terms: fund, marrow, bridg; two of three stand in a name that tells 0.5.
    found = coverage(["Who funded the Marrow Bridge?"], [(Link(1, "marrow bridge", 1.0),)], rarity)
    assert found.tolist() == pytest.approx([2 / 3 * 0.5])


def test_a_word_of_two_names_counts_once_by_the_one_that_tells_more() -> None:
    links = (Link(0, "bridge", 0.8), Link(1, "marrow bridge", 1.0))
    assert coverage(["Who funded the Marrow Bridge?"], [links], rarity).tolist() == pytest.approx([(0.8 + 0.5) / 3])


def test_a_question_without_names_is_not_covered_and_a_batch_changes_nothing() -> None:
    questions = ["cold rivers", "Marrow", ""]
    links = [(), (Link(2, "marrow", 1.0),), ()]
    together = coverage(questions, links, rarity)
    assert together.tolist() == [0.0, 0.25, 0.0]
    alone = [coverage([one], [its], rarity)[0] for one, its in zip(questions, links, strict=True)]
    assert alone == together.tolist()


def test_a_name_that_a_question_is_known_to_mention_in_other_words_counts_as_a_word_of_it() -> None:
    assert coverage(["Who funded it?"], [(Link(1, "marrow bridge", 1.0),)], rarity).tolist() == pytest.approx([0.5])
