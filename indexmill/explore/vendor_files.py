"""The JavaScript of others that a page inlines: shipped beside this module, named and pinned by ``vendor.json``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from indexmill.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Library:
    """A library as npm has it: its name and version, its script, and its licence."""

    name: str
    version: str
    script: str
    licence: str


@cache
def libraries() -> tuple[Library, ...]:
    """The libraries in the order in which they have to run.

    Raises ConfigurationError if a file is missing, or is not, byte for byte, what is pinned.
    """
    folder = files("indexmill.explore") / "vendor"
    pinned = json.loads((folder / "vendor.json").read_text(encoding="utf-8"))
    return tuple(
        Library(
            package["package"],
            package["version"],
            *(
                "".join(_checked(one["name"], one["sha256"]) for one in package["files"] if one["script"] == is_script)
                for is_script in (True, False)
            ),
        )
        for package in pinned["packages"]
    )


def _checked(name: str, expected: str) -> str:
    place = files("indexmill.explore") / "vendor" / name
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{place}: cannot be read: {error.strerror or error}; install indexmill again"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected:
        raise ConfigurationError(
            f"{place}: has the SHA-256 {digest}; expected {expected}: the file was changed, install indexmill again"
        )
    return data.decode("utf-8")
