"""The command: the real one in a process of its own, and what it leaves behind; or called in this process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from indexmill.command import main

_MARK = "INDEXMILL_TEST_MARK"

_SPAWNED = "multiprocessing.spawn"


class Command:
    """A running `indexmill`, with a home, a folder for temporary files and a current folder of its own.

    Everything that it starts inherits a mark in its environment, by which `processes` finds it.
    """

    def __init__(self, folder: Path, *argv: object, environment: Mapping[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.home, self.temporary, self.current = folder / "home", folder / "tmp", folder / "cwd"
        for path in (self.home, self.temporary, self.current):
            path.mkdir(parents=True, exist_ok=True)
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DASK_", "XDG_"))}
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("indexmill"), *map(str, argv)],
            cwd=self.current,
            env={
                **keep,
                "HOME": str(self.home),
                "TMPDIR": str(self.temporary),
                _MARK: self.mark,
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.out = ""
        self.lines: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read_err)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            self.out = pipe.read()

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            for line in pipe:
                self.lines.append(line)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def err(self) -> str:
        """What it has said on standard error."""
        return "".join(self.lines)

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def signal(self, number: int, *, everywhere: bool = False) -> None:
        """Send a signal to the command itself, or to its process group as a terminal does."""
        (os.killpg if everywhere else os.kill)(self._process.pid, number)

    def signal_another_thread(self, number: int) -> None:
        """Send a signal to a thread that is not the main one, as the kernel may do with one to the process."""
        pid = self._process.pid
        thread = max(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
        assert thread != pid
        library = ctypes.CDLL(None, use_errno=True)
        assert library.tgkill(pid, thread, number) == 0, os.strerror(ctypes.get_errno())

    def wait(self, seconds: float = 240.0) -> int:
        """Its exit code, once it has ended and its pipes are closed: whoever inherited one would keep them open."""
        code = self._process.wait(seconds)
        for reader in self._readers:
            reader.join(30)
            assert not reader.is_alive(), "a process that was left behind holds a pipe of the command"
        return code

    def wait_for(self, word: str, seconds: float = 240.0) -> None:
        """Return once a line of standard error begins with a word."""
        deadline = time.monotonic() + seconds
        while not any(line.startswith(word) for line in list(self.lines)):
            assert self.running, f"ended with {self._process.returncode} before {word!r}: {self.err}"
            assert time.monotonic() < deadline, f"no {word!r}: {self.err}"
            time.sleep(0.01)

    def processes(self) -> dict[int, str]:
        """The processes that the command started, or that those did, by id: their command lines."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal() or int(folder.name) == self._process.pid:
                continue
            with contextlib.suppress(OSError):
                if f"{_MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(folder.name)] = words.strip()
        return found

    def workers(self) -> list[int]:
        """The worker processes."""
        return sorted(pid for pid, line in self.processes().items() if _SPAWNED in line)

    def left_behind(self, seconds: float = 15.0) -> dict[int, str]:
        """The processes that are still there after so many seconds."""
        deadline = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def json(self) -> dict[str, Any]:
        """The one object of `--json`, and nothing else on standard output."""
        assert self.out.count("\n") == 1, self.out
        value: dict[str, Any] = json.loads(self.out)
        return value


class Run:
    """Runs the command in this process and keeps what it printed. last: arguments after those of each call."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *last: object) -> None:
        self._capsys, self._last = capsys, last
        self.out = self.err = ""

    def __call__(self, *argv: object) -> int:
        code = main([*map(str, argv), *map(str, self._last)])
        self.out, self.err = self._capsys.readouterr()
        return code

    def printed(self, *argv: object) -> tuple[int, str, str]:
        """The exit code, and what was printed on standard output and standard error."""
        return self(*argv), self.out, self.err

    def json(self, *argv: object) -> Any:
        """The one object of `--json`."""
        assert self(*argv, "--json") == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@contextlib.contextmanager
def command(folder: Path, *argv: object, environment: Mapping[str, str] | None = None) -> Iterator[Command]:
    """A running command; nothing of it is left after the block, whatever happens there."""
    started = Command(folder, *argv, environment=environment)
    try:
        yield started
    finally:
        if started.running:
            started.signal(signal.SIGKILL)
            started.wait()
        for pid in started.left_behind(10.0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def write_settings(path: Path, settings: dict[str, Any]) -> Path:
    """A configuration file; returns the path."""
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path
