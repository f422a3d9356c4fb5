"""What a build works with dies or hangs under it: it ends well, or says in a line how to go on, and going on works."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import runs
from storage.folder import open_folder
from storage.lease import holding
from tests.deep import WHOLE
from tests.flows.children import build, settings
from tests.flows.clusters import ANY_PORT
from tests.flows.commands import Command, command
from tests.flows.expected import Expected
from tests.flows.readers import whole_versions
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)


def the(run: Command, words: str) -> list[int]:
    """The processes of a command whose command lines hold some words."""
    return sorted(pid for pid, line in run.processes().items() if words in line)


def ended_well(expected: Expected, run: Command, *, killed: int = 0) -> None:
    """The build published what an undisturbed one does, and nothing of it is left.

    A worker may be killed between a part's receipt and its report: whoever makes the part next finds it there.
    """
    assert run.wait() == 0, run.err
    told = run.json()
    assert (told["published"], told["manifest"]) == (True, expected.manifest)
    assert told["parts_made"] + told["parts_reused"] == expected.parts
    assert told["parts_reused"] <= killed
    assert run.left_behind() == {}


def ended_recorded(root: Path, state: str, code: int) -> None:
    """The lease was given back, and the run's record says how it ended."""
    store = open_folder(root)
    lease = holding(store)
    assert lease is not None
    assert lease.released
    last = runs.list_runs(store)[-1]
    assert (last.state, last.exit_code) == (state, code)
    assert list((root / "tmp").iterdir()) == []


def goes_on(expected: Expected, root: Path) -> None:
    """The next build finishes it."""
    before = whole_versions(root, {1: expected.manifest})
    done = sum(1 for _ in open_folder(root).list("work/"))
    told = build(settings(root, expected.corpus))
    assert (told.manifest, told.published) == (expected.manifest, not before)
    assert told.parts_made == expected.parts - done


# The Prefect server


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (signal.SIGKILL, "died of signal 9 (Killed)"),
        pytest.param(signal.SIGSTOP, "has not answered for 45 s", marks=pytest.mark.slow),
    ],
)
def test_a_prefect_server_that_dies_or_hangs_takes_nothing_with_it(
    expected: Expected, tmp_path: Path, number: signal.Signals, fault: str
) -> None:
    with command(tmp_path, *expected.argv(tmp_path)) as run:
        run.wait_for("split:")
        (server,) = the(run, "flows.prefect_server")
        os.kill(server, number)
        ended_well(expected, run)
    restarts = [line.partition("/api ")[2].strip() for line in run.lines if "is restarted" in line]
    assert restarts == [f"{fault} and is restarted"]
    ended_recorded(tmp_path / "store", "published", 0)


@pytest.mark.slow
def test_a_prefect_server_of_ones_own_that_is_not_there_takes_nothing_with_it(
    expected: Expected, tmp_path: Path
) -> None:
    url = "http://127.0.0.1:9/api"
    with command(tmp_path, *expected.argv(tmp_path), environment={"PREFECT_API_URL": url}) as run:
        ended_well(expected, run)
    assert any(line.startswith(f"warning: the Prefect server at {url}") for line in run.lines), run.err


# Workers and schedulers


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced(
    expected: Expected, prefect_environment: dict[str, str], tmp_path: Path
) -> None:
    with command(tmp_path, *expected.argv(tmp_path), environment=prefect_environment) as run:
        run.wait_for("ingest:")
        os.kill(run.workers()[0], signal.SIGKILL)
        run.wait_for("split:")
        os.kill(run.workers()[-1], signal.SIGKILL)
        ended_well(expected, run, killed=2)
    assert not any("searching for" in line for line in run.lines), run.err


Process = subprocess.Popen[bytes]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[tuple[str, Process, list[Process]]]:
    """A running Dask cluster: its address, its scheduler and its workers, which nobody starts again."""
    told = folder / "scheduler.json"

    def start(role: str, *argv: str) -> Process:
        return subprocess.Popen(
            [sys.executable, "-c", f"from distributed.cli.dask_{role} import main; main()", *argv],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    listening = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ANY_PORT]
    started = [start("scheduler", *listening, "--scheduler-file", str(told))]
    try:
        started += [
            start("worker", "--scheduler-file", str(told), "--nthreads", "1", "--no-nanny", "--no-dashboard")
            for _ in range(workers)
        ]
        from distributed import Client

        deadline = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with Client(scheduler_file=str(told), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
            address = str(client.scheduler.address)
        yield address, started[0], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_dies_or_hangs_ends_the_build_and_the_next_goes_on(
    expected: Expected, tmp_path: Path, number: signal.Signals
) -> None:
    with cluster(tmp_path) as (address, scheduler, _):
        with command(tmp_path, *expected.argv(tmp_path, "--dask", address)) as run:
            run.wait_for("ingest:")
            scheduler.send_signal(number)
            assert run.wait() == 1
            assert run.left_behind() == {}
        errors = [line for line in run.lines if line.startswith("error: ")]
        assert len(errors) == 1, run.err
        assert f"the Dask scheduler at {address} has " in errors[0]
        assert "run the build again" in errors[0]
        ended_recorded(tmp_path / "store", "failed", 1)
    goes_on(expected, tmp_path / "store")


@pytest.mark.slow
def test_a_worker_of_a_running_cluster_may_die(expected: Expected, tmp_path: Path) -> None:
    with (
        cluster(tmp_path) as (address, _, workers),
        command(tmp_path, *expected.argv(tmp_path, "--dask", address)) as run,
    ):
        run.wait_for("ingest:")
        workers[0].kill()
        ended_well(expected, run, killed=1)


# SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8) if WHOLE else [0, 3, 5, 7])
def test_sigterm_at_any_moment_ends_the_build_and_gives_the_lease_back(
    expected: Expected, tmp_path: Path, number: int
) -> None:
    chance = random.Random(f"sigterm {number}")  # noqa: S311
    stage = [None, None, None, "ingest", "split", "embed", "embed_names", "check"][number]
    root = tmp_path / "store"
    with command(tmp_path, *expected.argv(tmp_path)) as run:
        if stage is None:
            while not (root / "runs").exists() or not any(root.glob("runs/*/start.json")):
                assert run.running
                time.sleep(0.005)
        else:
            run.wait_for(f"{stage}:")
        time.sleep(chance.random() * (4.0 if stage is None else 0.2))
        run.signal(signal.SIGTERM)
        code = run.wait(90)
        assert run.left_behind() == {}
    assert code in ((130,) if stage is None else (0, 130)), run.err
    if code:
        assert "Traceback" not in run.err, run.err
    ended_recorded(root, "published" if whole_versions(root, {1: expected.manifest}) else "interrupted", code)
    goes_on(expected, root)
