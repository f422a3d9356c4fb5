"""Hosts for tests: network namespaces on a bridge, and a Dask cluster with mutual TLS whose processes run there.

Root makes them with `ip`. A host has its own address, loopback device, home, cache and temporary files; it reaches the
others, and what this process serves at `Network.gateway`, by the bridge alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.security import Security

from flows.credentials import write_credentials
from tests.flows.commands import Command
from tests.paths import ROOT

_NETWORKS = itertools.count(1)
_PORT = 8786
_LISTEN = "0A"
_PATIENCE = 120.0
"""Seconds for a scheduler and its workers to start."""


def missing() -> str:
    """What this machine lacks for hosts, for pytest.skip; empty if nothing is."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "not installed: ip (Debian's iproute2)"
    name = f"im{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)  # noqa: S607
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


@dataclass(frozen=True)
class Host:
    """A network namespace whose link leads to a bridge."""

    name: str
    address: str
    folder: Path
    port: str
    """The end of its link at the bridge."""
    bridge: str

    def start(
        self, *argv: object, environment: Mapping[str, str] | None = None, code: Path = ROOT
    ) -> subprocess.Popen[bytes]:
        """Start a process on this host; what it prints is appended to `log` in the host's folder."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DASK_", "XDG_"))}
        own = {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "INDEXMILL_CACHE": str(self.folder / "cache"),
            "PYTHONPATH": str(code),
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *map(str, argv)],  # noqa: S607
                cwd=self.folder,
                env={**keep, **own, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """What its processes have printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[int]:
        """The ids of its processes."""
        return [int(pid) for pid in _ip("netns", "pids", self.name).split()]

    def listening(self) -> set[int]:
        """The ports at which something listens for TCP on its addresses."""
        found = set()
        for name in ("tcp", "tcp6"):
            for line in _ip("netns", "exec", self.name, "cat", f"/proc/net/{name}").splitlines()[1:]:
                local, _, state = line.split()[1:4]
                if state == _LISTEN:
                    found.add(int(local.rpartition(":")[2], 16))
        return found

    def end(self) -> None:
        """Kill all its processes: nothing of what they hold is needed."""
        deadline = time.monotonic() + 30
        while (found := self.processes()) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self) -> None:
        """Drop every packet from and to this host, in silence, as a switch does that loses its power."""
        _ip("link", "set", self.port, "nomaster")

    def restore(self) -> None:
        """Undo `cut`."""
        _ip("link", "set", self.port, "master", self.bridge)


@dataclass(frozen=True)
class Network:
    """Hosts on a bridge; `gateway` is the address of this process there."""

    gateway: str
    hosts: tuple[Host, ...]


