"""Canonical names and the index that finds them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.canonical_names import MAX_NAME_LENGTH, NameIndex, canonical_name, canonical_words, entity_id
from tests.deep import examples


@pytest.mark.parametrize(
    ("surface", "name"),
    [
        ("Ermengarde of Tours", "ermengarde of tours"),
        ("  Countess   of\nBurgundy ", "countess of burgundy"),
        ("Lothair II's", "lothair ii"),
        ("Lothair Ii’s", "lothair ii"),
        ("God'S Gift To Women", "god gift to women"),
        ("O'Brien", "obrien"),
        ("The Beatles", "beatles"),
        ("J. R. R. Tolkien", "jrr tolkien"),
        ("J.R.R. Tolkien", "jrr tolkien"),
        ("W.A.S.P.", "wasp"),
        ("Limburg- Styrum", "limburg styrum"),
        ("Aldri Annet Enn Bråk", "aldri annet enn brak"),
        ("कृष्ण", "कृष्ण"),
        ("กรุงเทพ", "กรุงเทพ"),
        ("مُحَمَّد", "محمد"),
        ("أحمد", "احمد"),
        ("מֹשֶׁה", "משה"),
        ("Işık", "isik"),
        ("IŞIK", "isik"),
        ("Ἀθῆναι", "αθηναι"),
        ("ＮＡＳＡ", "nasa"),
        ("Straße", "strasse"),
        ("Halber\u200bstadt Do\u00adnau", "halberstadt donau"),
        ("WM\\_PAINT", "wm paint"),
        ("IADs::get_Class", "iads get class"),
        ("C++", "c++"),
        ("C#", "c#"),
        ("#C", "c"),
        ("March 20, 1890", "20 march 1890"),
        ("20 March 1890", "20 march 1890"),
        ("藤原乙牟漏", "藤原乙牟漏"),
        ("Лев Толстой", "лев толстои"),
        ("ガラス", "ガラス"),
        ("Philippe Chevallier (actor)", "philippe chevallier actor"),
        ("!?—", ""),
        ("", ""),
        ("the", "the"),
    ],
)
def test_a_surface_form_has_this_canonical_name(surface: str, name: str) -> None:
    assert canonical_name(surface) == name


_TRICKY = st.text(alphabet="aA s'’.+#_- thebİßﬁ０ŉ\u0345\u0301\ue000\ue0013", max_size=14)


@given(st.text(max_size=30) | _TRICKY)
def test_a_canonical_name_is_its_own_canonical_name(surface: str) -> None:
    name = canonical_name(surface)
    assert canonical_name(name) == name


@given(st.text(max_size=30) | _TRICKY)
def test_a_canonical_name_has_plain_words_with_single_spaces(surface: str) -> None:
    name = canonical_name(surface)
    assert name == " ".join(name.split())
    assert all(any(c.isalnum() or ord(c) > 127 for c in word) for word in name.split())


@given(st.text(alphabet="abc ABC'.", max_size=20))
def test_case_does_not_matter(surface: str) -> None:
    assert canonical_name(surface.upper()) == canonical_name(surface.lower()) == canonical_name(surface)


def test_what_is_too_long_to_be_a_name_has_none() -> None:
    assert canonical_name("a" * MAX_NAME_LENGTH) == "a" * MAX_NAME_LENGTH
    assert canonical_name("a" * (MAX_NAME_LENGTH + 1)) == ""
    assert canonical_name("ab " * 400_000) == ""


def test_words_of_a_text_keep_articles_and_any_length() -> None:
    words = ["the", "lord", "of", "the", "rings", "jrr", "tolkien"]
    assert canonical_words("The Lord of the Rings' J. R. R. Tolkien?") == words
    assert len(canonical_words("word " * 1000)) == 1000


def test_an_entity_id_is_the_start_of_a_digest() -> None:
    assert entity_id("nasa") == hashlib.sha256(b"entity\0nasa").hexdigest()[:32]


@examples(20, deep=100)
@given(st.lists(st.text(alphabet="abcd ", min_size=1, max_size=6), unique=True, max_size=40), st.data())
def test_the_index_finds_exactly_the_names_it_holds(names: list[str], data: st.DataObject) -> None:
    held = data.draw(st.sets(st.sampled_from(names))) if names else set()
    ids = sorted(entity_id(name) for name in held)
    rows = NameIndex(NameIndex.keys(ids)).find(names)
    expected = [ids.index(entity_id(name)) if name in held else -1 for name in names]
    assert rows.tolist() == expected


def test_an_index_reads_keys_from_a_memory_map(tmp_path: object) -> None:
    ids = sorted(entity_id(name) for name in ["ada venn", "ilse", "tallow"])
    keys = NameIndex.keys(ids)
    assert keys.dtype == np.uint64
    assert NameIndex(keys).find(["tallow", "nobody"]).tolist() == [ids.index(entity_id("tallow")), -1]
    assert NameIndex(keys).find([]).tolist() == []
