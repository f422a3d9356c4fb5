"""What of an endpoint's answers is used, and what is said of the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexmill.models.llm import Completion
from indexmill.models.readable import BadAnswer
from tasks.llm.answer_parsing import fits, read

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
        (json.dumps(GOOD), "length", "cut-off"),
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
        ('{"summary": "a", "names": [1, 2, 3, 4]}', "stop", "wrong-schema: properties/names/maxItems is 3"),
    ],
)
def test_what_cannot_be_used_is_told_without_a_word_of_it(text: str, finish_reason: str, reason: str) -> None:
    with pytest.raises(BadAnswer) as raised:
        read(completion(text, finish_reason), SCHEMA)
    assert raised.value.reason == reason
    assert CANARY not in str(raised.value)


def test_a_value_fits_its_schema_or_not() -> None:
    assert fits(GOOD, SCHEMA)
    assert not fits({"summary": ""}, SCHEMA)
    assert not fits("text", SCHEMA)
