"""Whole builds whose vectors come from an endpoint, by real HTTP and the real client: what is paid, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexmill
from tests.corpora import Documents, documents, write_corpus
from tests.flows.asking import edited
from tests.flows.children import NO_FAMILIES, build, settings
from tests.llm_server import CANARY, LlmServer

PRICES = {"vectors-small": {"input_per_million": 20.0, "output_per_million": 0.0}}


@pytest.fixture(autouse=True)
def canary_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)


def endpoint(server: LlmServer, **more: Any) -> dict[str, Any]:
    """The settings of an encoder behind a server."""
    return {
        "backend": "openai",
        "model": "vectors-small",
        "base_url": server.base_url,
        "api_key_env": "CANARY_KEY",
        "tokenizer": "hash",
        "concurrency": 4,
        "batch_texts": 8,
        **more,
    }


def chosen(store: Path, server: LlmServer, rows: Documents, embed: dict[str, Any] | None = None, **more: Any) -> Any:
    """The settings of a build of these documents, whose vectors the server gives."""
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    plain = {"families": {**NO_FAMILIES}, "prices": PRICES, "run": {"workers": 1}, **more}
    return settings(store, corpus, **{**plain, "embed": endpoint(server, **(embed or {}))})


def test_a_build_pays_each_text_once_and_says_what_it_paid(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, documents(20))
        first = build(plain)
        bill = server.embeddings
        assert first.published
        assert bill.paid_twice() == {}
        assert (first.embed_calls, first.embed_tokens) == (bill.billed_calls, bill.tokens)
        assert first.cost == pytest.approx(bill.tokens * 20.0 / 1e6)
        assert max(len(body["input"]) for body in bill.bodies) <= 8
        calls = bill.calls
        again = build(plain)
        cold = build(plain, cold=True)
        assert bill.calls == calls
        assert not again.published
        assert cold.manifest == first.manifest
        assert cold.parts_differing == 0
        assert cold.embed_ledger == len(bill.texts) - 2  # without the two texts of the first question
    with indexmill.open(quick / "store") as snapshot:
        encoder = snapshot.manifest.models["encoder"]
        assert (encoder["backend"], encoder["model"], encoder["dimension"]) == ("openai", "vectors-small", 64)
        assert encoder["reproducible"] is False
        assert snapshot.manifest.minimum_reader_version == 4
        assert "127.0.0.1" not in str(snapshot.manifest.to_bytes())


def test_a_night_pays_only_for_what_changed(quick: Path) -> None:
    rows = documents(20)
    with LlmServer() as server:
        build(chosen(quick / "store", server, rows))
        before = set(server.embeddings.texts)
        tokens = server.embeddings.tokens
        night = build(chosen(quick / "store", server, edited(rows)))
        new = set(server.embeddings.texts) - before
        assert night.published
        assert night.embed_tokens == server.embeddings.tokens - tokens
        assert 0 < len(new) < 12
        assert all("Zed Vex" in text or "rook" in text.lower() for text in new), new
        assert server.embeddings.paid_twice() == {}
