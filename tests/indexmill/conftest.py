"""What the reader's tests share: a small published store, and an environment for endpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import indexmill
from indexmill import Snapshot
from indexmill.models import openai_llm
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import publish
from tests.llm_server import CANARY


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that readers of other tests have assembled, or have fetched from a bucket."""
    monkeypatch.delenv("INDEXMILL_CACHE", raising=False)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key in the environment, no proxy, nothing remembered of other tests' endpoints, and waits untold."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr("indexmill.command.waiting.MOMENT", 600.0)
    openai_llm._working_shapes.clear()
    openai_llm._without_streams.clear()


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of ``small_snapshot.WORLD`` with dense retrieval alone; read it only."""
    path = tmp_path_factory.mktemp("published") / "store"
    publish(path)
    return path


@pytest.fixture(scope="session")
def snapshot(published: Path) -> Iterator[Snapshot]:
    """That store, opened."""
    with indexmill.open(published) as opened:
        yield opened


@pytest.fixture
def store(published: Path, tmp_path: Path) -> Path:
    """A store of one's own, to be damaged at will."""
    return Path(shutil.copytree(published, tmp_path / "store"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands and reads what they print."""
    return Run(capsys)
