from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import indexmill
from indexmill.errors import CorruptBlob, IndexmillError
from indexmill.store.exported import exported_name
from indexmill.store.layout import STORE_FILE, alias_name, blob_path, ref_name, removal_name
from indexmill.store.reader import StoreReader
from indexmill.store.regular_files import MANIFEST_BYTES, RECORD_BYTES, open_regular, read_regular
from tests.indexmill.small_snapshot import point, publish

SECONDS = 60


def replace(path: Path, how: str) -> None:
    """Put something else in the place of a file, of its own length unless ``how`` says otherwise."""
    length = path.stat().st_size
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "endless":
        path.symlink_to("/dev/zero")
    elif how == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40 if how == "sparse" else length + 1)


def within_time(code: str, *arguments: object) -> str:
    """What a process prints that may neither block nor read for ever."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout


OPEN = """
import sys, indexmill
try:
    with indexmill.open(sys.argv[1]) as snapshot:
        snapshot.retrieve("who paid for the bridge?")
        for artifact in snapshot.manifest.artifacts:
            snapshot.file(artifact.name)
except indexmill.IndexmillError as error:
    print(f"{type(error).__name__}: {error}")
"""

VERIFY = """
from indexmill.command import main
sys.stderr = sys.stdout
print("-----")
print("exit code", main(["verify", "--store", sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pipe", "endless", "sparse", "longer", "folder"])
@pytest.mark.parametrize("name", ["tables/passages/p0.parquet", "vectors/p1", "manifest.json"])
def test_what_is_no_file_of_its_length_in_an_export_is_refused_unread(exported: Path, name: str, how: str) -> None:
    if (name, how) == ("manifest.json", "longer"):
        pytest.skip("nothing says how long a manifest is")
    replace(exported / name, how)
    opened, checked = within_time(OPEN + VERIFY, exported).split("-----\n")
    assert opened.startswith("CorruptBlob: ")
    assert name in opened
    assert checked.endswith("exit code 1\n")
    assert name in checked


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pipe", "endless", "sparse", "folder"])
@pytest.mark.parametrize("which", [STORE_FILE, "ref", "alias", "manifest", "passages"])
def test_what_is_no_file_of_its_length_in_a_store_is_refused_unread(tmp_path: Path, which: str, how: str) -> None:
    writer = publish(tmp_path / "store")
    point(writer.store, "prod", 1)
    reader = StoreReader(tmp_path / "store")
    (digest,) = (one.digest for one in writer.artifacts if one.name == "passages/p0")
    names = {
        "ref": ref_name("main", 1),
        "alias": alias_name("prod", 1),
        "manifest": blob_path(reader.newest().manifest),
        "passages": blob_path(digest),
    }
    replace(tmp_path / "store" / names.get(which, which), how)
    code = OPEN.replace("open(sys.argv[1])", 'open(sys.argv[1], alias="prod")')
    told = within_time(code, tmp_path / "store")
    assert told.startswith(("CorruptBlob: ", "StoreError: "))
    assert names.get(which, which).rpartition("/")[2] in told


@pytest.mark.slow
def test_a_removal_that_is_no_file_is_refused(tmp_path: Path) -> None:
    publish(tmp_path / "store")
    path = tmp_path / "store" / removal_name(1)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert within_time(OPEN, tmp_path / "store").startswith("CorruptBlob: ")


def test_a_link_may_lead_elsewhere_in_an_export_but_not_out_of_it(exported: Path) -> None:
    with indexmill.open(exported) as snapshot:
        inside, outside = (
            exported / exported_name(snapshot.artifact(name), snapshot.manifest)
            for name in ("passages/p0", "vectors/p0")
        )
    inside.rename(exported / "moved")
    inside.symlink_to(exported / "moved")
    outside.rename(exported.parent / "moved")
    outside.symlink_to(exported.parent / "moved")
    with indexmill.open(exported) as snapshot:
        snapshot.file("passages/p0")
        with pytest.raises(CorruptBlob, match="points outside the folder"):
            snapshot.file("vectors/p0")


def test_an_export_may_itself_be_reached_by_a_link(exported: Path) -> None:
    link = exported.parent / "link"
    link.symlink_to(exported)
    with indexmill.open(link) as snapshot:
        assert snapshot.retrieve("who paid for the bridge?")


@pytest.mark.parametrize("read", [read_regular, lambda path, most: open_regular(path, most).close()])
def test_a_file_may_have_the_most_bytes_and_no_more(tmp_path: Path, read: Callable[[Path, int], object]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    read(path, 5)
    with pytest.raises(CorruptBlob, match="is 5 B; the maximum is 4 B"):
        read(path, 4)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", 4)


def test_a_manifest_is_bounded_before_it_is_read(exported: Path) -> None:
    with (exported / "manifest.json").open("r+b") as file:
        file.truncate(MANIFEST_BYTES + 1)
    with pytest.raises(CorruptBlob, match=r"is 67\.1 MB; the maximum is 67\.1 MB"):
        indexmill.open(exported)


def test_a_record_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    publish(tmp_path / "store")
    path = tmp_path / "store" / ref_name("main", 1)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(RECORD_BYTES + 1)
    with pytest.raises(IndexmillError, match="the maximum is"):
        indexmill.open(tmp_path / "store")


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(CorruptBlob, match="cannot be read: it is not a regular file"):
            open_regular(path)


def test_what_is_no_regular_file_is_looked_at_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a device may change it, such as a tape that rewinds."""
    (tmp_path / "file").touch()
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: opened.append(path) or real(path, *rest))
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(CorruptBlob):
            open_regular(path)
    assert opened == []
    open_regular(tmp_path / "file").close()
    assert opened == [tmp_path / "file"]


@pytest.mark.timeout(30)
def test_what_has_become_a_pipe_since_it_was_looked_at_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    before = (tmp_path / "file").stat()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: before)
        with pytest.raises(CorruptBlob, match="not a regular file"):
            open_regular(tmp_path / "pipe")


ELSEWHERE = "import os\nfor name in ('O_CLOEXEC', 'O_NONBLOCK', 'statvfs', 'posix_fallocate'): delattr(os, name)\n"


@pytest.mark.slow
def test_a_snapshot_opens_where_the_system_lacks_what_only_some_have(exported: Path) -> None:
    assert within_time(ELSEWHERE + OPEN, exported) == ""
    space = (
        "from pathlib import Path\n"
        "from indexmill.store.free_space import free_space\n"
        "print(repr(free_space(Path('/'))))"
    )
    assert within_time(ELSEWHERE + space) == "''\n"
