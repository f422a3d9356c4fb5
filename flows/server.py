"""A private Prefect server for one command: temporary, on a free port, gone with the process that asked for it.

Prefect's own ephemeral mode leaves its server behind when the parent is killed; this one watches its parent. It answers
nobody but the process that started it. Where `PREFECT_API_URL` is set, that server is used and nothing is started.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.scratch import scratch_folder
from indexmill.errors import IndexmillError
from schemas.config import LlmSettings
from tasks.core.process_environment import secret_variables, without

__all__ = ["PrefectServer", "private_prefect"]

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_IN_MEMORY = "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false"
_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_API_DATABASE_MIGRATE_ON_START": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",  # no background services: one flow, seen to its end by its own process
    "PREFECT__SERVER_FINAL": "1",
}


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """The server that flows of this process report to; `process`, `log` and `password` where it is a private one."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    password: str | None = field(default=None, repr=False)

    def wait(self, seconds: float = _START_SECONDS) -> None:
        """Block until the server answers; raises IndexmillError, with the end of its log, where it does not."""
        health = urllib.request.Request(self.url.rstrip("/") + "/health")  # noqa: S310 - ours, or the user's
        opener = urllib.request.build_opener()
        if self.password is not None:
            health.add_header("Authorization", _authorization(self.password))
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy is told the password
        deadline = time.monotonic() + seconds
        while True:
            try:
                with opener.open(health, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError as error:
                ended = self.process is not None and self.process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise IndexmillError(
                        f"the Prefect server at {self.url} {'ended at its start' if ended else 'does not answer'}: "
                        f"{error}{self._last_words()}"
                    ) from error
            time.sleep(0.1)

    def _last_words(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace").strip() if self.log is not None else ""
        return f"; its log ends with:\n{text[-1500:]}" if text else ""


@contextlib.contextmanager
def private_prefect(llm: LlmSettings | None = None) -> Iterator[PrefectServer]:
    """Give this process a Prefect server for the length of the block.

    Enter it before Prefect is first imported: Prefect reads its environment then. The server starts while the block
    runs; `wait` blocks until it answers. Analytics are off, its database is in memory, its home a temporary folder.

    It answers only requests with its password, which it receives through a pipe: no command line and no environment
    holds it. Clients of this process ask it without a proxy. llm: whose key it is not given either.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        yield PrefectServer(given)
        return
    with scratch_folder() as home, socket.socket() as listening:
        listening.bind((_HOST, 0))
        url = f"http://{_HOST}:{listening.getsockname()[1]}/api"
        settings = {
            **_QUIET,
            **_without_proxy(_HOST),
            "PREFECT_HOME": str(home),
            "PREFECT_API_DATABASE_CONNECTION_URL": _IN_MEMORY,
            "PREFECT_API_URL": url,
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        password = secrets.token_urlsafe(32)
        log = home / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-m", "flows.server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env={**without(secret_variables(llm)), **settings},
                stdout=output,
                stderr=output,
                cwd=Path(__file__).resolve().parent.parent,
                start_new_session=True,  # Ctrl-C is for us: the flow still tells the server how it ended
            )
        listening.close()  # where the server dies, nobody waits for an answer
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it has ended, as `wait` will say
                    process.stdin.write(f"{password}\n".encode())
                    process.stdin.flush()
            yield PrefectServer(url, process, log, password)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
            process.kill()  # its database is temporary: nothing to flush
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _without_proxy(host: str) -> dict[str, str]:
    """The variables by which clients (httpx, websockets, urllib) reach a host directly, and others as before."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""  # in the order that clients ask in
    value = given if given.strip() == "*" else ",".join(filter(None, [given, host]))
    return {"no_proxy": value, "NO_PROXY": value}


def _authorization(password: str) -> str:
    """The header of a request as Prefect's clients send it."""
    return f"Basic {base64.b64encode(password.encode()).decode()}"


_Message = MutableMapping[str, Any]
_Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]


class _Guarded:
    """A web application (ASGI) that answers nothing without the password: Prefect would tell everybody how it is."""

    def __init__(self, application: _Application, password: str) -> None:
        self._application = application
        self._expected = _authorization(password).encode()

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan" or self._knows(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    def _knows(self, scope: _Message) -> bool:
        return any(
            name == b"authorization" and hmac.compare_digest(value, self._expected) for name, value in scope["headers"]
        )


def _serve(descriptor: int) -> None:
    """Serve at a socket until the parent goes away: its end of our standard input closes, however it died.

    The first line of that is the password.
    """
    password = sys.stdin.buffer.readline().decode().strip()
    if not password:
        return

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = password
    import uvicorn
    from prefect.server.api.server import create_app

    with _tables(), socket.socket(fileno=descriptor) as listening:
        uvicorn.Server(uvicorn.Config(_Guarded(create_app(), password), log_level="error")).run([listening])


@contextlib.contextmanager
def _tables() -> Iterator[None]:
    """The server's tables as its models describe them: five seconds less than all the migrations that led there."""
    import sqlalchemy
    from prefect.server.database.orm_models import Base
    from sqlalchemy.schema import CreateIndex, CreateTable

    engine = sqlalchemy.create_engine(_IN_MEMORY.replace("+aiosqlite", ""))
    with engine.connect() as connection:  # the database lives as long as somebody is connected to it
        for table in Base.metadata.sorted_tables:
            connection.execute(CreateTable(table))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                connection.execute(CreateIndex(index, if_not_exists=True))  # the models declare some twice
        connection.commit()
        yield


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
