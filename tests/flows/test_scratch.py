"""Folders for temporary files go with their process, however it ends, and with nobody else's."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import tempfile
from pathlib import Path

import pytest

from flows.scratch import PREFIX, scratch_folder
from storage.processes import this_process
from tests.corpora import documents, write_corpus
from tests.flows.children import settings
from tests.flows.commands import command, write_settings


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def abandoned(place: Path, name: str = "left", **owner: str | int) -> Path:
    """A folder whose process is gone; owner: what differs from a process of this machine that is."""
    folder = place / f"{PREFIX}{name}"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "key.pem").touch()
    gone = this_process().model_copy(update={"pid": 1 << 30, "started": "1", **owner})
    (folder / "owner.json").write_bytes(gone.to_bytes())
    return folder


def test_a_folder_is_private_and_gone_after_the_block(place: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == place
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "file").touch()
    assert list(place.iterdir()) == []


def test_only_folders_whose_process_is_gone_are_removed(place: Path) -> None:
    left = abandoned(place)
    other = place / "indexmill-other"
    other.mkdir()
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(place.iterdir()) == sorted([other, first, second])
    assert not left.exists()


def test_folders_that_name_no_process_are_left_unless_they_are_empty(place: Path) -> None:
    own = abandoned(place, "notes")
    (own / "owner.json").unlink()
    unreadable = abandoned(place, "unreadable")
    (unreadable / "owner.json").write_text("{}")
    (place / f"{PREFIX}empty").mkdir()
    with scratch_folder():
        pass
    assert set(place.iterdir()) == {own, unreadable}
    assert (own / "below" / "key.pem").exists()


def test_folders_of_another_machine_or_a_live_process_are_left(place: Path) -> None:
    space = this_process().space.partition(" ")[2]
    elsewhere = abandoned(place, "elsewhere", host="elsewhere", space=f"another-boot {space}")
    namesake = abandoned(place, "namesake", space=f"another-boot {space}")
    living = abandoned(place, "living", pid=os.getpid(), started=this_process().started)
    with scratch_folder():
        pass
    assert set(place.iterdir()) == {elsewhere, namesake, living}


@pytest.mark.skipif(not this_process().space, reason="no /proc")
def test_folders_of_other_containers_are_removed_unless_they_are_locked(place: Path) -> None:
    boot = this_process().space.partition(" ")[0]
    abandoned(place, "gone", host="container", space=f"{boot} pid:[1]")
    locked = abandoned(place, "locked", host="container", space=f"{boot} pid:[1]")
    lock = os.open(locked, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with scratch_folder():
        pass
    os.close(lock)
    assert list(place.iterdir()) == [locked]


def test_what_is_left_of_a_folder_names_its_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = abandoned(place)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with scratch_folder():
            pass
    assert (left / "owner.json").exists()
    with scratch_folder():
        pass
    assert list(place.iterdir()) == []


def test_a_link_is_not_followed_and_a_file_is_left(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (place / f"{PREFIX}link").symlink_to(precious)
    (place / f"{PREFIX}file").touch()
    (abandoned(place) / "below" / "link").symlink_to(precious)
    with scratch_folder():
        pass
    assert {path.name for path in place.iterdir()} == {"precious", f"{PREFIX}link", f"{PREFIX}file"}
    assert (precious / "file").exists()


def test_folders_of_another_user_are_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = abandoned(place)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with scratch_folder():
        pass
    assert left.exists()


@pytest.mark.parametrize("removed", [True, False])
def test_a_new_folder_that_another_process_takes_for_an_abandoned_one_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    made: list[Path] = []
    held: list[int] = []
    make = tempfile.mkdtemp

    def disturbed(**options: object) -> str:
        made.append(Path(make(**options)))  # type: ignore[call-overload]
        if len(made) == 1 and removed:
            made[0].rmdir()
        elif len(made) == 1:
            held.append(os.open(made[0], os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", disturbed)
    with scratch_folder() as folder:
        assert [*made] == [made[0], folder]
        assert folder.is_dir()
    for descriptor in held:
        os.close(descriptor)


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_later_build_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(16, words=110))
    configuration = write_settings(tmp_path / "i.yaml", settings(tmp_path / "store", corpus, run={"workers": 1}))
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # or the socket lies elsewhere
        killed_and_followed(tmp_path, configuration, Path(short))


def killed_and_followed(folder: Path, configuration: Path, temporary: Path) -> None:
    environment = {"TMPDIR": str(temporary)}
    with command(folder, "build", "-c", configuration, "--json", environment=environment) as killed:
        killed.wait_for("ingest:")
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        assert killed.left_behind() == {}
    left = {path.name for path in temporary.rglob("*")}
    assert {"key.pem", "server.log", "dask-scratch-space"} <= left
    with command(folder, "build", "-c", configuration, "--json", environment=environment) as later:
        assert later.wait() == 0, later.err
    assert list(temporary.iterdir()) == []
