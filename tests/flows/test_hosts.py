"""A Dask cluster of several hosts, with mutual TLS and a store that they reach by the network."""

from __future__ import annotations

import contextlib
import os
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
from tests.flows.hosts import DaskHosts, Host, Network, dask_hosts, missing, network, tls_settings
from tests.paths import ROOT
from tests.storage.quick import quick_folder
from tests.storage.services import bucket_of, s3_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOTICED = 45.0
"""Seconds in which Dask notices a cut link: its limit for silence on a connection is 30."""


@dataclass(frozen=True)
class Site:
    """Four hosts, an S3 service that they reach, and what a build into a folder publishes."""

    net: Network
    endpoint: str
    expected: Expected

    @contextlib.contextmanager
    def build(self, folder: Path, dask: dict[str, Any], *more: object) -> Iterator[Command]:
        """A build into a new bucket, by the real command."""
        chosen = {
            "store": f"{bucket_of(self.endpoint)}/index",
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


def works(cluster: DaskHosts, host: Host, seconds: float = 120.0) -> None:
    """Return as soon as a worker of a host has work."""
    deadline = time.monotonic() + seconds
    with cluster.client() as client:
        while not any(keys for worker, keys in client.processing().items() if f"//{host.address}:" in worker):
            assert time.monotonic() < deadline, f"{host.name} has no work"
            time.sleep(0.005)


def departures(cluster: DaskHosts, host: Host) -> list[dict[str, Any]]:
    """The scheduler's events of workers of a host that left."""
    with cluster.client() as client:
        events = [event for _, event in client.get_events("all")]
    return [one for one in events if one.get("action") == "remove-worker" and f"//{host.address}:" in one["worker"]]


def test_three_hosts_build_what_a_folder_holds(site: Site, quick: Path) -> None:
    with dask_hosts(quick, site.net) as cluster, site.build(quick, cluster.settings) as run:
        for host in cluster.hosts:
            works(cluster, host)
        site.ended_well(run)


def test_a_build_without_the_clusters_certificate_is_refused(site: Site, cluster: DaskHosts, quick: Path) -> None:
    other = quick / "other"
    other.mkdir()
    write_credentials(other)
    plain = cluster.address.replace("tls://", "tcp://")
    refused = [
        ({"address": plain, "tls": tls_settings(cluster.credentials)}, (), "without TLS runs code on its machines"),
        ({"address": plain}, ("--insecure-cluster",), "no Dask scheduler answers there"),
        ({"address": cluster.address}, (), "there are no certificates for a client of Dask"),
        ({"address": cluster.address, "tls": tls_settings(other)}, (), "no Dask scheduler answers there"),
    ]
    for settings, more, message in refused:
        with site.build(quick, settings, *more) as run:
            assert run.wait() == 2, run.err
            assert message in run.err
