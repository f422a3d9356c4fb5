"""Clusters of other machines: which are refused, how TLS is given, and clusters that are made for a run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster
from distributed.security import Security

from flows.credentials import write_credentials
from flows.dask_executor import DaskExecutor
from flows.remote_cluster import remote_cluster
from indexmill.errors import BadInput, ConfigurationError, IndexmillError
from schemas.config import Configuration, DaskSettings, load_configuration
from storage.folder import init_folder
from tasks.core.executor import Call
from tests.flows.children import settings
from tests.flows.clusters import ANY_PORT
from tests.flows.commands import Run, command, write_settings
from tests.flows.expected import Expected


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return init_folder(tmp_path / "store").root


def double(value: int) -> int:
    return 2 * value


def doubled(client: Client, patience: float = 60.0) -> list[int]:
    calls = [Call(f"double-{value}", double, (value,)) for value in range(5)]
    return sorted(result for _, result in DaskExecutor(client, patience).run(calls))


@pytest.mark.parametrize("address", ["tcp://192.0.2.1:8786", "192.0.2.1:8786", "ws://192.0.2.1:8786", "nonsense://x"])
def test_a_cluster_without_tls_on_another_machine_is_refused(address: str, store: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"without TLS can run code on its machines.*--insecure-cluster"),
        remote_cluster(DaskSettings(address=address), store),
    ):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_a_cluster_without_tls_on_this_machine_is_looked_for(
    host: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.remote_cluster._CONNECT", "100ms")
    with (
        pytest.raises(BadInput, match="no Dask scheduler answers there"),
        remote_cluster(DaskSettings(address=f"tcp://{host}:1"), store),
    ):
        pass


def test_a_name_is_this_machines_only_if_all_its_addresses_are(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    with pytest.raises(BadInput, match="without TLS"), remote_cluster(DaskSettings(address="tcp://both:1"), store):
        pass


def test_the_command_refuses_a_cluster_without_tls_before_anything_is_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "Ada met Ben."}\n')
    assert run("build", "--corpus", "c.jsonl", "--store", "s", "--dask", "tcp://192.0.2.1:8786") == 2
    assert "--insecure-cluster" in run.err
    assert not (tmp_path / "s").exists()


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certificates"
    folder.mkdir()
    write_credentials(folder)
    return folder


def tls(folder: Path) -> dict[str, str]:
    return {
        "ca": str(folder / "certificate.pem"),
        "certificate": str(folder / "certificate.pem"),
        "key": str(folder / "key.pem"),
    }


@contextmanager
def processes(folder: Path) -> Iterator[str]:
    """The address of a scheduler with one worker, which are open to holders of the credentials in a folder."""
    dask = Path(sys.executable).parent / "dask"
    pem = tls(folder)
    files = ["--tls-ca-file", pem["ca"], "--tls-cert", pem["certificate"], "--tls-key", pem["key"], "--no-dashboard"]
    where = folder / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tls://127.0.0.1:{port}"
    here = ["--protocol", "tls", "--host", "127.0.0.1", *files]
    commands = [
        [dask, "scheduler", "--port", str(port), "--scheduler-file", where, *here],
        [dask, "worker", address, "--nthreads", "1", *here],
    ]
    started = [subprocess.Popen(command, cwd=folder, **quiet) for command in commands]
    try:
        security = Security(tls_ca_file=pem["ca"], tls_client_cert=pem["certificate"], tls_client_key=pem["key"])
        with Client(address, security=security, timeout="60s") as client:
            client.wait_for_workers(1, timeout=60)
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_files_of_tls_are_settings(certificates: Path, store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_credentials(other)
    with processes(certificates) as address:
        settings = DaskSettings.model_validate({"address": address, "tls": tls(certificates)})
        with remote_cluster(settings, store) as client:
            assert doubled(client) == [0, 2, 4, 6, 8]
        stranger = DaskSettings.model_validate({"address": address, "tls": tls(other)})
        with pytest.raises(BadInput, match="no Dask scheduler answers there"), remote_cluster(stranger, store):
            pass
        plain = DaskSettings(address=address.replace("tls://", "tcp://"))
        with pytest.raises(BadInput, match="no Dask scheduler answers there"), remote_cluster(plain, store):
            pass


@pytest.mark.slow
def test_the_files_of_tls_are_looked_up_from_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "indexmill.yaml"
    file.write_text("run: {dask: {address: 'tls://h:1', tls: {ca: a.pem, certificate: b.pem, key: /c.pem}}}\n")
    found = load_configuration(file).run.dask.tls
    assert (found.ca, found.certificate, found.key) == (tmp_path / "a.pem", tmp_path / "b.pem", Path("/c.pem"))
    with pytest.raises(BadInput, match=r"run\.dask\.tls: .*a\.pem is not a file"):
        remote_cluster(load_configuration(file).run.dask, tmp_path).__enter__()
    file.write_text("run: {dask: {tls: {ca: a.pem}}}\n")
    with pytest.raises(ConfigurationError, match=r"run\.dask\.tls: .*certificate and key missing"):
        load_configuration(file)


def test_a_name_alone_is_an_address_or_a_class() -> None:
    named = {"tls://h:1": ("tls://h:1", None), "dask_jobqueue.SLURMCluster": (None, "dask_jobqueue.SLURMCluster")}
    for name, (address, cluster) in named.items():
        dask = Configuration.model_validate({"run": {"dask": name}}).run.dask
        assert (dask.address, dask.cluster) == (address, cluster)


def test_what_a_class_is_given_is_not_recorded() -> None:
    settings = {"cluster": "a.B", "arguments": {"env": {"TOKEN": "a-secret"}}}
    dask = DaskSettings.model_validate(settings)
    assert dask.arguments == settings["arguments"]
    assert "a-secret" not in dask.model_dump_json()
    assert "a-secret" not in str(dask.model_dump(mode="json"))


class Watched(LocalCluster):
    """A cluster class of somebody else's."""

    open = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(dashboard_address=ANY_PORT, **arguments)
        Watched.open += 1

    def close(self, timeout: float | None = None) -> Any:
        Watched.open -= 1
        return super().close(timeout)


