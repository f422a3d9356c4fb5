"""The files of several places have names and ids of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from indexmill.errors import BadInput
from schemas.corpus import CorpusSettings
from schemas.sources import BucketSettings, FeedSettings, GitSettings, PluginSettings, SqlSettings, WebSettings
from tasks.stages.ingest import shard_plan, source_files, spill, supervisor
from tasks.stages.ingest.listing import list_again, list_corpus, source_key
from tasks.stages.ingest.source_files import PassedOver
from tasks.stages.ingest.sources.source_interface import FileEntry


class Wiki:
    """A place of the given names."""

    def __init__(self, *, names: list[str], text: str) -> None:
        self._names, self._text = names, text

    def list(self) -> Iterator[FileEntry]:
        yield from (FileEntry(name.encode().decode("unicode_escape"), None, "1") for name in self._names)

    def read(self, name: str) -> bytes:
        return self._text.encode()


def wiki(text: str, *names: str) -> PluginSettings:
    return PluginSettings.model_validate(
        {"kind": "plugin", "class": f"{__name__}:Wiki", "options": {"names": list(names), "text": text}}
    )


def test_two_queries_of_a_database_have_names_and_spilled_rows_of_their_own(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "wiki.db")
    for table in ("pages", "notes"):
        connection.execute(f"CREATE TABLE {table} (id TEXT, text TEXT)")
        connection.execute(f"INSERT INTO {table} VALUES ('{table}-1', 'Fenna Rook left Vell.')")  # noqa: S608
    connection.commit()
    places = tuple(
        SqlSettings(url=f"sqlite:///{tmp_path}/wiki.db", query=f"SELECT * FROM {table}")  # noqa: S608
        for table in ("pages", "notes")
    )
    settings = CorpusSettings(sources=places)
    files = list_corpus(settings, tmp_path / "places").files
    assert len({file.name for file in files}) == 2
    results = [spill.scan([file], settings, tmp_path) for file in files]
    assert len({result.name for result in results}) == 2
    assert shard_plan.plan(results, tmp_path).documents == 2
    alone = list_corpus(CorpusSettings(sources=places[:1]), tmp_path / "places").files
    assert alone[0].name == f"sqlite:///{tmp_path}/wiki.db"


def test_two_branches_of_a_repository_have_names_of_their_own(tmp_path: Path) -> None:
    who = {f"GIT_{role}_{what}": "tester" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    (tmp_path / "repository").mkdir()

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", tmp_path / "repository", *words], env={**os.environ, **who}, check=True)  # noqa: S607

    git("init", "-q", "-b", "main")
    for branch in ("main", "next"):
        git("checkout", "-q", "-B", branch)
        (tmp_path / "repository/rows.jsonl").write_text(f'{{"id": "{branch}", "text": "Vell."}}\n', encoding="utf-8")
        git("add", "-A")
        git("commit", "-q", "-m", branch)
    places = tuple(GitSettings(repository=str(tmp_path / "repository"), ref=ref) for ref in ("main", "next"))
    files = list_corpus(CorpusSettings(sources=places), tmp_path / "places").files
    assert len(files) == len({file.name for file in files}) == 2


def test_a_source_uses_the_formats_of_the_corpus_unless_it_has_its_own(tmp_path: Path) -> None:
    own = wiki("Vell.", "x/a.log", "b.odd").model_copy(update={"prefix": "own/"})
    own = PluginSettings.model_validate(
        {**own.model_dump(by_alias=True, exclude={"formats"}), "formats": {".odd": "text"}}
    )
    settings = CorpusSettings(sources=(wiki("Vell.", "a.log", "b.odd"), own), formats={".log": "markdown"})
    files = list_corpus(settings, tmp_path / "places").files
    assert [(file.name, file.kind) for file in files] == [("a.log", "markdown"), ("own/b.odd", "text")]
    assert len({source_key(place) for place in (settings.places[0], wiki("Vell.", "a.log", "b.odd"))}) == 1


def test_files_of_two_places_with_one_id_are_refused_as_those_of_two_folders_are(tmp_path: Path) -> None:
    both = CorpusSettings(sources=(wiki("one", "a.md", "index.md"), wiki("other", "index.md")))
    with pytest.raises(BadInput, match=r"index\.md of .*:Wiki and index\.md of .*:Wiki would both be the document"):
        list_corpus(both, tmp_path)


def test_files_of_this_machine_whose_names_are_shown_alike_are_told_apart(tmp_path: Path) -> None:
    for name in (b"a\xff.jsonl", rb"a\xff.jsonl"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("{}\n", encoding="utf-8")
    files = list_corpus(CorpusSettings(paths=(str(tmp_path),)), tmp_path / "places").files
    assert len({file.name for file in files}) == 2


@pytest.mark.slow
def test_a_name_of_a_place_that_is_not_utf8_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    places = (wiki("Vell.", "a.md", r"b\udcff.md", r"c\ud800.pdf", r"d\udcff.png"),)
    settings = CorpusSettings(sources=places)
    files = list_corpus(settings, tmp_path / "places").files
    assert [(file.name, file.kind == source_files.MISNAMED) for file in files] == [
        ("a.md", False),
        ("b\\xff.md", True),
        ("c\\ud800.pdf", True),
    ]
    assert list_again(files, settings, tmp_path / "places").files == files
    result = supervisor.scan(files, settings, tmp_path)
    assert (result.documents, result.refused) == (1, {"bad-name": 2})


def test_a_feed_with_a_file_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.jsonl")).write_text("{}\n", encoding="utf-8")
    feed = FeedSettings(paths=(str(tmp_path),))
    with pytest.raises(BadInput, match=r"a\\xff\.jsonl .* is not UTF-8: rename the file"):
        list_corpus(CorpusSettings(sources=(feed,)), tmp_path / "places")


def test_a_feed_that_shares_its_name_with_another_keeps_its_own_rows(tmp_path: Path) -> None:
    (tmp_path / "feed.jsonl").write_text('{"op": "upsert", "id": "a", "text": "Vell."}\n', encoding="utf-8")
    first = FeedSettings(paths=(str(tmp_path / "feed.jsonl"),))
    files = list_corpus(CorpusSettings(sources=(first, first.model_copy(update={"id": "key"}))), tmp_path).files
    assert len({file.name for file in files}) == 2


def test_a_link_is_another_file_once_it_may_not_lead_where_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "_SETTLED", -1e6)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there/b.md").write_text("Vell", encoding="utf-8")
    (tmp_path / "here/a.md").symlink_to(tmp_path / "there/b.md")
    (tmp_path / "here/c.md").write_text("Vell", encoding="utf-8")
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    both, alone = ({file.path: file.token for file in source_files.find(CorpusSettings(paths=paths)).files}
                   for paths in ((here, there), (here,)))  # fmt: skip
    assert both[f"{here}/a.md"] != alone[f"{here}/a.md"]
    assert both[f"{here}/c.md"] == alone[f"{here}/c.md"]


def test_a_refused_row_of_a_query_is_no_document(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "wiki.db")
    connection.execute("CREATE TABLE pages (id TEXT, text TEXT, gone INTEGER)")
    rows = [("a", "Fenna Rook left Vell.", 0), ("b", "   ", 0), ("c", "Goran Stave came.", 1)]
    connection.executemany("INSERT INTO pages VALUES (?, ?, ?)", rows)
    connection.commit()
    place = SqlSettings(url=f"sqlite:///{tmp_path}/wiki.db", query="SELECT * FROM pages", deleted="gone")
    settings = CorpusSettings(sources=(place,))
    (file,) = list_corpus(settings, tmp_path / "places").files
    found = shard_plan.plan([spill.scan([file], settings, tmp_path)], tmp_path)
    assert (found.documents, found.refused) == (1, {"no-text": 1})
    assert shard_plan.known_rows(tmp_path).column("document_id").to_pylist() == ["a"]


def test_files_of_a_place_that_no_reader_takes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.odd").touch()
    place = wiki("Vell.", "a.md", "b.odd", "c/d.odd", "e.py", "f.odd")
    settings = CorpusSettings(paths=(str(tmp_path),), sources=(place,), exclude=("f.*",))
    key = source_key(place)
    assert list_corpus(settings, tmp_path / "places").passed_over == (
        PassedOver(f"{tmp_path}/a.odd", "a.odd", "suffix", "a.odd"),
        PassedOver("b.odd", "b.odd", "suffix", "b.odd", 0, key),
        PassedOver("c/d.odd", "c/d.odd", "suffix", "c/d.odd", 0, key),
        PassedOver("e.py", "e.py", "not-included", "e.py", 0, key),
        PassedOver("f.odd", "f.odd", "excluded", "f.odd", 0, key),
    )
    with pytest.raises(
        BadInput, match=r"Wiki; check `include` and `exclude`\. 1 file is not read.*: 1 \.odd, such as b"
    ):
        list_corpus(CorpusSettings(sources=(wiki("Vell.", "b.odd"),)), tmp_path / "places")


def test_a_prefix_tells_the_documents_of_places_apart(tmp_path: Path) -> None:
    plain = wiki("Fenna Rook left Vell.", "README.md")
    named = plain.model_copy(update={"prefix": "notes/"})
    files = list_corpus(CorpusSettings(sources=(plain, named)), tmp_path).files
    assert [(file.path, file.document_name) for file in files] == [
        ("README.md", "README.md"),
        ("README.md", "notes/README.md"),
    ]


@pytest.mark.parametrize("prefix", ["notes", "/notes/", "../", "a/./", "a//", "a\\b/", "a\n/"])
def test_a_prefix_is_the_name_of_a_folder(prefix: str) -> None:
    with pytest.raises(ValidationError, match="prefix"):
        BucketSettings(url="s3://bucket/a", prefix=prefix)


def test_files_that_moved_are_looked_at_again_and_what_is_gone_is_left_out(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text("Vell", encoding="utf-8")
    settings = CorpusSettings(paths=(str(tmp_path),), file_metadata=("modified",))
    listed = list_corpus(settings, tmp_path / "places").files
    os.utime(tmp_path / "a.md", (1e9, 1e9))
    (tmp_path / "a.md").write_text("Orrin Bay", encoding="utf-8")
    (tmp_path / "b.md").unlink()
    again = list_again(listed[:2], settings, tmp_path / "places")
    assert again.files == list_corpus(settings, tmp_path / "places").files[:1] != listed[:1]
    assert again.empty == ()
    for name in ("a.md", "c.md"):
        (tmp_path / name).unlink()
    assert list_again(listed, settings, tmp_path / "places") == source_files.SourceFiles((), (str(tmp_path),))


def test_a_site_is_not_asked_for_all_its_pages_again(tmp_path: Path) -> None:
    place = WebSettings(urls=("http://127.0.0.1:1/a.md",))
    page = source_files.SourceFile("a.md", "a.md", "markdown", "a.md", None, 1, source=source_key(place), place=place)
    assert list_again([page], CorpusSettings(sources=(place,)), tmp_path).files == (page,)
