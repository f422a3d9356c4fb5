"""What a text is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.recogniser import RulesRecogniser
from tasks.stages.recognise.subjects import About, subjects_of
from tests.deep import examples


def about(text: str, title: str = "") -> About:
    return subjects_of(title, text, RulesRecogniser().recognise(title, text))


def names(text: str, title: str = "") -> list[set[str]]:
    return [{name for _, name in subject.names} for subject in about(text, title).subjects]


def test_each_paragraph_is_about_what_its_first_sentence_says() -> None:
    text = "Ada Marl was an engineer.\n\nThe Cold River is a novel of 1920. She wrote it."
    assert names(text) == [{"ada marl"}, {"cold river"}]
    assert [subject.start for subject in about(text).subjects] == [0, text.index("The Cold")]


@pytest.mark.parametrize("opening", ["She moved to Vell.", "The company moved to Vell.", "Its lamps burned in Vell."])
def test_a_paragraph_that_refers_back_goes_on_about_the_subject_before(opening: str) -> None:
    assert names(f"Ada Marl was an engineer.\n\n{opening}") == [{"ada marl"}]


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Storm at Vell Hill is a film.", "storm at vell hill"),
        ("Lamps que burn (1939) is a film.", "lamps que burn"),
        ("Who's Your Brother? is a film.", "who your brother"),
    ],
)
def test_a_subject_reaches_to_the_verb_whatever_the_recogniser_makes_of_it(text: str, subject: str) -> None:
    (found,) = names(text)
    assert subject in found
    assert not found & {"storm", "lamps", "who"}


def test_a_person_of_several_given_names_goes_by_the_first_and_the_last() -> None:
    assert names("Frank Wright Tuttle (born 1892) was a director.") == [
        {"frank wright tuttle", "frank tuttle", "frank w tuttle"}
    ]
    assert {"lasse hallstrom", "lars sven hallstrom"} <= names('Lars Sven "Lasse" Hallström is a director.')[0]
    assert "lady dorothy macmillan" in names("Lady Dorothy Evelyn Macmillan was a daughter of Vell.")[0]


def test_what_it_is_known_as_is_another_name() -> None:
    assert names("Devan Chokka, popularly known as Deva, is a composer.") == [{"devan chokka", "deva"}]


def test_a_title_that_the_text_does_not_speak_of_says_nothing() -> None:
    assert about("Ada Marl was an engineer.", "Report 12").titled is False
    assert names("Ada Marl was an engineer.", "Report 12") == [{"ada marl"}]


def test_a_title_stands_where_the_text_speaks_of_it_or_has_no_subject_of_its_own() -> None:
    assert about("Ada Marl was an engineer.", "Ada Marl") == About(True, ())
    assert about("It is deep there.", "Orrin Bay") == About(True, ())
    assert about("Ada Marl was an engineer.", "Ada Marl at work").titled


def test_of_a_titled_text_the_first_subject_says_how_else_it_is_called() -> None:
    text = "Frank Wright Tuttle was a director.\n\nThe Cold River was his film."
    assert names(text, "Frank Tuttle") == [{"frank wright tuttle", "frank w tuttle"}]
    assert names("Vell is a town.\n\nOrrin Bay is near it.", "Orrin Bay") == []


PIECES = st.sampled_from(
    [
        '"Kelp"',
        "Ada",
        "“Bo”",
        "is",
        "was",
        "a",
        "The",
        "(born",
        ")",
        ",",
        "Sir",
        "J.",
        "\n\n",
        ".",
        "# ",
        "known as",
        "It",
    ]
)


@examples(20, deep=100)
@given(st.text(max_size=20), st.lists(PIECES | st.text(max_size=6), max_size=24).map(" ".join))
def test_any_text_is_read(title: str, text: str) -> None:
    assert all(0 <= subject.start <= len(text) and subject.names for subject in about(text, title).subjects)


def test_a_quoted_word_is_no_nickname_of_nothing() -> None:
    text = '"Kelp" is a command. It lists harbours.'
    subjects = subjects_of("", text, RulesRecogniser().recognise("", text)).subjects
    assert [name for _, name in subjects[0].names] == ["kelp"]
