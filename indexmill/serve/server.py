"""The server process: its socket, its signals, and its shutdown.

After SIGTERM, /ready returns 503, and requests are still answered for some seconds, until clients have noticed. Then no
new connection is accepted, requests in flight finish, and the process exits with 0. Ctrl-C skips this wait; a second
signal ends the process immediately.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from indexmill.errors import ConfigurationError
from indexmill.serve.guard import Guard
from indexmill.serve.limits import ServerLimits
from indexmill.serve.logs import event

_CONNECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class Address:
    """The address and certificates of a server. linger: the seconds after SIGTERM during which it keeps answering."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    linger: float = 5.0

    def url(self, listener: socket.socket) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{listener.getsockname()[1]}"


def bind(address: Address) -> socket.socket:
    """Open the listening socket; raises ConfigurationError."""
    try:
        (family, *_, socket_address), *_ = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        listener = socket.create_server(socket_address[:2], family=family, backlog=2048)
        # Connections inherit this option, which asyncio does not set for an existing socket. Without it, the body of a
        # response may wait 40 ms for the acknowledgement of its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ConfigurationError(
            f"{address.host}:{address.port}: cannot listen: {error.strerror}; choose another --host or --port"
        ) from error


class Server(uvicorn.Server):
    """A uvicorn server that drains before it stops."""

    def __init__(self, guard: Guard, address: Address, limits: ServerLimits) -> None:
        for path, option in ((address.certificate, "--tls-cert"), (address.key, "--tls-key")):
            if path is not None and not path.is_file():
                raise ConfigurationError(f"{option} {path}: no such file")
        config = uvicorn.Config(
            guard,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=int(max(limits.seconds, limits.answer_seconds)) + 5,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        super().__init__(config)
        self._guard, self._linger = guard, address.linger
        self._closes: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals during the block; uvicorn's handler would end the process by the signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining; if already draining, end the process immediately."""
        if self._closes is not None:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(128 + sig)
        self.drain(0.0 if sig == signal.SIGINT else self._linger)

    def drain(self, linger: float) -> None:
        """Make /ready return 503 immediately, and stop accepting connections after ``linger`` seconds."""
        self._guard.draining = True
        self._closes = time.monotonic() + linger

    async def on_tick(self, counter: int) -> bool:
        """Return True to stop the server; uvicorn calls this ten times a second."""
        if self._closes is not None and not self.should_exit and time.monotonic() >= self._closes:
            event("draining")
            self.should_exit = True
        return await super().on_tick(counter)
