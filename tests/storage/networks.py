"""Object stores behind a network that loses answers, for child processes; the tests themselves reach them directly."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from obstore.store import from_url

from indexmill.store.bucket import Bucket
from tests.storage.ceph import ceph_service, missing
from tests.storage.node_services import azure_environment, azurite, container_of
from tests.storage.quick import quick_folder
from tests.storage.services import FAULTS, FaultProxy, bucket_of, s3_environment, s3_service

NETWORKS = ("moto", "ceph", "azurite")
"""The services; all but the first are for slow tests."""

_COPIES = itertools.count(1)


@dataclass(frozen=True)
class Network:
    """A service, which the environment names, and variables with which a child reaches it through a proxy."""

    bucket: Callable[[], str]
    """Makes a bucket and returns its URL."""
    environment: dict[str, str]
    service: str
    """The endpoint of the service itself."""
    at: Callable[[str], AbstractContextManager[None]]
    """Let the service be found at an endpoint, that of a proxy."""

    def place(self) -> str:
        """A new place for a store."""
        return f"{self.bucket()}/index"


def copy_of(url: str) -> str:
    """The URL of a copy of a store, which the service makes in the same bucket: cheaper than building it again."""
    bucket, _, name = url.rpartition("/")
    copy = f"{name}-{next(_COPIES)}"
    client = from_url(bucket, client_options={"allow_http": True})
    for entry in Bucket(url).entries(""):
        client.copy(f"{name}/{entry.name}", f"{copy}/{entry.name}")
    return f"{bucket}/{copy}"


@contextmanager
def bad_network(kind: str, folder: Path) -> Iterator[Network]:
    """A service behind a proxy that answers badly. folder: for the cache and the service's own files.

    The test is skipped where the service cannot run.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, INDEXMILL_CACHE=str(folder / "cache")))
        service, bucket, at = _SERVICES[kind](stack, folder)
        proxy = stack.enter_context(FaultProxy(service, FAULTS))
        with at(proxy.url):
            environment = {
                name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "INDEXMILL_"))
            }
        yield Network(bucket, environment, service, at)


_At = Callable[[str], AbstractContextManager[None]]


def _moto(stack: ExitStack, _: Path) -> tuple[str, Callable[[], str], _At]:
    service = stack.enter_context(s3_service())
    return service, lambda: bucket_of(service), s3_environment


def _ceph(stack: ExitStack, _: Path) -> tuple[str, Callable[[], str], _At]:
    if absent := missing():
        pytest.skip(absent)
    ceph = stack.enter_context(ceph_service(stack.enter_context(quick_folder())))

    def at(endpoint: str) -> AbstractContextManager[None]:
        return s3_environment(endpoint, ceph.access_key, ceph.secret_key)

    stack.enter_context(at(ceph.endpoint))
    return ceph.endpoint, ceph.bucket, at


def _azurite(stack: ExitStack, folder: Path) -> tuple[str, Callable[[], str], _At]:
    service = stack.enter_context(azurite(folder / "azurite"))
    return service, lambda: container_of(service), azure_environment


_SERVICES = {"moto": _moto, "ceph": _ceph, "azurite": _azurite}
