"""Corpus paths become a sorted list of files, whichever way they are given."""

from __future__ import annotations

import math
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.errors import BadInput
from indexmill.store.layout import FORMAT_VERSION
from schemas.corpus import CorpusSettings, FieldNames
from tasks.stages.ingest import source_files
from tasks.stages.ingest.source_files import (
    RECORDS,
    NoCorpusFile,
    SourceFile,
    as_it_is_now,
    batches,
    bytes_to_read,
    digest_of_files,
    find,
    kind_of,
    open_source,
)


def _make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    return folder


def _names(*paths: Path | str, **settings: Any) -> list[str]:
    return [file.name for file in find(CorpusSettings(paths=tuple(map(str, paths)), **settings)).files]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("json-lines", None)),
        ("a.NDJSON.GZ", ("json-lines", "gzip")),
        ("a.json.zst", ("json", "zstd")),
        ("a.csv.gz", ("csv", "gzip")),
        ("a.parquet", ("parquet", None)),
        ("a.b.md", ("markdown", None)),
        ("a.htm", ("html", None)),
        ("a.tsv.zst", ("tsv", "zstd")),
        ("a.mdx", ("mdx", None)),
        ("a.xhtml", ("html", None)),
        ("a.txt.gz", None),
        ("a.parquet.gz", None),
        ("a.pdf", ("pdf", None)),
        ("gz", None),
    ],
)
def test_the_name_tells_the_format(name: str, expected: tuple[str, str | None] | None) -> None:
    assert kind_of(name) == expected


def test_a_folder_is_walked_and_hidden_and_unknown_files_are_passed_over(tmp_path: Path) -> None:
    _make(tmp_path, "b.txt", "a/c.md", "a/.hidden.md", ".git/x.txt", "picture.png", "a.jsonl.gz")
    assert _names(tmp_path) == ["a.jsonl.gz", "a/c.md", "b.txt"]


def test_lock_files_and_backups_of_editors_are_passed_over_unless_named(tmp_path: Path) -> None:
    left_behind = ("~$report.docx", "x/a.md~", "x/.#a.md", "x/#a.md#", "x/.a.md.swp", "~WRL0001.tmp")
    left_behind += ("~WRD0002.tmp", "x/b.md.bak", "Thumbs.db", "__MACOSX/x/a.md", "$RECYCLE.BIN/a.md")
    _make(tmp_path, "x/a.md", "x/b~c.md", "x/#1.md", *left_behind)
    formats = {".md~": "text", ".md#": "text", ".swp": "text", ".tmp": "text"}
    assert _names(tmp_path, formats=formats) == ["x/#1.md", "x/a.md", "x/b~c.md"]
    assert _names(f"{tmp_path}/**/*", formats=formats) == ["x/#1.md", "x/a.md", "x/b~c.md"]
    assert _names(tmp_path / "x/a.md~", formats=formats) == ["a.md~"]


def test_the_corpus_gives_formats_to_suffixes(tmp_path: Path) -> None:
    _make(tmp_path, "a.log", "b.YAML", "c.h", "d.txt", "e.odd")
    formats = {".log": "text", ".yaml": "text", ".h": "cpp", ".txt": "markdown"}
    files = find(CorpusSettings(paths=(str(tmp_path),), formats=formats)).files
    assert [(file.name, file.kind) for file in files] == [
        ("a.log", "text"),
        ("b.YAML", "text"),
        ("c.h", "cpp"),
        ("d.txt", "markdown"),
    ]
    with pytest.raises(
        BadInput, match=r"\.log has the unknown format 'txt' \(did you mean 'text'\?\); known are .*csv"
    ):
        find(CorpusSettings(paths=(str(tmp_path),), formats={".log": "txt"}))
    for suffix in ("log", ".LOG", ".tar.gz", ""):
        with pytest.raises(ValidationError):
            CorpusSettings(paths=("a",), formats={suffix: "text"})


