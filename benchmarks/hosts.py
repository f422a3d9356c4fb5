"""A build on several hosts, beside the same build into a folder on one.

    python -m benchmarks.hosts CORPUS.jsonl [--hosts 2 3] [--cut 60]
    python -m benchmarks.hosts CORPUS.jsonl --docs 300 --hosts 2 --cut 0      # a minute, for every day

Hosts are network namespaces of this machine (root and `ip` are needed): one has the Dask scheduler, each of the others
a worker. They have mutual TLS, share no folder, and reach moto's S3 by a bridge. In the last build the link of a host
with work is cut for `--cut` seconds; a worker that ends is started again, as a service manager does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import argument_parser, describe_machine
from tests.flows.commands import Command, command, write_settings
from tests.flows.hosts import DaskHosts, Host, dask_hosts, departures, missing, network, replaced, wait_for_work
from tests.paths import ROOT
from tests.storage.services import bucket_of, s3_service

_WORKING = 5.0
"""Seconds of work before a link is cut."""


@dataclass(frozen=True)
class Built:
    """A finished build. moved: the calls that were taken from a lost worker and given to others."""

    seconds: float
    manifest: str
    moved: int = 0


@contextlib.contextmanager
def started(folder: Path, corpus: Path, store: str, run: dict[str, object]) -> Iterator[Command]:
    """A build by the real command, in a new folder."""
    folder.mkdir()
    chosen = {"store": store, "corpus": {"paths": [str(corpus)]}, "run": run}
    environment = {"PYTHONPATH": str(ROOT), "INDEXMILL_CACHE": str(folder / "cache")}
    configuration = write_settings(folder / "indexmill.yaml", chosen)
    with command(folder, "build", "-c", configuration, "--json", environment=environment) as build:
        yield build


def ended(build: Command, began: float) -> Built:
    """How a build ended; raises RuntimeError where it failed."""
    if build.wait(3600):
        raise RuntimeError(build.err)
    return Built(time.perf_counter() - began, build.json()["manifest"])


def on_one(folder: Path, corpus: Path) -> Built:
    """Build into a folder, with workers of the command's own."""
    began = time.perf_counter()
    with started(folder, corpus, str(folder / "store"), {}) as build:
        return ended(build, began)


def on_hosts(folder: Path, corpus: Path, count: int, cut: float = 0.0) -> Built:
    """Build into a bucket, with a worker on each of so many hosts; cut: seconds for which a link is cut."""
    folder.mkdir()
    with network(folder, count + 1) as net, s3_service(net.gateway) as endpoint, dask_hosts(folder, net) as cluster:
        store = f"{bucket_of(endpoint)}/index"
        with replaced(cluster), started(folder / "build", corpus, store, {"dask": cluster.settings}) as build:
            began = time.perf_counter()
            cutting = threading.Thread(target=cut_link, args=(build, cluster, cluster.hosts[0], cut))
            if cut:
                cutting.start()
            done = ended(build, began)
        if cut:
            cutting.join()
        lost = departures(cluster, *cluster.hosts)
    return Built(done.seconds, done.manifest, sum(len(one["processing-tasks"]) for one in lost))


def cut_link(build: Command, cluster: DaskHosts, host: Host, seconds: float) -> None:
    """Cut the link of a host that is at work, for so many seconds."""
    wait_for_work(build, cluster, host)
    time.sleep(_WORKING)
    host.cut()
    time.sleep(seconds)
    host.restore()


def main() -> int:
    """Print the table; 1 if a manifest differs from the folder's."""
    parser = argument_parser(__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3], help="hosts with workers")
    parser.add_argument("--cut", type=float, default=60.0, help="seconds of the cut link; 0 for none")
    parser.add_argument("--docs", type=int, help="use only the first N documents")
    arguments = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    os.environ["AWS_ALLOW_HTTP"] = "true"
    print(describe_machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lines = arguments.corpus.read_text(encoding="utf-8").splitlines(keepends=True)[: arguments.docs]
        corpus = folder / "corpus.jsonl"
        corpus.write_text("".join(lines), encoding="utf-8")
        print(f"\n{len(lines):,} documents\n")
        print("| hosts | link cut, s | build, s | calls moved | manifest | as on one host |")
        print("| --- | --- | --- | --- | --- | --- |")
        cases = [(1, 0.0), *((count, 0.0) for count in arguments.hosts)]
        if arguments.cut:
            cases.append((arguments.hosts[-1], arguments.cut))
        manifests = []
        for number, (count, cut) in enumerate(cases):
            place = folder / str(number)
            done = on_one(place, corpus) if count == 1 else on_hosts(place, corpus, count, cut)
            manifests.append(done.manifest)
            same = "yes" if done.manifest == manifests[0] else "**no**"
            cells = (count, f"{cut:g}", f"{done.seconds:.1f}", done.moved, f"`{done.manifest[:16]}`", same)
            print("|", " | ".join(map(str, cells)), "|", flush=True)
    return int(len(set(manifests)) > 1)


if __name__ == "__main__":
    sys.exit(main())
