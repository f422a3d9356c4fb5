"""A PostgreSQL server of its own for a test."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def programs() -> Path:
    """The folder of PostgreSQL's programs; Debian has them apart from PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.skip("not installed: PostgreSQL (Debian's postgresql)")
    return folders[-1]


def user() -> str | None:
    """The user to run PostgreSQL as, which refuses root; None for the current one."""
    if os.geteuid() != 0:
        return None
    names = {one.pw_name for one in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextlib.contextmanager
def database(name: str, password: str) -> Iterator[int]:
    """The port of a server that has an empty database of a user, both of this name; the user needs the password."""
    binaries, runs_as, port = programs(), user(), free_port()
    with tempfile.TemporaryDirectory(prefix="postgres-") as temporary:
        folder = Path(temporary)
        if runs_as is not None:
            shutil.chown(folder, runs_as)
        file = folder / "password"
        file.write_text(password)
        file.chmod(0o644)
        data = folder / "data"
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", name, "-A", "scram-sha-256", "--pwfile", file],
            user=runs_as,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        with subprocess.Popen(
            [binaries / "postgres", "-D", data, "-p", str(port), *listen],
            user=runs_as,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        ) as server:
            try:
                ready = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
                wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, 60)
                create = [binaries / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", name, name]
                subprocess.run(create, env={**os.environ, "PGPASSWORD": password}, check=True)
                yield port
            finally:
                server.terminate()
                server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)
