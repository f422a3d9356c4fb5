"""The environment fingerprint: the library versions and the processor architecture that can change a published bit."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import indexmill

_SHAPING = ("PyStemmer", "markdown-it-py", "numpy", "polars", "pyarrow", "sentencex", "tokenizers", "trafilatura")


@cache
def library_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of distributions; 'absent' for a distribution that is not installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions


def python_version() -> str:
    """Return Python's minor version, which determines the Unicode tables for names and sentences."""
    return ".".join(platform.python_version_tuple()[:2])


def environment_fingerprint() -> dict[str, str]:
    """Return the manifest's record of the machine: equal records mean equal bytes. The encoder has its own record."""
    return {
        **library_versions(*_SHAPING),
        "python": python_version(),
        "machine": platform.machine(),
    }


@cache
def code_digest() -> str:
    """Return the SHA-256 of the source files of the packages that compute: equal on machines with the same code."""
    root, reader = Path(__file__).resolve().parents[2], Path(indexmill.__file__).resolve().parents[1]
    hashed = hashlib.sha256()
    for folder, package in ((reader, "indexmill"), (root, "schemas"), (root, "storage"), (root, "tasks")):
        for path in sorted(path for pattern in ("*.py", "*.yaml") for path in (folder / package).rglob(pattern)):
            name = path.relative_to(folder).as_posix().encode()
            hashed.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()
