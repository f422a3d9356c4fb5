"""The endpoint that other tests ask: its faults are a function of the seed, and its bill adds up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from indexmill.models.llm import Request, data_block
from indexmill.models.llm_errors import LlmError
from indexmill.models.openai_llm import OpenAiLlm
from tests.llm_server import KINDS, LOST, SPOILED, Faults, LlmServer

SCHEMA = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}
RATES = dict.fromkeys(sorted(KINDS - {"hang", "hang-billed", "400-response-format"}), 0.03)


def everything(faults: Faults, backwards: bool = False) -> tuple[dict[str, str], LlmServer]:
    """Ask forty prompts until each is answered; the answers, and the server when it has stopped."""
    texts = [f"Passage {number} about Anna Smith" for number in range(40)]

    async def one(llm: OpenAiLlm, text: str) -> tuple[str, str]:
        for _ in range(5):
            try:
                came = await llm.complete(Request("summary", "Do.", "1", data_block([text]), SCHEMA, 300))
            except LlmError:
                continue
            if came.finish_reason == "stop" and "summary" in came.text and "Here is" not in came.text:
                return text, came.text.removeprefix("Sure:\n```json\n").removesuffix("\n```\n")
        raise AssertionError("never answered")

    async def all_of_them(llm: OpenAiLlm) -> dict[str, str]:
        return dict(await asyncio.gather(*(one(llm, text) for text in (texts[::-1] if backwards else texts))))

    with LlmServer(faults=faults) as server:
        answers = asyncio.run(all_of_them(OpenAiLlm("small", server.base_url, timeout_seconds=30)))
    return answers, server


@pytest.mark.slow
@pytest.mark.usefixtures("_key")
def test_the_same_seed_brings_the_same_faults_in_any_order_and_no_other_answers() -> None:
    faults = Faults(rates=RATES, seed=3, slow_seconds=0.02)
    answers, server = everything(faults)
    again, other = everything(faults, backwards=True)
    assert server.faulted == other.faulted
    assert len(+server.faulted) > 10
    assert answers == again == everything(Faults())[0]
    assert server.billed.paid_twice() == {}
    kinds: Counter[str] = server.faulted
    assert server.billed.calls == 40 + sum(kinds[kind] for kind in (LOST - {"drop", "hang"}) | SPOILED)
    assert sum(server.billed.by_prompt.values()) == server.billed.calls
    assert server.billed.tokens > 0


@pytest.fixture
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        Faults(rates={"flood": 0.1})
