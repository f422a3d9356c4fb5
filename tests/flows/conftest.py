from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from flows.build_run import BuildOutcome, build_inline
from indexmill.store.blob_cache import CACHE_VARIABLE
from schemas.config import Configuration
from storage.folder import FolderStore, open_folder
from tests.corpora import documents, write_corpus
from tests.flows.built import Built
from tests.flows.children import settings
from tests.flows.commands import Run, command, write_settings
from tests.flows.expected import Expected
from tests.flows.versions import Versions, make_versions
from tests.llm_server import CANARY
from tests.storage.quick import quick_folder


@pytest.fixture(scope="module")
def prefect_server() -> Iterator[None]:
    """A Prefect server of the tests, which keeps logs."""
    from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180), temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: True}):
        yield


@pytest.fixture(scope="module")
def prefect_environment(prefect_server: None) -> dict[str, str]:
    """The environment in which a command uses the tests' Prefect server instead of starting its own."""
    from prefect.settings import PREFECT_API_URL

    return {"PREFECT_API_URL": PREFECT_API_URL.value()}


@pytest.fixture
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that the endpoint of the tests is asked with."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory. The key of `asking` is set."""
    monkeypatch.setenv("CANARY_KEY", CANARY)
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory for the tests of a module."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def versions(memory: Path) -> Versions:
    """A store with two versions, which nobody writes to."""
    return make_versions(memory)


@pytest.fixture(scope="module")
def expected(memory: Path) -> Expected:
    """A corpus, and what an undisturbed build makes of it."""
    return Expected.within(memory)


@pytest.fixture
def two_versions(versions: Versions) -> Iterator[FolderStore]:
    """A copy of the store with two versions."""
    with quick_folder() as folder:
        yield open_folder(shutil.copytree(versions.root, folder / "store"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process, in a new current folder."""
    monkeypatch.chdir(tmp_path)
    return Run(capsys)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """`indexmill build` without a server and workers: for what does not depend on them."""

    def build_here(configuration: Configuration, **options: Any) -> BuildOutcome:
        return build_inline(configuration, **options)

    monkeypatch.setattr("flows.local.build_under_prefect", build_here)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is made once, also where several processes run the tests."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def cache(shared_folder: Path) -> Iterator[None]:
    """A cache of the tests' own, in which the first private Prefect server leaves its empty database to the others."""
    with patch.dict(os.environ, {CACHE_VARIABLE: str(shared_folder / "cache")}):
        yield


@pytest.fixture(scope="session")
def built(shared_folder: Path) -> Built:
    """A store that the real command has built with two workers: once, also where several processes run the tests."""
    folder = shared_folder / "built-by-the-command"
    folder.mkdir(exist_ok=True)
    record = folder / "record.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            record.write_text(json.dumps(_build(folder)), encoding="utf-8")
    return Built.of(folder, json.loads(record.read_text(encoding="utf-8")))


def _build(folder: Path) -> dict[str, object]:
    corpus = write_corpus(folder / "corpus.jsonl", documents(24, words=110))
    with corpus.open("ab") as file:
        file.write(b'not json\n{"id": "empty", "title": "no text"}\n')
    chosen = settings(folder / "store", corpus, run={"workers": 2})
    configuration = write_settings(folder / "indexmill.yaml", chosen)
    with command(folder, "build", "--config", configuration, "--json", environment={CACHE_VARIABLE: ""}) as run:
        code = run.wait()
        left = run.left_behind()
    files = [str(path) for place in (run.home, run.temporary, run.current) for path in place.rglob("*")]
    return {"code": code, "out": run.out, "err": run.err, "left_behind": list(left.values()), "files": files}
