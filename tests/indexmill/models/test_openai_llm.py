"""The back-end for OpenAI's protocol: the real client against a real server, and every way in which that goes wrong."""

from __future__ import annotations

import asyncio
import datetime
import gc
import ipaddress
import logging
import pickle
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from indexmill.errors import ConfigurationError, IndexmillError, ModelUnavailable
from indexmill.models import chat_stream
from indexmill.models.endpoint import Endpoint
from indexmill.models.llm import Completion, Request, data_block
from indexmill.models.llm_errors import LlmBusy, LlmError, LlmForbidden, LlmRejected, LlmUnreachable
from indexmill.models.openai_llm import LlmOptions, OpenAiLlm, open_llm
from indexmill.models.secrets import KeySource
from tests.llm_server import CANARY, SPOILED, Faults, LlmServer, Reply

pytestmark = pytest.mark.usefixtures("endpoint")

SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}
TEXT = "Ida Vantongeren photographed the strike at Kelvergate"


def request(text: str = TEXT, **more: Any) -> Request:
    return Request("summary", "Summarise the texts.", "1", data_block([text]), SCHEMA, 200, **more)


def llm_of(server: LlmServer, **settings: Any) -> OpenAiLlm:
    return OpenAiLlm("small", server.base_url, **{"timeout_seconds": 20.0, **settings})


def ask(llm: OpenAiLlm, *requests: Request, correction: tuple[str, str] | None = None) -> list[Completion | LlmError]:
    """The answers, or the errors in their place, asked one after the other."""

    async def all_of_them() -> list[Any]:
        came: list[Any] = []
        for one in requests or (request(),):
            try:
                came.append(await llm.complete(one, correction))
            except IndexmillError as error:
                came.append(error)
        return came

    return asyncio.run(all_of_them())


def ask_one(llm: OpenAiLlm, correction: tuple[str, str] | None = None) -> Any:
    return ask(llm, correction=correction)[0]


def test_an_answer_comes_with_its_cost_and_the_connection_is_closed() -> None:
    with LlmServer() as server:
        came = ask_one(llm_of(server))
        (sent,) = server.chats
    assert came.text.startswith('{"summary": "Ida Vantongeren')
    assert (came.finish_reason, came.model) == ("stop", "small")
    assert (came.input_tokens, came.output_tokens) == (server.billed.input_tokens, server.billed.output_tokens)
    assert sent.headers["authorization"] == f"Bearer {CANARY}"
    assert sent.json() == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Summarise the texts."},
            {"role": "user", "content": data_block([TEXT])},
        ],
        "max_tokens": 200,
        "temperature": 0.0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "summary", "schema": SCHEMA, "strict": True},
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("kind", "error", "retry", "after", "billed"),
    [
        ("429", LlmBusy, True, None, "no"),
        ("429-seconds", LlmBusy, True, 0.05, "no"),
        ("429-ms", LlmBusy, True, 0.05, "no"),
        ("429-600", LlmBusy, True, 600.0, "no"),
        ("429-date", LlmBusy, True, 1.0, "no"),
        ("500", LlmBusy, True, None, "no"),
        ("503", LlmBusy, True, None, "no"),
        ("503-seconds", LlmBusy, True, 0.05, "no"),
        ("429-quota", LlmForbidden, False, None, "no"),
        ("401", LlmForbidden, False, None, "no"),
        ("403", LlmForbidden, False, None, "no"),
        ("404", LlmForbidden, False, None, "no"),
        ("400", LlmRejected, False, None, "no"),
        ("422", LlmRejected, False, None, "no"),
        ("drop", LlmUnreachable, True, None, "maybe"),
        ("drop-billed", LlmUnreachable, True, None, "maybe"),
        ("drop-midway", LlmUnreachable, True, None, "maybe"),
        ("hang", LlmUnreachable, True, None, "maybe"),
        ("hang-billed", LlmUnreachable, True, None, "maybe"),
        ("html", LlmUnreachable, True, None, "maybe"),
    ],
)
def test_what_goes_wrong_says_whether_to_try_again_and_tells_no_secret(
    kind: str,
    error: type[LlmError],
    retry: bool,
    after: float | None,
    billed: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    came: Any = None
    with LlmServer(faults=Faults(by_number={1: kind})) as server:
        try:
            asyncio.run(_asked(llm_of(server, timeout_seconds=0.3 if "hang" in kind else 20.0)))
        except LlmError as caught:
            came = caught
    assert type(came) is error
    assert (came.retry, came.billed) == (retry, billed)
    assert came.retry_after == pytest.approx(after) if after else came.retry_after is None
    assert came.exit_code == (2 if error is LlmForbidden else 1)
    shown = "".join(traceback.TracebackException.from_exception(came, capture_locals=True).format())
    told = f"{came} {came!r} {shown} {caplog.text} {[vars(record) for record in caplog.records]}"
    assert CANARY not in told
    assert "Vantongeren" not in told
    assert came.__cause__ is None
    assert came.__context__ is None


async def _asked(llm: OpenAiLlm) -> Completion:
    return await llm.complete(request())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("truncated", "length"),
        ("whitespace", "length"),
        ("refusal", "refusal"),
        ("content-filter", "content_filter"),
        *((kind, "stop") for kind in ("not-json", "wrong-schema", "empty", "fenced", "slow", "no-usage")),
    ],
)
def test_an_answer_tells_how_it_ended(kind: str, reason: str) -> None:
    with LlmServer(faults=Faults(by_number={1: kind}, slow_seconds=0.05)) as server:
        came = ask_one(llm_of(server))
    assert came.finish_reason == reason
    assert (kind in SPOILED) == ("Kelvergate" not in came.text or kind in {"not-json", "truncated"})


