"""What a text is found by."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.terms import COMMON, Analyser, prose_words, stemmer_of, term_keys


def terms(text: str) -> list[str]:
    return Analyser().terms(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Call read_parquet() now", ["call", "read", "parquet", "read_parquet", "now"]),
        ("use --dry-run, or -v", ["use", "dry", "run", "dry-run", "or", "v"]),
        ("node.js", ["node", "js", "node.js"]),
        ("std::vector", ["std", "vector", "std::vector"]),
        ("HTMLParser", ["html", "parser", "htmlparser"]),
        ("getMessage2", ["get", "message2", "getmessage2"]),
        ("__init__ _x", ["init", "x"]),
        ("C++, C# and C", ["c", "c++", "c", "c#", "and", "c"]),
        ("3.11.7", ["3", "11", "7", "3.11.7"]),
    ],
)
def test_an_identifier_is_found_whole_and_by_its_parts(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Régis", "REGIS"),
        ("Straße", "strasse"),
        ("e\u0301tude", "étude"),
        ("ﬁlm Ｎｏｉｒ", "film noir"),
        ("ΑΘΉΝΑΣ", "αθηνας"),
        ("Lothair's", "Lothair"),
        ("Lothair’s", "Lothair"),
        ("soft\u00adhyphen", "softhyphen"),
        ("Halber\u200bstadt", "Halberstadt"),
        ("می\u200cخواهم", "میخواهم"),
        ("bridges cities", "bridge city"),
        ("شَمْس", "شمس"),
    ],
)
def test_ways_to_write_one_word_are_one_term(one: str, other: str) -> None:
    assert terms(one) == terms(other)
    assert terms(one)


@pytest.mark.parametrize(("text", "term"), [("U.S.", "us"), ("W.A.S.P.", "wasp"), ("O’Brien", "obrien")])
def test_dots_of_initials_and_apostrophes_are_left_out_of_the_whole(text: str, term: str) -> None:
    assert terms(text)[-1] == term


@pytest.mark.parametrize(
    ("word", "term"),
    [("resized", "resiz"), ("resizing", "resiz"), ("series", "seri"), ("class", "class"), ("status", "status")],
)
def test_a_word_is_known_by_its_stem(word: str, term: str) -> None:
    assert terms(word) == [term]


@pytest.mark.parametrize("word", ["gas", "1990s", "IS", "does", "will", "страны"])
def test_short_words_common_words_and_what_is_not_of_ascii_letters_have_no_stem(word: str) -> None:
    assert terms(word) == [word.lower()]


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("de", "Brücken", "Brücke"),
        ("de", "Ausschüsse", "Ausschuss"),
        ("ru", "реками", "река"),
        ("el", "Αθήνας", "Αθήνα"),
        ("hi", "लड़कियों", "लड़की"),
        ("tr", "kitapları", "kitap"),
        ("ar", "الكتاب", "كتاب"),
        ("ja", "bridges", "bridge"),
        ("", "bridges", "bridge"),
    ],
)
def test_stems_are_those_of_the_language(language: str, one: str, other: str) -> None:
    analyser = Analyser([stemmer_of(language)])
    assert analyser.terms(one) == analyser.terms(other)


def test_a_word_of_a_question_has_the_stems_of_several_languages() -> None:
    both = Analyser(["english", "german"])
    assert both.terms("bridges der Brücken 東京") == [
        *("bridg", "german\0bridg", "der", "brucken", "german\0bruck"),
        *("東", "京", "東京"),
    ]
    assert both.words("Brücken") == {"brucken": "brucken", "german\0bruck": "brucken"}


def test_prose_is_words_without_capitals_digits_and_marks_of_code() -> None:
    assert prose_words("The bridge of read_parquet, old 2nd lamp-post; मंदिर में Röhre röhre 東京塔 と") == [
        "bridge",
        "मंदिर",
        "röhre",
        "東京塔",
    ]


def test_threads_stem_alike() -> None:
    words = [f"{stem}{ending}" for stem in ("connect", "relat", "organiz") for ending in ("ing", "ed", "ion")] * 200
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda word: Analyser().terms(word), words))
    assert found == [Analyser().terms(word) for word in words]


def test_a_script_without_spaces_is_found_by_characters_and_pairs() -> None:
    assert terms("藤原乙は") == ["藤", "原", "乙", "は", "藤原", "原乙", "乙は"]
    assert terms("Python入門 3") == ["python", "入", "門", "入門", "3"]
    assert set(terms("京都")) <= set(terms("東京都"))
    assert set(terms("한국")) <= set(terms("한국은"))
    assert set(terms("ไทย")) <= set(terms("ภาษาไทยง่าย"))


def test_marks_that_spell_stay_in_their_word() -> None:
    assert terms("हिन्दी में") == ["हिन्दी", "में"]
    assert terms("தமிழ்") == ["தமிழ்"]


@pytest.mark.parametrize("text", ["", " \n", "--", "😀 … ''", "\u0301", "\u0640", "_"])
def test_a_text_without_words_has_no_terms(text: str) -> None:
    assert terms(text) == []


@given(st.text(max_size=60))
def test_terms_are_folded_and_the_same_whatever_was_met_before(text: str) -> None:
    found = terms(text)
    met = Analyser()
    met.terms("Régis read_parquet 藤原 " + text)
    assert met.terms(text) == found
    assert all(term and not any(character.isspace() for character in term) for term in found)
    assert terms(unicodedata.normalize("NFC", text)) == terms(unicodedata.normalize("NFD", text))


@given(st.text(alphabet="abAB.'_-:+# 藤原é\u0301", max_size=40))
def test_texts_apart_have_the_terms_of_each(text: str) -> None:
    assert terms(f"{text} | {text}") == terms(text) * 2


def test_keys_are_those_of_the_format() -> None:
    assert [f"{key:016x}" for key in term_keys(["bridge", "藤原"]).tolist()] == ["17f29b073143d8cd", "cf460b40fc36ea64"]
    assert term_keys([]).tolist() == []


def test_common_words_are_terms() -> None:
    assert {"the", "of", "who"} <= COMMON
    assert set(terms("Who is this, and what are those of the class?")) - COMMON == {"those", "class"}
