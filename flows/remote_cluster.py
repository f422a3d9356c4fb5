"""A Dask cluster of other machines: a running one, or one that is created for the run and closed after it."""

from __future__ import annotations

import functools
import importlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed import Client
from distributed.deploy.cluster import Cluster
from distributed.security import Security

from flows.cluster import closing, quiet_logs, started, within
from flows.worker_check import WorkerCheck, describe_worker, misfit
from indexmill.errors import BadInput, IndexmillError
from schemas.config import DaskSettings
from tasks.core.environment import code_digest, environment_fingerprint
from tasks.core.executor import Call, Executor
from tasks.llm.account import CallLimits
from tasks.llm.quota import RunQuota

_CONNECT = "30s"
_ANSWER = 60.0
"""The maximum seconds for a scheduler, and for all workers, to answer."""
_CLOSE = 10.0
"""The maximum seconds for a scheduler to remove a run's plugins."""
_ENCRYPTED = ("tls", "wss", "inproc")
"""The schemes of addresses that no unauthorised process can listen to or connect to."""


@contextmanager
def remote_cluster(
    settings: DaskSettings,
    store: Path | str,
    workers: int | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> Iterator[Client]:
    """Yield a client of the cluster that the settings name.

    workers: the number of workers of a cluster created for the run; None to leave it to the cluster's arguments. warn:
    called with a line for each worker that joins during the block and is closed because it is not fit for the run.

    Raises BadInput if the cluster cannot be reached or created, if others could use it because it lacks TLS, or if a
    worker cannot read the store or runs other code or libraries than this process.
    """
    security = _security(settings)
    with ExitStack() as stack:
        stack.enter_context(quiet_logs())
        if settings.address is None:
            cluster = stack.enter_context(_new_cluster(settings, workers, security))
            address = cluster.scheduler_address
            _check_scheme(address, settings)
            client = Client(cluster, timeout=_CONNECT)
        else:
            check_address(settings)
            try:
                client = Client(settings.address, timeout=_CONNECT, security=security)
            except (OSError, ValueError) as error:
                raise BadInput(f"{settings.address}: no Dask scheduler answers there: {error}") from error
        stack.enter_context(closing(client))
        stack.enter_context(_fit_workers(client, store, warn, some=settings.address is not None))
        yield client


def check_address(settings: DaskSettings) -> None:
    """Raise BadInput if others could use the cluster at the configured address, or the TLS settings do not fit it."""
    if settings.address is not None:
        _check_scheme(settings.address, settings)
        _check_certificates(settings.address, _security(settings))


def _security(settings: DaskSettings) -> Security | None:
    """Return the TLS configuration of the settings; None if they name no CA, so that Dask's own settings apply."""
    tls = settings.tls
    if tls.ca is None:
        return None
    for file in (tls.ca, tls.certificate, tls.key):
        if file is None or not file.is_file():
            raise BadInput(f"run.dask.tls: {file} is not a file")
    pair = {
        f"tls_{role}_{what}": str(file)
        for role in ("client", "scheduler", "worker")
        for what, file in (("cert", tls.certificate), ("key", tls.key))
    }
    return Security(require_encryption=True, tls_ca_file=str(tls.ca), **pair)


@contextmanager
def _new_cluster(settings: DaskSettings, workers: int | None, security: Security | None) -> Iterator[Cluster]:
    """Create a cluster of the class that the settings name, and close it after the block."""
    name = str(settings.cluster)
    arguments = ({} if security is None else {"security": security}) | settings.arguments
    try:
        cluster = started(functools.partial(_class_of(name), **arguments))
    except IndexmillError:
        raise
    except Exception as error:  # foreign classes may raise any error
        raise BadInput(f"run.dask.cluster: {name} cannot be created: {type(error).__name__}: {error}") from error
    try:
        if settings.adapt is not None:
            cluster.adapt(**settings.adapt)
        elif workers is not None:
            cluster.scale(workers)
        yield cluster
    finally:
        cluster.close()


def _class_of(name: str) -> type[Cluster]:
    module, _, attribute = name.rpartition(".")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        loaded = getattr(importlib.import_module(module), attribute)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:  # dask_jobqueue 0.9 handles Ctrl-C itself once it is imported
                signal.signal(number, handler)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"run.dask.cluster: {name} cannot be imported ({error}): install the package that provides it"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Cluster)):
        raise BadInput(f"run.dask.cluster: {name} is not a class of Dask clusters")
    return loaded


