"""The software that a build uses: its installed requirements, direct and indirect, and the encoder's licence.

The list contains only what identifies the software, so that it is the same for the same environment on any machine: no
path, no host, and no address that is a path or contains a secret.
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

_LONGEST = 120  # maximum characters of a licence's name; a longer value is the licence text
_CARD_BYTES = 1 << 16
_REMOTE = frozenset({"http", "https", "ssh", "git", "git+ssh"})


def installed(root: str, extra: str) -> list[dict[str, Any]]:
    """Return the distribution `root` and the installed distributions that it and an extra require, by normalised name.

    Each is ``{"name", "version", "licences", "origin", "requires"}``, JSON-ready: the licences as the metadata states
    them; the origin as a qualifier of a package URL, empty for an index, ``{"local": ""}`` for a local folder or file;
    and the names of its installed requirements. Raises ConfigurationError if the root is not installed.
    """
    distributions: dict[str, metadata.Distribution] = {}
    requires: dict[str, set[str]] = {}
    done: dict[str, set[str]] = {}
    ahead = deque([Requirement(f"{root}[{extra}]")])
    while ahead:
        requirement = ahead.popleft()
        name = canonicalize_name(requirement.name)
        if name not in distributions:
            try:
                distributions[name] = metadata.distribution(requirement.name)
            except metadata.PackageNotFoundError:
                continue
        for wanted_extra in {"", *requirement.extras} - done.setdefault(name, set()):
            done[name].add(wanted_extra)
            for line in distributions[name].requires or ():
                with contextlib.suppress(InvalidRequirement):  # an old release with invalid syntax
                    needed = Requirement(line)
                    if needed.marker is None or needed.marker.evaluate({"extra": wanted_extra}):
                        requires.setdefault(name, set()).add(canonicalize_name(needed.name))
                        ahead.append(needed)
    if canonicalize_name(root) not in distributions:
        raise ConfigurationError(
            f"run.sbom lists the requirements of {root}, but {root} is imported without being installed: install "
            f"it (`pip install '{root}[{extra}]'`, in a checkout `make install`), or leave run.sbom out"
        )
    return [
        {
            "name": name,
            "version": distribution.version,
            "licences": _licences(distribution),
            "origin": _origin(distribution.read_text("direct_url.json")),
            "requires": sorted((requires.get(name, set()) & distributions.keys()) - {name}),
        }
        for name, distribution in sorted(distributions.items())
    ]


def _licences(distribution: metadata.Distribution) -> list[str]:
    """Return the licences in the metadata: an SPDX expression, otherwise a name, otherwise those in classifiers."""
    stated = distribution.metadata
    for field in ("License-Expression", "License"):
        text = (stated.get_all(field) or [""])[0].strip()
        if text and "\n" not in text and len(text) <= _LONGEST and text.upper() != "UNKNOWN":
            return [text]
    classified = (line.split(" :: ") for line in stated.get_all("Classifier") or ())
    return sorted({parts[-1] for parts in classified if parts[0] == "License" and parts[-1] != "OSI Approved"})


def _origin(direct_url: str | None) -> dict[str, str]:
    """Return a distribution's origin (PEP 610) as a package URL's qualifier; empty if a package index provided it."""
    if direct_url is None:
        return {}
    try:
        record = json.loads(direct_url)
        where = _public(str(record["url"]))
        vcs = record.get("vcs_info")
        if where is None:
            return {"local": ""}
        if isinstance(vcs, dict):
            return {"vcs_url": f"{vcs['vcs']}+{where}@{vcs['commit_id']}"}
        return {"download_url": where}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"local": ""}  # not from an index, but the record does not state the origin


def _public(url: str) -> str | None:
    """Return a URL without user, password, query and fragment; None for a URL on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in _REMOTE or not parts.hostname:
        return None
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def licence_of_model(folder: Path) -> list[str]:
    """Return the licences in a model's card (``license`` in the front matter of its README.md)."""
    try:
        with (folder / "README.md").open(encoding="utf-8") as file:
            start, front, _ = file.read(_CARD_BYTES).split("---", 2)
        stated = yaml.safe_load(front).get("license") if not start.strip() else None
    except (OSError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        return []
    named = stated if isinstance(stated, list) else [stated]
    return [name for name in named if isinstance(name, str) and 0 < len(name) <= _LONGEST and "\n" not in name]
