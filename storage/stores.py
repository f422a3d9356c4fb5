"""Stores by URL: the only module that knows their kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from indexmill.errors import ConfigurationError, SnapshotNotFound
from indexmill.store.bucket import IN_PROCESS, SCHEMES, Bucket, is_bucket
from indexmill.store.layout import STORE_FILE
from storage import folder
from storage.object_store import ObjectStore, init_object_store
from storage.overlay import SCHEME, OverlayStore, open_overlay
from storage.protocol import Store


def open_store(url: str | Path) -> Store:
    """Open the store at a path or URL.

    Raises SnapshotNotFound if there is none, UnsupportedFormat if it has a different format, ConfigurationError for a
    URL that is not a store's.
    """
    scheme = str(url).partition(":")[0]
    if scheme not in _OPEN and is_bucket(url):
        raise ConfigurationError(f"{scheme}:// is not a scheme of a store: expected a folder, or {', '.join(SCHEMES)}")
    return _OPEN.get(scheme, folder.open_folder)(str(url))


def init_store(url: str | Path) -> Store:
    """Create a store at a path or URL, or open the existing store; safe to call from many processes at once.

    Raises ConfigurationError for a folder with other content, StoreNotWritable if it cannot be created, StoreError if
    an object store lacks a guarantee that stores need.
    """
    return init_object_store(str(url)) if is_bucket(url) else folder.init_folder(url)


def restore_store_file(url: str | Path, data: bytes) -> None:
    """Restore the record that marks a folder or bucket as a store; StoreNotWritable or DiskFull if it fails."""
    if is_bucket(url):
        Bucket(str(url)).put(STORE_FILE, data)
    else:
        folder.replace_file(Path(url), STORE_FILE, data)


def overlay_of(url: str | Path, above: Path) -> OverlayStore:
    """Return an empty overlay over the store at a path or URL, or over nothing if there is no store yet.

    Raises as a build would: ConfigurationError if the path has other content, UnsupportedFormat, CorruptBlob.
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
