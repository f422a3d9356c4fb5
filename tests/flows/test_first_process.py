"""The command as process 1 of a container, for which the kernel drops signals that the process does not handle."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage import runs
from storage.folder import open_folder
from tests.corpora import documents, write_corpus
from tests.flows.children import settings
from tests.flows.commands import write_settings
from tests.paths import ROOT

_UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("not installed: unshare (Debian's util-linux)")
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no process namespaces here: {tried.stderr.strip()}")


@contextlib.contextmanager
def first_process(folder: Path, command: Sequence[object]) -> Iterator[subprocess.Popen[str]]:
    """A command that is process 1 of a namespace of its own; its standard error is a pipe."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DASK_"))}
    with subprocess.Popen(
        [*_UNSHARE, *map(str, command)],
        cwd=folder,
        env={**keep, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # and the namespace with it


def terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM to process 1, as a container engine does."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(word):
            return
    pytest.fail(f"no {word!r}: {said}")


COMMAND_WITHOUT_HANDLERS = """
import sys, time
from indexmill import command

def main(argv=None):
    try:
        print("at work", file=sys.stderr, flush=True)
        time.sleep(300)
    except KeyboardInterrupt as error:
        print(f"interrupted by {error}", file=sys.stderr, flush=True)
        return 130

command.main = main
command.run()
"""


def test_sigterm_ends_a_command_that_has_no_handler_of_its_own(tmp_path: Path) -> None:
    with first_process(tmp_path, [sys.executable, "-c", COMMAND_WITHOUT_HANDLERS]) as process:
        wait_for(process, "at work")
        terminate(process)
        wait_for(process, "interrupted by SIGTERM")
        assert process.wait(30) == 130


@pytest.mark.slow
def test_sigterm_ends_a_build_as_interrupted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", documents(8))
    write_settings(tmp_path / "indexmill.yaml", settings(tmp_path / "store", corpus, run={"workers": 1}))
    indexmill = Path(sys.executable).with_name("indexmill")
    with first_process(tmp_path, [indexmill, "build"]) as process:
        wait_for(process, "ingest:")
        terminate(process)
        wait_for(process, "interrupted: stopping")
        assert process.wait(60) == 130
    (run,) = runs.list_runs(open_folder(tmp_path / "store"))
    assert (run.state, run.end.exit_code if run.end else None) == ("interrupted", 130)
