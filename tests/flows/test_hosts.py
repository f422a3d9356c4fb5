"""A Dask cluster of several hosts, with mutual TLS and a store that they reach by the network."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("distributed")

from flows.credentials import write_credentials
from tests.flows.commands import Command, command, write_settings
from tests.flows.expected import Expected
from tests.flows.hosts import (
    DaskHosts,
    Network,
    dask_hosts,
    departures,
    missing,
    network,
    replaced,
    tls_settings,
    wait_for_work,
)
from tests.paths import ROOT
from tests.storage.quick import quick_folder
from tests.storage.services import bucket_of, s3_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SILENCE = 30.0
"""Seconds without an answer after which Dask takes a connection for dead (`distributed.comm.timeouts.tcp`)."""


@dataclass(frozen=True)
class Site:
    """Four hosts, an S3 service that they reach, and what a build into a folder publishes."""

    net: Network
    endpoint: str
    expected: Expected

    @contextlib.contextmanager
    def build(self, folder: Path, dask: dict[str, Any], *more: object, bucket: str | None = None) -> Iterator[Command]:
        """A build by the real command, into a new bucket unless one is given."""
        chosen = {
            "store": f"{bucket or bucket_of(self.endpoint)}/index",
            "corpus": {"paths": [str(self.expected.corpus)]},
            "embed": {"model": "hash"},
            "shards": {"document_tokens": 1_000, "entities": 64},
            "run": {"dask": dask},
        }
        environment = {"PYTHONPATH": str(ROOT), "INDEXMILL_CACHE": str(folder / "cache")}
        configuration = write_settings(folder / "indexmill.yaml", chosen)
        with command(folder, "build", "-c", configuration, "--json", *more, environment=environment) as run:
            yield run

    def ended_well(self, run: Command) -> None:
        """The build published what a folder has."""
        assert run.wait() == 0, run.err
        assert run.json()["manifest"] == self.expected.manifest


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if reason := missing():
        pytest.skip(reason)
    with (
        quick_folder() as folder,
        network(folder, 4) as net,
        s3_service(net.gateway) as endpoint,
        patch.dict(os.environ, {"AWS_ALLOW_HTTP": "true"}),
    ):
        yield Site(net, endpoint, Expected.within(folder))


@pytest.fixture
def cluster(site: Site, quick: Path) -> Iterator[DaskHosts]:
    """Workers on two hosts; a third has none."""
    with dask_hosts(quick, Network(site.net.gateway, site.net.hosts[:3])) as cluster:
        yield cluster


def test_three_hosts_build_what_a_folder_holds(site: Site, quick: Path) -> None:
    with dask_hosts(quick, site.net) as cluster, site.build(quick, cluster.settings) as run:
        for host in cluster.hosts:
            wait_for_work(run, cluster, host)
        site.ended_well(run)


def test_a_build_without_the_clusters_certificate_is_refused(site: Site, cluster: DaskHosts, quick: Path) -> None:
    other = quick / "other"
    other.mkdir()
    write_credentials(other)
    plain = cluster.address.replace("tls://", "tcp://")
    refused = [
        ({"address": plain, "tls": tls_settings(cluster.credentials)}, (), "without TLS can run code on its machines"),
        ({"address": plain}, ("--insecure-cluster",), "no Dask scheduler answers there"),
        ({"address": cluster.address}, (), "there are no certificates for a client of Dask"),
        ({"address": cluster.address, "tls": tls_settings(other)}, (), "no Dask scheduler answers there"),
    ]
    for settings, more, message in refused:
        with site.build(quick, settings, *more) as run:
            assert run.wait() == 2, run.err
            assert message in run.err


def answer(address: tuple[str, int], security: ssl.SSLContext | None) -> bytes:
    """What a port says to a client without a certificate."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(address, timeout=5))
        if security is not None:
            connection = stack.enter_context(security.wrap_socket(connection))
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(100)
    return b""


def test_no_port_serves_a_client_without_a_certificate(cluster: DaskHosts) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    for host in cluster.network.hosts:
        ports = host.listening()
        assert len(ports) >= 2
        said = {(port, answer((host.address, port), security)) for port in ports for security in (None, anyone)}
        assert {(port, words) for port, words in said if words and not words.startswith(b"HTTP/1.1 404")} == set()


