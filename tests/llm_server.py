"""A language model's endpoint for tests: real HTTP on 127.0.0.1, OpenAI's protocol, faults on demand, a bill.

    with LlmServer(faults=Faults(by_number={1: "429", 2: "drop-billed"})) as server:
        ...  # ask server.base_url, from any process
        assert server.billed.calls == 2

The answer to a prompt is a function of its content and schema alone, so that two runs get the same answers whatever
faults lie between. Batches and files are served by ``tests.llm_batches``, vectors by
``tests.llm_embeddings``.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import json
import re
import socket
import ssl
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.llm_batches import Batches
from tests.llm_embeddings import Embeddings
from tests.llm_extracts import extract_answer

CANARY = "sk-canary-7f3d9a51c2e84b60"
"""The key that tests use: whatever a run leaves behind is searched for it."""

REFUSED_HERE = {"429", "429-seconds", "429-600", "429-date", "429-ms", "429-quota", "500", "503", "503-seconds"}
REJECTED_HERE = {"400", "400-response-format", "401", "403", "404", "422"}
LOST = {"hang", "drop", "hang-billed", "drop-billed", "drop-midway"}
"""No answer comes; those that say billed, and drop-midway, are on the bill."""
SPOILED = {"truncated", "whitespace", "not-json", "refusal", "content-filter", "wrong-schema", "empty", "html"}
"""An answer comes, is on the bill, and is of no use."""
WITHHELD = {"refusal", "content-filter"}
"""Of these, those that come again however often one asks."""
GOOD = {"fenced", "slow", "no-usage"}
"""An answer comes that is of use."""
KINDS = frozenset(REFUSED_HERE | REJECTED_HERE | LOST | SPOILED | GOOD)


@dataclass(frozen=True)
class Received:
    """One request as it came. `prompt` is the digest of what is asked, the same for a repair of its answer."""

    number: int  # from 1, of the calls to /chat/completions; 0 for other paths
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    at: float  # time.monotonic()
    prompt: str = ""
    attempt: int = 0  # from 1: how often this prompt has come
    repair: bool = False

    def json(self) -> Any:
        """The body as JSON; raises ValueError."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Faults:
    """Which calls go wrong, and how (``KINDS``): by their number, by a rule, or at random from a seed.

    `rates` gives each kind its probability; the draw is a function of the seed, the prompt and how often it came, not
    of the order in which calls arrive. No prompt gets more than `at_most` faults that way, nor more than one answer of
    `SPOILED`, so that one repair and `at_most` retries are always enough.
    """

    by_number: Mapping[int, str] = field(default_factory=dict)
    rule: Callable[[Received], str | None] | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    at_most: int = 2
    retry_after: float = 0.05  # of the kinds that say seconds or ms; -date says the next whole second
    hang_seconds: float = 60.0
    slow_seconds: float = 0.2  # over which an answer trickles

    def __post_init__(self) -> None:
        unknown = {*self.by_number.values(), *self.rates} - KINDS
        if unknown or sum(self.rates.values()) > 1:
            raise ValueError(f"unknown {sorted(unknown)}, or rates above 1")

    def drawn(self, received: Received, spoiled_before: bool) -> str | None:
        """The fault of a call, None for none."""
        if received.number in self.by_number:
            return self.by_number[received.number]
        if self.rule is not None and (kind := self.rule(received)) is not None:
            return kind
        if received.attempt > self.at_most:
            return None
        hashed = hashlib.sha256(f"{self.seed} {received.prompt} {received.attempt}".encode()).digest()
        point = int.from_bytes(hashed[:6], "big") / 2**48
        for kind, rate in sorted(self.rates.items()):
            if point < rate:
                return None if kind in SPOILED and spoiled_before else kind
            point -= rate
        return None


