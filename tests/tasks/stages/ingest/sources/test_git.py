"""Files of a commit as documents: real repositories, local and fetched, hostile ones among them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from schemas.sources import GitSettings
from tasks.stages.ingest.sources import git as module
from tasks.stages.ingest.sources.git import GitSource
from tasks.stages.ingest.sources.source_interface import FileSource, SourceError

_WHO = ("-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")


class Repository:
    """A repository that tests commit to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self("init", "--quiet", "--initial-branch=main")
        self("config", "uploadpack.allowFilter", "true")

    def __call__(self, *words: str, given: bytes = b"") -> str:
        command = ["git", "-C", str(self.folder), *_WHO, *words]
        done = subprocess.run(command, input=given, capture_output=True, check=True)
        return done.stdout.decode().strip()

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def commit(self, files: dict[str, bytes | None]) -> str:
        for name, data in files.items():
            path = self.folder / name
            if data is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self("add", "--all")
        self("commit", "--quiet", "--message=a change")
        return self("rev-parse", "HEAD")

    def add_tree(self, *entries: tuple[str, str, bytes]) -> str:
        """Commit entries that no working tree can hold: (mode, type, path), each with the same content."""
        blob = self("hash-object", "-w", "--stdin", given=b"same")
        lines = b"".join(f"{mode} {kind} {blob}\t".encode() + path + b"\0" for mode, kind, path in entries)
        tree = self("mktree", "-z", "--missing", given=lines)
        commit = self("commit-tree", tree, "-m", "odd")
        self("update-ref", "refs/heads/odd", commit)
        return commit


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "origin")


@pytest.fixture(params=["folder", "URL"])
def where(request: pytest.FixtureRequest, repository: Repository) -> str:
    return str(repository.folder) if request.param == "folder" else repository.url


def place_of(repository: str, scratch: Path, ref: str = "HEAD") -> GitSource:
    return GitSource(GitSettings(repository=repository, ref=ref), scratch)


def tokens(place: FileSource, known: dict[str, str] | None = None) -> dict[str, str]:
    return {one.name: one.token for one in place.list(known or {})}


def read(place: FileSource, name: str, token: str) -> bytes:
    with place.read(name, token) as file:
        return file.read()


