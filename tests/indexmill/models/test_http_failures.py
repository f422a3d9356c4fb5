"""What endpoints say when they do not answer, and what is made of it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.http_failures import HttpFailure, retry_after
from indexmill.models.llm_errors import LlmBusy, LlmForbidden, LlmRejected
from tests.llm_server import CANARY

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "600"}, 600.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "Tue, 14 Nov 2023 22:14:00 GMT"}, 20.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "today"}, 60.0),
    ],
)
def test_how_long_an_endpoint_wants_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_no_header_is_more_than_it_says(seconds: str, milliseconds: str, date: str) -> None:
    found = retry_after({"retry-after": seconds, "retry-after-ms": milliseconds, "date": date}, NOW)
    assert found is None or (found >= 0 and math.isfinite(found))


def failure(status: int, content: object) -> HttpFailure:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpFailure.of(status, {}, data, NOW)


@pytest.mark.parametrize(
    ("status", "error", "blamed"),
    [
        # OpenAI
        (400, {"message": "Invalid parameter: 'response_format' of type 'json_schema' is not supported."}, "form"),
        (400, {"message": "Invalid schema for response_format 'x'", "param": "response_format"}, "form"),
        (400, {"message": "Unsupported parameter: 'max_tokens' is not supported.", "param": "max_tokens"}, "limit"),
        (400, {"message": "Unsupported value: 'temperature' does not support 0."}, "temperature"),
        (400, {"message": "This model's maximum context length is 8192", "code": "context_length_exceeded"}, "length"),
        (400, {"message": "The response was filtered", "code": "content_filter"}, "subject"),
        # DeepSeek, Groq, LM Studio, llama.cpp
        (400, {"message": "This response_format type is unavailable now"}, "form"),
        (400, {"message": "This model does not support response format `json_schema`."}, "form"),
        (400, "'response_format.type' must be 'json_schema' or 'text'", "form"),
        (400, {"message": "failed to parse grammar"}, "form"),
        # statuses that blame nothing of the body
        (429, {"message": "response_format"}, ""),
        (500, {"message": "json_schema"}, ""),
    ],
)  # fmt: skip
def test_what_of_the_body_is_not_taken(status: int, error: object, blamed: str) -> None:
    assert failure(status, {"error": error}).blames() == blamed


def test_errors_in_the_form_of_other_servers() -> None:
    vllm = {
        "object": "error",
        "message": "max_completion_tokens",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    assert failure(400, vllm).blames() == "limit"
    fastapi = {"detail": [{"loc": ["body", "response_format"], "msg": "extra fields not permitted"}]}
    assert failure(422, fastapi).blames() == "form"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "invalid_api_key", LlmForbidden),
        (402, None, LlmForbidden),
        (403, None, LlmForbidden),
        (404, "model_not_found", LlmForbidden),
        (400, "model_not_found", LlmForbidden),
        (407, None, LlmForbidden),
        (307, None, LlmForbidden),
        (429, "insufficient_quota", LlmForbidden),
        (429, "rate_limit_exceeded", LlmBusy),
        (408, None, LlmBusy),
        (409, None, LlmBusy),
        (500, None, LlmBusy),
        (502, None, LlmBusy),
        (529, "overloaded_error", LlmBusy),
        (400, None, LlmRejected),
        (413, None, LlmRejected),
        (422, None, LlmRejected),
        (418, None, LlmRejected),
    ],
)
def test_each_status_is_one_of_the_errors(status: int, code: str | None, error: type[Exception]) -> None:
    made = failure(status, {"error": {"message": "m", "code": code}}).error("host", "small")
    assert type(made) is error
    assert made.retry == (error is LlmBusy)
    assert made.billed == ("maybe" if status in (408, 502) else "no")
    assert str(status) in str(made)
    if code is not None:
        assert code in str(made)


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"error": null}', b"7"])
def test_whatever_comes_with_a_status_is_understood(content: bytes) -> None:
    assert isinstance(failure(503, content).error("host", "small"), LlmBusy)
    assert isinstance(failure(400, content).error("host", "small"), LlmRejected)


def test_nothing_of_what_an_endpoint_writes_is_repeated_but_a_word() -> None:
    said = {"message": f"the prompt, and {CANARY}", "code": CANARY, "type": "the prompt again", "param": "p r o m p t"}
    for status in (307, 400, 401, 404, 407, 429, 500):
        made = str(failure(status, {"error": said}).error("host", "small"))
        assert CANARY not in made
        assert "prompt" not in made
