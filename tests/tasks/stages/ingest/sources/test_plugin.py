"""A class of the user's as a place: what it may return, and what it is told of mistakes."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from indexmill.errors import BadInput
from schemas.sources import PluginSettings
from tasks.stages.ingest.sources.plugin import PluginSource
from tasks.stages.ingest.sources.source_interface import FileEntry, FileSource, SourceError


class Wiki:
    """Lists what it is given."""

    def __init__(self, *, entries: Any = (), data: Any = b"text") -> None:
        self._entries, self._data = entries, data

    def list(self) -> Any:
        return iter(self._entries)

    def read(self, name: str) -> Any:
        if isinstance(self._data, Exception):
            raise self._data
        return self._data() if callable(self._data) else self._data


class Whole:
    """Takes all arguments that a class may take."""

    def __init__(self) -> None:
        self.warnings = ["two pages are locked"]

    def list(self, known: dict[str, str]) -> Iterator[FileEntry]:
        yield FileEntry("a.md", token=f"after {known['a.md']}")

    def read(self, name: str, token: str) -> bytes:
        return f"{name} {token}".encode()


class Failing:
    def list(self) -> Iterator[FileEntry]:
        yield FileEntry("a.md")
        raise KeyError("page 2")

    def read(self, name: str) -> bytes:
        return b""


class NoReading:
    def list(self) -> list[FileEntry]:
        return []


class Refusing:
    def __init__(self) -> None:
        raise BadInput("give a space")


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("my_wiki")
    vars(made).update({one.__name__: one for one in (Wiki, Whole, Failing, NoReading, Refusing)}, number=7)
    monkeypatch.setitem(sys.modules, "my_wiki", made)


def place(named: str = "my_wiki:Wiki", **options: Any) -> PluginSource:
    settings = PluginSettings.model_validate({"class": named, "options": options})
    return PluginSource(settings, Path("/nowhere"))


def listed(*entries: Any) -> list[FileEntry]:
    return list(place(entries=entries).list({}))


def test_entries_may_be_objects_or_mappings_in_any_order() -> None:
    assert listed(
        {"name": "b.md", "size": 3, "token": "1", "modified": 7, "details": {"owner": "x"}, "charset": "gbk"},
        SimpleNamespace(name="a/u\u0308.md", size=None, token=None),
        FileEntry("c.md"),
    ) == [FileEntry("a/\xfc.md"), FileEntry("b.md", 3, "1", 7, {"owner": "x"}, "gbk"), FileEntry("c.md")]
    assert isinstance(place(), FileSource)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("a.md", r"^entry 1 of the plug-in my_wiki:Wiki is str \('a\.md'\): expected an object or mapping"),
        (None, "entry 1 of the plug-in my_wiki:Wiki is None: expected an object or mapping"),
        ({"name": 7}, r"has the name int \('7'\): expected a string"),
        ({"size": 7}, "has the name None: expected a string"),
        ({"name": "a.md", "url": "x"}, r"unknown keys \(url\); allowed keys: name, size, token, modified, details"),
        ({"name": "/etc/a.md"}, "has the name '/etc/a.md': expected a path below the source"),
        ({"name": "a/../b.md"}, "expected a path below the source"),
        ({"name": "a//b.md"}, "expected a path below the source"),
        ({"name": ""}, "expected a path below the source"),
        ({"name": "a\nb.md"}, r"'a\\nb\.md'"),
        ({"name": "a.md", "charset": 7}, "expected the name of an encoding"),
        ({"name": "a.md", "size": -1}, "'a.md' with the size"),
        ({"name": "a.md", "size": True}, "expected a number of bytes, or None"),
        ({"name": "a.md", "token": 7}, "expected a string that changes with the bytes"),
        ({"name": "a.md", "modified": float("nan")}, "expected seconds since 1970"),
        ({"name": "a.md", "modified": "today"}, "expected seconds since 1970"),
        ({"name": "a.md", "details": {"x": b"y"}}, "that JSON cannot represent"),
        ({"name": "a.md", "details": {1: "y"}}, "a mapping with string keys"),
        ({"name": "a.md", "details": ["y"]}, "a mapping with string keys"),
    ],
)
def test_what_is_no_entry_is_named(entry: Any, said: str) -> None:
    with pytest.raises(SourceError, match=said) as refused:
        listed(entry)
    assert "my_wiki:Wiki" in str(refused.value)


def test_a_name_that_is_listed_twice_ends_the_listing() -> None:
    with pytest.raises(SourceError, match=r"my_wiki:Wiki lists 'ü\.md' twice"):
        listed(FileEntry("\xfc.md"), FileEntry("u\u0308.md"))


def test_a_class_with_the_whole_protocol_gets_all_of_it() -> None:
    whole = place("my_wiki:Whole")
    (entry,) = whole.list({"a.md": "first"})
    assert entry == FileEntry("a.md", None, "after first")
    with whole.read("a.md", entry.token) as file:
        assert file.read() == b"a.md after first"
    assert whole.warnings == ["two pages are locked"]


def _temporary() -> Any:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who reads it
    file.write(b"text")
    file.seek(0)
    return file


def _here() -> Any:
    path = Path(tempfile.mkdtemp()) / "a"
    path.write_bytes(b"text")
    file = path.open("rb")
    path.unlink()
    file.read(2)  # a class may have looked at its beginning
    return file


@pytest.mark.parametrize(
    "data",
    [
        b"text",
        bytearray(b"text"),
        lambda: io.BytesIO(b"text"),
        _temporary,
        _here,
        lambda: gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"text"))),
    ],
    ids=["bytes", "bytearray", "in memory", "written", "real", "gzip"],
)
def test_a_file_is_real_and_at_its_start_whatever_the_class_returns(data: Any) -> None:
    with place(data=data).read("a.md", "") as file:
        assert os.fstat(file.fileno()).st_size == 4
        assert file.read() == b"text"
        assert file.seek(1) == 1


@pytest.mark.parametrize("data", ["text", None, 7, lambda: io.StringIO("text")])
def test_what_is_no_file_is_named(data: Any) -> None:
    with pytest.raises(SourceError, match=r"my_wiki:Wiki read 'a\.md' as .*expected bytes"):
        place(data=data).read("a.md", "")


def test_a_file_that_cannot_be_read_is_refused_and_any_other_failure_ends_the_build() -> None:
    with pytest.raises(OSError, match="locked"):
        place(data=OSError("locked")).read("a.md", "")
    with pytest.raises(SourceError, match=r"my_wiki:Wiki failed to read 'a\.md': ZeroDivisionError: x"):
        place(data=ZeroDivisionError("x")).read("a.md", "")
    with pytest.raises(SourceError, match=r"my_wiki:Failing failed while it was listing: KeyError: 'page 2'"):
        place("my_wiki:Failing").list({})


@pytest.mark.parametrize(
    ("named", "options", "said"),
    [
        ("no_such_module:Wiki", {}, "No module named 'no_such_module'; install its package"),
        ("my_wiki:Wikki", {}, "my_wiki has no Wikki; its classes are Failing, NoReading, Refusing, Whole, Wiki"),
        ("my_wiki:number", {}, r"is int \('7'\): expected a class"),
        ("my_wiki:NoReading", {}, "has no method read: it needs list"),
        (
            "my_wiki:Wiki",
            {"space": 1},
            r"unexpected keyword argument 'space'.*\(space\); its signature is \(\*, entries",
        ),
        ("my_wiki:Refusing", {}, "cannot be instantiated: BadInput: give a space"),
    ],
)
def test_a_class_that_cannot_be_used_is_explained(named: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError, match=said) as refused:
        place(named, **options)
    assert named in str(refused.value)


def test_a_module_that_fails_when_it_is_imported_is_told_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_wiki.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SourceError, match=r"nothing_of_this_name.*fails when it is imported"):
        place("broken_wiki:Wiki")
