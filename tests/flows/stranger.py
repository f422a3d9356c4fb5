"""What another user of the machine may try against a build at work: a program that prints what succeeded.

    python -m tests.flows.stranger '{"user": 65534, "ports": [...], "run": "...", "sockets": [...], "files": [...]}'

user: who it becomes once it has imported what it needs; null: who it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import distributed
from distributed.comm.core import connect
from distributed.security import Security

_SECONDS = 5
_PATHS = ("/", "/health", "/sitemap.json", "/metrics", "/info/main/workers.html", "/json/identity.json", "/api/health")
_REFUSALS = (401, 403)


async def _said(address: str, security: Security, operation: str) -> Any:
    """The first answer of a Dask server, or of a handler in it."""
    comm = await connect(address, timeout=_SECONDS, **security.get_connection_args("client"))
    try:
        await comm.write({"op": operation})
        return await comm.read()
    finally:
        comm.abort()


def _said_in_time(address: str, security: Security, operation: str) -> Any:
    return asyncio.run(asyncio.wait_for(_said(address, security, operation), 2 * _SECONDS))


def _ran(address: str, security: Security) -> Any:
    """What a function returned on each worker of a scheduler."""
    with distributed.Client(address, security=security, timeout=_SECONDS, set_as_default=False) as client:
        return client.run(os.getuid)


def _fetched(url: str, data: bytes | None = None) -> int:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        if error.code in _REFUSALS:
            raise
        return error.code


def _connected(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
    return "connected"


def _read(path: str) -> object:
    if os.path.isdir(path):  # noqa: PTH112
        return os.listdir(path)  # noqa: PTH208
    with open(path, "rb") as file:  # noqa: PTH123
        return len(file.read())


def _attempts(order: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for port in order["ports"]:
        place = f"127.0.0.1:{port}"
        for address, security in ((f"tcp://{place}", Security()), (f"tls://{place}", Security.temporary())):
            for operation in ("identity", f"indexmill-quota-{order['run']}"):
                yield (
                    f"{operation} of {address}",
                    lambda a=address, s=security, o=operation: _said_in_time(a, s, o),
                )
        for path in _PATHS:
            yield f"GET {place}{path}", lambda u=f"http://{place}{path}": _fetched(u)
        yield f"POST {place}", lambda u=f"http://{place}/api/flow_runs/filter": _fetched(u, b"{}")
    for path in order["sockets"]:
        yield f"connect to {path}", lambda p=path: _connected(p)
    for path in order["files"]:
        yield f"read {path}", lambda p=path: _read(p)


def _succeeded(order: dict[str, Any]) -> dict[str, str]:
    attempts = list(_attempts(order))
    with ThreadPoolExecutor(16) as threads:  # what is refused is tried until the time is up
        results = list(threads.map(_tried, [attempt for _, attempt in attempts]))
    found = {what: result for (what, _), result in zip(attempts, results, strict=True) if result is not None}
    for what in [what for what, result in found.items() if "'type': 'Scheduler'" in result]:
        address = what.rpartition(" ")[2]
        found[f"run code by {address}"] = repr(_ran(address, Security()))
    return found


def _tried(attempt: Callable[[], Any]) -> str | None:
    try:
        return repr(attempt())[:500]
    except Exception:  # refused, in whatever way
        return None


def main(order: dict[str, Any]) -> None:
    """Try all, print what succeeded."""
    if order["user"] is not None:
        os.setgroups([])
        os.setgid(order["user"])
        os.setuid(order["user"])
    print(json.dumps(_succeeded(order)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
