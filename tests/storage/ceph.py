"""Ceph for tests: a monitor, a storage daemon that keeps objects in memory, and the gateway that speaks S3.

The programs are in Debian's packages ceph-mon, ceph-osd, ceph-common and radosgw. The daemons know one folder, listen
on 127.0.0.1, and end with the block. No root is needed, and no service of the system.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import secrets
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin", "setpriv")
_PATIENCE = 180.0
"""Seconds in which each daemon must answer, and each command must end."""
_LAST = 30
"""Lines of a log in the message of an error."""
_BUCKETS = itertools.count(1)

# Without authentication among themselves the daemons need no keys; the gateway then must not ask for encryption. One
# copy of each object is enough, in few placement groups, since each costs time to start. There is no manager: nothing
# that the gateway does needs one.
_SETTINGS = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
public_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
run_dir = {folder}
crash_dir = {folder}
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
admin_socket =
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_class_update_on_start = false
rgw_run_sync_thread = false
rgw_thread_pool_size = 64
"""


@dataclass(frozen=True)
class CephService:
    """Where Ceph answers, and the keys of a user that may make buckets."""

    endpoint: str
    access_key: str
    secret_key: str

    def bucket(self) -> str:
        """The URL of a new bucket; its name is used once per process, since clients are kept by URL."""
        import boto3

        name = f"ceph-{os.getpid()}-{next(_BUCKETS)}"
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        )
        with contextlib.closing(client):
            client.create_bucket(Bucket=name)
        return f"s3://{name}"


def missing() -> str:
    """The programs that are not installed, for pytest.skip; empty if all are there."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@contextlib.contextmanager
def ceph_service(folder: Path) -> Iterator[CephService]:
    """Run Ceph in an empty folder during the block.

    Raises RuntimeError, with the last lines of its log, if a daemon does not come up.
    """
    monitor_port, gateway_port = _free_ports(2)
    cluster = _Cluster(folder, monitor_port)
    try:
        # The monitor would not find its name by an address of the loopback device.
        monitors, monitor = f"{folder}/monitors", ("ceph-mon", "--id=a", f"--mon-data={folder}/mon")
        address = f"[v2:127.0.0.1:{monitor_port}]"
        cluster.run("monmaptool", "--create", f"--fsid={cluster.fsid}", "--addv", "a", address, monitors, log="mon.a")
        cluster.run(*monitor, f"--monmap={monitors}", "--mkfs", log="mon.a")
        cluster.start(*monitor, log="mon.a")
        identity = str(uuid.uuid4())
        cluster.run("ceph", "osd", "new", identity, log="mon.a")
        daemon = ("ceph-osd", "--id=0", f"--osd-data={folder}/osd", f"--osd-uuid={identity}")
        (folder / "osd").mkdir()
        cluster.run(*daemon, "--mkfs", log="osd.0")
        # Objects go to the daemons that this map places on a host.
        cluster.run("ceph", "osd", "crush", "add", "osd.0", "1", "root=default", "host=here", log="mon.a")
        cluster.start(*daemon, log="osd.0")
        cluster.wait("osd.0", lambda: " 1 up" in cluster.run("ceph", "osd", "stat", log="osd.0"))
        frontend = f"--rgw-frontends=beast endpoint=127.0.0.1:{gateway_port} tcp_nodelay=1"
        cluster.start("radosgw", "--name=client.rgw", frontend, log="client.rgw")
        cluster.wait("client.rgw", lambda: _answers(gateway_port))
        service = CephService(f"http://127.0.0.1:{gateway_port}", secrets.token_hex(10), secrets.token_hex(20))
        cluster.run(
            *("radosgw-admin", "--name=client.admin", "user", "create", "--uid=tester", "--display-name=tester"),
            *(f"--access-key={service.access_key}", f"--secret-key={service.secret_key}"),
            log="client.admin",
        )
        yield service
    finally:
        cluster.end()


class _Cluster:
    """The daemons of a folder, and commands to them."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._settings = folder / "ceph.conf"
        self.fsid = str(uuid.uuid4())
        self._settings.write_text(_SETTINGS.format(fsid=self.fsid, port=port, folder=folder), encoding="utf-8")
        # `ceph` is a Python program of the system's Python.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def start(self, program: str, *arguments: str, log: str) -> None:
        """Start a daemon, which dies with the thread that started it, even if this process is killed."""
        with (self._folder / f"{log}.out").open("wb") as out:
            self._daemons[log] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", program, f"--conf={self._settings}", "--foreground", *arguments],  # noqa: S607
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )

    def run(self, program: str, *arguments: str, log: str) -> str:
        """What a command prints; RuntimeError if it fails, or if a daemon ends meanwhile."""
        command = [program, f"--conf={self._settings}", *arguments]
        deadline = time.monotonic() + _PATIENCE
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=self._environment
        ) as process:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        out, errors = process.communicate(timeout=1)
                        break
                    self._check(" ".join(command), log, deadline)
            finally:
                process.kill()
        if process.returncode:
            raise self._error(f"{' '.join(command)} failed with {process.returncode}: {errors.strip()}", log)
        return out

    def wait(self, log: str, ready: Callable[[], bool]) -> None:
        """Wait until a daemon answers; RuntimeError if one ends, or this one takes too long."""
        deadline = time.monotonic() + _PATIENCE
        while not ready():
            self._check(log, log, deadline)
            time.sleep(0.2)

    def _check(self, awaited: str, log: str, deadline: float) -> None:
        """Raise RuntimeError if a daemon has ended or the time is over."""
        for name, daemon in self._daemons.items():
            if (code := daemon.poll()) is not None:
                raise self._error(f"{name} ended with {code}", name)
        if time.monotonic() > deadline:
            raise self._error(f"{awaited} is not ready after {_PATIENCE:.0f} seconds", log)

    def end(self) -> None:
        """Kill all daemons: nothing of what they hold is needed."""
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait()

    def _error(self, failure: str, log: str) -> RuntimeError:
        lines: list[str] = []
        for path in (self._folder / f"{log}.log", self._folder / f"{log}.out"):
            with contextlib.suppress(FileNotFoundError):
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST:]
        return RuntimeError("\n".join([f"Ceph: {failure}", f"The log of {log} ends:", *lines]))


def _answers(port: int) -> bool:
    """True if an HTTP server answers at a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def _free_ports(number: int) -> list[int]:
    """Different ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
