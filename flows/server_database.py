"""A cache of the empty database of the private Prefect server, whose tables Prefect takes seconds to create.

There is one file for each version of Prefect. It is beside the compiled files of this code, and as trusted as they
are. Where Python must not or cannot write compiled files, it is in the cache that `INDEXMILL_CACHE` names, and is used
only if no other user can write to it. Without either, nothing is cached: a build leaves no files in a user's home.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

from indexmill.store.blob_cache import CACHE_VARIABLE, cache_folder
from indexmill.store.regular_files import is_own


def take_database(database: Path) -> bool:
    """Copy the cached database to the new file ``database``; return False if no usable database is cached."""
    compiled, cached = _compiled(), _cached()
    if compiled is not None and _take(compiled, database):
        return True
    return cached is not None and _is_own(cached) and _take(cached, database)


def keep_database(database: Path) -> None:
    """Cache a copy of the database of a server that has just started; ignores failures."""
    compiled, cached = _compiled(), _cached()
    if compiled is not None and not sys.dont_write_bytecode and _keep(database, compiled, 0o644):
        return
    if cached is not None:
        with contextlib.suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _keep(database, cached, 0o600)


def _compiled() -> Path | None:
    """Return the path beside the compiled files of this code; None if this Python writes no compiled files."""
    try:
        return Path(cache_from_source(__file__)).absolute().with_name(f"prefect-{version('prefect')}.db")
    except NotImplementedError:
        return None


def _cached() -> Path | None:
    if not os.environ.get(CACHE_VARIABLE):
        return None
    return cache_folder() / "prefect" / f"{version('prefect')}.db"


def _is_own(file: Path) -> bool:
    try:
        return is_own(file.lstat())
    except OSError:
        return False


def _take(file: Path, database: Path) -> bool:
    try:
        _copy(f"{file.as_uri()}?immutable=1", database)
    except (OSError, sqlite3.Error):
        database.unlink(missing_ok=True)
        return False
    return True


def _keep(database: Path, file: Path, mode: int) -> bool:
    """Copy the database of a running server to the cache atomically; False if that fails."""
    try:
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            copy = Path(folder) / file.name
            _copy(f"{database.as_uri()}?mode=ro", copy)
            copy.chmod(mode)
            copy.replace(file)
    except (OSError, sqlite3.Error):
        return False
    return True


def _copy(source: str, target: Path) -> None:
    """Copy a database, which a server may be using, to a new file. source: its URI."""
    with (
        contextlib.closing(sqlite3.connect(source, uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)
        (tables,) = writing.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables or writing.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError(f"{source} is empty or damaged")
