"""The third-party JavaScript that a page inlines: shipped beside this module, listed and pinned in ``vendor.json``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from indexmill.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Library:
    """An npm library: its name and version, its script, and its licence."""

    name: str
    version: str
    script: str
    licence: str


@cache
def libraries() -> tuple[Library, ...]:
    """Read the libraries, in the order in which they must run.

    Raises ConfigurationError if a file is missing or does not have its pinned digest.
    """
    folder = files("indexmill.explore") / "vendor"
    pinned = json.loads((folder / "vendor.json").read_text(encoding="utf-8"))
    return tuple(
        Library(
            package["package"],
            package["version"],
            *(
                "".join(
                    _checked(file["name"], file["sha256"]) for file in package["files"] if file["script"] == is_script
                )
                for is_script in (True, False)
            ),
        )
        for package in pinned["packages"]
    )


def _checked(name: str, expected: str) -> str:
    path = files("indexmill.explore") / "vendor" / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}; reinstall indexmill") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected:
        raise ConfigurationError(
            f"{path} has the SHA-256 {digest}; expected {expected}: the file was changed, reinstall indexmill"
        )
    return data.decode("utf-8")
