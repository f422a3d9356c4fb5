"""A Dask cluster in a process of its own, which ends with the one that started it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
from distributed import Client

from flows.cluster import private_cluster
from flows.credentials import dask_settings
from flows.remote_cluster import remote_cluster
from schemas.config import DaskSettings, LlmSettings
from tests.paths import ROOT


@contextlib.contextmanager
def cluster_elsewhere(workers: int, store: Path) -> Iterator[Client]:
    """A client of a scheduler that is in another process."""
    command = [sys.executable, "-m", "tests.flows.elsewhere", str(workers), str(store)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            address, credentials = json.loads(child.stdout.readline())
            with (
                dask.config.set(dask_settings(Path(credentials))),
                remote_cluster(DaskSettings(address=address), store) as client,
            ):
                yield client
        finally:
            child.stdin.close()


def _serve(workers: int, store: Path) -> None:
    with private_cluster(workers, store, (LlmSettings(backend="openai", model="any"),)) as client:
        credentials = Path(dask.config.get("distributed.comm.tls.ca-file")).parent
        print(json.dumps([client.scheduler.address, str(credentials)]), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
