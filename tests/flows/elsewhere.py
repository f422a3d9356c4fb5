"""A Dask cluster in a process of its own, which ends with the one that started it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from distributed import Client

from flows.cluster import open_cluster
from tests.flows.children import ROOT

__all__ = ["cluster_elsewhere"]


@contextlib.contextmanager
def cluster_elsewhere(workers: int, store: Path) -> Iterator[Client]:
    """A client of a scheduler that is in another process."""
    command = [sys.executable, "-m", "tests.flows.elsewhere", str(workers), str(store)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with open_cluster(child.stdout.readline().strip(), None, store) as client:
                yield client
        finally:
            child.stdin.close()


def _serve(workers: int, store: Path) -> None:
    with open_cluster(None, workers, store) as client:
        print(client.scheduler.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
