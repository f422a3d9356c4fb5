"""How well an answer agrees with the right one: small cases by hand, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.answer.scores import Scores, contains_answer, margin, scores_of, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Marrow Bridge.", ["marrow", "bridge"]),
        ("A U.S. firm's “offer”, $5!", ["us", "firms", "offer", "5"]),
        ("twenty-one – 21", ["twenty", "one", "21"]),
        ("The A", ["the", "a"]),
        ("ＡＤＡ Straße", ["ada", "strasse"]),
        ("艾達·文 1907年", ["艾", "達", "文", "1907", "年"]),
        (" ?! ", []),
    ],
)
def test_words_are_those_of_squad_and_characters_where_there_are_no_spaces(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("answer", "right", "expected"),
    [
        ("Ada Venn", ["Ada Venn"], Scores(1, 1, 1, 1)),
        ("the ada venn!", ["Ada Venn"], Scores(1, 1, 1, 1)),
        ("It was Ada Venn who paid.", ["Ada Venn"], Scores(1, 1, 0, 2 * 2 / 8)),
        ("Ada Maria Venn", ["Ada Venn"], Scores(0, 1, 0, 2 * 2 / 5)),
        ("Ada", ["Ada Venn"], Scores(0, 0.5, 0, 2 * 1 / 3)),
        ("Bruno", ["Ada Venn"], Scores(0, 0, 0, 0)),
        ("Bruno", ["Ada Venn", "Bruno"], Scores(1, 1, 1, 1)),
        ("", ["Ada Venn"], Scores(0, 0, 0, 0)),
        ("venn venn", ["Venn"], Scores(1, 1, 0, 2 * 1 / 3)),
        ("the north", ["no"], Scores(0, 0, 0, 0)),
        ("yes", ["yes"], Scores(1, 0, 1, 1)),  # recall is 0 for yes and no, as ArchRAG counts
        ("Yes, it does.", ["yes"], Scores(1, 0, 0, 0)),  # f1 is HotpotQA's
        ("There is no Ada Venn", ["Ada Venn"], Scores(1, 0, 0, 2 * 2 / 7)),
        ("由艾達出資", ["艾達"], Scores(1, 1, 0, 2 * 2 / 7)),
        ("?", ["..."], Scores(0, 0, 0, 0)),
    ],
)
def test_scores_by_hand(answer: str, right: list[str], expected: Scores) -> None:
    assert tuple(scores_of(answer, right)) == pytest.approx(tuple(expected))


_WORDS = st.lists(st.sampled_from(["ada", "venn", "the", "no", "paid", "橋", "x-y", "!"]), max_size=8).map(" ".join)


@given(_WORDS, st.lists(_WORDS, min_size=1, max_size=4))
def test_scores_are_shares_and_more_right_answers_never_lower_them(answer: str, right: list[str]) -> None:
    found = scores_of(answer, right)
    assert all(0 <= one <= 1 for one in found)
    assert found.exact_match <= found.accuracy
    assert found.exact_match <= found.f1
    assert all(part <= whole for part, whole in zip(scores_of(answer, right[:1]), found, strict=True))


@given(_WORDS)
def test_an_answer_is_its_own_right_answer(text: str) -> None:
    if words(text):
        found = scores_of(f"  {text.upper()}. ", [text])
        assert (found.accuracy, found.exact_match, found.f1) == (1, 1, 1)


@pytest.mark.parametrize(
    ("right", "contained"),
    [
        (["Bruno", "ada VENN"], True),
        (["the north"], True),
        (["nor"], False),
        (["Oslo"], True),
        (["U.S. Navy"], True),
        (["York Minster"], False),
        (["no"], None),
        (["Yes."], None),
        ([], None),
        (["?"], None),
    ],
)
def test_a_text_contains_whole_words_of_an_answer(right: list[str], contained: bool | None) -> None:
    assert (
        contains_answer("It was Ada Venn, of the North, no doubt, of the US Navy in Bergen/Oslo.", right) is contained
    )


def test_the_margin_shrinks_with_the_square_root_of_the_number_of_values() -> None:
    assert margin([1.0]) == margin([0.5, 0.5]) == 0.0
    assert margin([0.0, 1.0] * 50) == pytest.approx(1.96 * 0.5025 / 10, abs=1e-4)
