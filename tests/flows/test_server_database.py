"""The database that private Prefect servers start with: kept beside the code or in a cache, and used if it is whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows import server_database
from flows.server_database import keep_database, take_database


@pytest.fixture(autouse=True)
def code(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the code, where Python writes no compiled files."""
    monkeypatch.setattr(server_database, "__file__", str(quick / "code" / "server_database.py"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return quick / "code"


@pytest.fixture
def compiled(code: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled files, which Python may write."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = code / "__pycache__"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def cache(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick / "a cache?#%"))
    return quick / "a cache?#%"


@pytest.fixture
def first(quick: Path) -> Iterator[Path]:
    """The database that a server uses."""
    with contextlib.closing(sqlite3.connect(quick / "first.db")) as serving:
        serving.execute("PRAGMA journal_mode = WAL")
        serving.execute("CREATE TABLE version (number)")
        serving.execute("INSERT INTO version VALUES (7)")
        serving.commit()
        yield quick / "first.db"


@pytest.fixture
def kept(cache: Path, first: Path) -> Path:
    """The database that is kept of the first in the cache."""
    keep_database(first)
    (found,) = (path for path in cache.rglob("*") if path.is_file())
    return found


def test_it_is_kept_beside_the_compiled_code_if_python_may_write_there(
    compiled: Path, first: Path, cache: Path, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_database(first)
    (kept,) = compiled.iterdir()
    assert not cache.exists()
    monkeypatch.delenv("INDEXMILL_CACHE")
    assert take_database(quick / "second.db")
    kept.write_bytes(b"Dear Ada, " * 1000)
    assert not take_database(quick / "third.db")
    keep_database(first)
    assert take_database(quick / "third.db")


def test_beside_code_that_cannot_be_written_it_is_kept_in_the_cache(
    compiled: Path, first: Path, cache: Path, quick: Path
) -> None:
    compiled.rmdir()
    compiled.write_bytes(b"no folder")
    keep_database(first)
    assert cache.exists()
    assert take_database(quick / "second.db")


def test_where_python_writes_no_compiled_files_it_is_kept_in_the_cache(
    compiled: Path, first: Path, cache: Path, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    keep_database(first)
    assert list(compiled.iterdir()) == []
    assert cache.exists()
    assert take_database(quick / "second.db")


def test_one_of_the_cache_is_taken_if_that_beside_the_code_is_damaged(kept: Path, compiled: Path, quick: Path) -> None:
    (compiled / f"prefect-{kept.name}").write_bytes(b"Dear Ada, " * 1000)
    assert take_database(quick / "second.db")


def test_a_python_that_keeps_no_compiled_files_has_only_the_cache(
    kept: Path, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.implementation, "cache_tag", None)
    assert take_database(quick / "second.db")
    keep_database(quick / "second.db")


def test_another_server_starts_with_what_the_first_one_made(kept: Path, quick: Path) -> None:
    assert kept.stat().st_mode & 0o777 == 0o600
    assert take_database(quick / "second.db")
    with contextlib.closing(sqlite3.connect(quick / "second.db")) as serving:
        assert serving.execute("SELECT number FROM version").fetchall() == [(7,)]
        serving.execute("INSERT INTO version VALUES (8)")
        serving.commit()
    assert take_database(quick / "third.db")
    with contextlib.closing(sqlite3.connect(quick / "third.db")) as serving:
        assert serving.execute("SELECT number FROM version").fetchall() == [(7,)]
    assert list(kept.parent.iterdir()) == [kept]


def test_nothing_is_kept_or_taken_where_no_cache_is_named(
    kept: Path, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(quick / "home"))
    for value in ("", None):
        monkeypatch.delenv("INDEXMILL_CACHE") if value is None else monkeypatch.setenv("INDEXMILL_CACHE", value)
        assert not take_database(quick / "second.db")
        keep_database(quick / "first.db")
    assert not (quick / "home").exists()


def test_another_version_of_prefect_makes_its_own(kept: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_database, "version", lambda name: f"another {name}")
    assert not take_database(quick / "second.db")


@pytest.mark.parametrize("damage", ["cut", "not a database", "empty", "folder", "link", "writable by all"])
def test_what_may_not_be_used_is_left_and_then_replaced(kept: Path, quick: Path, damage: str) -> None:
    if damage == "writable by all":
        kept.chmod(0o666)
    elif damage == "cut":
        os.truncate(kept, 4096)
    else:
        kept.rename(quick / "elsewhere.db")
        if damage == "folder":
            kept.mkdir()
        elif damage == "link":
            kept.symlink_to(quick / "elsewhere.db")
        else:
            kept.write_bytes(b"" if damage == "empty" else b"Dear Ada, " * 1000)
    assert not take_database(quick / "second.db")
    assert not (quick / "second.db").exists()
    keep_database(quick / "first.db")
    assert take_database(quick / "third.db") == (damage != "folder")


def test_a_cache_that_cannot_be_written_is_no_hindrance(quick: Path, cache: Path) -> None:
    cache.write_bytes(b"a file")
    keep_database(quick / "none.db")
    assert not take_database(quick / "second.db")
