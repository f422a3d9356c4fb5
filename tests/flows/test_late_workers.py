"""Workers that join a shared cluster while a run is at work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import LocalCluster

from flows.dask_executor import DaskExecutor
from flows.remote_cluster import remote_cluster
from schemas.config import DaskSettings
from storage.folder import init_folder
from tasks.core.executor import Call
from tests.flows.clusters import ANY_PORT
from tests.paths import ROOT


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return init_folder(tmp_path / "store").root


def later(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


@pytest.fixture
def other_code(tmp_path: Path) -> Path:
    """A copy of the application that differs by a comment."""
    for room in ("flows", "indexmill", "schemas", "storage", "tasks"):
        shutil.copytree(ROOT / room, tmp_path / "other" / room, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other" / "tasks" / "core" / "stage.py").open("a") as file:
        file.write("# other code\n")
    return tmp_path / "other"


@pytest.mark.slow
def test_a_worker_that_joins_late_takes_part_if_it_is_fit_and_is_closed_if_not(store: Path, other_code: Path) -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=ANY_PORT) as running:
        address = running.scheduler_address

        def start(code: Path) -> subprocess.Popen[bytes]:
            command = [Path(sys.executable).parent / "dask", "worker", address, "--nthreads", "1", "--no-dashboard"]
            return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(code)}, stderr=subprocess.DEVNULL)

        with remote_cluster(DaskSettings(address=address), store) as client:
            fit, unfit = start(ROOT), start(other_code)
            try:
                assert unfit.wait(60) is not None
                client.wait_for_workers(2, timeout=60)
                assert len(client.scheduler_info(n_workers=-1)["workers"]) == 2
                calls = [Call(f"late-{number}", later, (0.05, number)) for number in range(20)]
                assert len(list(DaskExecutor(client).run(calls))) == 20
            finally:
                for process in (fit, unfit):
                    process.terminate()
                    process.wait(30)
