"""What of an endpoint's answers is used, and what is said of the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.llm import Completion, object_schema
from indexmill.models.readable import BadAnswer
from tasks.llm.answer_parsing import fits, list_schema, prose, read, repeats_items, salvaged, string

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string", "minLength": 1}, "names": {"type": "array", "maxItems": 3}},
    "required": ["summary"],
    "additionalProperties": False,
}
CANARY = "zanzaqua"
GOOD = {"summary": f"about {CANARY}", "names": ["a"]}


def completion(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(text, finish_reason, 10, 5, "model")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"\ufeff  {json.dumps(GOOD, indent=2)}\n\n",
        f"```json\n{json.dumps(GOOD)}\n```",
        f"```\n{json.dumps(GOOD, indent=2)}\n```\n",
        f"Sure, here it is:\n\n```json\n{json.dumps(GOOD)}\n```\nAnything else?",
    ],
)
def test_an_answer_is_json_also_in_a_fence(text: str) -> None:
    assert read(completion(text), SCHEMA) == GOOD


@pytest.mark.parametrize(
    ("text", "finish_reason", "reason"),
    [
        (f'{{"summary": "about {CANARY}', "length", "cut-off"),
        ("{" + "\n" * 500, "length", "endless-space"),
        ("", "content_filter", "filtered"),
        (f"I cannot speak of {CANARY}", "refusal", "declined"),
        (json.dumps(GOOD), f"because of {CANARY}", "unfinished"),
        ("", "stop", "empty"),
        (" \n ", "stop", "empty"),
        (f"no JSON: {CANARY}", "stop", "not-json"),
        (json.dumps(GOOD)[:-1], "stop", "not-json"),
        (json.dumps(GOOD) + json.dumps(GOOD), "stop", "not-json"),
        (f"```json\n{json.dumps(GOOD)}\n```\n```json\n{json.dumps(GOOD)}\n```", "stop", "not-json"),
        ('{"summary": "a", "summary": "b"}', "stop", "not-json"),
        ('{"summary": "a", "names": [NaN]}', "stop", "not-json"),
        ('{"summary": "\\ud800"}', "stop", "not-json"),
        ("[" * 100_000, "stop", "not-json"),
        ('["a"]', "stop", "wrong-schema: not an object"),
        ("null", "stop", "wrong-schema: not an object"),
        ('{"summary": 7}', "stop", 'wrong-schema: properties/summary/type is "string"'),
        ('{"names": []}', "stop", 'wrong-schema: required is ["summary"]'),
        (f'{{"summary": "a", "{CANARY}": 1}}', "stop", "wrong-schema: additionalProperties is false"),
        ('{"summary": " "}', "stop", 'wrong-schema: properties/summary/pattern is "\\\\S"'),
    ],
)
def test_what_cannot_be_used_is_told_without_a_word_of_it(text: str, finish_reason: str, reason: str) -> None:
    with pytest.raises(BadAnswer) as raised:
        read(completion(text, finish_reason), SCHEMA)
    assert raised.value.reason == reason
    assert CANARY not in str(raised.value)


ITEM = object_schema(name=string(9), parts=list_schema(9, string(9)))
LISTS = object_schema(things=list_schema(9, ITEM), ends=list_schema(9, string(9)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"things": [{"name": "a", "parts": ["b", "c"]}, {"name": "d', [("a", ["b", "c"])]),
        ('{"things": [{"name": "a", "parts": ["b", "c', [("a", ["b"])]),
        ('{"things": [{"name": "a", ', [("a", [])]),
        ('```json\n{"things": [{"name": "a", "parts": []}, {"na', [("a", [])]),
        ('{"things": [{"name": "a", "parts": []}, ' + "\n" * 999, [("a", [])]),
        ('{"things": [{"name": "a", "parts": 1}, {"name": "b", "parts": []}, {"na', None),
        ('{"things": [{"na', None),
        ('{"things": [', None),
        ("It begins", None),
        ("", None),
    ],
)
def test_the_items_before_the_cut_of_an_answer_count(text: str, value: list[tuple[str, list[str]]] | None) -> None:
    found = salvaged(completion(text, "length"), LISTS)
    things = [{"name": name, "parts": parts} for name, parts in value or ()]
    assert found == (None if value is None else {"things": things, "ends": []})
    assert salvaged(completion(text), LISTS) is None  # it was not cut off


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It is a bridge. It spans the 4.5 km of", "It is a bridge."),
        ("它是一座桥。它", "它是一座桥。"),
        ("It spans the 4.5 km", None),
    ],
)
def test_the_sentences_before_the_cut_of_a_text_count(text: str, value: str | None) -> None:
    cut = completion(json.dumps({"summary": text}, ensure_ascii=False)[:-2], "length")
    assert salvaged(cut, object_schema(summary=prose(20))) == (None if value is None else {"summary": value})


@given(st.integers(0, 200), st.lists(st.lists(st.text(max_size=5), max_size=3), min_size=1, max_size=4))
def test_wherever_an_answer_is_cut_no_item_is_changed(cut: int, parts: list[list[str]]) -> None:
    whole = {"things": [{"name": str(n), "parts": of} for n, of in enumerate(parts)], "ends": ["x"]}
    text = json.dumps(whole)[:cut]
    value = salvaged(completion(text, "length"), LISTS) or {"things": []}
    for n, thing in enumerate(value["things"]):
        assert thing["name"] == str(n)
        assert thing["parts"] == parts[n][: len(thing["parts"])]
        assert len(thing["parts"]) == len(parts[n]) or n == len(value["things"]) - 1


def test_a_value_fits_its_schema_or_not() -> None:
    assert fits(GOOD, SCHEMA)
    assert fits({"summary": "a", "names": [1, 2, 3, 4]}, SCHEMA)  # a longer list than requested can be used
    assert not fits({"summary": ""}, SCHEMA)
    assert not fits("text", SCHEMA)


def test_a_list_repeats_itself_if_fewer_than_half_of_its_items_differ() -> None:
    relation = {"source": "Ada Marl", "target": "Vell"}
    distinct = [{**relation, "relation": f"visited in {year}"} for year in range(1900, 1920)]
    assert not repeats_items({"units": [{"relations": distinct}]})
    assert repeats_items({"units": [{"relations": [relation] * 7 + distinct[:1]}]})
    assert not repeats_items({"names": ["Ada Marl"] * 7})
    assert not repeats_items({"summary": "The bridge fell. " * 60})
