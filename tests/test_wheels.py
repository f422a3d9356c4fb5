"""The wheels of `make dist`, installed beside someone else's packages of the same names; no checkout is in reach."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.flows.children import settings
from tests.flows.commands import write_settings
from tests.paths import ROOT

PACKAGES = ("flows", "tasks", "storage", "schemas")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_both_distributions_have_one_version_and_require_each_other_in_it() -> None:
    reader, pipeline = (
        tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
        for path in ("pyproject.toml", "infra/wheel/pyproject.toml")
    )
    assert pipeline["version"] == VERSION
    assert reader["optional-dependencies"]["pipeline"] == [f"{pipeline['name']}=={VERSION}"]
    assert [text for text in pipeline["dependencies"] if text.startswith("indexmill[") and text.endswith(VERSION)]


@dataclass
class Site:
    """An environment with wheels, and a folder of a user with packages named as those of the pipeline."""

    python: Path
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of a process: none that leads to the checkout."""
        unwanted = ("PYTHON", "PREFECT_", "INDEXMILL_", "COVERAGE_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
        return {**inherited, **quiet, "PATH": f"{self.python.parent}:{os.environ['PATH']}", **more}

    def run(self, *words: str, code: int = 0, **more: str) -> str:
        """What a module prints, run as a program in the user's folder, which Python then imports from first."""
        command = [str(self.python), "-m", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(**more), capture_output=True, text=True, timeout=560
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    @contextmanager
    def running(self, *words: str, **more: str) -> Iterator[None]:
        """Run a module as a program during the block."""
        command = [str(self.python), "-m", *words]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment(**more), stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Both wheels, by the names of their distributions."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "infra" / "wheel"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


def site(folder: Path, *wheels: Path) -> Site:
    """Install wheels into a fresh environment, which finds the libraries of this one."""
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(
        sysconfig.get_path("purelib")
    )  # names no checkout: its .pth files are ignored
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        *map(str, wheels),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    user = folder / "user"
    for name in PACKAGES:
        (user / name).mkdir(parents=True)
        (user / name / "__init__.py").write_text("OWNER = 'someone else'\n")
    return Site(python, user)


@pytest.fixture(scope="module")
def installed(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The whole application, installed."""
    return site(tmp_path_factory.mktemp("whole"), *wheels.values())


def files(folder: str) -> set[str]:
    """The files of a package in the checkout."""
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.slow
def test_each_wheel_has_every_file_of_its_packages_and_no_other(wheels: Mapping[str, Path]) -> None:
    content = {
        name: {entry for entry in zipfile.ZipFile(path).namelist() if ".dist-info/" not in entry}
        for name, path in wheels.items()
    }
    assert content["indexmill"] == files("indexmill")
    shipped = {"sample/corpus.jsonl", "sample/questions.jsonl", "infra/prefect.yaml"}
    shipped |= {"infra/automations.py", "infra/automations.yaml"}.union(*map(files, PACKAGES))
    assert content["indexmill_pipeline"] == {f"indexmill_pipeline/{name}" for name in shipped} | files(
        "indexmill_pipeline"
    )


@pytest.mark.slow
def test_the_reader_alone_says_what_builds(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    reader = site(tmp_path, wheels["indexmill"])
    text = reader.run("indexmill", "--help")
    assert "Retrieve the passages" in text
    assert "Bring the index up to date" not in text
    assert "pip install 'indexmill[pipeline]'" in text
    assert "pip install 'indexmill[pipeline]'" in reader.run("indexmill", "build", code=2)


@pytest.mark.slow
def test_a_build_a_question_and_a_server_need_no_checkout(installed: Site) -> None:
    lines = "import tasks, indexmill; print(tasks.OWNER, 'flows' in __import__('sys').modules)"
    (installed.folder / "mine.py").write_text(lines)
    assert installed.run("mine") == "someone else False\n"
    assert "wrote" in installed.run("indexmill", "init")
    assert "ingest" in installed.run("indexmill", "plan")
    build = json.loads(installed.run("indexmill", "build", "--workers", "2", "--json"))
    assert build["version"] == 1
    question = json.loads((installed.folder / "questions.jsonl").read_text().splitlines()[0])["question"]
    hits = json.loads(installed.run("indexmill", "query", question, "-k", "3", "--json"))["hits"]
    port = free_port()
    with installed.running("indexmill", "serve", "store", "--port", str(port)):
        assert answer(f"http://127.0.0.1:{port}/retrieve", {"question": question, "k": 3})["hits"] == hits


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer(url: str, body: object, seconds: float = 300) -> Any:
    """The answer of a server, as soon as it is up."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError), urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return json.load(response)
        assert time.monotonic() < deadline, f"{url} does not answer"
        time.sleep(1)


@pytest.mark.slow
def test_a_worker_of_prefect_runs_a_deployed_flow(installed: Site) -> None:
    root = Path(installed.run("indexmill_pipeline").strip())
    configuration = write_settings(
        installed.folder / "deployed.yaml", settings(installed.folder / "deployed", root / "sample" / "corpus.jsonl")
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    client = {
        "PREFECT_HOME": str(installed.folder / "prefect"),
        "PREFECT_API_URL": url,
        "INDEXMILL_CONFIG": str(configuration),
    }
    with installed.running("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), **client):
        answer(f"{url}/flows/filter", {})
        installed.run("prefect", "work-pool", "create", "indexmill", "--type", "process", **client)
        file = str(root / "infra" / "prefect.yaml")
        installed.run("prefect", "--no-prompt", "deploy", "--prefect-file", file, "--all", **client)
        installed.run("prefect", "deployment", "run", "indexmill-refresh/nightly", **client)
        installed.run("prefect", "worker", "start", "--pool", "indexmill", "--run-once", **client)
        runs = answer(f"{url}/flow_runs/filter", {})
    states = {run["state"]["name"]: run["state"]["message"] for run in runs if run["state"]["type"] != "SCHEDULED"}
    assert list(states) == ["Published"]
    assert re.match(r"version 1: \d+ documents", states["Published"])
