"""How attributes and high-level elements are written of what is read, where they differ from other texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import LlmSettings
from storage.folder import FolderStore
from tasks.core.stage import Stage
from tasks.families.heterograph import attributes, elements
from tasks.families.heterograph.attributes import _Attributes
from tasks.families.heterograph.elements import HighLevelElement, _Elements, most_output
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.writing import TextSettings
from tests.deep import examples
from tests.tasks.making import UNASKED, bound, part_with

UNITS = ["Ada Marl built the bridge of Vell in 1801.", "The old bridge of Vell was crossed by nobody else that year."]
RELATIONS = ["Ada Marl built the old bridge of Vell", "Ada Marl's pupil Fenna Rook"]
PORTRAITS = ["Ada Marl was an engineer of Vell."]
SHAPING = {"tokens": 60, "elements": 5, "input_tokens": 500}


def read(shown: str = "Ada Marl", **texts: list[str]) -> Read:
    return Read("owner", shown, "made", texts or {"S": UNITS, "A": PORTRAITS, "R": RELATIONS})


def part(store: FolderStore, stage: Stage, **shaping: int) -> Any:
    return part_with(store, stage, TextSettings(encoder={}, writer={**SHAPING, **shaping}, sources=None, **UNASKED))


def attribute(store: FolderStore, **shaping: int) -> _Attributes:
    return _Attributes(part(store, attributes.STAGE, **shaping))


def element(store: FolderStore, **shaping: int) -> _Elements:
    return _Elements(part(store, elements.STAGE, **shaping))


def answer(*found: tuple[str, str]) -> dict[str, Any]:
    return {"elements": [{"title": title, "text": text} for title, text in found]}


def test_without_a_model_central_sentences_name_the_entity_once(store: FolderStore) -> None:
    writer = attribute(store)
    text = writer.fallback(read())
    assert text.startswith("Ada Marl built the bridge of Vell in 1801.")
    assert writer.fallback(read("Goran Stave")) == f"Goran Stave: {text}"
    assert writer.fallback(read("ADA MARL")) == text  # its letters are another matter
    assert writer.fallback(read(R=RELATIONS)) == (
        "Ada Marl built the old bridge of Vell. Ada Marl's pupil Fenna Rook."  # told as sentences
    )
    assert attribute(store, tokens=12).fallback(read()) == "Ada Marl built the old bridge of Vell."


def test_the_name_the_units_and_the_relations_are_texts_of_their_own_each_within_the_room(store: FolderStore) -> None:
    writer = attribute(store, input_tokens=50)
    assert writer.content(read()) == ["Ada Marl", "\n".join(UNITS), "\n".join(RELATIONS)]
    assert writer.content(read(S=["Ada\n\nMarl came."])) == ["Ada Marl", "Ada Marl came.", ""]
    assert len(writer.content(read(S=["Ädä " * 1000]))[1].encode()) in range(190, 201)


def test_an_element_is_of_the_texts_own_sentences_under_the_names_that_most_tell_of(store: FolderStore) -> None:
    ((title, text),) = ((one.title, one.text) for one in element(store, tokens=100).fallback(read("Ada Marl, Vell")))
    assert title == "Ada Marl, Vell"
    for sentence in [*PORTRAITS, *UNITS, *(f"{one}." for one in RELATIONS)]:
        assert sentence in text
        text = text.replace(sentence, "", 1)
    assert text.strip() == ""
    river = "The river rose over its banks again."
    assert element(store).fallback(read("", S=[river])) == [HighLevelElement(river, river)]


@examples(10, deep=50)
@given(st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=6), st.text(max_size=400))
def test_an_element_always_says_something_within_bounds(store: FolderStore, texts: list[str], shown: str) -> None:
    (made,) = element(store, tokens=20).fallback(read(shown, S=[f"Ada saw {one}." for one in texts]))
    assert made.title.strip()
    assert made.text.strip()
    assert len(made.text.encode()) <= 8 * 20
    assert len(made.title.encode()) <= 8 * 24
    assert "\n" not in made.title + made.text


def test_units_portraits_and_relations_are_three_texts_of_an_element_and_no_title_is_told(store: FolderStore) -> None:
    writer = element(store)
    assert writer.content(read("Nobody")) == ["\n".join(texts) for texts in (UNITS, PORTRAITS, RELATIONS)]
    assert writer.content(read(R=RELATIONS)) == ["", "", "\n".join(RELATIONS)]
    assert writer.numbers == {"elements": 5}
    assert most_output(SHAPING) > most_output({**SHAPING, "elements": 4}) > most_output({"tokens": 50, "elements": 4})


def test_an_answer_becomes_plain_lines_and_a_text_that_is_there_twice_is_one(store: FolderStore) -> None:
    found = element(store).parse(
        answer(
            ("The\nbridge", " It was\n built. "),
            ("Another title", "It was built."),
            (" ", "Untitled."),
            ("Nothing", "\0"),
            ("The fall", "It fell."),
        )
    )
    assert found == [HighLevelElement("The bridge", "It was built."), HighLevelElement("The fall", "It fell.")]
    many = element(store, elements=4).parse(answer(*((f"title {n} " + "word " * 500, f"text {n}") for n in range(9))))
    assert many is not None
    assert [one.text for one in many] == [f"text {n}" for n in range(4)]
    assert all(len(one.title) <= 8 * 24 for one in many)


@pytest.mark.parametrize(("llm", "shapes"), [(LlmSettings(), False), (LlmSettings(backend="openai", model="m"), True)])
def test_how_many_elements_are_asked_for_determines_what_a_model_writes(llm: LlmSettings, shapes: bool) -> None:
    three, five = (bound(elements.WRITER, llm, heterograph={"elements": count}).fingerprint for count in (3, 5))
    assert (three != five) == shapes
