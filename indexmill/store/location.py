"""The location of a store, as given in settings and options."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from indexmill.store.bucket import IN_PROCESS, SCHEMES, bucket_url

DEFAULT_STORE = "store"


def store_location(store: str, folder: Path = Path()) -> str:
    """Resolve a store setting: a URL, or a path relative to ``folder`` (``~`` is home). Raises ValueError."""
    if not store:
        raise ValueError("expected a path, found an empty string")
    if store.startswith("file:"):
        return unquote(urlsplit(store).path)
    if "://" in store:
        url = bucket_url(store)
        if url.startswith(f"{IN_PROCESS}:"):
            raise ValueError(f"{url} would be lost when this process ends: expected a folder, or {', '.join(SCHEMES)}")
        return url
    return anchored(store, folder)


def anchored(path: str, folder: Path) -> str:
    """Resolve a path in a configuration file: ``~`` is home, and other paths are relative to ``folder``."""
    return str(folder / os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for a file called ~x
