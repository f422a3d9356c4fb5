"""The private Prefect server is asked directly, whatever proxy the machine has."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("prefect")

from flows import prefect_server as module
from flows import server_database
from flows.prefect_server import answers, private_prefect

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


class Proxy(HTTPServer):
    """Refuses what it is asked for, and remembers it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusing)
        self.asked: list[str] = []


class _Refusing(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_error(502)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy of this machine."""
    for name in (*PROXIES, "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """No server is left to the other tests of this process."""
    yield
    if module._server is not None:
        module._server.close()


def test_no_proxy_is_told_the_password(proxy: Proxy, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "example.org")
    with private_prefect() as server:
        server.wait()
        encoded = base64.b64encode(f"{server.password}".encode()).decode()
        headers = {"Authorization": f"Basic {encoded}"}
        assert httpx.get(f"{server.url}/health", headers=headers, timeout=60).status_code == 200
        assert urllib.request.proxy_bypass("127.0.0.1")
        assert urllib.request.proxy_bypass("example.org")
        assert not urllib.request.proxy_bypass("example.com")
    assert proxy.asked == []
    assert os.environ["no_proxy"] == "example.org"
    assert "NO_PROXY" not in os.environ


@pytest.mark.slow
def test_a_database_that_is_kept_and_of_no_use_is_made_anew(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick))
    monkeypatch.setattr(server_database, "__file__", str(quick / "code" / "server_database.py"))
    if module._server is not None:
        module._server.close()  # of other tests of this process
    with private_prefect() as server:
        server.wait()
    server.close()
    (kept,) = quick.glob("prefect/*.db")
    with contextlib.closing(sqlite3.connect(kept)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'of another Prefect'")
        database.commit()
    with private_prefect() as server:
        server.wait()
    with contextlib.closing(sqlite3.connect(kept)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() != [("of another Prefect",)]


@pytest.mark.slow
def test_a_server_that_answers_after_a_pause_of_the_machine_is_not_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute passes within the first, the third, ... attempt, which fails."""
    attempts: list[bool] = []

    def paused(url: str, password: str | None) -> bool:
        attempts.append(len(attempts) % 2 == 1 and answers(url, password))
        return attempts[-1]

    def monotonic() -> float:
        return time.monotonic() + 30 * len(attempts)

    if module._server is not None:
        module._server.close()
    warnings: list[str] = []
    with private_prefect(warn=warnings.append) as server:
        server.wait()
        monkeypatch.setattr(module, "_CHECK_SECONDS", 0.0)
        monkeypatch.setattr(module, "_HANGS_SECONDS", 15.0)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
        monkeypatch.setattr(module, "answers", paused)
        while len(attempts) < 6:
            time.sleep(0.05)
        server.close()
    assert warnings == []


def test_a_health_check_with_a_password_goes_through_no_proxy(proxy: Proxy) -> None:
    assert not answers("http://127.0.0.1:1/api", password="x" * 32)
    assert proxy.asked == []


def test_what_answers_with_anything_but_http_is_no_prefect_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"hello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert not answers(f"http://127.0.0.1:{port}/api", password="x" * 32)
        thread.join()


@pytest.mark.slow
def test_whoever_asks_no_proxy_goes_on_doing_so(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with private_prefect():
        assert urllib.request.proxy_bypass("example.org")
        assert os.environ["NO_PROXY"] == "*"
    assert proxy.asked == []


@pytest.mark.slow
def test_a_server_of_the_user_is_asked_through_the_proxy(proxy: Proxy) -> None:
    assert not answers("http://prefect.example.org/api")
    assert set(proxy.asked) == {"http://prefect.example.org/api/health"}
