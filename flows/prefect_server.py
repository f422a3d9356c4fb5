"""A private Prefect server for users without one: a child on a free port of 127.0.0.1 that ends with its parent.

Prefect's own temporary server outlives a killed parent and needs no password; this one watches its parent and requires
a password for every request, health checks included. If it dies or hangs, it is restarted at the same port with the
same database.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import hmac
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from flows.scratch import scratch_folder
from flows.server_database import keep_database, take_database
from indexmill.errors import IndexmillError
from schemas.config import EndpointSettings
from storage.write_errors import check_room
from tasks.core.process_environment import secret_variables, variables_set, without

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_CHECK_SECONDS = 5.0
_HANGS_SECONDS = 45.0
"""In seconds: the server's time to start, the interval between checks, and its time to answer one."""
_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",  # no user can read these logs
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_UI_ENABLED": "false",
}


class PrivateServer:
    """The running server. environment: the variables with which Prefect finds it, without the password."""

    def __init__(self, endpoints: Sequence[EndpointSettings], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._closing = contextlib.ExitStack()
        home = self._closing.enter_context(scratch_folder())
        self._socket = self._closing.enter_context(socket.socket())  # inherited, so that calls during a restart wait
        self._socket.bind((_HOST, 0))
        self._database = home / "prefect.db"
        self._from_cache = take_database(self._database)
        self.url = f"http://{_HOST}:{self._socket.getsockname()[1]}/api"
        self.password = secrets.token_urlsafe(32)
        self.environment = {
            **_QUIET,
            "PREFECT_HOME": str(home),
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self._database}",
            "PREFECT_API_URL": self.url,
        }
        self._child_environment = {**without(secret_variables(endpoints)), **self.environment}
        self._log = home / "server.log"
        self._closed = threading.Event()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name="prefect-server", daemon=True)

    def wait(self) -> None:
        """Wait until the server answers, and keep it running; raises IndexmillError, or DiskFull for a full disk."""
        if self._keeper.is_alive():
            return
        if not self._answers_within(_START_SECONDS) and not self._starts_without_cache():
            log = self._logged()
            try:
                check_room()
            finally:
                self.close()
            raise IndexmillError(f"the Prefect server at {self.url} did not start; its log ends with:\n{log[-1500:]}")
        if not self._from_cache:
            keep_database(self._database)
        self._keeper.start()

    def close(self) -> None:
        """End the server and remove its files."""
        self._closed.set()
        self._end()
        self._closing.close()

    @property
    def running(self) -> bool:
        """True until `close` is called."""
        return not self._closed.is_set()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            self._log_start = output.tell()
            process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-m", "flows.prefect_server", str(self._socket.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[self._socket.fileno()],
                env=self._child_environment,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).resolve().parent.parent,
                start_new_session=True,  # Ctrl-C is for the run, whose flow still reports its end to the server
            )
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # the server has ended; `wait` reports it
                process.stdin.write(f"{self.password}\n".encode())
                process.stdin.flush()
        return process

    def _starts_without_cache(self) -> bool:
        """Restart without the cached database, which this Prefect may reject; return True if the server answers."""
        if not self._from_cache or self._closed.is_set():
            return False
        self._end()
        for file in self._database.parent.glob(f"{self._database.name}*"):
            file.unlink()
        self._from_cache = False
        self._process = self._start()
        return self._answers_within(_START_SECONDS)

    def _end(self) -> None:
        self._process.kill()  # its database is temporary: nothing to flush
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _keep(self) -> None:
        """Restart the server whenever it has ended or hangs."""
        while not self._closed.wait(0.2):
            if self._process.poll() is None and self._answers_within(_HANGS_SECONDS):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_CHECK_SECONDS)
                continue
            if self._closed.is_set():
                return
            self._warn(f"the Prefect server at {self.url} {self._fault()} and is restarted")
            self._end()
            self._process = self._start()
            self._answers_within(_START_SECONDS)

    def _fault(self) -> str:
        code = self._process.poll()
        if code is None:
            return f"has not answered for {_HANGS_SECONDS:.0f} s"
        if code < 0:
            return f"died of signal {-code} ({signal.strsignal(-code)})"
        last = self._logged().rpartition("\n")[2] or "none"
        return f"ended with exit code {code} (last line of its log: {last})"

    def _logged(self) -> str:
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace").strip()
        except OSError:  # the file was removed
            return ""

    def _answers_within(self, seconds: float) -> bool:
        """Return True if the server answers. After a pause of the machine, the server gets another attempt."""
        deadline, is_last = time.monotonic() + seconds, False
        while not is_last and not self._closed.is_set() and self._process.poll() is None:
            is_last = time.monotonic() >= deadline
            if answers(self.url, self.password):
                return True
            time.sleep(0.1)
        return False


_server: PrivateServer | None = None
_lock = threading.Lock()


@contextlib.contextmanager
def private_prefect(
    endpoints: Sequence[EndpointSettings] = (), warn: Callable[[str], None] = print
) -> Iterator[PrivateServer]:
    """Start a Prefect server for this process, and set its environment variables during the block.

    Enter it before Prefect is first imported, which reads the environment. The server starts while the block runs,
    serves later blocks too, and ends with the process, since Prefect sends events in the background until then.
    endpoints: the models whose keys are withheld from the server. warn: called when the server is restarted.
    """
    global _server
    with _lock:
        if _server is None or not _server.running:
            _server = PrivateServer(endpoints, warn)
            atexit.register(_server.close)
        server = _server
    with variables_set({**server.environment, **_without_proxy(_HOST)}):
        yield server


def answers(url: str, password: str | None = None) -> bool:
    """Return True if a Prefect server answers at an address; with a password, proxies are bypassed."""
    health = urllib.request.Request(url.rstrip("/") + "/health")  # noqa: S310 - ours, or the user's
    opener = urllib.request.build_opener()
    if password is not None:
        health.add_header("Authorization", _authorization(password))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(health, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _without_proxy(host: str) -> dict[str, str]:
    """Return the variables that make clients (httpx, websockets, urllib) bypass proxies for a host, too."""
    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""  # in the order in which clients read them
    value = exempt if exempt.strip() == "*" else ",".join(filter(None, [exempt, host]))
    return {"no_proxy": value, "NO_PROXY": value}


def _authorization(password: str) -> str:
    return f"Basic {base64.b64encode(password.encode()).decode()}"


_Message = MutableMapping[str, Any]
_Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]


class _PasswordGuard:
    """An ASGI application that rejects requests without the password, even health checks, which Prefect answers."""

    def __init__(self, application: _Application, password: str) -> None:
        self._application = application
        self._expected = _authorization(password).encode()

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan" or self._has_password(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    def _has_password(self, scope: _Message) -> bool:
        return any(
            name == b"authorization" and hmac.compare_digest(value, self._expected) for name, value in scope["headers"]
        )


def _serve(descriptor: int) -> None:
    """Serve at a socket until the parent ends and closes standard input, whose first line is the password."""
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

    with socket.socket(fileno=descriptor) as listening:
        uvicorn.Server(uvicorn.Config(_PasswordGuard(create_app(ephemeral=True), password), log_level="error")).run(
            [listening]
        )


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
