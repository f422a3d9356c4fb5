"""Functions run in child processes, forked from a clean server so that a process costs milliseconds."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.errors import LeaseLost
from indexmill.store.manifest import Corpus, Manifest, Ref
from indexmill.store.reader import StoreReader
from storage import faults, gc, lineage, receipts
from storage.arrays import put_pack
from storage.lease import acquire
from storage.lineage import Lineage, LineageEntry
from storage.processes import this_process
from storage.publish import describe, publish
from storage.receipts import Receipt
from storage.refs import commit, newest
from storage.stores import init_store, open_store
from storage.table_blobs import put_table

CREATED = "2026-01-31T02:00:00Z"

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.storage.children", "hypothesis", "pytest"])  # what the modules of tests import


def run(function: Callable[..., Any], *arguments: Any) -> int:
    """Run a function in a child process; returns its exit code, negative for a signal."""
    return run_all([(function, *arguments)])[0]


_PATIENCE = 500.0
"""Seconds until a child counts as hanging, which says nothing about how fast the machine is."""


def run_all(calls: list[tuple[Any, ...]]) -> list[int]:
    """Run functions at the same time, each in a child process; returns their exit codes, -1000 of one that hangs."""
    processes: list[BaseProcess] = [context.Process(target=call[0], args=call[1:]) for call in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join(_PATIENCE)
    codes = [process.exitcode for process in processes]
    return [-1000 if code is None else code for code in codes]


def in_environment(variables: dict[str, str], function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function with some variables in the environment: the children's is that of their clean server."""
    os.environ.update(variables)
    function(*arguments)


def build(root: Path | str, version: int = 1) -> Ref:
    """A whole run in small: init, lease, blobs, receipts, publish. Its manifest depends on the version alone."""
    store = init_store(root)
    latest = newest(store)
    run_id = f"run-{this_process().pid}-{this_process().started}-{version}"
    with acquire(store, run_id) as lease:
        found = receipts.find(store, "split", f"key{version}")
        if found is None:
            rows = pa.table({"passage_id": [f"{version}-{number}" for number in range(5)]})
            table, size = put_table(store, rows)
            vectors, length = put_pack(store, run_id, {"passages": np.full((5, 4), version, "<f4")})
            made = Receipt(
                stage="split",
                key=f"key{version}",
                shard="p",
                outputs={"passages": table, "vectors": vectors},
                rows={"passages": 5},
                bytes={"passages": size, "vectors": length},
                run_id=run_id,
            )
            found = receipts.record(store, made)
        parts = lineage.put(store, Lineage(entries=(LineageEntry.of(found),)))
        manifest = Manifest(
            corpus=Corpus(fingerprint="ab", documents=1, passages=5),
            artifacts=(
                describe(store, "passages/p", "table", found.outputs["passages"]),
                describe(store, "vectors/p", "arrays", found.outputs["vectors"]),
            ),
            lineage=parts,
        )
        return publish(store, lease, manifest, latest.version if latest else None, created=CREATED)


def build_with_fault(root: Path | str, at: int, mode: str) -> None:
    faults.arm(at, mode)
    build(root)


def create_many(root: Path, names: list[str], word: str, barrier: Barrier, won: Path) -> None:
    """Create every name with a long record made of one word; writes down which creates succeeded."""
    store = open_store(root)
    barrier.wait(30)
    for name in names:
        if store.create(name, (word * 100_000).encode()):
            with won.open("a") as file:
                file.write(f"{name} {word}\n")


def watch(root: Path, names: list[str], barrier: Barrier) -> None:
    """Read names while they are created; exits with 1 if a reader ever sees a part of a record."""
    store = open_store(root)
    barrier.wait(30)
    left = set(names)
    while left:
        for name in store.list("work/"):
            data = store.get(name).decode()
            if len(data) != 100_000 or len(set(data)) != 1:
                os._exit(1)
            left.discard(name)


def put_many(root: Path, barrier: Barrier) -> None:
    store = open_store(root)
    barrier.wait(30)
    for number in range(30):
        store.open_local(store.put_blob(f"blob {number}".encode() * 1000))


def commit_one(root: Path, manifest: str, run_id: str, barrier: Barrier) -> None:
    """Exits with 0 if this run published version 1, with 5 if another did."""
    store = open_store(root)
    barrier.wait(30)
    try:
        ref = commit(store, manifest, None, 1, run_id, CREATED, {}, "")
    except LeaseLost:
        os._exit(5)
    os._exit(0 if ref.run_id == run_id else 1)


