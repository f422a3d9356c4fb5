"""The process that workers are forked from: when it starts, and what it has imported."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from flows import fork_server
from flows.cluster import open_cluster
from flows.fork_server import start_where_work_is_expected
from schemas.config import Configuration
from storage.folder import init_store
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.flows.commands import command, write_settings

SHORT = "/tmp"  # noqa: S108 - the path itself is what counts
PRELOADED = """
import json, os, sys
import flows.worker
threads = [open(f"/proc/self/task/{one}/comm").read().strip() for one in os.listdir("/proc/self/task")]
print(json.dumps({"threads": threads, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def test_what_it_imports_starts_no_thread_that_a_fork_would_lack() -> None:
    done = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert set(told["threads"]) - {"jemalloc_bg_thd"} == {told["threads"][0]}
    assert told["threads"].count(told["threads"][0]) == 1
    assert {"distributed", "tasks"} <= set(told["modules"])
    assert not {"polars", "openvino", "torch", "prefect"} & set(told["modules"])


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, gone after the test."""
    with tempfile.TemporaryDirectory(dir=SHORT) as folder:
        yield Path(folder)


def test_a_build_works_where_the_path_of_temporary_files_is_long(short: Path, tmp_path: Path) -> None:
    far = short / "home" / ("t" * 150)
    far.mkdir(parents=True)
    runtime = short / "run"
    runtime.mkdir(mode=0o700)
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(6))
    chosen = children.settings(tmp_path / "store", corpus, run={"workers": 1})
    configuration = write_settings(tmp_path / "i.yaml", chosen)
    environment = {"TMPDIR": str(far), "XDG_RUNTIME_DIR": str(runtime)}
    with command(tmp_path, "build", "-c", configuration, "--json", environment=environment) as build:
        seen: set[tuple[str, int]] = set()
        while build.running:
            with contextlib.suppress(FileNotFoundError):
                seen |= {(path.name[:5], path.stat().st_mode & 0o777) for path in runtime.iterdir()}
            time.sleep(0.05)
        assert build.wait() == 0, build.err
        assert build.left_behind() == {}
    assert build.json()["published"]
    assert seen == {("index", 0o700)}
    assert [*far.iterdir(), *runtime.iterdir()] == []


@pytest.mark.parametrize(
    ("usual", "runtime", "used"),
    [
        ("/short", "/run/user/7", "/short"),
        ("/" + 150 * "t", "/run/user/7", SHORT),  # that of another user, or of nobody
        ("/" + 150 * "t", "relative", SHORT),
        ("/" + 150 * "t", "/" + 90 * "r", SHORT),
    ],
)
def test_the_socket_has_a_path_that_the_system_takes(
    usual: str, runtime: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", usual)
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    with fork_server._short_temporary_folder():
        assert tempfile.gettempdir() == used
    assert tempfile.gettempdir() == usual


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started."""
    found: list[str] = []
    monkeypatch.setattr(fork_server, "start", lambda llm: found.append("started"))
    return found


def test_it_starts_early_where_the_corpus_has_changed(started: list[str], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(6))
    settings = children.settings(tmp_path / "store", corpus)
    configuration = Configuration.model_validate(settings)
    start_where_work_is_expected(configuration)
    assert started == []  # there is no store: what is wrong, and whether anything is, `build` says
    children.build(settings)
    start_where_work_is_expected(configuration)
    assert started == []
    write_corpus(corpus, documents(7))
    start_where_work_is_expected(configuration)
    assert started == ["started"]
    corpus.unlink()
    start_where_work_is_expected(configuration)
    assert started == ["started"]


def hashed() -> tuple[int, str | None, str | None]:
    return hash("a"), os.environ.get("OMP_NUM_THREADS"), os.environ.get("TOLD_LATER")


def test_workers_hash_alike_and_see_the_environment_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init_store(tmp_path / "store")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    fork_server.start()
    monkeypatch.setenv("TOLD_LATER", "yes")
    found = []
    for _ in range(2):
        with open_cluster(None, 2, tmp_path / "store") as client:
            found += list(client.run(hashed).values())
    assert set(found) == {(found[0][0], "1", "yes")}
    assert forkserver._forkserver._forkserver_pid is None


def test_it_ends_at_once_while_it_starts() -> None:
    began = time.monotonic()
    with fork_server.running():
        pass
    assert time.monotonic() - began < 5
    assert forkserver._forkserver._forkserver_pid is None