@contextlib.contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """So many hosts with folders of their own; their processes end with the block."""
    number = next(_NETWORKS)
    label = f"im{os.getpid()}{chr(ord('a') + number % 26)}"
    bridge, prefix = f"{label}br", _free_prefix(number)
    hosts = []
    with contextlib.ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{prefix}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for index in range(count):
            host = Host(
                f"{label}{index}", f"{prefix}.{10 + index}", folder / f"host-{index}", f"{label}v{index}", bridge
            )
            host.folder.mkdir()
            (host.folder / "log").touch()
            _ip("netns", "add", host.name)
            stack.callback(_ip, "netns", "del", host.name)
            inner = ("-n", host.name)
            _ip("link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            stack.callback(_ip, "link", "del", host.port)  # a namespace is removed late, its end of a link with it
            stack.callback(host.end)
            _ip("link", "set", host.port, "master", bridge, "up")
            _ip(*inner, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip(*inner, "link", "set", "eth0", "up")
            _ip(*inner, "link", "set", "lo", "up")
            hosts.append(host)
        yield Network(f"{prefix}.1", tuple(hosts))


def _free_prefix(number: int) -> str:
    """The first three bytes of a private network that this machine has no route to."""
    routes = _ip("-4", "route")
    first = (os.getpid() * 16 + number) % 2**14
    for value in range(first, first + 2**14):
        prefix = f"10.{64 + value // 256 % 64}.{value % 256}"
        if f"{prefix}." not in routes:
            return prefix
    raise RuntimeError("no private network is free")


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def tls_settings(folder: Path) -> dict[str, str]:
    """`run.dask.tls` for the files that `write_credentials` wrote."""
    pem = str(folder / "certificate.pem")
    return {"ca": pem, "certificate": pem, "key": str(folder / "key.pem")}


@dataclass(frozen=True)
class DaskHosts:
    """A scheduler on the first host of a network, and workers on the others."""

    network: Network
    credentials: Path

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return f"tls://{self.network.hosts[0].address}:{_PORT}"

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Those for workers."""
        return self.network.hosts[1:]

    @property
    def settings(self) -> dict[str, Any]:
        """`run.dask` of a build on this cluster."""
        return {"address": self.address, "tls": tls_settings(self.credentials)}

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client with the cluster's certificate."""
        pem = tls_settings(self.credentials)
        security = Security(tls_ca_file=pem["ca"], tls_client_cert=pem["certificate"], tls_client_key=pem["key"])
        with Client(self.address, security=security, timeout=f"{_PATIENCE:g}s") as client:
            yield client

    def scheduler(self) -> subprocess.Popen[bytes]:
        """Start the scheduler, as the page for operators says."""
        host = self.network.hosts[0]
        return host.start(_DASK, "scheduler", *_OPTIONS, "--port", _PORT, environment=self._environment(host))

    def worker(self, host: Host, *options: object, code: Path = ROOT) -> subprocess.Popen[bytes]:
        """Start a worker on a host, as the page for operators says."""
        words = ("--nthreads", 1, "--memory-limit", 0, *options)
        return host.start(
            _DASK, "worker", self.address, *_OPTIONS, *words, environment=self._environment(host), code=code
        )

    def _environment(self, host: Host) -> dict[str, str]:
        """The settings of TLS, with files of the host's own."""
        folder = shutil.copytree(self.credentials, host.folder / "credentials", dirs_exist_ok=True)
        pem = tls_settings(folder)
        files = {
            f"DASK_DISTRIBUTED__COMM__TLS__{role}__{what}": path
            for role in ("CLIENT", "SCHEDULER", "WORKER")
            for what, path in (("CERT", pem["certificate"]), ("KEY", pem["key"]))
        }
        return {
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": pem["ca"],
            **files,
            "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
            "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
        }


_DASK = Path(sys.executable).with_name("dask")
_OPTIONS = ("--protocol", "tls", "--no-dashboard")


@contextlib.contextmanager
def dask_hosts(folder: Path, net: Network, *options: object) -> Iterator[DaskHosts]:
    """A cluster with a worker on every host of a network but the first. options: of each worker."""
    credentials = folder / "credentials"
    credentials.mkdir()
    write_credentials(credentials)
    cluster = DaskHosts(net, credentials)
    processes = []
    try:
        processes += [cluster.scheduler(), *(cluster.worker(host, *options) for host in cluster.hosts)]
        with cluster.client() as client:
            client.wait_for_workers(len(cluster.hosts), timeout=_PATIENCE)
        yield cluster
    finally:
        for host in net.hosts:
            host.restore()
            host.end()
        for process in processes:
            process.wait(30)


@contextlib.contextmanager
def replaced(cluster: DaskHosts, *options: object) -> Iterator[None]:
    """Start a worker on every host that has none, again and again, as a batch system does."""
    ended = threading.Event()
    workers: dict[Host, subprocess.Popen[bytes]] = {}

    def replace() -> None:
        while not ended.wait(0.1):
            for host in cluster.hosts:
                if not host.processes() and (host not in workers or workers[host].poll() is not None):
                    workers[host] = cluster.worker(host, *options)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for process in workers.values():
            process.kill()
            process.wait()


def wait_for_work(run: Command, cluster: DaskHosts, host: Host) -> None:
    """Return as soon as a worker of a host has work."""
    with cluster.client() as client:
        while not any(keys for worker, keys in client.processing().items() if f"//{host.address}:" in worker):
            if not run.running:
                raise RuntimeError(f"{host.name} had no work: {run.err}")
            time.sleep(0.005)


def departures(cluster: DaskHosts, *hosts: Host) -> list[dict[str, Any]]:
    """The scheduler's events of workers of some hosts that left."""
    with cluster.client() as client:
        events = [event for _, event in client.get_events("all")]
    return [
        one
        for one in events
        if one.get("action") == "remove-worker" and any(f"//{host.address}:" in one["worker"] for host in hosts)
    ]
