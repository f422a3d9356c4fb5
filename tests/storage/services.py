"""Object stores for tests: moto's server, a bucket of its own for each test, and a proxy that answers badly."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import logging
import os
import random
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import boto3
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

_BUCKETS = itertools.count(1)

FAULTS = {"lost": 0.1, "500": 0.1, "503": 0.03, "reset": 0.03, "truncated": 0.03, "slow": 0.01}
"""Rates of faults: the answer is lost after the request was carried out; an error; no answer; half a body; late."""


class FaultProxy:
    """Passes requests on to a service; some fail, as a script says, and after its end by a seeded generator."""

    def __init__(
        self, upstream: str, rates: Mapping[str, float] = MappingProxyType({}), seed: int = 1, script: str = ""
    ) -> None:
        """script: faults of the first requests, separated by spaces; `-` for none."""
        self.rates, self.seen = dict(rates), Counter[str]()
        self.requests: list[tuple[str, str]] = []
        self.script = script.split()
        self._upstream = upstream.removeprefix("http://")
        self._random = random.Random(seed)  # noqa: S311 - a test's own
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms for the client to confirm its headers

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", lambda request: proxy._handle(request))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _draw(self) -> str:
        with self._lock:
            if self.script:
                return self.script.pop(0).removeprefix("-")
            drawn = self._random.random()
            for fault, rate in self.rates.items():
                drawn -= rate
                if drawn < 0:
                    self.seen[fault] += 1
                    return fault
        return ""

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        fault = self._draw()
        self.requests.append((request.command, request.path))
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if fault == "reset":
            self._cut(request)
            return
        if fault.isdecimal():
            self._answer(request, int(fault), {}, b"")
            return
        upstream = http.client.HTTPConnection(self._upstream, timeout=60)
        with contextlib.closing(upstream):
            upstream.request(request.command, request.path, body, dict(request.headers))
            answer = upstream.getresponse()
            data = answer.read()
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        if request.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length") or "0"
        if fault == "lost":
            self._cut(request)
        elif fault == "truncated" and len(data) > 1 and request.command != "HEAD":
            self._answer(request, answer.status, {**headers, "Content-Length": str(len(data))}, data[: len(data) // 2])
            self._cut(request)
        else:
            if fault == "slow":
                time.sleep(0.3)
            self._answer(request, answer.status, headers, data)

    def _answer(self, request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], data: bytes) -> None:
        with contextlib.suppress(OSError):
            request.send_response_only(status)
            for name, value in headers.items():
                request.send_header(name, value)
            if "Content-Length" not in headers:
                request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)

    def _cut(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        with contextlib.suppress(OSError):
            request.connection.shutdown(socket.SHUT_RDWR)


_HOP = {"content-length", "transfer-encoding", "connection"}


@contextlib.contextmanager
def s3_service(address: str = "127.0.0.1") -> Iterator[str]:
    """The endpoint of moto's S3, which the environment names during the block."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(address, 0, _AtomicMoto(), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://{address}:{server.server_port}"
    try:
        with s3_environment(endpoint):
            yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _AtomicMoto:
    """moto's application, with conditional writes in turn: it checks If-None-Match and writes in two steps."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return self._application(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            return self._application({**environ, "wsgi.input": io.BytesIO(body)}, start_response)


@contextlib.contextmanager
def s3_environment(endpoint: str, access_key: str = "tester", secret_key: str = "anything") -> Iterator[None]:  # noqa: S107
    """Let S3 be found at an endpoint."""
    with patch.dict(os.environ, s3_variables(endpoint, access_key, secret_key)):
        yield


def s3_variables(endpoint: str, access_key: str = "tester", secret_key: str = "anything") -> dict[str, str]:  # noqa: S107
    """What the environment names of S3 at an endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_REGION": "us-east-1",
    }


def bucket_of(endpoint: str) -> str:
    """The URL of a new bucket; its name is used once per process, since clients are kept by URL."""
    name = f"bucket-{os.getpid()}-{next(_BUCKETS)}"
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")  # noqa: S310 - this machine's own
    with urllib.request.urlopen(request):  # noqa: S310
        return f"s3://{name}"


class S3Bucket:
    """A new bucket of a service, which tests fill past what they test, and past any proxy."""

    def __init__(self, endpoint: str) -> None:
        self.url = bucket_of(endpoint)
        self._name = self.url.removeprefix("s3://")
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="tester",
            aws_secret_access_key="anything",  # noqa: S106 - moto takes any
        )

    def put(self, key: str, data: bytes = b"text") -> None:
        self._client.put_object(Bucket=self._name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._name, Key=key)
