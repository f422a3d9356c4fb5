"""The real command as a process, and its log."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.indexmill.small_snapshot import WORLD, Text, writer_of
from tests.paths import ROOT


def publish(path: Path, version: int) -> None:
    """A version without vectors that says its number in its last shard; its bm25 finds it by `This is the version`."""
    writer = writer_of(path, {**WORLD, "p9": [Text("numbered", "Version", f"This is the version {version}.")]})
    writer.bm25()
    writer.publish(version)


class Serving:
    """A server process. client: for its URL. log: the objects that it wrote so far."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: list[dict[str, Any]]) -> None:
        self.process, self.url, self.log = process, url, log
        self.client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def requests(self, path: str) -> list[dict[str, Any]]:
        """The log's lines about a path."""
        return [line for line in list(self.log) if line["event"] == "request" and line["path"] == path]


@contextlib.contextmanager
def serving(
    store: Path, *words: object, program: str | None = None, warm: str = "bm25", prefix: Sequence[str] = ()
) -> Iterator[Serving]:
    """Serve a store by the command, or by a program that calls it; ended by SIGTERM unless it has ended."""
    start = ["-m", "indexmill"] if program is None else ["-c", program]
    arguments = ["serve", store, "--port", 0, "--linger", 0, "--warm", warm, *words]
    command = [*prefix, sys.executable, *start, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    log: list[dict[str, Any]] = []
    assert process.stderr is not None
    lines = process.stderr
    first = lines.readline()
    assert first.startswith("{"), first + lines.read()

    def keep() -> None:
        for line in lines:
            log.append(json.loads(line))

    reader = threading.Thread(target=keep, daemon=True)
    reader.start()
    found = Serving(process, json.loads(first)["url"], log)
    try:
        yield found
    finally:
        found.client.close()
        if process.poll() is None:
            process.terminate()
        process.wait(30)
        reader.join(10)
        lines.close()
