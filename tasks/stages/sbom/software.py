"""The software that a build rests on: the installed distributions that its requirements lead to, and the encoder.

Only what identifies the software is kept, so that the same environment gives the same list on any machine: no path, no
host, and no address that is a path or holds a secret.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from indexmill.errors import ConfigurationError

_LONGEST = 120  # characters of a licence's name; a longer one is its text
_CARD_BYTES = 1 << 16
_REMOTE = frozenset({"http", "https", "ssh", "git", "git+ssh"})


def installed(root: str, extra: str) -> list[dict[str, Any]]:
    """The distribution `root` and all installed ones that it requires with an extra, by their normalised names.

    Each is ``{"name", "version", "licences", "origin", "requires"}``, JSON-ready: the licences as the metadata states
    them; the origin as a qualifier of a package URL, empty for an index, ``{"local": ""}`` for a folder or file of the
    machine; the names that it requires and that are installed. Raises ConfigurationError if the root is not installed.
    """
    found: dict[str, metadata.Distribution] = {}
    requires: dict[str, set[str]] = {}
    done: dict[str, set[str]] = {}
    ahead = deque([Requirement(f"{root}[{extra}]")])
    while ahead:
        wanted = ahead.popleft()
        name = canonicalize_name(wanted.name)
        if name not in found:
            try:
                found[name] = metadata.distribution(wanted.name)
            except metadata.PackageNotFoundError:
                continue
        for one in {"", *wanted.extras} - done.setdefault(name, set()):
            done[name].add(one)
            for line in found[name].requires or ():
                with contextlib.suppress(InvalidRequirement):  # of a release that predates the syntax
                    needed = Requirement(line)
                    if needed.marker is None or needed.marker.evaluate({"extra": one}):
                        requires.setdefault(name, set()).add(canonicalize_name(needed.name))
                        ahead.append(needed)
    if canonicalize_name(root) not in found:
        raise ConfigurationError(
            f"run.sbom lists what {root} requires, and {root} is not installed, only found: install it with "
            "`pip install -e .` in its checkout, or leave run.sbom out"
        )
    return [
        {
            "name": name,
            "version": one.version,
            "licences": _licences(one),
            "origin": _origin(one.read_text("direct_url.json")),
            "requires": sorted((requires.get(name, set()) & found.keys()) - {name}),
        }
        for name, one in sorted(found.items())
    ]


def _licences(distribution: metadata.Distribution) -> list[str]:
    """The licences that the metadata states: an SPDX expression, else a name, else those of the classifiers."""
    stated = distribution.metadata
    for field in ("License-Expression", "License"):
        text = (stated.get_all(field) or [""])[0].strip()
        if text and "\n" not in text and len(text) <= _LONGEST and text.upper() != "UNKNOWN":
            return [text]
    classified = (one.split(" :: ") for one in stated.get_all("Classifier") or ())
    return sorted({parts[-1] for parts in classified if parts[0] == "License" and parts[-1] != "OSI Approved"})


def _origin(direct_url: str | None) -> dict[str, str]:
    """Where a distribution was installed from, if not from an index (PEP 610), as a qualifier of its package URL."""
    if direct_url is None:
        return {}
    try:
        told = json.loads(direct_url)
        where = _public(str(told["url"]))
        vcs = told.get("vcs_info")
        if where is None:
            return {"local": ""}
        if isinstance(vcs, dict):
            return {"vcs_url": f"{vcs['vcs']}+{where}@{vcs['commit_id']}"}
        return {"download_url": where}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"local": ""}  # it does not say where, but that it is from no index


def _public(url: str) -> str | None:
    """An address without user, password, query and fragment; None for one on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in _REMOTE or not parts.hostname:
        return None
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def licence_of_model(folder: Path) -> list[str]:
    """The licences that a model's own card states (``license`` in the front matter of its README.md)."""
    try:
        with (folder / "README.md").open(encoding="utf-8") as file:
            start, front, _ = file.read(_CARD_BYTES).split("---", 2)
        stated = yaml.safe_load(front).get("license") if not start.strip() else None
    except (OSError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        return []
    named = stated if isinstance(stated, list) else [stated]
    return [one for one in named if isinstance(one, str) and 0 < len(one) <= _LONGEST and "\n" not in one]
