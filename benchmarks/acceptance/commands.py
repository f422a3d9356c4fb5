"""Run programs as a user does: the installed command, in its own process and folder.

Output goes to files, so that nothing has to be read while a program runs, and a failure can show the last lines.
`os.wait4` returns the CPU time of a process and of the children it waited for, also while other rows run programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

_TAIL = 20  # number of lines shown from a failed program's output

_DEADLINE = 3_600.0  # seconds; only a hanging program reaches it, even on a busy machine


class CommandFailed(Exception):
    """A program did not end as expected; the message has the end of its output."""


class RunningProgram:
    """A running program, with its output in two files."""

    def __init__(self, words: Sequence[str], out: Path, environment: Mapping[str, str]) -> None:
        self._out, self._err = out.with_suffix(".out"), out.with_suffix(".err")
        self._words = words
        with self._out.open("wb") as stdout, self._err.open("wb") as stderr:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(environment), cwd=out.parent
            )
        self.cpu = 0.0

    @property
    def out(self) -> str:
        """The standard output so far."""
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        """The standard error so far."""
        return self._err.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float = _DEADLINE) -> int:
        """Wait for the program to exit; return its exit code. At the deadline, kill it and raise CommandFailed."""
        self.wait_for(lambda: False, seconds)
        return self._process.returncode

    def wait_for(self, is_reached: Callable[[], bool], seconds: float = _DEADLINE) -> bool:
        """Wait for a condition; return False if the program ends first. Raises CommandFailed at the deadline."""
        deadline = time.monotonic() + seconds
        while self._is_running():
            if is_reached():
                return True
            if time.monotonic() > deadline:
                self.kill()
                raise self.failure(f"neither ended nor reached the condition in {seconds:.0f} s")
            time.sleep(0.05)
        return False

    def _is_running(self) -> bool:
        if self._process.returncode is not None:
            return False
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu = usage.ru_utime + usage.ru_stime
        return not pid

    def terminate(self) -> None:
        """Send SIGTERM, as a service manager does."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program and its children, as a power failure would. All are stopped first: none restarts another."""
        process = psutil.Process(self._process.pid)
        family: list[psutil.Process] = []
        for number in (signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL):  # twice, for processes that have just started
            family = [process, *process.children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.send_signal(number)
        psutil.wait_procs(family[1:], timeout=30)
        self.wait()

    def failure(self, what: str) -> CommandFailed:
        """Return an error that says what happened, with the last lines of the output."""
        lines = [*self.err.splitlines(), *self.out[-2_000:].splitlines()][-_TAIL:]
        return CommandFailed("\n    ".join([f"`{' '.join(self._words)}` {what}:", *lines]))


class Programs:
    """Starts programs in a folder, and adds up their CPU time."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self.environment = dict(os.environ)
        for name, path in {"TMPDIR": "tmp", "INDEXMILL_CACHE": "cache", "HOME": "home"}.items():
            (folder / path).mkdir(parents=True, exist_ok=True)
            self.environment[name] = str(folder / path)
        self.environment |= environment or {}
        self._count = 0
        self.cpu = 0.0

    @contextlib.contextmanager
    def running(self, *words: object, environment: Mapping[str, str] | None = None) -> Iterator[RunningProgram]:
        """Run a program during the block; kill it at the end if it is still running."""
        self._count += 1
        program = RunningProgram(
            [*map(str, words)], self._folder / f"program-{self._count}", self.environment | dict(environment or {})
        )
        try:
            yield program
        finally:
            if program.wait_for(lambda: True):
                program.kill()
            self.cpu += program.cpu

    def indexmill(self, *words: object, code: int = 0, environment: Mapping[str, str] | None = None) -> str:
        """Run `indexmill WORDS`; return its standard output. Raises CommandFailed if the exit code is not ``code``."""
        return self._output(_command(words), code, environment)

    def json(self, *words: object, environment: Mapping[str, str] | None = None) -> Any:
        """Run `indexmill WORDS --json`; return the object it prints."""
        return json.loads(self.indexmill(*words, "--json", environment=environment))

    def python(self, script: Path, *words: object) -> Any:
        """Run a Python script; return the object it prints."""
        return json.loads(self._output([sys.executable, script, *words], 0, None))

    def starting(self, *words: object) -> contextlib.AbstractContextManager[RunningProgram]:
        """Run `indexmill WORDS` during the block."""
        return self.running(*_command(words))

    def _output(self, words: Sequence[object], code: int, environment: Mapping[str, str] | None) -> str:
        with self.running(*words, environment=environment) as program:
            ended = program.wait()
            if ended != code:
                raise program.failure(f"ended with exit code {ended}, expected {code}")
            return program.out


def _command(words: Sequence[object]) -> list[object]:
    return [Path(sys.executable).with_name("indexmill"), *words]