def test_a_cluster_is_made_for_the_run_and_closed_after_it(store: Path) -> None:
    settings = {
        "cluster": f"{__name__}.Watched",
        "arguments": {"n_workers": 0, "threads_per_worker": 1, "processes": False},
    }
    with remote_cluster(DaskSettings.model_validate(settings), store, workers=2) as client:
        client.wait_for_workers(2, timeout=30)
        assert doubled(client) == [0, 2, 4, 6, 8]
        assert Watched.open == 1
    assert Watched.open == 0


def test_a_cluster_may_follow_the_work(store: Path) -> None:
    settings = {
        "cluster": f"{__name__}.Watched",
        "arguments": {"n_workers": 0, "threads_per_worker": 1, "processes": False},
        "adapt": {"minimum": 0, "maximum": 2, "interval": "100ms"},
    }
    with remote_cluster(DaskSettings.model_validate(settings), store) as client:
        assert client.nthreads() == {}
        assert doubled(client) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_a_build_on_a_cluster_that_follows_the_work_has_the_same_manifest(expected: Expected, tmp_path: Path) -> None:
    dask = {
        "cluster": "distributed.LocalCluster",
        "arguments": {"n_workers": 0, "threads_per_worker": 1, "dashboard_address": ANY_PORT},
        "adapt": {"minimum": 0, "maximum": 2, "interval": "200ms", "wait_count": 1},
    }
    configuration = write_settings(
        tmp_path / "indexmill.yaml", settings(tmp_path / "store", expected.corpus, run={"dask": dask})
    )
    with command(tmp_path, "build", "-c", configuration, "--json") as run:
        assert run.wait() == 0, run.err
        assert run.json()["manifest"] == expected.manifest


def test_a_run_waits_for_workers_as_long_as_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.dask_executor._ASK", 0.1)
    settings = {"cluster": f"{__name__}.Watched", "arguments": {"n_workers": 0, "processes": False}}
    with (
        remote_cluster(DaskSettings.model_validate(settings), store) as client,
        pytest.raises(IndexmillError, match=r"has had no workers for 0\.5 seconds"),
    ):
        doubled(client, patience=0.5)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("nothing", "cannot be imported"),
        ("no_such_package.Cluster", "install the package"),
        ("distributed.NoSuchCluster", "cannot be imported"),
        ("distributed.Client", "is not a class of Dask clusters"),
        (f"{__name__}.Watched", "cannot be created: TypeError: .*dashboard_address"),
    ],
)
def test_a_class_that_cannot_be_used_is_bad_input(name: str, wrong: str, store: Path) -> None:
    settings = DaskSettings(cluster=name, arguments={"dashboard_address": "twice"})
    with pytest.raises(BadInput, match=wrong), remote_cluster(settings, store):
        pass


def test_a_class_leaves_the_handling_of_signals_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greedy.py").write_text(
        "import signal, sys\n"
        "from distributed import LocalCluster as Cluster\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    store = init_folder(tmp_path / "store").root
    settings = DaskSettings(cluster="greedy.Cluster", arguments={"n_workers": 0, "dashboard_address": ANY_PORT})
    with remote_cluster(settings, store):
        assert signal.getsignal(signal.SIGINT) is handler
