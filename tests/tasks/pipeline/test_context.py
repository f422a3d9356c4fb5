"""The context of a language model: where it comes from, and what it leaves for source texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import Configuration
from tasks.pipeline.context import with_context
from tests.llm_server import CANARY, LlmServer


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)


def configuration(server: LlmServer, **llm: Any) -> Configuration:
    chosen = {"backend": "openai", "model": "small", "base_url": server.base_url, "api_key_env": "CANARY_KEY", **llm}
    return Configuration.model_validate({"store": "s", "corpus": {"paths": ["c"]}, "llm": chosen})


def input_tokens(configured: Configuration) -> tuple[int, int, int, int | None]:
    families = configured.families
    return (
        configured.resolve.description.input_tokens,
        families.community_tree.input_tokens,
        families.heterograph.input_tokens,
        configured.llm.sources_room(),
    )


@pytest.mark.parametrize(
    ("context", "tokens"),
    [
        (2_048, (477, 477, 159, 477)),
        (4_096, (1_629, 1_629, 543, 1_629)),
        (131_072, (2_000, 3_000, 3_000, None)),
    ],
)
def test_source_texts_fit_into_the_context(context: int, tokens: tuple[int, int, int, int | None]) -> None:
    notes: list[str] = []
    with LlmServer() as server:
        server.models = [{"id": "small", "max_model_len": context}]
        fitted = with_context(configuration(server), None, notes.append)
    assert input_tokens(fitted) == tokens
    assert fitted.llm.context_tokens == (context if context < 9_999 else None)  # of a large one nothing depends
    assert notes == (
        [f"the context of small has {context:,} tokens: its prompts contain fewer source texts"] * (context < 9_999)
    )


def test_the_setting_counts_before_the_endpoint_and_the_published_version_after_it() -> None:
    published: Any = SimpleNamespace(models={"context_tokens": 4_096})
    with LlmServer() as server:
        server.models = [{"id": "small", "max_model_len": 2_048}]
        assert with_context(configuration(server, context_tokens=8_192), published).llm.context_tokens == 8_192
        assert with_context(configuration(server), published).llm.context_tokens == 2_048
        server.models = None
        unchanged = configuration(server)
        assert with_context(unchanged, published).llm.context_tokens == 4_096
        assert with_context(unchanged, None) is unchanged
    without: Any = {"store": "s", "corpus": {"paths": ["c"]}}
    extractive = Configuration.model_validate(without)
    assert with_context(extractive, published) is extractive
