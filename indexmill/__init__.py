"""Open a snapshot of an indexmill store, read-only, and retrieve from it.

    import indexmill

    with indexmill.open("store") as snapshot:          # the newest; version=7 or alias="prod" pins one
        hits = snapshot.retrieve("who funded the bridge?", k=5)

Importing this package is cheap: numpy, pyarrow and the models are loaded when they are first needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from indexmill.errors import (
    BadInput,
    BudgetReached,
    ConfigurationError,
    CorruptBlob,
    FamilyNotFound,
    GateRefused,
    IndexmillError,
    LeaseLost,
    ModelUnavailable,
    NotFound,
    SnapshotNotFound,
    StoreError,
    StoreNotWritable,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from indexmill.hits import Hit
    from indexmill.snapshot import Snapshot

__all__ = [
    "BadInput",
    "BudgetReached",
    "ConfigurationError",
    "CorruptBlob",
    "FamilyNotFound",
    "GateRefused",
    "Hit",
    "IndexmillError",
    "LeaseLost",
    "ModelUnavailable",
    "NotFound",
    "Snapshot",
    "SnapshotNotFound",
    "StoreError",
    "StoreNotWritable",
    "UnsupportedFormat",
    "open",
]


def open(  # noqa: A001
    path: str | os.PathLike[str], version: int | None = None, alias: str | None = None
) -> Snapshot:
    """Open a snapshot of a store, or of an exported folder, read-only and memory-mapped.

    The newest version is opened unless ``version`` or ``alias`` pins one; versions published later are not noticed.
    Raises SnapshotNotFound where there is no such store, version or alias, and BadInput for a version and an alias at
    once.
    """
    from indexmill.snapshot import open_snapshot

    return open_snapshot(path, version=version, alias=alias)


def __getattr__(name: str) -> Any:  # Hit and Snapshot pull in numpy and pyarrow: only when somebody asks for them
    if name == "Hit":
        from indexmill.hits import Hit

        return Hit
    if name == "Snapshot":
        from indexmill.snapshot import Snapshot

        return Snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
