"""A private Prefect server for one command: temporary, on a free port, gone with the process that asked for it.

Prefect's own ephemeral mode leaves its server behind when the parent is killed; this one watches its parent. Where
`PREFECT_API_URL` is set, that server is used and nothing is started.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import IndexmillError

__all__ = ["private_prefect"]

_START_SECONDS = 120.0
_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",  # no background services: one flow, seen to its end by its own process
    "PREFECT__SERVER_FINAL": "1",
}


@contextlib.contextmanager
def private_prefect() -> Iterator[None]:
    """Give this process a Prefect server for the length of the block.

    Enter it before Prefect is first imported: Prefect reads its environment then. The server starts while the block
    runs; `wait_for_server` blocks until it answers. Analytics are off, its home is a temporary folder.
    """
    if os.environ.get("PREFECT_API_URL"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="indexmill-prefect-", ignore_cleanup_errors=True) as home:
        port = _free_port()
        settings = {
            **_QUIET,
            "PREFECT_HOME": home,
            "PREFECT_API_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false",
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        log = Path(home) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-m", "flows.server", str(port)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).resolve().parent.parent,
            )
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
            process.kill()  # its database is temporary: nothing to flush
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def wait_for_server(seconds: float = _START_SECONDS) -> None:
    """Block until the server of `PREFECT_API_URL` answers; raises IndexmillError where it does not."""
    url = os.environ["PREFECT_API_URL"].rstrip("/") + "/health"
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the user's own setting
                if answer.status == 200:
                    return
        except OSError as error:
            if time.monotonic() > deadline:
                raise IndexmillError(
                    f"the Prefect server at {url} does not answer after {seconds:.0f} seconds: {error}; "
                    "its log is server.log in PREFECT_HOME"
                ) from error
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _serve(port: int) -> None:
    """Serve until the parent goes away: its end of our standard input closes, however it died."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