def test_files_are_read_as_they_were_listed(repository: Repository, where: str, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one", "docs/\xfc \t.md".replace("\t", "#"): b"two"})
    place = place_of(where, tmp_path / "scratch")
    listed = tokens(place)
    repository.commit({"a.md": b"another"})
    assert {name: read(place, name, token) for name, token in listed.items()} == {
        "a.md": b"one",
        "docs/\xfc #.md": b"two",
    }
    other_process = place_of(where, tmp_path / "scratch")
    with other_process.read("a.md", listed["a.md"]) as file:
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() == b"one"
    assert isinstance(place, FileSource)
    assert place.warnings == []


def test_a_token_is_of_the_bytes_whatever_the_name_or_the_commit(
    repository: Repository, where: str, tmp_path: Path
) -> None:
    repository.commit({"a.md": b"one", "b.md": b"two"})
    first = tokens(place_of(where, tmp_path / "1"))
    repository("mv", "a.md", "c.md")
    repository.commit({"b.md": b"three"})
    second = tokens(place_of(where, tmp_path / "2"), first)
    assert second.keys() == {"b.md", "c.md"}
    assert second["c.md"] == first["a.md"]
    assert second["b.md"] != first["b.md"]


@pytest.mark.parametrize("kind", ["branch", "tag", "annotated", "commit", "short"])
def test_refs_of_every_kind(repository: Repository, where: str, tmp_path: Path, kind: str) -> None:
    commit = repository.commit({"a.md": b"old"})
    repository("branch", "branch")
    repository("tag", "tag")
    repository("tag", "--annotate", "--message=x", "annotated")
    repository.commit({"a.md": b"new"})
    place = place_of(where, tmp_path / "scratch", {"commit": commit, "short": commit[:12]}.get(kind, kind))
    listed = tokens(place)
    assert read(place, "a.md", listed["a.md"]) == b"old"


def test_only_what_changed_is_fetched(repository: Repository, tmp_path: Path) -> None:
    repository.commit({f"{number}.md": b"text %d" % number for number in range(20)} | {"big.bin": b"x" * 1000})
    known = tokens(place_of(repository.url, tmp_path / "1"))
    repository.commit({"3.md": b"changed"})
    place = place_of(repository.url, tmp_path / "2")
    entries = {one.name: one for one in place.list(known)}
    assert {name for name, one in entries.items() if one.size is not None} == {"3.md"}
    assert entries["3.md"].size == 7
    (fetched,) = (tmp_path / "2").iterdir()
    command = ["git", f"--git-dir={fetched}", "rev-list", "--objects", "--missing=print", "--all", "FETCH_HEAD"]
    objects = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\n")
    assert len([line for line in objects if line.startswith("?")]) == 20
    assert read(place, "7.md", entries["7.md"].token) == b"text 7"  # what was not fetched is fetched when it is read


def test_a_machine_that_has_not_listed_reads_by_the_id(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    listed = tokens(place_of(repository.url, tmp_path / "1"))
    assert read(place_of(repository.url, tmp_path / "2"), "a.md", listed["a.md"]) == b"one"


def test_a_server_that_cannot_filter_sends_all(repository: Repository, tmp_path: Path) -> None:
    repository("config", "uploadpack.allowFilter", "false")
    repository.commit({"a.md": b"one", "b.md": b"two"})
    place = place_of(repository.url, tmp_path / "scratch")
    listed = tokens(place)
    assert [read(place, name, listed[name]) for name in ("a.md", "b.md")] == [b"one", b"two"]


def test_links_submodules_and_hidden_files_are_left_out(repository: Repository, where: str, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one", ".github/b.md": b"hidden", "c/.d.md": b"hidden"})
    (repository.folder / "link.md").symlink_to("/etc/passwd")
    repository("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    repository("add", "link.md")
    repository("commit", "--quiet", "--message=x")
    place = place_of(where, tmp_path / "scratch")
    assert list(tokens(place)) == ["a.md"]
    assert place.warnings == [
        "1 file is left out: they are submodules, which must be separate sources, such as 'module'",
        "1 file is left out: they are symbolic links, such as 'link.md'",
    ]


def test_hostile_names(repository: Repository, where: str, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    odd = [
        b"\xff.md",
        "u\u0308.md".encode(),
        "\xfc.md".encode(),
        b"back\\slash.md",
        b"tab\t.md",
        b"new\nline.md",
        b"-x.md",
    ]
    repository.add_tree(*(("100644", "blob", name) for name in odd))
    place = place_of(where, tmp_path / "scratch", "odd")
    assert list(tokens(place)) == ["-x.md", "back\\slash.md", "\xfc.md", "\udcff.md"]  # the listing refuses the last
    assert [sentence.partition(", such as")[0] for sentence in place.warnings] == [
        "1 file is left out: another file has the same name except for Unicode forms",
        "2 files are left out: their names have control characters",
    ]
    assert all(sentence.isprintable() for sentence in place.warnings)


def test_a_pointer_of_lfs_is_refused_and_the_next_file_read(repository: Repository, where: str, tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 5\n" % (b"0" * 64)
    repository.commit({"a.pdf": pointer, "b.md": b"fine"})
    place = place_of(where, tmp_path / "scratch")
    listed = tokens(place)
    with pytest.raises(OSError, match=r"'a\.pdf' is a pointer of Git LFS"):
        place.read("a.pdf", listed["a.pdf"])
    assert read(place, "b.md", listed["b.md"]) == b"fine"


@pytest.mark.slow
def test_a_large_file_is_read_in_pieces(repository: Repository, where: str, tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    repository.commit({"a.pdf": data, "b.md": b""})
    place = place_of(where, tmp_path / "scratch")
    listed = tokens(place)
    assert read(place, "a.pdf", listed["a.pdf"]) == data
    assert read(place, "b.md", listed["b.md"]) == b""


@pytest.mark.parametrize("token", ["", "HEAD", "0" * 39, f"{'0' * 40}\n", "main:a.md", "--help"])
def test_a_token_that_is_no_id_never_reaches_git(repository: Repository, tmp_path: Path, token: str) -> None:
    repository.commit({"a.md": b"one"})
    with pytest.raises(OSError, match="is not the id of a blob"):
        place_of(str(repository.folder), tmp_path).read("a.md", token)


def test_an_id_that_is_not_there_or_no_file_is_refused(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit({"a.md": b"one"})
    place = place_of(str(repository.folder), tmp_path)
    with pytest.raises(OSError, match="the repository is not complete"):
        place.read("a.md", "1" * 40)
    with pytest.raises(OSError, match=r"is not a file \(blob\)"):
        place.read("a.md", commit)
    listed = tokens(place)
    assert read(place, "a.md", listed["a.md"]) == b"one"


@pytest.mark.parametrize("ref", ["-x", "--upload-pack=touch", "", "a\nb"])
def test_a_ref_that_is_an_option_is_refused(repository: Repository, tmp_path: Path, where: str, ref: str) -> None:
    repository.commit({"a.md": b"one"})
    with pytest.raises(SourceError, match="is not a ref"):
        place_of(where, tmp_path, ref)


@pytest.mark.parametrize("ref", ["main:refs/heads/x", "+main", "^main", "main..odd", "a*"])
def test_a_ref_that_is_a_refspec_is_not_fetched(repository: Repository, tmp_path: Path, ref: str) -> None:
    with pytest.raises(SourceError, match="not a ref that can be fetched"):
        place_of(repository.url, tmp_path, ref)


@pytest.mark.parametrize(
    "repository_given", ["-x", "--upload-pack=x", "ext::sh -c touch% x", "fd::17", "ftp://host/x", "foo://x", ""]
)
def test_what_git_would_run_is_no_repository(tmp_path: Path, repository_given: str) -> None:
    with pytest.raises(SourceError):
        place_of(repository_given, tmp_path)


@pytest.mark.parametrize("url", ["https://me:hidden@host/x.git", "https://hidden@host/x.git", "ssh://me:hidden@host/x"])
def test_credentials_in_a_url_are_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(SourceError, match="credential helper") as refused:
        place_of(url, tmp_path)
    assert "hidden" not in str(refused.value)


def test_what_is_missing_is_named(repository: Repository, where: str, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    with pytest.raises(SourceError, match="has no branch"):
        place_of(where, tmp_path / "1", "nonesuch").list({})
    (tmp_path / "plain").mkdir()
    with pytest.raises(SourceError, match="is not a git repository"):
        place_of(str(tmp_path / "plain"), tmp_path).list({})
    (repository.folder / "below").mkdir()
    with pytest.raises(SourceError, match="give its top folder"):
        place_of(str(repository.folder / "below"), tmp_path).list({})
    with pytest.raises(SourceError, match="there is no folder"):
        place_of(str(tmp_path / "none"), tmp_path).list({})
    with pytest.raises(SourceError, match=r"cannot be fetched.*does not appear to be a git repository"):
        place_of(f"file://{tmp_path}/none", tmp_path / "2").list({})
    with (
        patch.dict(os.environ, PATH=str(tmp_path)),
        pytest.raises(SourceError, match="needs the program git"),
    ):
        place_of(where, tmp_path / "3").list({})


def test_an_empty_repository_has_no_commit(repository: Repository, where: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no branch"):
        place_of(where, tmp_path / "scratch").list({})


def test_a_network_that_fails_is_asked_again(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a.md": b"one"})
    place = place_of(repository.url, tmp_path / "scratch")
    run, failures = place._run, ["early EOF", "The requested URL returned error: 503"]

    def failing(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        if words[0] == "fetch" and failures:
            return subprocess.CompletedProcess(words, 128, b"", f"fatal: {failures.pop()}".encode())
        return run(*words, stdin=stdin)

    monkeypatch.setattr(place, "_run", failing)
    assert list(tokens(place)) == ["a.md"]
    assert failures == []


def test_nothing_that_a_repository_configures_is_run(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    missing = repository("rev-parse", "HEAD:a.md")
    touch = tmp_path / "touched"
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {touch}\n")
    hook.chmod(0o755)
    listed = tokens(place_of(str(repository.folder), tmp_path / "scratch"))
    for key, value in {
        "core.fsmonitor": f"touch {touch}",
        "core.sshCommand": f"touch {touch}",
        "core.pager": f"touch {touch}",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch% {touch}",
        "remote.origin.uploadpack": f"touch {touch}",
        "protocol.ext.allow": "always",
    }.items():
        repository("config", key, value)
    objects = repository.folder / ".git" / "objects"
    (objects / missing[:2] / missing[2:]).unlink()
    place = place_of(str(repository.folder), tmp_path / "scratch")
    with pytest.raises(OSError, match=r"lacks 'a\.md'|cannot read 'a\.md'"):
        place.read("a.md", listed["a.md"])
    (entry,) = place.list({})
    assert (entry.name, entry.size) == ("a.md", None)
    assert not touch.exists()


def test_a_variable_of_a_hook_leads_to_no_other_repository(repository: Repository, where: str, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    other = Repository(tmp_path / "other")
    other.commit({"secret.md": b"two"})
    with patch.dict(os.environ, GIT_DIR=str(other.folder / ".git"), GIT_WORK_TREE=str(other.folder)):
        assert list(tokens(place_of(where, tmp_path / "scratch"))) == ["a.md"]


def test_a_replaced_object_is_not_what_its_id_says(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    blob = repository("rev-parse", "HEAD:a.md")
    other = repository("hash-object", "-w", "--stdin", given=b"other")
    repository("replace", blob, other)
    place = place_of(str(repository.folder), tmp_path)
    assert read(place, "a.md", tokens(place)["a.md"]) == b"one"


def test_the_reader_is_started_again_if_it_ends(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": b"one"})
    place = place_of(str(repository.folder), tmp_path)
    listed = tokens(place)
    assert read(place, "a.md", listed["a.md"]) == b"one"
    assert place._reader is not None
    place._reader.close()
    assert read(place, "a.md", listed["a.md"]) == b"one"


def test_every_variable_that_leads_to_another_repository_is_known(repository: Repository) -> None:
    named = set(repository("rev-parse", "--local-env-vars").split())
    configuration = {"GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_INTERNAL_SUPER_PREFIX"}
    harmless = {"GIT_IMPLICIT_WORK_TREE", "GIT_NO_REPLACE_OBJECTS", "GIT_PREFIX"}
    assert named - configuration - harmless <= set(module._OF_A_REPOSITORY)
