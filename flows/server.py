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
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from indexmill.errors import IndexmillError

__all__ = ["PrefectServer", "private_prefect"]

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
    """The server that flows of this process report to; `process` and `log` where it is a private one."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def wait(self, seconds: float = _START_SECONDS) -> None:
        """Block until the server answers; raises IndexmillError, with the end of its log, where it does not."""
        health = self.url.rstrip("/") + "/health"
        deadline = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(health, timeout=5) as answer:  # noqa: S310 - ours, or the user's setting
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
def private_prefect() -> Iterator[PrefectServer]:
    """Give this process a Prefect server for the length of the block.

    Enter it before Prefect is first imported: Prefect reads its environment then. The server starts while the block
    runs; `wait` blocks until it answers. Analytics are off, its database is in memory, its home a temporary folder.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        yield PrefectServer(given)
        return
    with tempfile.TemporaryDirectory(prefix="indexmill-prefect-", ignore_cleanup_errors=True) as home:
        url = f"http://127.0.0.1:{_free_port()}/api"
        settings = {
            **_QUIET,
            "PREFECT_HOME": home,
            "PREFECT_API_DATABASE_CONNECTION_URL": _IN_MEMORY,
            "PREFECT_API_URL": url,
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        log = Path(home) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-m", "flows.server", url],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).resolve().parent.parent,
                start_new_session=True,  # Ctrl-C is for us: the flow still tells the server how it ended
            )
        try:
            yield PrefectServer(url, process, log)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
            process.kill()  # its database is temporary: nothing to flush
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _serve(url: str) -> None:
    """Serve until the parent goes away: its end of our standard input closes, however it died."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    import uvicorn

    with _tables():
        uvicorn.run(
            "prefect.server.api.server:create_app",
            factory=True,
            host="127.0.0.1",
            port=urlsplit(url).port or 0,
            log_level="error",
        )


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
    _serve(sys.argv[1])