def _check_scheme(address: str, settings: DaskSettings) -> None:
    """Raise BadInput if others could use, or eavesdrop on, the cluster at an address."""
    if _scheme(address) in _ENCRYPTED or settings.insecure or _is_here(address):
        return
    raise BadInput(
        f"{address}: anyone who reaches a Dask cluster without TLS can run code on its machines: give it TLS (`python "
        "-m indexmill_pipeline flows.credentials FOLDER` writes the files) and a tls:// address, or allow it with "
        "--insecure-cluster (run.dask.insecure) in a network without other users"
    )


def _is_here(address: str) -> bool:
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
        addresses = socket.getaddrinfo(host, None) if host else []
    except (OSError, ValueError):
        return False
    return bool(addresses) and all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in addresses)


def _scheme(address: str) -> str:
    return address.partition("://")[0] if "://" in address else str(dask.config.get("distributed.comm.default-scheme"))


def _check_certificates(address: str, security: Security | None) -> None:
    if security is None and dask.config.get("distributed.client.security-loader"):
        return
    security = security or Security()
    credentials = security.get_tls_config_for_role("client")
    scheme = _scheme(address)
    if scheme == "tls" and not (credentials["ca_file"] and credentials["cert"]):
        raise BadInput(
            f"{address}: there are no certificates for a client of Dask: set run.dask.tls, or "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY to their files"
        )
    if scheme in ("tcp", "ws") and security.require_encryption:
        raise BadInput(
            f"{address}: run.dask.tls, or Dask's distributed.comm.require-encryption, requires encryption, and this "
            "address has none: give the scheduler's tls:// address"
        )


@contextmanager
def _fit_workers(client: Client, store: Path | str, warn: Callable[[str], None], *, some: bool) -> Iterator[None]:
    """Raise BadInput unless every worker is fit for this run; close unfit workers that join during the block.

    some: True if there must be workers already.
    """
    location = str(store.resolve()) if isinstance(store, Path) else store
    expected = (True, code_digest(), environment_fingerprint())
    _check_workers(client, location, expected, some=some)
    check = WorkerCheck(client.id, location, expected)
    reported: set[str] = set()

    def report(event: tuple[float, str]) -> None:
        if event[1] not in reported:  # a host may restart its worker repeatedly
            reported.add(event[1])
            warn(event[1])

    client.subscribe_topic(check.name, report)
    with suppress(OSError):  # a worker is unreachable; the scheduler will check new workers
        within(_ANSWER, "register-check", functools.partial(client.register_plugin, check))
    try:
        yield
    finally:
        with suppress(Exception):  # the scheduler is gone, or hangs
            within(_CLOSE, "unregister-check", functools.partial(client.unregister_worker_plugin, check.name))


def _check_workers(client: Client, store: str, expected: tuple[bool, str, dict[str, str]], *, some: bool) -> None:
    describe: Callable[[], dict[str, Any]] = functools.partial(client.run, describe_worker, store, on_error="return")
    try:
        responses = within(_ANSWER, "check-workers", describe)
    except TimeoutError as error:
        raise IndexmillError(
            f"not every worker of the Dask cluster answered within {_ANSWER:g} seconds: check the cluster, then run "
            "the build again"
        ) from error
    # An unreachable worker has left or lost its connection; `WorkerCheck` checks it when it joins again.
    answers = {worker: answer for worker, answer in responses.items() if not isinstance(answer, OSError)}
    if some and not answers:
        raise BadInput("the Dask scheduler has no workers; start some, then run the build again")
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, ModuleNotFoundError):
            raise BadInput(
                f"worker {worker} cannot import {answer.name}: install indexmill[pipeline] there, and start the "
                "scheduler and the workers with --preload indexmill_pipeline"
            ) from answer
        if isinstance(answer, BaseException):
            raise answer
        problem = misfit(answer, expected)
        if problem:
            raise BadInput(f"worker {worker} is not fit for this run: {problem}")


class LocalFilesExecutor:
    """Runs calls that use files of this machine with `here`, and all others with `there`, on other machines."""

    def __init__(self, there: Executor, here: Executor) -> None:
        self._there, self._here = there, here

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        """Run each call here or there; see `tasks.core.executor.Executor`."""
        listed = list(calls)
        yield from self._here.run([call for call in listed if call.local], **options)
        yield from self._there.run([call for call in listed if not call.local], **options)

    def stop(self, *, at_once: bool = True) -> None:
        self._here.stop(at_once=at_once)
        self._there.stop(at_once=at_once)

    def wait(self, seconds: float) -> None:
        self._there.wait(seconds)

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        return self._there.quota(run, limits)
