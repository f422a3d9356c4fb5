"""What every language model promises (`indexmill.models.llm.LLM`): a client of an endpoint, and what wraps one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.models import openai_llm
from indexmill.models.llm import LLM, Completion, Request, data_block
from indexmill.models.llm_errors import LlmBusy, LlmError, LlmForbidden, LlmRejected, LlmUnreachable
from indexmill.models.openai_llm import OpenAiLlm
from tests.llm_server import CANARY, Faults, LlmServer

MODELS: dict[str, Callable[[LLM, Path], LLM]] = {
    "endpoint": lambda llm, _: llm,
    "kept": lambda llm, folder: CachedLlm(llm, AnswerCache(folder / "answers.jsonl")),
}
SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}
REQUEST = Request("summary", "Summarise the texts.", "1", data_block(["Ida photographed the strike"]), SCHEMA, 200)


@pytest.fixture(params=MODELS)
def model_of(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[LlmServer], LLM]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    openai_llm._working_shapes.clear()
    openai_llm._without_streams.clear()
    return lambda server: MODELS[request.param](OpenAiLlm("small", server.base_url, timeout_seconds=20.0), tmp_path)


def ask(llm: LLM, correction: tuple[str, str] | None = None) -> Completion:
    async def asked() -> Completion:
        await llm.ready()
        return await llm.complete(REQUEST, correction)

    return asyncio.run(asked())


def test_an_answer_fits_the_schema_and_its_bill_the_bound(model_of: Callable[[LlmServer], LLM]) -> None:
    with LlmServer() as server:
        llm = model_of(server)
        came = ask(llm)
        assert set(json.loads(came.text)) == {"summary"}
        assert (came.finish_reason, came.model) == ("stop", "small")
        assert 0 < came.input_tokens <= llm.input_tokens(REQUEST)
        assert 0 < came.output_tokens <= REQUEST.max_output_tokens
        assert ask(llm).text == came.text  # in another event loop


def test_a_correction_is_within_its_bound(model_of: Callable[[LlmServer], LLM]) -> None:
    correction = ("no JSON", "expected an object")
    with LlmServer() as server:
        llm = model_of(server)
        assert llm.input_tokens(REQUEST) < llm.input_tokens(REQUEST, correction)
        assert ask(llm, correction).input_tokens <= llm.input_tokens(REQUEST, correction)


def test_the_fingerprint_is_plain_data_without_key_or_place(model_of: Callable[[LlmServer], LLM]) -> None:
    with LlmServer() as server:
        shown = json.dumps(dict(model_of(server).fingerprint))
    assert "small" in shown
    assert CANARY not in shown
    assert "127.0.0.1" not in shown


@pytest.mark.parametrize(
    ("kind", "error", "retry", "billed"),
    [
        ("429", LlmBusy, True, "no"),
        ("401", LlmForbidden, False, "no"),
        ("400", LlmRejected, False, "no"),
        ("drop-billed", LlmUnreachable, True, "maybe"),
    ],
)
def test_an_error_says_whether_to_try_again_and_the_next_request_is_answered(
    model_of: Callable[[LlmServer], LLM], kind: str, error: type[LlmError], retry: bool, billed: str
) -> None:
    with LlmServer(faults=Faults(by_number={1: kind})) as server:
        llm = model_of(server)
        with pytest.raises(error) as raised:
            ask(llm)
        assert (raised.value.retry, raised.value.billed) == (retry, billed)
        assert ask(llm).finish_reason == "stop"
