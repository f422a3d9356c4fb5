"""Vectors by OpenAI's protocol: the real client against a real server, and every answer that is none."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, IndexmillError
from indexmill.models import openai_embeddings
from indexmill.models.embedder import NO_PROMPTS, HashEmbedder, Prompts
from indexmill.models.endpoint import Endpoint
from indexmill.models.endpoint_embedder import EndpointEmbedder, EndpointModel
from indexmill.models.endpoint_questions import endpoint_encoder
from indexmill.models.llm_errors import LlmBusy, LlmError, LlmForbidden, LlmRejected, LlmUnreachable, LlmUnusable
from indexmill.models.openai_embeddings import EmbeddingResponse, OpenAiEmbeddings, most_tokens, open_embeddings
from indexmill.models.retries import RetryLimits
from tests.llm_embeddings import SPOILED_VECTORS, Embeddings
from tests.llm_server import CANARY, LlmServer

pytestmark = pytest.mark.usefixtures("endpoint")

TEXTS = ["Ida Vantongeren photographed the strike", "Kelvergate", "1921"]


def client(server: LlmServer, **settings: Any) -> OpenAiEmbeddings:
    return OpenAiEmbeddings("small", server.base_url, **{"timeout_seconds": 20.0, **settings})


def ask(
    endpoint: OpenAiEmbeddings, texts: list[str] = TEXTS, dimension: int | None = None
) -> EmbeddingResponse | LlmError:
    """The answer, or the error in its place."""

    async def one() -> EmbeddingResponse:
        return await endpoint.embed(texts, "vector", dimension)

    try:
        return asyncio.run(one())
    except LlmError as error:
        return error


def answer(rule: Any, **settings: Any) -> EmbeddingResponse | LlmError:
    with LlmServer(embeddings=Embeddings(rule=lambda number, texts: rule)) as server:
        return ask(client(server, **settings))


def test_each_text_gets_its_own_vector_of_length_one_whatever_the_order_of_the_answer() -> None:
    with LlmServer() as server:
        came = ask(client(server))
        assert isinstance(came, EmbeddingResponse)
        assert came.vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(came.vectors, axis=1), 1.0)
        assert np.allclose(came.vectors, HashEmbedder().encode(TEXTS), atol=2e-3)
        assert (came.input_tokens, came.output_tokens) == (server.embeddings.tokens, 0)


def test_numbers_as_text_and_in_base64_are_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_embeddings, "_plain", set())
    with LlmServer(embeddings=Embeddings(jitter=0.0)) as server:
        packed = ask(client(server))
        server.embeddings.takes_base64 = False
        plain = ask(client(server))
        assert isinstance(packed, EmbeddingResponse)
        assert isinstance(plain, EmbeddingResponse)
        assert np.array_equal(packed.vectors, plain.vectors)
        assert [body["encoding_format"] for body in server.embeddings.bodies] == ["base64", "base64", "float"]
        ask(client(server))
        assert server.embeddings.bodies[-1]["encoding_format"] == "float"  # found out once


@pytest.mark.parametrize("kind", sorted(SPOILED_VECTORS))
def test_an_answer_that_is_none_is_told_and_may_be_asked_for_again(kind: str) -> None:
    error = answer(kind)
    assert isinstance(error, LlmUnreachable)
    assert (error.retry, error.useless_response) == (True, True)
    assert "Kelvergate" not in str(error)
    if kind not in ("html", "no-list"):
        assert not isinstance(error.billed, str)
        assert error.billed.input_tokens == HashEmbedder().count_tokens(TEXTS).sum()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("429", LlmBusy), ("500", LlmBusy), ("400", LlmRejected), ("401", LlmForbidden), ("drop", LlmUnreachable)],
)
def test_failures_are_those_of_every_model(kind: str, expected: type[LlmError]) -> None:
    error = answer(kind)
    assert type(error) is expected
    assert "Kelvergate" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "other than a list of vectors"),
        (b'{"data": [{"index": true, "embedding": [1.0]}]}', "for a text that was not sent"),
        (b'{"data": [{"index": -1, "embedding": [1.0]}]}', "for a text that was not sent"),
        (b'{"data": [{"index": 0, "embedding": [true]}]}', "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": []}]}', "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": [1e300]}]}', "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b"]}]}", "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": [1e-30, 0]}]}', "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}]}', "an invalid vector"),
        (b'{"data": [{"index": 0, "embedding": "AAA="}]}', "an invalid vector"),
        (b'{"data": [7]}', "for a text that was not sent"),
        (b'{"data": []}', "0 vectors for 1 texts"),
        (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "other than a list of vectors"),
    ],
)
def test_hostile_bodies_are_refused(body: bytes, problem: str) -> None:
    error = OpenAiEmbeddings("small")._read(body, ["text"], None)
    assert isinstance(error, LlmError)
    assert problem in str(error)


def test_an_answer_without_usage_costs_what_it_may_have_cost() -> None:
    came = answer("no-usage")
    assert isinstance(came, EmbeddingResponse)
    assert came.input_tokens == most_tokens(TEXTS)


def test_a_vector_of_another_dimension_names_the_setting() -> None:
    with LlmServer(embeddings=Embeddings(takes_dimensions=None)) as server:
        overlooked = ask(client(server, dimensions=32))
        changed = ask(client(server), dimension=32)
    assert isinstance(overlooked, LlmForbidden)
    assert "it ignores `dimensions`: set embed.dimensions to null" in str(overlooked)
    assert isinstance(changed, LlmForbidden)
    assert "the name now refers to another model: see embed.model and embed.base_url" in str(changed)


def test_a_copy_in_another_process_is_the_same_and_carries_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    endpoint = OpenAiEmbeddings("small", "http://host/v1", dimensions=32)
    data = pickle.dumps(endpoint)
    assert CANARY.encode() not in data
    assert pickle.loads(data) == endpoint  # noqa: S301 - from ourselves
    assert repr(endpoint) == "OpenAiEmbeddings('small' at host)"


def test_settings_name_the_section_in_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(LlmForbidden, match=r"no key for the encoder: .*embed.api_key_env.*embed.api_key_file"):
        open_embeddings(Endpoint("small")).check()
    with pytest.raises(ConfigurationError, match=r"embed.ca_file: .* No such file"):
        open_embeddings(Endpoint("small", ca_file=tmp_path / "none.pem")).check()
    with pytest.raises(ConfigurationError, match=r"embed.token_provider: no.such:thing cannot be imported"):
        open_embeddings(Endpoint("small", token_provider="no.such:thing")).check()  # noqa: S106 - the name of a function
    with pytest.raises(ConfigurationError, match=r"embed.base_url: expected http"):
        open_embeddings(Endpoint("small", base_url="ftp://host"))
    assert open_embeddings(Endpoint("small", base_url="http://host/v1")).cautions() == [
        "the key and all texts go to host without encryption: use https in embed.base_url"
    ]


# What is sent


def embedder(prompts: Prompts = NO_PROMPTS, most: int = 12) -> tuple[EndpointEmbedder, list[str]]:
    sent: list[str] = []

    def vectors(texts: list[str], tokens: list[int]) -> Any:
        sent.extend(texts)
        assert tokens == [int(count) for count in HashEmbedder().count_tokens(texts)]
        return HashEmbedder(8192).encode(texts)

    return EndpointEmbedder(EndpointModel("m", 64, "", prompts), HashEmbedder(most), vectors), sent


def test_long_texts_are_cut_at_a_token_and_blank_ones_are_sent_as_a_stop() -> None:
    found, sent = embedder()
    found.encode(["one two three", " ".join("abcdefghijklmnop"), "", " \n", "a\ud800"])
    assert sent == ["one two three", "a b c d e f g h i j", ".", ".", "a?"]


def test_prompts_stand_before_what_is_read_and_leave_room_for_it() -> None:
    found, sent = embedder(Prompts("ask: ", "read this here: "), most=12)
    found.encode(["x " * 20])
    found.encode_queries(["x " * 20])
    assert sent[0] == "read this here: " + ("x " * 10).strip()
    assert sent[1] == "ask: " + ("x " * 12).strip()  # four tokens of one prompt, two of the other


def test_sentences_are_texts_of_their_own() -> None:
    found, sent = embedder()
    whole, spans = found.encode_with_spans(["ab cd", "ef"], [[(0, 2), (3, 5)], []])
    assert sent == ["ab cd", "ef", "ab", "cd"]
    assert (whole.shape, spans.shape) == ((2, 64), (2, 64))
    assert not found.pools_spans


def test_an_encoder_of_another_dimension_is_no_encoder_of_the_index() -> None:
    found = EndpointEmbedder(EndpointModel("m", 32), HashEmbedder(), lambda texts, tokens: HashEmbedder().encode(texts))
    with pytest.raises(ConfigurationError, match="vectors of dimension 64, but the index has dimension 32"):
        found.encode(["a"])


# Readers


MADE_BY = {"backend": "openai", "model": "small", "dimension": 64, "max_tokens": 256, "tokenizer": ""}


@pytest.mark.parametrize(
    "damage",
    [
        {"dimension": 0},
        {"dimension": 10**9},
        {"dimension": True},
        {"dimension": "64"},
        {"max_tokens": 1},
        {"model": None},
        {"asked_dimension": "64"},
        {"query_prompt": "x" * 5000},
        {"document_prompt": 7},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_before_anything_is_asked(damage: dict[str, Any]) -> None:
    with LlmServer() as server:
        with pytest.raises(CorruptBlob):
            endpoint_encoder(client(server), {**MADE_BY, **damage}, None)
        assert server.requests == []


def test_a_reader_gives_up_after_a_few_attempts_and_the_error_holds_no_text() -> None:
    with LlmServer(embeddings=Embeddings(rule=lambda number, texts: "429-ms")) as server:
        found = endpoint_encoder(client(server), MADE_BY, None, RetryLimits(attempts=2))
        with pytest.raises(LlmBusy, match="gave up after 2 attempts") as caught:
            found.encode_queries(TEXTS[1:2])
        assert server.embeddings.calls == 2
    assert "Kelvergate" not in "".join(traceback.format_exception(caught.value))


def test_an_answer_larger_than_any_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenAiEmbeddings, "largest", 100)
    error = answer(None)
    assert isinstance(error, LlmUnusable)
    assert isinstance(error, IndexmillError)