def commit_in_turn(
    root: Path | str, worker: int, each: int, barrier: Barrier, leased: bool, told: Path | None = None
) -> None:
    """Commit some manifests of one's own, each planned from the head again until it is in; writes down the losses.

    leased: under the lease, else by the refs alone. told: the folder for the losses, by default that of the store.
    """
    store = open_store(root)
    manifests = [store.put_blob(f"{worker} {number}".encode()) for number in range(each)]
    lost = 0
    barrier.wait(30)
    for number, manifest in enumerate(manifests):
        run_id = f"run-{worker}-{number}"
        while True:
            try:
                with acquire(store, run_id) if leased else contextlib.nullcontext() as lease:
                    head = newest(store)
                    parent = None if head is None else head.version
                    time.sleep(0.001)  # long enough for another to commit
                    commit(store, manifest, parent, 1_000 if lease is None else lease.epoch, run_id, CREATED, {}, "")
            except LeaseLost:
                lost += 1
                time.sleep(0.002)
            else:
                break
    folder = Path(root).parent if told is None else told
    (folder / f"lost-{worker}").write_text(str(lost))


def sleep_before_the_ref(root: Path, manifest: str, barrier: Barrier) -> None:
    """Take the lease, and fall asleep as the ref is about to be created; exits with 5 if that was too late."""
    store = open_store(root)
    lease = acquire(store, "stale")

    def sleep(name: str) -> None:
        if name.startswith("create refs/"):
            faults.install(None)
            barrier.wait(30)
            barrier.wait(30)

    faults.install(sleep)
    try:
        commit(store, manifest, None, lease.epoch, "stale", CREATED, {}, "")
    except LeaseLost:
        os._exit(5)
    os._exit(0)


def stop_before_the_ref(root: str, manifest: str, boundary: str, told: Path) -> None:
    """Take a short lease, and stop this process (SIGSTOP) at a boundary of publishing; exits with 5 if too late."""
    store = open_store(root)

    def stop(name: str) -> None:
        if name.startswith(boundary):
            faults.install(None)
            told.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    try:
        with acquire(store, "stale", duration=2.0) as lease:
            faults.install(stop)
            store.put_blob(b"the last blob")
            lease.check()
            commit(store, manifest, None, lease.epoch, "stale", CREATED, {}, "")
    except LeaseLost:
        os._exit(5)
    os._exit(0)


def collect_with_fault(root: str, at: int) -> None:
    """Collect all but the newest version at once, and die at a boundary."""
    faults.arm(at, "kill")
    collect(root)


def collect(root: str) -> None:
    """Collect all but the newest version at once."""
    store = open_store(root)
    policy = gc.Policy(last=1, grace=-1_000.0, wait=0.0)
    with acquire(store, f"gc-{this_process().pid}-{this_process().started}") as lease:
        gc.collect(store, lease, gc.survey(store, policy, clock=time.time), policy, clock=time.time)


def hold(root: Path, run_id: str, barrier: Barrier, seconds: float) -> None:
    """Take the lease and keep it until killed; exits with 5 if another has it."""
    store = open_store(root)
    barrier.wait(30)
    try:
        lease = acquire(store, run_id, duration=seconds)
    except LeaseLost:
        os._exit(5)
    (root / "held").write_text(f"{run_id} {lease.epoch}", encoding="utf-8")
    barrier.wait(30)
    os._exit(0)


def take_and_die(root: Path, run_id: str) -> None:
    acquire(open_store(root), run_id)
    os.kill(os.getpid(), 9)


def read_as_nobody(root: Path) -> None:
    """Read a whole snapshot as a user that may not write; exits with 0 if all went well."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    reader = StoreReader(root)
    manifest = reader.manifest(reader.newest().manifest)
    for artifact in manifest.artifacts:
        reader.blob(artifact.digest, artifact.bytes)
    reader.aliases()
    os._exit(0)


def write_as_nobody(root: Path) -> None:
    """Exits with 2 if writing is refused the way a user can understand."""
    from indexmill.errors import StoreNotWritable

    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        open_store(root).create("work/split/ab.json", b"{}")
    except StoreNotWritable as error:
        os._exit(error.exit_code if str(root) in str(error) else 1)