def test_an_endpoint_that_tells_no_usage_is_taken_to_have_used_more() -> None:
    with LlmServer(faults=Faults(by_number={1: "no-usage"})) as server:
        llm = llm_of(server)
        came = ask_one(llm)
    assert came.input_tokens == llm.input_tokens(request()) > server.billed.input_tokens
    assert 200 >= came.output_tokens > server.billed.output_tokens


def test_an_answer_that_trickles_ends_at_the_timeout() -> None:
    with LlmServer(faults=Faults(by_number={1: "slow"}, slow_seconds=30.0)) as server:
        began = time.monotonic()
        came = ask_one(llm_of(server, timeout_seconds=0.5))
        assert time.monotonic() - began < 5
    assert isinstance(came, LlmUnreachable)
    assert "llm.timeout_seconds" in str(came)


def test_an_answer_may_take_longer_than_the_timeout_while_it_is_being_written() -> None:
    with LlmServer(faults=Faults(by_number={1: "slow"}, slow_seconds=2.0), seconds=0.1) as server:
        came = ask_one(llm_of(server, timeout_seconds=0.8))
    assert (came.finish_reason, came.output_tokens) == ("stop", server.billed.output_tokens)
    assert 0.1 <= came.waited < 1.9


def test_an_answer_that_is_written_for_ever_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_stream, "LONGEST", 1)
    with LlmServer(faults=Faults(by_number={1: "slow"}, slow_seconds=8.0)) as server:
        came = ask_one(llm_of(server, timeout_seconds=2.0))
    assert came.finish_reason == "length"
    assert came.text.startswith('{"summary": "Ida')


def test_an_endpoint_that_ignores_the_limit_is_not_read_to_the_end() -> None:
    with LlmServer(answer=lambda chat: {"summary": "on and " * 20_000}) as server:
        came = ask_one(llm_of(server))
    assert came.finish_reason == "length"
    assert len(came.text) < 50_000
    assert came.output_tokens == 200


def test_an_endpoint_without_streams_is_asked_for_none() -> None:
    with LlmServer(lacks=("stream_options",)) as server:
        first, second = ask(llm_of(server), request(), request("Another text"))
        assert ["stream" in received.json() for received in server.chats] == [True, False, False]
    with LlmServer() as server:
        server.streams = False  # though it is asked for one
        third = ask_one(llm_of(server))
    assert [came.finish_reason for came in (first, second, third)] == ["stop"] * 3  # type: ignore[union-attr]


