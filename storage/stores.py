"""Stores by URL: the one place that knows their kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from indexmill.errors import ConfigurationError, SnapshotNotFound
from indexmill.store.bucket import IN_PROCESS, SCHEMES, is_bucket
from storage import folder
from storage.object_store import ObjectStore, init_object_store
from storage.overlay import SCHEME, OverlayStore, open_overlay
from storage.protocol import Store

__all__ = ["init_store", "open_store", "overlay_of"]


def open_store(url: str | Path) -> Store:
    """Open the store at a path or URL.

    Raises SnapshotNotFound if there is none, UnsupportedFormat if a newer indexmill wrote it, ConfigurationError for a
    URL of no store.
    """
    scheme = str(url).partition(":")[0]
    if scheme not in _OPEN and is_bucket(url):
        raise ConfigurationError(f"{scheme}:// is no scheme of a store: expected a folder, or {', '.join(SCHEMES)}")
    return _OPEN.get(scheme, folder.open_folder)(str(url))


def init_store(url: str | Path) -> Store:
    """Create a store at a path or URL, or open the store that is there; safe to call from many processes at once.

    Raises ConfigurationError for a folder of other things, StoreNotWritable if it cannot be made, StoreError if an
    object store does not keep what stores rely on.
    """
    return init_object_store(str(url)) if is_bucket(url) else folder.init_folder(url)


def overlay_of(url: str | Path, above: Path) -> OverlayStore:
    """An empty overlay over the store at a path or URL, or over nothing if there is no store yet.

    Raises as a build would: ConfigurationError if the path holds other things, UnsupportedFormat, CorruptBlob.
    """
    try:
        return OverlayStore(above, open_store(url))
    except SnapshotNotFound:
        if not is_bucket(url):
            folder.check_free(url)
        return OverlayStore(above, None)


_OPEN: Mapping[str, Callable[[str], Store]] = {
    SCHEME: lambda url: open_overlay(url, open_store),
    **dict.fromkeys((*SCHEMES, IN_PROCESS), ObjectStore),
}
