"""Bodies of chat completions: their forms, and the bound on their tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.chat import RequestShape, chat_body, completion_of, input_bound, shapes, takes_strict
from indexmill.models.llm import Request, data_block
from indexmill.models.llm_errors import LlmUnreachable

CLOSED = {
    "type": "object",
    "properties": {"names": {"type": "array", "items": {"type": "string"}}},
    "required": ["names"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({key: value for key, value in CLOSED.items() if key != "additionalProperties"}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"names": {"type": "string", "maxLength": 9}}}, True),
        ({**CLOSED, "properties": {"names": {"type": "array", "items": {"type": "object"}}}}, False),
        ({**CLOSED, "properties": {"names": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"names": {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 1}]}}}, True),
        ({**CLOSED, "properties": {"names": {"type": "array", "uniqueItems": True}}}, False),
        ({**CLOSED, "$defs": {"open": {"type": "object", "properties": {"x": {"type": "string"}}}}}, False),
    ],
)
def test_strict_is_asked_for_where_the_schema_allows_it(schema: dict[str, Any], strict: bool) -> None:
    assert takes_strict(schema) == strict
    forms = [shape.form for shape in shapes("auto", schema, "max_tokens", lengths=False)]
    assert forms == ["strict", "json_schema", "json_object", "text"][not strict :]


def test_lengths_of_texts_are_in_all_requests_but_those_for_openai() -> None:
    schema = {**CLOSED, "properties": {"names": {"type": "array", "maxItems": 3, "items": {"maxLength": 9}}}}
    asked = Request("summary", "", "1", "", schema, 300)
    forms = {}
    tried = [shape.form for shape in shapes("auto", schema, "max_tokens")]
    assert tried == ["strict_lengths", "strict", "json_schema", "json_object", "text"]
    for form in tried[:3]:
        body = chat_body(asked, RequestShape(form, "max_tokens"), "small", None)  # type: ignore[arg-type]
        forms[form] = body["response_format"]["json_schema"]["schema"]
    assert forms["json_schema"] == forms["strict_lengths"] == schema
    assert forms["strict"] == {**CLOSED, "properties": {"names": {"type": "array", "maxItems": 3, "items": {}}}}


def test_a_setting_leaves_one_form() -> None:
    assert [shape.form for shape in shapes("json_object", CLOSED, "max_tokens")] == ["json_object"]
    assert [shape.form for shape in shapes("text", CLOSED, "max_tokens")] == ["text"]


texts = st.text(max_size=200)


@given(
    texts,
    texts,
    st.one_of(st.none(), st.tuples(texts, texts)),
    st.sampled_from(list(shapes("auto", CLOSED, "max_tokens"))),
)
def test_a_prompt_has_no_more_bytes_than_its_bound(
    instructions: str, text: str, correction: tuple[str, str] | None, shape: RequestShape
) -> None:
    asked = Request("summary", instructions, "1", data_block([text]), CLOSED, 300)
    body = chat_body(asked, shape, "small", 0.0, correction)
    sent = sum(len(message["content"].encode()) + 8 for message in body["messages"])
    form = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    assert sent + len(json.dumps(form)) <= input_bound(asked, correction)


def test_a_looping_answer_is_cut_before_it_is_shown_again() -> None:
    asked = Request("summary", "Do.", "1", "text", CLOSED, 50)
    for answer in ('{"names": ' + "\n" * 10_000, "x" * 10_000, "", "\ud800"):
        shown = chat_body(asked, RequestShape("text", "max_tokens"), "small", None, (answer, "bad"))["messages"][2][
            "content"
        ]
        assert 0 < len(shown) <= 400
        shown.encode()


@pytest.mark.parametrize(
    "body",
    [{}, {"choices": []}, {"choices": [None]}, {"choices": [{}]}, {"choices": "x"}, {"choices": [{"message": "x"}]}],
)
def test_what_is_no_chat_completion_is_no_answer(body: dict[str, Any]) -> None:
    with pytest.raises(LlmUnreachable, match=r"llm\.base_url"):
        completion_of(Request("t", "i", "1", "c", CLOSED, 5), body, "small", 9)


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        (None, "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("safety", "content_filter"),
        ("tool_calls", "tool_calls"),
    ],
)
def test_the_reasons_of_other_servers(reason: str | None, meant: str) -> None:
    body = {"choices": [{"message": {"content": "{}"}, "finish_reason": reason}]}
    assert completion_of(Request("t", "i", "1", "c", CLOSED, 5), body, "small", 9).finish_reason == meant


def test_what_a_model_thought_aloud_is_no_part_of_its_answer() -> None:
    body = {"choices": [{"message": {"content": '<think>\nhm {"x"}\n</think>\n\n{"names": []}'}}], "model": "big"}
    came = completion_of(Request("t", "i", "1", "c", CLOSED, 500), body, "small", 9)
    assert came.text == '{"names": []}'
    assert came.model == "big"
    assert came.output_tokens > len(came.text)


@pytest.mark.parametrize(
    "usage", [None, "x", {}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": True}]
)
def test_a_bill_that_cannot_be_read_is_estimated(usage: object) -> None:
    body = {"choices": [{"message": {"content": "abc"}}], "usage": usage}
    came = completion_of(Request("t", "i", "1", "c", CLOSED, 2), body, "small", 9)
    assert (came.input_tokens, came.output_tokens) == (9, 2)