def test_an_error_within_a_stream_is_tried_again() -> None:
    class Failing(LlmServer):
        def reply(self, *received: Any) -> Reply:
            error = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
            return Reply(200, error, {"content-type": "text/event-stream"})

    with Failing() as server:
        came = ask_one(llm_of(server))
    assert isinstance(came, LlmBusy)
    assert "memory" not in str(came)


def test_a_stream_that_says_nothing_is_no_answer() -> None:
    class Empty(LlmServer):
        def reply(self, *received: Any) -> Reply:
            return Reply(200, b"data: [DONE]\n\n", {"content-type": "text/event-stream"})

    with Empty() as server:
        came = ask_one(llm_of(server))
    assert isinstance(came, LlmUnreachable)


@pytest.mark.parametrize(
    ("models", "context"),
    [
        ([{"id": "other", "max_model_len": 9_000}, {"id": "small", "max_model_len": 8_192}], 8_192),  # vLLM
        ([{"id": "gguf", "meta": {"n_ctx": 4_096, "n_ctx_train": 8_192}}], 4_096),  # llama.cpp
        ([{"id": "small", "context_length": 131_072}], 131_072),
        ([{"id": "small", "max_model_len": "8192"}], None),
        ([{"id": "small", "max_model_len": 0}], None),
        ([{"id": "small", "object": "model"}], None),  # OpenAI, Ollama
        (["small"], None),
        ([], None),
        (None, None),
    ],
)
def test_the_context_is_what_the_endpoint_says(models: Any, context: int | None) -> None:
    with LlmServer() as server:
        server.models = models
        assert asyncio.run(llm_of(server).context()) == context
        assert server.billed.calls == 0
    assert asyncio.run(llm_of(server).context()) is None  # where nobody answers


_OPENAI = "This model's maximum context length is {} tokens. However, you requested 500 tokens (300 in the messages)"
_VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: 200. This model's maximum context length is 420 tokens and "
    "your request has 300 input tokens (200 > 420 - 300)."
)
_TGI = "`inputs` tokens + `max_new_tokens` must be <= 420. Given: 300 `inputs` tokens and 200 `max_new_tokens`"
_LM_STUDIO = "Trying to keep the first 300 tokens. However, the model is loaded with context length of only 290 tokens"
_LLAMA_CPP = "the request exceeds the available context size, try increasing it"


@pytest.mark.parametrize(
    ("room", "message"),
    [
        (120, _OPENAI.format(420)),
        (120, _VLLM),
        (120, _TGI),
        (0, _OPENAI.format(290)),
        (0, _LM_STUDIO),
        (0, _LLAMA_CPP),
    ],
)
def test_an_answer_gets_the_room_that_the_context_leaves(room: int, message: str) -> None:
    class Small(LlmServer):
        def _answered(self, received: Any, chat: Any, fault: Any) -> Reply | None:
            if chat["max_tokens"] > room:
                return Reply.error(400, message)
            return super()._answered(received, chat, fault)

    with Small() as server:
        came = ask_one(llm_of(server))
        limits = [received.json()["max_tokens"] for received in server.chats]
    if room:
        assert limits == [200, 120]
        assert came.finish_reason == "stop"
    else:
        assert limits == [200]
        assert isinstance(came, LlmRejected)
        assert came.of_prompt


def test_where_nobody_listens_nothing_was_billed() -> None:
    with LlmServer() as server:
        llm = llm_of(server)
    came = ask_one(llm)
    assert isinstance(came, LlmUnreachable)
    assert (came.retry, came.billed) == (True, "no")
    assert "llm.base_url" in str(came)


