"""The empty database of the private Prefect server, kept between runs: Prefect takes seconds to make its tables.

It is kept in a cache that `INDEXMILL_CACHE` names, one for each version of Prefect. Without the variable nothing is
kept: a build leaves no file in its user's home.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from importlib.metadata import version
from pathlib import Path

from indexmill.store.blob_cache import CACHE_VARIABLE, cache_folder
from indexmill.store.regular_files import is_own

__all__ = ["keep_database", "take_database"]


def take_database(database: Path) -> bool:
    """Make a new database from the one that is kept; False if there is none that can be used."""
    kept = _kept()
    if kept is None:
        return False
    try:
        if not is_own(kept.lstat()):
            return False
        _copy(f"{kept.as_uri()}?immutable=1", database)
    except (OSError, sqlite3.Error):
        database.unlink(missing_ok=True)
        return False
    return True


def keep_database(database: Path) -> None:
    """Keep a copy of the database of a server that has just started; nothing happens if that fails."""
    kept = _kept()
    if kept is None:
        return
    with contextlib.suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            copy = Path(folder) / kept.name
            _copy(f"{database.as_uri()}?mode=ro", copy)
            copy.chmod(0o600)
            copy.replace(kept)


def _kept() -> Path | None:
    if not os.environ.get(CACHE_VARIABLE):
        return None
    return cache_folder() / "prefect" / f"{version('prefect')}.db"


def _copy(source: str, target: Path) -> None:
    """Copy a database, which a server may be using, to a new file; source: its URI."""
    with (
        contextlib.closing(sqlite3.connect(source, uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)
        (tables,) = writing.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables or writing.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError(f"{source} is empty or damaged")
