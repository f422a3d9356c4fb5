"""A night reads what changed, and publishes what a build of an empty store would."""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import indexmill
from flows.build_run import BuildOutcome
from indexmill.command import main
from indexmill.errors import GateRefused
from indexmill.store.layout import blob_path
from schemas.corpus import CorpusSettings
from storage import runs
from storage.folder import open_folder
from storage.readings import ReadingRecord, find_reading, readings_until, tables_of
from tasks.pipeline import run_corpus
from tasks.stages.ingest import known, source_files, spill, supervisor
from tasks.stages.ingest.sources.source_interface import ChangedError, FileEntry
from tasks.stages.split import split
from tests.corpora import documents
from tests.flows import deadly
from tests.flows.children import NO_FAMILIES, build, settings
from tests.quarantines import reasons_in


class Folder:
    """A corpus of files whose index is built night by night."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        self.last: BuildOutcome | None = None
        self.chosen = settings(folder / "store", self.corpus, families=NO_FAMILIES, **changes)

    def write(self, name: str, text: str) -> Path:
        path = self.corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def night(self, **options: Any) -> BuildOutcome:
        self.last = build(self.chosen, **options)
        return self.last

    def fresh(self) -> str:
        """The manifest of a build of an empty store."""
        again = {**self.chosen, "store": str(self.folder / "fresh")}
        return build(again, full=True).manifest

    @property
    def read(self) -> tuple[int, int]:
        """The files that the last night read, and those it did not."""
        assert self.last is not None
        return self.last.files_read, self.last.files_unchanged


@pytest.fixture
def folder(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(source_files, "_SETTLED", -1e6)
    made = Folder(quick)
    for name, (title, text) in documents(12).items():
        made.write(f"{name}.md", f"# {title}\n\n{text}\n")
    return made


@pytest.mark.slow
def test_only_files_that_changed_are_read_and_the_version_is_that_of_an_empty_store(folder: Folder) -> None:
    folder.night()
    assert folder.read == (12, 0)
    folder.write("doc-0003.md", "# Another\n\nFenna Rook left Vell.\n")
    folder.write("more/new.md", "# New\n\nGoran Stave came to Orrin Bay.\n")
    (folder.corpus / "doc-0005.md").unlink()
    second = folder.night()
    assert folder.read == (2, 10)
    assert (second.documents, second.manifest) == (12, folder.fresh())


@pytest.mark.slow
def test_what_became_of_the_files_is_that_of_an_empty_store(folder: Folder) -> None:
    folder.write("front.md", "---\ntitle: Vell\n---\nFenna Rook left Vell.\n")
    folder.write("some.jsonl", '{"id": "a", "text": "Fenna Rook left Vell."}\n{"id": "b"}\n')
    folder.night()
    folder.write("doc-0003.md", "# Another\n\nFenna Rook left Vell.\n")
    folder.write("again.jsonl", '{"id": "a", "text": "Fenna Rook left Vell."}\n')  # which makes one file a duplicate
    folder.write("picture.png", "no text")
    (folder.corpus / "doc-0005.md").unlink()
    folder.night()
    assert folder.read == (2, 12)
    store = folder.folder / "store"
    updated = files_of(store)
    assert {"duplicate", "indexed", "passed-over", "quarantined"} >= {row["outcome"] for row in updated}
    folder.fresh()
    assert updated == files_of(folder.folder / "fresh")


def files_of(store: Path) -> list[dict[str, Any]]:
    """What became of each file in the last run, without what only the next run needs."""
    ((_, record), *_) = readings_until(open_folder(store))
    rows = tables_of(open_folder(store), record.files, known.FILES).to_pylist()
    return sorted(({**row, "token": None} for row in rows), key=lambda row: str(row["name"]))


@pytest.mark.slow
def test_a_night_without_a_change_reads_nothing_and_publishes_nothing(folder: Folder) -> None:
    first = folder.night()
    second = folder.night()
    assert folder.read == (0, 12)
    assert (second.published, second.manifest) == (False, first.manifest)


@pytest.mark.slow
def test_an_unchanged_file_is_not_opened_unless_all_is_to_be_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "_token", lambda status, link: "always the same")
    first = folder.night()
    folder.write("doc-0001.md", "# Other words\n\nNobody is told of them.\n")
    assert folder.night().manifest == first.manifest
    assert folder.night(full=True).manifest == folder.fresh() != first.manifest


@pytest.mark.slow
def test_a_file_as_young_as_the_listing_is_read_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "_SETTLED", 3600.0)
    folder.night()
    folder.night()
    assert folder.read == (12, 0)


@pytest.mark.parametrize("change", [{"split": {"tokens": 128}}, {"corpus": {"max_document_bytes": 9_000_000}}])
def test_files_are_read_again_where_a_setting_shapes_their_documents(folder: Folder, change: dict[str, Any]) -> None:
    folder.night()
    for section, values in change.items():
        folder.chosen[section] = {**folder.chosen.get(section, {}), **values}
    folder.night()
    assert folder.read == ((12, 0) if "corpus" in change else (0, 12))


def test_a_row_that_lost_to_another_is_read_when_the_other_goes(folder: Folder) -> None:
    rows = [{"id": "doc-0001.md", "text": f"Esme Quill saw version {number}."} for number in range(9)]
    for number, row in enumerate(rows):
        folder.write(f"rows{number}.jsonl", json.dumps(row) + "\n")
    folder.night()
    assert folder.read == (21, 0)
    with indexmill.open(folder.folder / "store") as snapshot:
        kept = {row["document_id"]: row["text"] for row in snapshot.table("documents").to_pylist()}["doc-0001.md"]
    for path in folder.corpus.iterdir():
        if kept.strip() in path.read_text(encoding="utf-8"):
            path.unlink()
    second = folder.night()
    assert folder.read[0] >= 1
    assert second.manifest == folder.fresh()


@pytest.mark.slow
def test_refused_rows_of_files_that_are_not_read_are_refused_again(folder: Folder) -> None:
    folder.write("rows.jsonl", '{"id": "one", "text": "Dario Penhale lives."}\nno json\n{"id": "two", "text": ""}\n')
    folder.night()
    expected = {"not-json": 1, "no-text": 1}
    assert reasons_in(open_folder(folder.folder / "store")) == expected
    folder.write("doc-0004.md", "# Changed\n\nBruno of Vell left.\n")
    second = folder.night()
    assert folder.read == (1, 12)
    assert reasons_in(open_folder(folder.folder / "store")) == expected
    assert second.quarantined == 2


def test_what_a_run_read_counts_only_once_its_version_is_published(folder: Folder) -> None:
    folder.night()
    for number in range(2, 12):
        (folder.corpus / f"doc-{number:04d}.md").unlink()
    folder.chosen["gates"] = {"max_shrink": 0.1}
    with pytest.raises(GateRefused):
        folder.night()
    third = folder.night(allow_shrink=True)
    assert folder.read == (0, 2)
    assert (third.version, third.manifest) == (2, folder.fresh())


@pytest.mark.slow
def test_after_a_rollback_the_reading_of_that_version_counts(folder: Folder) -> None:
    first = folder.night()
    path = folder.write("doc-0002.md", "# Slip\n\nA slip of the pen.\n")
    folder.night()
    store = folder.folder / "store"
    assert main(["rollback", "--store", str(store), "1"]) == 0
    assert main(["resume", "--store", str(store)]) == 0
    again = folder.night()
    assert folder.read == (1, 11)
    assert again.documents == 12
    path.unlink()
    assert folder.night().documents == 11
    assert first.version == 1


def test_without_the_texts_of_the_last_version_everything_is_read(folder: Folder) -> None:
    first = folder.night()
    with indexmill.open(folder.folder / "store") as snapshot:
        (artifact, *_) = snapshot.manifest.under("documents")
    name = artifact.digest
    next((folder.folder / "store/blobs").rglob(f"*{name[4:]}*")).unlink()
    folder.write("new.md", "# New\n\nA new one.\n")
    second = folder.night()
    assert folder.read == (13, 0)
    assert (second.documents, first.documents) == (13, 12)


@pytest.mark.slow
def test_a_reading_holds_nothing_of_a_forgotten_document(folder: Folder) -> None:
    folder.night()
    store = folder.folder / "store"
    (folder.folder / "indexmill.yaml").write_text(json.dumps(folder.chosen), encoding="utf-8")
    assert main(["--config", str(folder.folder / "indexmill.yaml"), "forget", "doc-0007.md", "--yes"]) == 0
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.corpus.documents == 11
        found = find_reading(open_folder(store), snapshot.manifest.corpus.fingerprint)
    assert found is not None
    names = tables_of(open_folder(store), found.files, known.FILES).column("path").to_pylist()
    assert len(names) == 12
    assert "doc-0007.md" not in names
    assert "" in names  # the bytes of forgotten files are counted
    assert main(["coverage", "--store", str(store)]) == 0  # though nothing is left of the files of the run before
    folder.night()
    assert folder.read == (1, 11)


def test_every_file_of_a_place_that_falls_silent_is_a_matter_for_the_gate(folder: Folder) -> None:
    folder.night()
    for path in folder.corpus.iterdir():
        path.unlink()
    folder.chosen["gates"] = {"max_shrink": 0.5}
    with pytest.raises(GateRefused):
        folder.night()


class Wiki:
    """A place of files, which counts what is read of each."""

    files: ClassVar[dict[str, tuple[FileEntry, bytes]]] = {}
    read_names: ClassVar[list[str]] = []

    def list(self) -> Iterator[FileEntry]:
        yield from (entry for entry, _ in self.files.values())

    def read(self, name: str) -> bytes:
        self.read_names.append(name)
        return self.files[name][1]


@pytest.fixture
def wiki(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> type[Wiki]:
    monkeypatch.setattr(Wiki, "files", {})
    monkeypatch.setattr(Wiki, "read_names", [])
    folder.chosen["corpus"] |= {"paths": [], "sources": [{"kind": "plugin", "class": f"{__name__}:Wiki"}]}
    return Wiki


def notebook(text: str) -> bytes:
    cell = {"cell_type": "markdown", "metadata": {}, "source": text}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}).encode()


def reading_of(folder: Folder) -> ReadingRecord:
    """The reading of the last version."""
    with indexmill.open(folder.folder / "store") as snapshot:
        found = find_reading(open_folder(folder.folder / "store"), snapshot.manifest.corpus.fingerprint)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["files", "rows", "refused"])
def test_a_damaged_reading_is_made_anew(folder: Folder, tables: str) -> None:
    folder.write("rows.jsonl", "no json\n")
    folder.night()
    (digest,) = getattr(reading_of(folder), tables)
    path = folder.folder / "store" / blob_path(digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-9] + b"[damaged]")
    folder.write("new.md", "# New\n\nA new one.\n")
    folder.night()
    assert folder.read == (14, 0)
    folder.write("newer.md", "# Newer\n\nAnother one.\n")
    assert folder.night().manifest == folder.fresh()
    folder.night()
    assert folder.read == (0, 15)


@pytest.mark.slow
def test_rows_that_a_file_repeats_are_not_read_again(folder: Folder) -> None:
    row = json.dumps({"id": "one", "text": "Dario Penhale lives."}) + "\n"
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        folder.write(name, row * 3)
    folder.night()
    folder.write("d.jsonl", row)
    second = folder.night()
    assert folder.read == (1, 15)
    assert second.documents == 13
    folder.night()
    assert folder.read == (0, 16)


@pytest.mark.slow
def test_one_of_two_queries_of_a_database_may_go(folder: Folder) -> None:
    connection = sqlite3.connect(folder.folder / "wiki.db", isolation_level=None)
    places = []
    for table in ("pages", "notes"):
        connection.execute(f"CREATE TABLE {table} (id TEXT, text TEXT, changed INTEGER)")
        connection.execute(f"INSERT INTO {table} VALUES ('{table}', 'Dario Penhale lives.', 1)")  # noqa: S608
        query = f"SELECT * FROM {table} WHERE changed > :cursor"  # noqa: S608
        url = f"sqlite:///{folder.folder}/wiki.db"
        places.append({"kind": "sql", "url": url, "query": query, "cursor": "changed"})
    folder.chosen["corpus"]["sources"] = places
    assert folder.night().documents == 14
    connection.execute("INSERT INTO pages VALUES ('more', 'Esme Quill left.', 2)")
    assert folder.night().documents == 15
    folder.chosen["corpus"]["sources"] = places[:1]
    third = folder.night()
    assert (third.documents, third.manifest) == (14, folder.fresh())
    connection.execute("INSERT INTO pages VALUES ('most', 'Esme Quill stayed.', 3)")
    fourth = folder.night()
    assert (fourth.documents, fourth.manifest) == (15, folder.fresh())


@pytest.mark.slow
def test_a_refused_row_of_a_query_without_a_cursor_is_no_document(folder: Folder) -> None:
    connection = sqlite3.connect(folder.folder / "wiki.db", isolation_level=None)
    connection.execute("CREATE TABLE pages (id TEXT, text TEXT)")
    connection.execute("INSERT INTO pages VALUES ('a', 'Dario Penhale lives.'), ('b', ' ')")
    url = f"sqlite:///{folder.folder}/wiki.db"
    folder.chosen["corpus"]["sources"] = [{"kind": "sql", "url": url, "query": "SELECT * FROM pages"}]
    assert folder.night().documents == 13
    connection.execute("UPDATE pages SET text = ' '")
    second = folder.night()
    assert (second.documents, second.quarantined) == (12, 2)


@pytest.mark.slow
def test_a_run_records_no_password_of_a_place(folder: Folder) -> None:
    place = {"kind": "plugin", "class": f"{__name__}:Locked", "options": {"user": "esme", "api_token": "cl0se-kept"}}
    folder.chosen["corpus"]["sources"] = [place]
    folder.night()
    database = {"kind": "sql", "url": "postgresql://esme:cl0se-kept@127.0.0.1:1/wiki", "query": "SELECT 1"}
    folder.chosen["corpus"]["sources"] = [database]
    with pytest.raises(Exception, match=r"wiki|psycopg"):
        folder.night()
    store = folder.folder / "store"
    for path in store.rglob("*"):
        assert not path.is_file() or b"cl0se-kept" not in path.read_bytes()
    last = runs.list_runs(open_folder(store))[-1].start.details["configuration"]
    assert isinstance(last, dict)
    assert last["corpus"]["sources"][0]["url"] == "postgresql://***@127.0.0.1:1/wiki"  # type: ignore[index, call-overload]


class Locked(Wiki):
    """A place with a word that nobody is told."""

    def __init__(self, *, user: str, api_token: str) -> None:
        self._user, self._token = user, api_token


def test_what_a_place_says_of_a_file_is_read_again_though_its_bytes_are_as_before(
    folder: Folder, wiki: type[Wiki]
) -> None:
    folder.chosen["corpus"]["file_metadata"] = ["modified"]
    wiki.files = {name: (FileEntry(name, None, "1", modified=1e9), b"# Vell") for name in ("a.md", "b.md")}
    folder.night()
    wiki.files["b.md"] = (FileEntry("b.md", None, "1", modified=2e9), b"# Vell")
    second = folder.night()
    assert folder.read == (1, 1)
    assert second.manifest == folder.fresh()


@pytest.mark.slow
def test_a_full_reading_opens_files_of_slow_formats_too(folder: Folder, wiki: type[Wiki]) -> None:
    wiki.files = {"a.ipynb": (FileEntry("a.ipynb", None, "1"), notebook("Vell"))}
    first = folder.night()
    wiki.files = {"a.ipynb": (FileEntry("a.ipynb", None, "1"), notebook("Another Vell"))}
    assert folder.night().manifest == first.manifest
    assert folder.night(full=True).manifest == folder.fresh() != first.manifest


def test_only_the_files_that_could_not_be_read_are_tried_again(folder: Folder, wiki: type[Wiki]) -> None:
    wiki.files = {f"{n}.ipynb": (FileEntry(f"{n}.ipynb", None, "1"), notebook(f"Vell {n}")) for n in range(5)}
    wiki.files["5.ipynb"] = (FileEntry("5.ipynb", None, "1"), b"no notebook")
    assert folder.night().documents == 5
    assert sorted(set(wiki.read_names)) == sorted(wiki.files)
    assert {name for name in wiki.read_names if wiki.read_names.count(name) > 1} <= {"5.ipynb"}
    wiki.read_names.clear()
    folder.night()
    assert folder.read == (1, 5)
    assert set(wiki.read_names) == {"5.ipynb"}


@pytest.mark.slow  # the document at fault is looked for in processes of its own
def test_a_document_that_fails_a_stage_is_refused_night_by_night_and_tried_again_with_other_settings(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("doc-0003.md", f"# Fatal\n\nFenna Rook says {deadly.RAISE}.\n")
    folder.write(
        "rows.jsonl", json.dumps({"id": "doc-0003.md", "text": f"Esme Quill says {deadly.RAISE}, too."}) + "\n"
    )
    with monkeypatch.context() as patched:
        patched.setattr(split, "STAGE", importlib.import_module("tests.flows.deadly.split").STAGE)
        first = folder.night()
        assert (first.documents, first.quarantined) == (11, 2)
        folder.write("doc-0004.md", "# Changed\n\nBruno of Vell left.\n")
        second = folder.night()
        assert folder.read == (1, 12)
        assert (second.documents, second.quarantined, second.manifest) == (11, 2, folder.fresh())
    folder.chosen["split"] = {"tokens": 128}
    third = folder.night()
    assert folder.read[0] <= 2
    assert (third.documents, third.quarantined, third.manifest) == (12, 1, folder.fresh())


class Busy(Wiki):
    """A place whose files are replaced, or go, as often as said while they are read."""

    moves: ClassVar[dict[str, list[tuple[FileEntry, bytes] | None]]] = {}
    listings: ClassVar[list[int]] = []

    def list(self) -> Iterator[FileEntry]:
        self.listings.append(1)
        yield from super().list()

    def read(self, name: str, token: str) -> bytes:
        if self.moves.get(name):
            moved = self.moves[name].pop(0)
            if moved is None:
                del self.files[name]
            else:
                self.files[name] = moved
            raise ChangedError(f"{name} was replaced after it had been listed")
        assert self.files[name][0].token == token
        return super().read(name)


@pytest.fixture
def busy(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> type[Busy]:
    for name in ("files", "moves"):
        monkeypatch.setattr(Busy, name, {})
    for name in ("read_names", "listings"):
        monkeypatch.setattr(Busy, name, [])
    folder.chosen["corpus"] |= {"paths": [], "sources": [{"kind": "plugin", "class": f"{__name__}:Busy"}]}
    Busy.files = {f"{n}.{kind}": page(f"{n}.{kind}", 1) for n in range(3) for kind in ("md", "ipynb")}
    return Busy


def page(name: str, token: int) -> tuple[FileEntry, bytes]:
    text = f"Esme Quill of {name.partition('.')[0]} came to Vell in {token}."
    return FileEntry(name, None, str(token)), notebook(text) if name.endswith(".ipynb") else text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1.md", "1.ipynb"])
def test_a_file_that_is_replaced_before_it_is_read_is_read_as_it_is_then(
    folder: Folder, busy: type[Busy], name: str
) -> None:
    times = 2 if name.endswith("ipynb") else 1  # a part is followed by a scan
    busy.moves[name] = [page(name, 2)] * times
    first = folder.night()
    assert (first.documents, first.quarantined, first.manifest) == (6, 0, folder.fresh())
    busy.files[name], busy.moves[name] = page(name, 3), [page(name, 4)] * times
    busy.listings.clear()
    second = folder.night()
    assert (second.documents, second.quarantined) == (6, 0)
    assert len(busy.listings) == 2
    assert folder.night().published is False
    assert folder.read == (0, 6)
    assert second.manifest == folder.fresh()


@pytest.mark.slow
def test_a_file_that_goes_before_it_is_read_is_a_document_less(folder: Folder, busy: type[Busy]) -> None:
    folder.night()
    busy.files["1.md"], busy.moves["1.md"] = page("1.md", 2), [None]
    second = folder.night()
    assert (second.documents, second.quarantined, second.manifest) == (5, 0, folder.fresh())
    folder.night()
    assert folder.read == (0, 5)


def test_a_file_that_is_replaced_again_and_again_never_takes_its_document_out_of_the_index(
    folder: Folder, busy: type[Busy]
) -> None:
    folder.night()
    busy.files["1.md"], busy.moves["1.md"] = page("1.md", 2), [page("1.md", n) for n in (3, 4)]
    with pytest.raises(GateRefused, match=r"1\.md cannot be read to the end; version 1 has 1 document that the corpus"):
        folder.night()
    third = folder.night()
    assert (third.documents, third.manifest) == (6, folder.fresh())


@pytest.mark.slow
def test_a_local_file_that_goes_before_it_is_read_is_a_document_less(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.night()
    gone = folder.write("doc-0003.md", "# Another\n\nFenna Rook left Vell.\n")
    folder.write("doc-0004.md", "# Another\n\nFenna Rook came to Vell.\n")
    listed = run_corpus.list_corpus

    def going(*arguments: Any, **options: Any) -> source_files.SourceFiles:
        found = listed(*arguments, **options)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(run_corpus, "list_corpus", going)
    second = folder.night()
    assert (second.documents, second.quarantined, second.manifest) == (11, 0, folder.fresh())


def test_a_folder_that_is_away_before_it_is_read_is_a_matter_for_the_gate(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = folder.folder / "mounted"
    mounted.mkdir()
    (mounted / "one.md").write_text("# One\n\nGoran Stave came to Orrin Bay.\n", encoding="utf-8")
    folder.chosen["corpus"]["paths"] = [str(folder.corpus), str(mounted)]
    folder.night()
    (mounted / "one.md").write_text("# One\n\nGoran Stave left.\n", encoding="utf-8")
    listed = run_corpus.list_corpus

    def going(*arguments: Any, **options: Any) -> source_files.SourceFiles:
        found = listed(*arguments, **options)
        (mounted / "one.md").unlink()
        return found

    monkeypatch.setattr(run_corpus, "list_corpus", going)
    with pytest.raises(GateRefused, match=r"no file of the corpus is under .*mounted .*; version 1 has 1 document"):
        folder.night()


@pytest.mark.slow
def test_a_local_file_that_is_written_while_it_is_read_is_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.night()
    whole = "# Another\n\nFenna Rook left Vell.\n"
    path = folder.write("doc-0003.md", "")
    read = spill.read

    def writing(file: source_files.SourceFile, *arguments: Any) -> Iterator[Any]:
        yield from read(file, *arguments)
        if file.name == "doc-0003.md" and not path.stat().st_size:
            path.write_text(whole, encoding="utf-8")

    monkeypatch.setattr(spill, "read", writing)
    monkeypatch.setattr(supervisor, "scan", spill.scan)
    second = folder.night()
    assert (second.documents, second.quarantined, second.manifest) == (12, 0, folder.fresh())
    folder.night()
    assert folder.read == (0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slow.md", "slow.ipynb"])
@pytest.mark.parametrize("reason", ["too-slow", "reader-failed"])
def test_a_file_that_this_machine_could_not_read_is_tried_once_in_each_night(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    at_fault, tried = [name], list[str]()

    def scan(files: Sequence[source_files.SourceFile], chosen: CorpusSettings, spilled: Path) -> spill.ScanResult:
        cuts = {n: spill.Cut(0, reason, "busy") for n, file in enumerate(files) if file.name in at_fault}
        tried.extend(file.name for file in files)
        return spill.scan(files, chosen, spilled, cuts=cuts)

    monkeypatch.setattr(supervisor, "scan", scan)
    (folder.corpus / name).write_bytes(notebook("Vell") if name.endswith(".ipynb") else b"Vell")
    first = folder.night()
    assert (first.documents, first.quarantined, tried.count(name)) == (12, 1, 1)
    for _ in range(2):
        tried.clear()
        again = folder.night()
        assert (again.documents, again.quarantined, tried) == (12, 1, [name])
        assert not again.published
    at_fault.clear()
    last = folder.night()
    assert (last.documents, last.quarantined, last.manifest) == (13, 0, folder.fresh())
    folder.night()
    assert folder.read == (0, 13)


@pytest.mark.slow
def test_files_are_compared_with_those_of_the_last_version_once_in_a_night(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.night()
    compared: list[int] = []
    unchanged = known.PreviousReading.unchanged

    def counted(*given: Any) -> frozenset[str]:
        compared.append(1)
        return unchanged(*given)

    monkeypatch.setattr(known.PreviousReading, "unchanged", counted)
    folder.night()
    folder.write("doc-0004.md", "# Changed\n\nBruno of Vell left.\n")
    folder.night()
    assert len(compared) == 2


def test_a_folder_whose_files_no_reader_takes_is_refused_until_their_suffix_has_a_format(folder: Folder) -> None:
    for number in range(13):
        folder.write(f"pages/{number}.page", f"Page {number} of the guide.")
    folder.write("tool.py", "print()")
    with pytest.raises(GateRefused, match=r"13 \.page, 1 \.py, such as .*corpus\.formats.*max_unread_share above 0\.5"):
        folder.night()
    folder.chosen["gates"] = {"max_unread_share": 0.6}
    assert (folder.night().documents, folder.read) == (12, (12, 0))
    folder.chosen["gates"] = {}
    folder.chosen["corpus"]["formats"] = {".page": "text"}
    assert (folder.night().documents, folder.read) == (25, (13, 12))