@dataclass
class Billed:
    """What the endpoint charges for. Counters are by prompt."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    by_prompt: Counter[str] = field(default_factory=Counter)  # every call on the bill
    lost: Counter[str] = field(default_factory=Counter)  # of these, those whose answer never arrived whole
    spoiled: Counter[str] = field(default_factory=Counter)  # of these, those whose answer was of no use

    @property
    def tokens(self) -> int:
        """Of prompts and answers together."""
        return self.input_tokens + self.output_tokens

    def paid_twice(self) -> dict[str, int]:
        """By prompt, how often a good answer was delivered beyond the first."""
        good = {prompt: n - self.lost[prompt] - self.spoiled[prompt] for prompt, n in self.by_prompt.items()}
        return {prompt: n - 1 for prompt, n in good.items() if n > 1}


@dataclass(frozen=True)
class Reply:
    """What is sent back. `cut`: bytes of the body after which the socket is dropped; `trickle`: seconds it takes."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    trickle: float = 0.0

    @classmethod
    def of(cls, status: int, value: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
        """A reply of JSON."""
        return cls(status, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})}, **more)

    @classmethod
    def error(
        cls, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """An error in the form of OpenAI's."""
        error = {"message": message, "type": HTTPStatus(status).phrase, "param": None, "code": code}
        return cls.of(status, {"error": error}, headers)


Answering = Callable[[Mapping[str, Any]], Mapping[str, Any] | str]
"""From the body of a chat completion to the answer: an object, sent as JSON, or a text, sent as it is."""


class LlmServer:
    """The endpoint; serves from threads of this process until the block ends.

    answer: what to answer, in place of ``default_answer``. lacks: the response formats and parameters that are answered
    with 400, such as json_schema, max_tokens or temperature. keys: the keys that are let in; any by default. seconds:
    how long each call takes. tls: serves https. embeddings: what it says of texts.
    """

    def __init__(
        self,
        answer: Answering | None = None,
        faults: Faults | None = None,
        *,
        lacks: Collection[str] = (),
        keys: Collection[str] | None = None,
        seconds: float = 0.0,
        tls: ssl.SSLContext | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        self.answer: Answering = answer or default_answer
        self.faults = faults or Faults()
        self.lacks = frozenset(lacks)
        self.keys = None if keys is None else set(keys)
        self.seconds = seconds
        self.streams = True
        self.models: list[dict[str, Any]] | None = None  # what it lists; None for an endpoint without a list
        self.requests: list[Received] = []
        self.billed = Billed()
        self.faulted: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self.batches = Batches(self)
        self.embeddings = embeddings or Embeddings()
        self._attempts: Counter[str] = Counter()
        self._calls = 0
        self._http = _Http(self, tls)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self._http.tls else 'http'}://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"{self.url}/v1"

    @property
    def chats(self) -> list[Received]:
        """The calls to /chat/completions, in the order in which they came."""
        with self.lock:
            return [received for received in self.requests if received.number]

    def __enter__(self) -> LlmServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.close_all()

    def reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        """What to send back; None drops the socket."""
        parts = urlsplit(target)  # a proxy is sent the whole URL
        query = dict(parse_qsl(parts.query))
        received = Received(0, method, parts.path, query, headers, body, time.monotonic())
        if not self._let_in(headers):
            self._keep(received)
            return Reply.error(
                401, f"Incorrect API key provided: {headers.get('authorization', '')}", "invalid_api_key"
            )
        if (method, parts.path) == ("POST", "/v1/chat/completions"):
            return self._chat(received)
        self._keep(received)
        if (method, parts.path) == ("GET", "/v1/models") and self.models is not None:
            return Reply.of(200, {"object": "list", "data": self.models})
        if (method, parts.path) == ("POST", "/v1/embeddings"):
            return self._embed(received)
        return self.batches.reply(received)

    def complete(self, chat: Mapping[str, Any], fault: str | None = None) -> tuple[dict[str, Any], Any]:
        """The chat completion of a body, and its bill as (input tokens, output tokens)."""
        answer = self.answer(chat)
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        limit = chat.get("max_completion_tokens") or chat.get("max_tokens") or 10**9
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        finish = "stop"
        match fault:
            case "truncated":
                message["content"], finish = text[: len(text) // 2], "length"
            case "whitespace":
                message["content"], finish = "{" + "\n" * min(4 * limit, 4096), "length"
            case "not-json":
                message["content"] = "Here is what I found: " + text[: len(text) // 2]
            case "refusal":
                message |= {"content": None, "refusal": "I cannot help with that."}
            case "content-filter":
                message["content"], finish = "", "content_filter"
            case "wrong-schema":
                message["content"] = json.dumps({"unexpected": [1, 2, 3]})
            case "empty":
                message["content"] = None
            case "fenced":
                message["content"] = f"Sure:\n```json\n{text}\n```\n"
        usage = (tokens_of(chat["messages"]), min(limit, 1 + len((message["content"] or "").encode()) // 4))
        body = {
            "id": f"chatcmpl-{prompt_digest(chat)[:12]}",
            "object": "chat.completion",
            "created": 0,
            "model": chat["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)},
        }
        if fault == "no-usage":
            del body["usage"]
        return body, usage

    def charge(self, prompt: str, usage: tuple[int, int], *, lost: bool = False, spoiled: bool = False) -> None:
        """Put a call on the bill."""
        with self.lock:
            self.billed.calls += 1
            self.billed.input_tokens += usage[0]
            self.billed.output_tokens += usage[1]
            self.billed.by_prompt[prompt] += 1
            self.billed.lost[prompt] += lost
            self.billed.spoiled[prompt] += spoiled and not lost

    def _let_in(self, headers: Mapping[str, str]) -> bool:
        return self.keys is None or headers.get("authorization", "").removeprefix("Bearer ") in self.keys

    def _keep(self, received: Received) -> None:
        with self.lock:
            self.requests.append(received)

    def _chat(self, received: Received) -> Reply | None:
        try:
            chat = received.json()
            prompt = prompt_digest(chat)
        except (ValueError, KeyError, TypeError, IndexError):
            self._keep(received)
            return Reply.error(400, "not a chat completion")
        with self.lock:
            self._calls += 1
            self._attempts[prompt] += 1
            spoiled_before = self.billed.spoiled[prompt] > 0
            received = Received(
                self._calls,
                *(received.method, received.path, received.query, received.headers, received.body, received.at),
                prompt,
                self._attempts[prompt],
                len(chat["messages"]) > 2,
            )
            self.requests.append(received)
            fault = self.faults.drawn(received, spoiled_before)
            self.faulted[fault or ""] += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self._answered(received, chat, fault)
        finally:
            with self.lock:
                self.in_flight -= 1

    def _embed(self, received: Received) -> Reply | None:
        with self.lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self.embeddings.reply(self, received)
        finally:
            with self.lock:
                self.in_flight -= 1

    def _answered(self, received: Received, chat: Mapping[str, Any], fault: str | None) -> Reply | None:
        if self.seconds:
            self.stopping.wait(self.seconds)
        form = (chat.get("response_format") or {}).get("type", "text")
        if fault == "400-response-format" and form == "text":
            fault = None  # there is nothing left to lack
        if form in self.lacks or fault == "400-response-format":
            return Reply.error(400, f"Invalid parameter: 'response_format' of type '{form}' is not supported")
        for parameter in sorted(self.lacks & set(chat)):
            return Reply.error(400, f"Unsupported parameter: '{parameter}' is not supported with this model.")
        if fault in REFUSED_HERE | REJECTED_HERE:
            return self.refused(fault, chat["messages"][-1]["content"])
        if fault == "drop":
            return None
        if fault == "hang":
            self.stopping.wait(self.faults.hang_seconds)
            return None
        body, usage = self.complete(chat, fault)
        self.charge(received.prompt, usage, lost=fault in LOST, spoiled=fault in SPOILED)
        if fault == "drop-billed":
            return None
        if fault == "hang-billed":
            self.stopping.wait(self.faults.hang_seconds)
            return None
        if fault == "html":
            return Reply(200, b"<html><body>Please sign in</body></html>", {"content-type": "text/html"})
        if chat.get("stream") and self.streams and "choices" in body:
            include_usage = (chat.get("stream_options") or {}).get("include_usage", False)
            reply = Reply(200, streamed(body, include_usage), {"content-type": "text/event-stream"})
        else:
            reply = Reply.of(200, body)
        cut = len(reply.body) // 2 if fault == "drop-midway" else None
        return Reply(200, reply.body, reply.headers, cut, self.faults.slow_seconds if fault == "slow" else 0.0)

    def refused(self, fault: str, asked: str) -> Reply:
        """An error status; the message repeats the prompt and the key, as real endpoints do."""
        status = int(fault[:3])
        now = time.time()
        headers = {
            "seconds": {"retry-after": f"{self.faults.retry_after:g}"},
            "600": {"retry-after": "600"},
            "date": {"retry-after": email.utils.formatdate(int(now) + 1, usegmt=True)},
            "ms": {"retry-after-ms": f"{self.faults.retry_after * 1000:g}"},
        }.get(fault[4:], {})
        code = "insufficient_quota" if fault == "429-quota" else None
        said = f"status {status} for key {CANARY} and prompt {asked[:200]}"
        return Reply.error(status, "response_format is not supported" if "format" in fault else said, code, headers)


def streamed(body: Mapping[str, Any], include_usage: bool) -> bytes:
    """A chat completion as a stream of events: a chunk for every 40 characters, then its end and its usage."""
    (choice,) = body["choices"]
    content, refusal = choice["message"]["content"] or "", choice["message"]["refusal"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": content[at : at + 40]} for at in range(0, len(content), 40)]
    deltas += [{"refusal": refusal}] if refusal else []
    head = {**body, "object": "chat.completion.chunk"}
    head.pop("usage", None)
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if include_usage and "usage" in body:
        chunks.append({**head, "choices": [], "usage": body["usage"]})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def prompt_digest(chat: Mapping[str, Any]) -> str:
    """What a body asks, whatever the form of the answer, and whether or not it asks for a repair: 32 hex digits."""
    system, user = chat["messages"][0]["content"], chat["messages"][1]["content"]
    asked = json.dumps([chat["model"], without_schema(system), user])
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def tokens_of(messages: Any) -> int:
    """The tokens of a prompt: one for every four bytes, four for each message."""
    return sum(4 + len(message["content"].encode()) // 4 for message in messages)


def without_schema(system: str) -> str:
    """The instructions without the schema that stands at their end where the endpoint takes none."""
    head, _, tail = system.rpartition("\n")
    return head.rpartition("\n\n")[0] if tail.startswith("{") else system


def schema_of(chat: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema that a body asks for: of its response format, else the last line of the instructions."""
    asked = (chat.get("response_format") or {}).get("json_schema")
    if asked:
        return asked["schema"]  # type: ignore[no-any-return]
    last = chat["messages"][0]["content"].rpartition("\n")[2]
    return json.loads(last) if last.startswith("{") else {"type": "object"}  # type: ignore[no-any-return]


_NAME = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_TEXT = re.compile(r"<text-\d+ [0-9a-f]+>\n(.*?)\n</text-\d+ [0-9a-f]+>", re.DOTALL)
_MARK = re.compile(r"^</?text-\d+ [0-9a-f]+>\n?", re.MULTILINE)


def default_answer(chat: Mapping[str, Any]) -> dict[str, Any]:
    """What fits the schema: texts begin like the content and end with its digest, lists hold its names.

    The task `extract`, which its schema tells, is answered by what stands in the text.
    """
    content, schema = chat["messages"][1]["content"], schema_of(chat)
    if {"entities", "units"} <= set(schema.get("properties", ())):
        return extract_answer(_TEXT.findall(content))
    answer = _fitting(schema, _MARK.sub("", content), hashlib.sha256(content.encode()).hexdigest()[:12])
    return answer if isinstance(answer, dict) else {"answer": answer}


def _fitting(schema: Mapping[str, Any], content: str, digest: str) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            return {name: _fitting(below, content, digest) for name, below in schema.get("properties", {}).items()}
        case "array":
            items = schema.get("items", {})
            if items.get("type", "string") != "string":
                return [_fitting(items, content, digest)]
            return list(dict.fromkeys(_NAME.findall(content)))[:50]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
    return f"{' '.join(content.split()[:40])} [{digest}]"[: schema.get("maxLength", 10_000)]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, server: LlmServer, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.tls = tls
        self._open: set[socket.socket] = set()
        self._serving: set[threading.Thread] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error here."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self.server.lock:
            self._open.add(request)
            self._serving.add(threading.current_thread())
        try:
            if self.tls is not None:
                with contextlib.suppress(OSError):
                    plain, request = request, self.tls.wrap_socket(request, server_side=True)
                    with self.server.lock:
                        self._open.discard(plain)
                        self._open.add(request)
            super().process_request_thread(request, client_address)
        finally:
            with self.server.lock:
                self._open.discard(request)
                self._serving.discard(threading.current_thread())

    def close_all(self) -> None:
        """Drop every connection and wait for its thread."""
        self.server_close()
        with self.server.lock:
            sockets, threads = list(self._open), list(self._serving)
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Http  # type: ignore[assignment]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Nothing is logged."""

    def _serve(self) -> None:
        chunked = "chunked" in self.headers.get("transfer-encoding", "")
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.server.reply(self.command, self.path, headers, body)
        if reply is None:
            self._drop()
            return
        self.send_response(reply.status)
        for name, value in {**reply.headers, "content-length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.trickle:
            self._trickle(reply)
        else:
            self.wfile.write(reply.body[: reply.cut])
        if reply.cut is not None:
            self.wfile.flush()
            self._drop()

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names in the base class

    def _chunks(self) -> bytes:
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _trickle(self, reply: Reply) -> None:
        pieces = 20
        size = max(1, len(reply.body) // pieces)
        for start in range(0, len(reply.body), size):
            self.wfile.write(reply.body[start : start + size])
            self.wfile.flush()
            if self.server.server.stopping.wait(reply.trickle / pieces):
                return

    def _drop(self) -> None:
        """End the connection with a reset."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