def test_include_and_exclude_are_globs_below_the_folder(tmp_path: Path) -> None:
    _make(tmp_path, "a.md", "x/a.md", "x/y/a.md", "x/drafts/b.md", "x/b.txt")
    assert _names(tmp_path, include=("*.md",), exclude=("**/drafts/**",)) == ["a.md", "x/a.md", "x/y/a.md"]
    assert _names(tmp_path, include=("x/*.md", "x/**/[!a].*")) == ["x/a.md", "x/b.txt", "x/drafts/b.md"]


def test_globs_expand_and_name_files_below_their_fixed_part(tmp_path: Path) -> None:
    _make(tmp_path, "docs/2024/a.md", "docs/2025/b/c.md", "docs/d.txt", "other/e.md")
    assert _names(f"{tmp_path}/docs/**/*.md") == ["2024/a.md", "2025/b/c.md"]
    assert _names(f"{tmp_path}/docs/202?") == ["2024/a.md", "2025/b/c.md"]


def test_a_file_whose_name_looks_like_a_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    _make(tmp_path, "[a].txt", "a.txt")
    assert _names(tmp_path / "[a].txt") == ["[a].txt"]


def test_the_order_of_the_paths_does_not_matter_and_files_are_listed_once(tmp_path: Path) -> None:
    _make(tmp_path, "x/a.md", "x/y/b.md")
    outer, inner = str(tmp_path / "x"), str(tmp_path / "x/y")
    one = find(CorpusSettings(paths=(outer, inner))).files
    assert one == find(CorpusSettings(paths=(inner, outer))).files
    assert [file.document_name for file in one] == ["a.md", "y/b.md"]


def test_files_of_the_same_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    _make(tmp_path, "x/a.jsonl", "y/a.jsonl", "y/b.jsonl")
    whole = [str(tmp_path / "x/a.jsonl"), str(tmp_path / "y/a.jsonl")]
    assert _names(tmp_path / "x", tmp_path / "y") == [*whole, "b.jsonl"]


def test_two_text_files_that_would_be_one_document_are_refused(tmp_path: Path) -> None:
    _make(tmp_path, "x/index.md", "y/index.md", "z/cafe\u0301.txt", "z/caf\u00e9.txt", "u/a.jsonl", "v/a.jsonl")
    with pytest.raises(BadInput, match=r"x/index\.md and .*y/index\.md would both be .*'index\.md'.*one folder"):
        _names(tmp_path / "y", tmp_path / "x")
    with pytest.raises(BadInput, match="rename"):
        _names(tmp_path / "z")
    assert _names(tmp_path, include=("index.md",)) == ["x/index.md", "y/index.md"]
    assert len(_names(tmp_path / "u", tmp_path / "v")) == 2  # the ids of records are their own


@pytest.mark.parametrize("version", [1, FORMAT_VERSION, 99])
def test_a_store_is_no_corpus(tmp_path: Path, version: int) -> None:
    _make(tmp_path, "a.txt", "index/runs/r/start.json", "index/leases/1.json", "index/tmp/x/b.txt")
    (tmp_path / "index/store.json").write_text(f'{{"format_version": {version}}}\n')
    for paths in ((tmp_path,), (f"{tmp_path}/**/*",), (f"{tmp_path}/*",)):
        assert _names(*paths) == ["a.txt"]
    with pytest.raises(BadInput, match="no corpus file"):
        _names(tmp_path / "index")
    with pytest.raises(BadInput, match="no corpus file"):
        _names(f"{tmp_path}/index/**/*.json")


def test_a_damaged_store_is_no_corpus_and_records_in_a_store_json_are_one(tmp_path: Path) -> None:
    _make(tmp_path, "index/store.json", "index/blobs/sha256/ab/c", "index/runs/r/start.json", "shops/store.json")
    assert _names(tmp_path) == _names(f"{tmp_path}/**/*.json") == ["shops/store.json"]


def test_document_names_are_composed_unicode(tmp_path: Path) -> None:
    _make(tmp_path, "cafe\u0301.md")
    (file,) = find(CorpusSettings(paths=(str(tmp_path),))).files
    assert file.document_name == "caf\u00e9.md"