@pytest.mark.parametrize(
    ("lacks", "forms"),
    [
        ((), ["json_schema"]),
        (("json_schema",), ["json_schema", "json_schema", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_schema", "json_object", "text"]),
    ],
)
def test_what_an_endpoint_lacks_is_found_out_once(lacks: tuple[str, ...], forms: list[str]) -> None:
    with LlmServer(lacks=lacks) as server:
        first, second = ask(llm_of(server), request(), request("Another text"))
        ask(llm_of(server), request("A third"))
        asked = [received.json().get("response_format", {}).get("type", "text") for received in server.chats]
        last = server.chats[-1].json()["messages"][0]["content"]
    assert asked == [*forms, forms[-1], forms[-1]]
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert ("JSON schema" in last) == (forms[-1] != "json_schema")
    assert server.billed.calls == 3


def test_the_form_of_the_answer_does_not_change_it() -> None:
    answers = set()
    for lacks in ((), ("json_schema",), ("json_schema", "json_object")):
        with LlmServer(lacks=lacks) as server:
            answers.add(ask_one(llm_of(server)).text)
            assert list(server.billed.by_prompt) == ["".join(server.billed.by_prompt)]
    assert len(answers) == 1


def test_a_form_that_the_settings_insist_on_is_not_given_up() -> None:
    with LlmServer(lacks=("json_schema",)) as server:
        came = ask_one(llm_of(server, structured="json_schema"))
        assert len(server.chats) == 2  # strict, and not
    assert isinstance(came, LlmForbidden)
    assert "llm.structured" in str(came)


def test_the_limit_goes_by_the_name_that_the_model_knows() -> None:
    with LlmServer(lacks=("max_tokens",)) as server:
        first, second = ask(llm_of(server), request(), request("Another"))
        sent = [received.json() for received in server.chats]
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert [body.get("max_tokens") for body in sent] == [200, None, None]
    assert [body.get("max_completion_tokens") for body in sent] == [None, 200, 200]


def test_a_model_that_takes_no_temperature() -> None:
    with LlmServer(lacks=("temperature",)) as server:
        refused = ask_one(llm_of(server))
        came = ask_one(llm_of(server, temperature=None))
    assert isinstance(refused, LlmForbidden)
    assert "llm.temperature" in str(refused)
    assert isinstance(came, Completion)


def test_a_correction_shows_the_answer_and_what_is_wrong_with_it() -> None:
    with LlmServer(faults=Faults(by_number={1: "wrong-schema"})) as server:
        llm = llm_of(server)
        bad = ask_one(llm)
        came = ask_one(llm, correction=(bad.text, "the property summary is missing"))
        (first, second) = server.chats
    assert second.repair
    assert second.prompt == first.prompt
    asked = second.json()["messages"]
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "user"]
    assert asked[2]["content"] == bad.text
    assert "the property summary is missing" in asked[3]["content"]
    assert came.finish_reason == "stop"
    assert llm.input_tokens(request(), (bad.text, "the property summary is missing")) > came.input_tokens


def test_gateways_that_answer_200_and_mean_an_error() -> None:
    def answer(_: object) -> str:
        raise AssertionError("not reached")

    class Gateway(LlmServer):
        def complete(self, chat: Any, fault: str | None = None) -> tuple[dict[str, Any], Any]:
            return {"error": {"code": 429, "message": f"upstream is busy with {chat['messages'][1]}"}}, (0, 0)

    with Gateway(answer) as server:
        came = ask_one(llm_of(server))
    assert isinstance(came, LlmBusy)
    assert "Vantongeren" not in str(came)


# --- the key -------------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_forbidden() -> None:
    with LlmServer(keys=["another"]) as server:
        came = ask_one(llm_of(server))
    assert isinstance(came, LlmForbidden)
    assert "llm.api_key_env" in str(came)
    assert CANARY not in str(came)


def test_a_renewed_key_file_is_used_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("first-key-of-the-file\n", encoding="utf-8")
    path.chmod(0o600)

    async def twice(llm: OpenAiLlm) -> None:
        await llm.complete(request())
        path.write_text("second-key-of-the-file\n", encoding="utf-8")
        await llm.complete(request())

    with LlmServer() as server:
        asyncio.run(twice(llm_of(server, keys=KeySource(file=path))))
        sent = [received.headers["authorization"] for received in server.chats]
    assert sent == ["Bearer first-key-of-the-file", "Bearer second-key-of-the-file"]


_handed_out = 0


def provide() -> str:
    """A token provider."""
    global _handed_out
    _handed_out += 1
    return f"short-lived-token-{_handed_out}"


async def provide_later() -> str:
    """A token provider that is a coroutine."""
    await asyncio.sleep(0)
    return provide()


def provide_badly() -> str:
    """A token provider that fails, with a secret in its message."""
    raise RuntimeError(f"no token for {CANARY}")


def provide_nothing() -> None:
    """A token provider that returns no text."""


@pytest.mark.parametrize("name", ["provide", "provide_later"])
def test_a_token_provider_is_called_for_every_request(name: str) -> None:
    with LlmServer() as server:
        ask(llm_of(server, keys=KeySource(provider=f"{__name__}:{name}")), request("a"), request("b"))
        tokens = [received.headers["authorization"] for received in server.chats]
    assert len(set(tokens)) == 2
    assert all(token.startswith("Bearer short-lived-token-") for token in tokens)


@pytest.mark.parametrize(
    ("name", "said"), [("provide_badly", "raised RuntimeError"), ("provide_nothing", "returned NoneType")]
)
def test_a_token_provider_that_fails_stops_the_run(name: str, said: str) -> None:
    with LlmServer() as server:
        came = ask_one(llm_of(server, keys=KeySource(provider=f"{__name__}:{name}")))
        assert server.requests == []
    assert isinstance(came, LlmForbidden)
    assert said in str(came)
    shown = "".join(traceback.TracebackException.from_exception(came, capture_locals=True).format())
    assert CANARY not in shown


def options(**settings: Any) -> Any:
    return Endpoint(**{"model": "small", "timeout_seconds": 20.0, **settings})


def test_an_endpoint_of_ones_own_may_ask_for_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with LlmServer() as server:
        came = ask_one(open_llm(options(base_url=server.base_url)))
        assert "authorization" not in server.chats[0].headers
    assert isinstance(came, Completion)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "OPENAI_API_KEY"),
        ({"base_url": "http://localhost:1/v1", "api_key_env": "MY_KEY"}, "MY_KEY"),
        ({"api_key_file": Path("nowhere/key")}, "llm.api_key_file"),
        ({"base_url": "http://localhost:1/v1", "api_key_file": Path("nowhere/key")}, "llm.api_key_file"),
    ],
)
def test_a_key_that_should_be_there_is_missed_before_anything_is_asked(
    settings: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    llm = open_llm(options(**settings))
    with pytest.raises(LlmForbidden, match=named):
        llm.check()
    assert any(named in caution for caution in llm.cautions())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": None}, "llm.model"),
        ({"base_url": "localhost:8000"}, "llm.base_url"),
        ({"ca_file": Path(__file__)}, "llm.ca_file"),
        ({"ca_file": Path("nowhere.pem")}, "llm.ca_file"),
        ({"token_provider": "no.such.module:token"}, "llm.token_provider"),
        ({"token_provider": f"{__name__}:nothing_here"}, "llm.token_provider"),
        ({"token_provider": f"{__name__}:SCHEMA"}, "llm.token_provider"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        open_llm(options(**settings)).check()


def test_another_backend_has_no_model_to_ask() -> None:
    with pytest.raises(ConfigurationError, match=r"llm\.backend"):
        open_llm(cast(LlmOptions, SimpleNamespace(backend="extractive", model="small")))


def test_openai_is_the_endpoint_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example/v1")
    llm = open_llm(options())
    assert llm.where == "api.openai.com"
    assert "max_completion_tokens" in llm.body(request())
    assert llm.cautions() == []


def test_a_reader_without_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelUnavailable, match="pip install"):
        open_llm(options()).check()
    assert ask_one(OpenAiLlm("small")).exit_code == 2


# --- ways there ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "indexmill tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + made.public_bytes(pem)
    )
    return path