def other_code(folder: Path) -> Path:
    """A copy of the application that differs by a comment."""
    for room in ("flows", "indexmill", "schemas", "storage", "tasks"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "tasks" / "core" / "stage.py").open("a") as file:
        file.write("# other code\n")
    return folder


def test_a_worker_of_another_host_with_other_code_is_closed(site: Site, cluster: DaskHosts, quick: Path) -> None:
    late = site.net.hosts[3]
    with site.build(quick, cluster.settings) as run:
        wait_for_work(run, cluster, cluster.hosts[0])
        process = cluster.worker(late, code=other_code(quick / "other"))
        assert process.wait(120) is not None
        site.ended_well(run)
    assert "was closed, since it is not fit for this run: code" in run.err
    assert all(one["expected"] for one in departures(cluster, late)), "what it was given is blamed"


@pytest.mark.parametrize("number", [0, 1], ids=["scheduler", "worker"])
def test_a_link_cut_for_seconds_is_waited_for(site: Site, cluster: DaskHosts, quick: Path, number: int) -> None:
    with site.build(quick, cluster.settings) as run:
        wait_for_work(run, cluster, cluster.hosts[0])
        cluster.network.hosts[number].cut()
        time.sleep(SILENCE / 3)
        assert run.running
        cluster.network.hosts[number].restore()
        site.ended_well(run)
    assert departures(cluster, *cluster.hosts) == []


def test_the_work_of_a_worker_whose_link_is_cut_is_done_elsewhere(site: Site, cluster: DaskHosts, quick: Path) -> None:
    lost = cluster.hosts[0]
    with site.build(quick, cluster.settings) as run:
        wait_for_work(run, cluster, lost)
        lost.cut()
        site.ended_well(run)
    (left,) = departures(cluster, lost)
    assert left["processing-tasks"]
    assert not left["expected"]
    deadline = time.monotonic() + 4 * SILENCE
    while lost.processes():
        assert time.monotonic() < deadline, "a worker that lost its scheduler ends, so that it is started anew"
        time.sleep(0.1)


def test_a_build_goes_on_without_a_worker_whose_link_was_cut_just_before(
    site: Site, cluster: DaskHosts, quick: Path
) -> None:
    cluster.hosts[0].cut()
    with site.build(quick, cluster.settings) as run:
        site.ended_well(run)


def test_a_build_that_loses_the_schedulers_host_says_so_and_the_next_goes_on(site: Site, quick: Path) -> None:
    hosts, bucket = Network(site.net.gateway, site.net.hosts[:3]), bucket_of(site.endpoint)
    with dask_hosts(quick, hosts) as cluster, site.build(quick, cluster.settings, bucket=bucket) as run:
        run.wait_for("split:")
        hosts.hosts[0].cut()
        began = time.monotonic()
        assert run.wait() == 1
        assert time.monotonic() - began < 4 * SILENCE
        assert f"the Dask scheduler at {cluster.address} has gone away" in run.err
        assert "Traceback" not in run.err
    (quick / "again").mkdir()
    with dask_hosts(quick / "again", hosts) as cluster, site.build(quick, cluster.settings, bucket=bucket) as run:
        site.ended_well(run)
        assert run.json()["parts_reused"] > 0


@pytest.mark.parametrize("again", [("--lifetime-restart",), ()], ids=["restarted", "replaced"])
def test_workers_may_leave_at_their_walltime(site: Site, quick: Path, again: tuple[str, ...]) -> None:
    """One worker stays: where the last one leaves, the scheduler cannot take back what it holds."""
    gateway, (first, stays, *leave) = site.net.gateway, site.net.hosts
    with dask_hosts(quick, Network(gateway, (first, stays))) as cluster:
        leaving = DaskHosts(Network(gateway, (first, *leave)), cluster.credentials)
        with (
            replaced(leaving, "--lifetime", "6s", "--lifetime-stagger", "2s", *again),
            site.build(quick, cluster.settings) as run,
        ):
            wait_for_work(run, cluster, leave[0])
            before = len(departures(cluster, *leave))
            site.ended_well(run)
            left = departures(cluster, *leave)
        for host in leave:
            host.end()
    assert len(left) > before
    assert [one for one in left if not one["expected"]] == []
