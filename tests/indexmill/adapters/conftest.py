"""What the adapters' tests share: an index, one that takes its time, and no network."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import indexmill
from indexmill import Hit, Snapshot
from tests.indexmill.small_snapshot import WORLD, Text, writer_of

YEARS = {
    "p8": [
        Text("old", "Old bridge", "The bridge of old.", {"year": 1900, "lang": "en"}, "https://bridges.example/old"),
        Text("new", "New bridge", "The bridge of today.", {"year": 2024}),
    ]
}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing calls home: neither names are looked up nor connections opened."""

    def refuse(*arguments: object, **_: object) -> Any:
        raise AssertionError(f"a connection to {arguments} was tried")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose version is found with bm25; read it only."""
    path = tmp_path_factory.mktemp("adapters") / "store"
    writer = writer_of(path, {**WORLD, **YEARS})
    writer.bm25()
    writer.publish(1)
    return path


@pytest.fixture(scope="session")
def opened(store: Path) -> Iterator[Snapshot]:
    """That store, opened."""
    with indexmill.open(store) as snapshot:
        yield snapshot


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    """An opened index whose documents are for everyone, for staff, and for the board."""
    groups: dict[str, dict[str, Any]] = {"all": {}, "staff": {"groups": ["staff"]}, "board": {"groups": "board"}}
    texts = [Text(name, name, f"The bridge of {name}.", its) for name, its in groups.items()]
    path = tmp_path_factory.mktemp("guarded") / "store"
    writer = writer_of(path, {"p0": texts})
    writer.configuration = {"corpus": {"access": {"field": "groups", "required": False}}}
    writer.bm25()
    writer.publish(1)
    with indexmill.open(path) as snapshot:
        yield snapshot


class Slow:
    """An index that answers once the event loop has gone on meanwhile."""

    def __init__(self) -> None:
        self._went_on = threading.Event()

    def retrieve(self, question: str, *arguments: Any, **options: Any) -> list[Hit]:
        assert self._went_on.wait(30), "the event loop is blocked"
        return [Hit("passage", "p1", 0.5, question, "", ("d1",))]

    def while_it_answers(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What ``ask`` returns, called in an event loop that has something else to do."""

        async def play() -> Any:
            asked = asyncio.ensure_future(ask())
            await asyncio.sleep(0)
            self._went_on.set()
            return await asked

        return asyncio.run(play())


@pytest.fixture
def slow() -> Slow:
    """An index that needs an event loop that goes on."""
    return Slow()