def test_a_certificate_of_ones_own_is_trusted_where_the_setting_says_so(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with LlmServer(tls=tls) as server:
        refused = ask_one(llm_of(server))
        came = ask_one(llm_of(server, ca_file=certificate))
    assert isinstance(refused, LlmForbidden)
    assert "llm.ca_file" in str(refused)
    assert isinstance(came, Completion)


def test_a_proxy_is_asked_in_the_endpoints_place() -> None:
    with LlmServer() as proxy:
        llm = OpenAiLlm("small", "http://model.example/v1", proxy=proxy.url.replace("//", "//user:word-of-the-proxy@"))
        came = ask_one(llm)
        (sent,) = proxy.chats
    assert isinstance(came, Completion)
    assert sent.headers["host"] == "model.example"
    assert sent.headers["proxy-authorization"].startswith("Basic ")


def test_neither_address_nor_password_shows() -> None:
    llm = OpenAiLlm("small", "https://user:word-of-mine@host:8443/v1", proxy="http://user:word-of-mine@proxy:1")
    assert repr(llm) == "OpenAiLlm('small' at host:8443)"
    assert "word-of-mine" not in str(
        ask_one(replace(llm, base_url="http://user:word-of-mine@127.0.0.1:9/v1", proxy=None))
    )
    assert llm.fingerprint == {"backend": "openai", "model": "small", "temperature": 0.0}


def test_a_request_and_its_answer_do_not_show_their_texts() -> None:
    assert "Kelvergate" not in repr(request())
    assert "Kelvergate" not in repr(Completion("Kelvergate", "stop", 1, 1, "small"))


# --- many at once --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_calls_are_in_flight_at_once() -> None:
    async def all_of_them(llm: OpenAiLlm) -> list[Completion]:
        return await asyncio.gather(*(llm.complete(request(f"Text {number}")) for number in range(60)))

    with LlmServer(seconds=0.3) as server:
        came = asyncio.run(all_of_them(llm_of(server)))
        assert server.most_in_flight > 30
    assert len({one.text for one in came}) == 60


def test_a_call_that_is_given_up_leaves_no_connection() -> None:
    async def given_up(llm: OpenAiLlm) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(llm.complete(request()), 0.2)

    with LlmServer(faults=Faults(by_number={1: "hang"})) as server:
        asyncio.run(given_up(llm_of(server)))
    gc.collect()  # a connection that is left open warns now, and warnings are errors


@pytest.mark.slow
def test_one_model_serves_several_loops_and_threads() -> None:
    with LlmServer() as server:
        llm = llm_of(server)
        came: list[Any] = [ask_one(llm), ask_one(llm)]

        def work() -> None:
            came.append(ask_one(llm))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(llm._clients) == 0
        gc.collect()
    assert len({one.text for one in came}) == 1
    assert len(came) == 6


def test_a_copy_in_another_process_is_the_same_model_and_carries_no_key() -> None:
    with LlmServer() as server:
        llm = llm_of(server)
        ask_one(llm)
        data = pickle.dumps(llm)
        assert CANARY.encode() not in data
        copy = pickle.loads(data)  # noqa: S301 - made here
        assert copy == llm
        assert ask_one(copy) == ask_one(llm)


def test_an_error_travels_between_processes_with_what_it_says() -> None:
    billed = Completion("text", "stop", 1, 2, "small")
    for error in (LlmBusy("busy", retry=True, retry_after=3.5), LlmForbidden("no"), LlmUnreachable("x", billed=billed)):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
        assert type(copy) is type(error)
        assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_calls_of_other_kinds_end_in_the_same_errors() -> None:
    async def files(llm: OpenAiLlm, send: Callable[[Any], Any]) -> Any:
        return await llm.call(send)

    with LlmServer() as server:
        llm = llm_of(server)
        asyncio.run(files(llm, lambda client: client.files.create(file=("in.jsonl", b"{}"), purpose="batch")))
        with pytest.raises(LlmForbidden, match="404"):
            asyncio.run(files(llm, lambda client: client.files.content("file-none")))