def test_a_file_name_that_is_not_utf8_is_shown_with_escapes(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt")).write_text("x", encoding="utf-8")
    assert _names(tmp_path) == ["bad\\xff.txt"]


def test_a_corpus_path_that_is_not_utf8_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _make(Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")), "a.txt")
    monkeypatch.chdir(folder)
    for path in (folder, folder / "a.txt", f"{folder}/*.txt", "."):
        with pytest.raises(BadInput, match=r"bad\\xff.* is not UTF-8: rename"):
            _names(path)


def test_a_misnamed_file_is_named_from_the_outer_of_two_folders(tmp_path: Path) -> None:
    _make(tmp_path, "zoo/a\udcff.txt")
    assert _names(tmp_path / "zoo", tmp_path) == _names(tmp_path, tmp_path / "zoo") == ["zoo/a\\xff.txt"]


@pytest.mark.parametrize(
    ("path", "said"),
    [("missing.jsonl", "does not exist"), ("a.odd", "unknown format"), ("", "1 other files"), ("*.md", "no corpus")],
)
def test_a_corpus_without_files_is_bad_input(tmp_path: Path, path: str, said: str) -> None:
    _make(tmp_path, "a.odd")
    with pytest.raises(BadInput, match=said):
        _names(tmp_path / path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    _make(tmp_path, "a.txt", "closed/b.txt")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(BadInput, match="cannot list"):
        _names(tmp_path)


def test_small_files_share_a_batch_and_large_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, *(f"{number}.txt" for number in range(5)))
    files = find(CorpusSettings(paths=(str(tmp_path),))).files
    monkeypatch.setattr(source_files, "_BATCH_FILES", 2)
    assert [len(group) for group in batches(files)] == [2, 2, 1]
    monkeypatch.undo()
    monkeypatch.setattr(source_files, "_BATCH_BYTES", 3)
    assert [len(group) for group in batches(files)] == [3, 2]
    monkeypatch.setattr(source_files, "_BATCH_BYTES", 0)
    assert [len(group) for group in batches(files)] == [1] * 5
    monkeypatch.setattr(source_files, "_BATCH_BYTES", 2)
    assert sum(batches(files), ()) == files


def test_settings_say_what_contradicts_itself() -> None:
    assert CorpusSettings(paths="one.jsonl").paths == ("one.jsonl",)  # type: ignore[arg-type]
    for wrong in ({"paths": ()}, {"paths": ("a",), "csv_delimiter": '"'}, {"paths": ("a",), "encoding": "zlib"}):
        with pytest.raises(ValidationError):
            CorpusSettings.model_validate(wrong)
    with pytest.raises(ValidationError, match="different fields"):
        FieldNames(id="text")


def test_paths_without_a_file_are_named(tmp_path: Path) -> None:
    _make(tmp_path, "full/a.txt", "others/b.odd")
    (tmp_path / "empty").mkdir()
    paths = [str(tmp_path / name) for name in ("full", "empty", "others", "*.csv", "full/a.txt")]
    found = find(CorpusSettings(paths=tuple(paths)))
    assert [file.name for file in found.files] == ["a.txt"]
    assert found.empty == tuple(paths[1:4])
    assert find(CorpusSettings(paths=(paths[1],)), allow_none=True).files == ()
    with pytest.raises(BadInput, match="no corpus file found"):
        find(CorpusSettings(paths=(paths[1],)))
    with pytest.raises(BadInput, match="does not exist"):
        find(CorpusSettings(paths=(str(tmp_path / "gone"),)), allow_none=True)


def test_files_that_no_reader_takes_are_counted_also_where_others_are_read(tmp_path: Path) -> None:
    _make(
        tmp_path, "docs/a.md", "docs/b.ODD", "docs/c/d.odd", "docs/LICENSE", "docs/a.py", "docs/e.txt.gz", "more/f.odd"
    )
    _make(tmp_path, "docs/.hidden.odd", "docs/excluded.odd", "docs/src/g.py", "docs/.git/x.txt")
    _make(tmp_path, "docs/store/store.json", "docs/store/blobs/sha256/ab/c")
    docs, more = f"{tmp_path}/docs", f"{tmp_path}/more"
    listing = find(CorpusSettings(paths=(docs, f"{docs}/src/*.py", more), exclude=("excluded.*",)))
    assert [(file.name, file.suffix, file.reason, file.size) for file in listing.passed_over] == [
        (".git/", "", "hidden", 0),
        (".hidden.odd", ".odd", "hidden", 1),
        ("LICENSE", "", "suffix", 1),
        ("a.py", ".py", "not-included", 1),  # but not g.py, which another path asks for
        ("b.ODD", ".odd", "suffix", 1),
        ("c/d.odd", ".odd", "suffix", 1),
        ("e.txt.gz", ".txt.gz", "suffix", 1),
        ("excluded.odd", ".odd", "excluded", 1),
        ("f.odd", ".odd", "suffix", 1),
        ("store/", "", "store", 0),
    ]
    assert listing.summary.startswith(
        "6 files are not read, since no reader takes the suffix: 3 .odd, 1 .py, 1 .txt.gz, 1 without a suffix, such as "
        "b.ODD. Convert them"
    )
    assert find(CorpusSettings(paths=(f"{docs}/a.md",))).summary == ""
    assert find(CorpusSettings(paths=(more,), formats={".odd": "text"})).summary == ""


def test_the_digest_of_files_is_of_their_names_and_bytes_alone(tmp_path: Path) -> None:
    def digest(folder: Path) -> str | None:
        return digest_of_files(find(CorpusSettings(paths=(str(folder),))).files)

    one, other = _make(tmp_path / "one", "a.txt", "b.txt"), _make(tmp_path / "other", "b.txt", "a.txt")
    known = digest(one)
    os.utime(one / "a.txt", (1, 1))
    assert known == digest(one) == digest(other) is not None
    (other / "b.txt").write_text("y", encoding="utf-8")
    assert digest(other) != known
    (one / "b.txt").rename(one / "c.txt")
    assert digest(one) != known


def test_files_that_take_long_or_cannot_be_read_have_no_digest(tmp_path: Path) -> None:
    files = find(CorpusSettings(paths=(str(_make(tmp_path / "corpus", "a.txt", "page.html")),))).files
    assert digest_of_files(files) is None
    (text,) = (file for file in files if file.kind == "text")
    assert digest_of_files([text]) is not None
    (tmp_path / "corpus" / "a.txt").unlink()
    assert digest_of_files([text]) is None


def _read(*paths: Path | str, follow_links: bool = False) -> dict[str, str]:
    """What each file holds, or why it is none."""
    found = {}
    for file in find(CorpusSettings(paths=tuple(map(str, paths)), follow_links=follow_links)).files:
        try:
            with open_source(file) as stream:
                found[file.name] = stream.read().decode()
        except NoCorpusFile as none:
            found[file.name] = none.reason
    return found


def _linked(folder: Path) -> Path:
    """A corpus with links to a file of its own, to one outside, and to a folder outside."""
    _make(folder, "docs/a.txt", "docs2/b.txt", "secrets/c.txt", "secrets/d.txt")
    (folder / "docs/within.txt").symlink_to(folder / "docs/a.txt")
    (folder / "docs/outside.txt").symlink_to("../secrets/c.txt")
    (folder / "docs/alike.txt").symlink_to("../docs2/b.txt")
    (folder / "docs/folder").symlink_to(folder / "secrets")
    return folder


def test_a_link_that_leaves_the_corpus_is_no_file_of_it(tmp_path: Path) -> None:
    _linked(tmp_path)
    inside = {"a.txt": "x", "within.txt": "x"}
    assert _read(tmp_path / "docs") == {**inside, "outside.txt": "link-outside", "alike.txt": "link-outside"}
    found = _read(f"{tmp_path}/docs/**/*.txt")
    assert found == {**_read(tmp_path / "docs"), "folder/c.txt": "link-outside", "folder/d.txt": "link-outside"}
    assert set(_read(f"{tmp_path}/docs/fold*").values()) == {"link-outside"}
    assert _read(tmp_path / "docs", follow_links=True) == {**inside, "outside.txt": "x", "alike.txt": "x"}


def test_a_link_to_another_path_of_the_corpus_and_one_that_is_named_itself_are_read(tmp_path: Path) -> None:
    _linked(tmp_path)
    assert set(_read(tmp_path / "docs", tmp_path / "docs2").values()) == {"x", "link-outside"}
    assert _read(tmp_path / "docs", tmp_path / "docs2")["alike.txt"] == "x"
    paths = (tmp_path / "docs", tmp_path / "docs/outside.txt")
    assert _read(*paths)["outside.txt"] == _read(*reversed(paths))["outside.txt"] == "x"
    (tmp_path / "elsewhere").symlink_to(tmp_path / "docs")
    assert _read(tmp_path / "elsewhere") == _read(tmp_path / "docs")


@pytest.mark.timeout(30)
def test_pipes_sockets_and_devices_are_no_files_and_nothing_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_make(tmp_path, "a.txt"))
    os.mkfifo("b.txt")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("c.txt")
        (tmp_path / "d.txt").symlink_to("/dev/null")
        assert _read(tmp_path) == {"a.txt": "x", "b.txt": "not-a-file", "c.txt": "not-a-file", "d.txt": "link-outside"}
        assert _read(tmp_path, follow_links=True)["d.txt"] == "not-a-file"
        assert digest_of_files(find(CorpusSettings(paths=(str(tmp_path),))).files) is not None


@pytest.mark.timeout(30)
def test_what_became_a_pipe_or_a_link_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    _make(tmp_path, "docs/a.txt", "docs/b.txt", "secret.txt")
    first, second = find(CorpusSettings(paths=(str(tmp_path / "docs"),))).files
    Path(first.path).unlink()
    os.mkfifo(first.path)
    Path(second.path).unlink()
    Path(second.path).symlink_to(tmp_path / "secret.txt")
    for file, reason in ((first, "not-a-file"), (second, "link-outside")):
        with pytest.raises(NoCorpusFile) as none:
            open_source(file)
        assert none.value.reason == reason


def test_why_a_file_is_none_reaches_another_process() -> None:
    copy = pickle.loads(pickle.dumps(NoCorpusFile("not-a-file", "it is a pipe")))  # noqa: S301
    assert (copy.reason, copy.detail, str(copy)) == ("not-a-file", "it is a pipe", "it is a pipe")


def test_code_is_read_only_where_a_pattern_or_the_path_names_its_suffix(tmp_path: Path) -> None:
    _make(tmp_path, "README.md", "src/a.py", "src/b.go", "doc.rst", "nb.ipynb")
    assert _names(tmp_path) == ["README.md", "doc.rst", "nb.ipynb"]
    assert _names(tmp_path, include=("*.md", "*.py")) == ["README.md", "src/a.py"]
    assert _names(tmp_path / "src" / "b.go") == ["b.go"]
    assert _names(f"{tmp_path}/**/*.go") == ["src/b.go"]
    with pytest.raises(BadInput, match=r"2 other files are there, such as .*a\.py.*include names its suffix"):
        _names(tmp_path / "src")


def test_a_file_that_cannot_be_looked_at_is_not_a_deleted_one(tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text("of it")
    (tmp_path / "link.md").symlink_to(tmp_path / "text.md")
    chosen = CorpusSettings(paths=(str(tmp_path),))
    link, text = find(chosen).files
    assert as_it_is_now(text, chosen) == text
    (tmp_path / "text.md").unlink()
    assert as_it_is_now(text, chosen) is None
    found = as_it_is_now(link, chosen)
    assert found == next(iter(find(chosen).files))  # as it would be listed: its reader says that it leads nowhere
    assert found is not None
    assert (found.size, found.token) == (0, "")


def test_how_much_there_is_to_read_is_not_known_of_a_table() -> None:
    assert bytes_to_read(SourceFile("a.json", "a.json", "json", size=7)) == 7
    assert bytes_to_read(SourceFile("a.json.gz", "a.json.gz", "json", compression="gzip", size=7)) > 7
    assert bytes_to_read(SourceFile("documents", "documents", RECORDS)) == math.inf
