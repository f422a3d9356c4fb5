"""On a disk without a free byte: what frees space works, and what needs space says which disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.prefect_server import PrivateServer
from indexmill.command import main
from indexmill.errors import DiskFull
from indexmill.models.sentence_model import DEFAULT_MODEL
from indexmill.results import write_results
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import reserve, runs
from storage.folder import open_folder
from tasks.core.convert import convert
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import write_settings
from tests.storage.tiny import fill, tiny_disk

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tiny_disk(tmp_path / "disk", 48 * MIB) as folder:
        yield folder


@pytest.fixture
def root(disk: Path, tmp_path: Path) -> Path:
    """A store with two versions, the first of which alone has `doc-0003`."""
    rows = documents(5, words=60)
    for number in (1, 2):
        build(settings(disk / "store", write_corpus(tmp_path / f"{number}.jsonl", rows)))
        rows.pop("doc-0003", None)
    return disk / "store"


def set_aside(root: Path) -> int:
    """The bytes of the reserve that are allocated on the disk."""
    path = root / ".reserve"
    return path.stat().st_blocks * 512 if path.exists() else 0


@pytest.mark.slow
def test_a_full_disk_can_be_collected(disk: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_aside(root) == reserve.RESERVE
    store = open_folder(root)
    orphan = store.put_blob(os.urandom(MIB))
    for name in ("work/a/b.json", "leases/00000000000000000000.json"):
        fill(disk)
        with pytest.raises(DiskFull):
            store.create(name, b"{}" * 100)
    collect = ("gc", "--store", str(root), "--grace", "0s", "--now", "--keep-last", "1")
    assert main(collect) == 0, capsys.readouterr().err
    assert not (root / blob_path(orphan)).exists()
    assert verify(StoreReader(root), 2).ok
    assert list(StoreReader(root).removals()) == [1]
    assert runs.list_runs(store)[-1].state == "done"
    assert set_aside(root) == reserve.RESERVE


@pytest.mark.slow
def test_a_document_is_forgotten_on_a_full_disk(disk: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(disk)
    assert main(["forget", "doc-0003", "--yes", "--store", str(root)]) == 0, capsys.readouterr().err
    assert list(StoreReader(root).removals()) == [1]
    assert verify(StoreReader(root), 2).ok
    assert set_aside(root) == reserve.RESERVE


def test_without_the_reserve_nothing_can_begin(disk: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / ".reserve").unlink()
    fill(disk)
    assert main(["gc", "--store", str(root), "--grace", "0s", "--now"]) == 6
    assert str(root) in capsys.readouterr().err


@pytest.mark.slow
def test_a_build_leaves_the_reserve_and_makes_it_again(disk: Path, root: Path, tmp_path: Path) -> None:
    fill(disk)
    with pytest.raises(DiskFull):
        build(settings(root, write_corpus(tmp_path / "3.jsonl", documents(6, words=60))))
    assert set_aside(root) == reserve.RESERVE
    (root / ".reserve").unlink()
    fill(disk)
    with pytest.raises(DiskFull):
        build(settings(root, write_corpus(tmp_path / "3.jsonl", documents(6, words=60))))
    assert not (root / ".reserve").exists()
    (disk / "filler-0").unlink()
    build(settings(root, write_corpus(tmp_path / "3.jsonl", documents(6, words=60))))
    assert set_aside(root) == reserve.RESERVE


def test_a_build_on_a_full_disk_names_it_and_what_is_free(disk: Path, root: Path, tmp_path: Path) -> None:
    fill(disk)
    corpus = write_corpus(tmp_path / "3.jsonl", documents(6, words=60))
    with pytest.raises(DiskFull, match=rf"{disk}/store/\S+ cannot be written: No space left on device; .*") as caught:
        build(settings(root, corpus))
    assert f"(the file system at {disk} has 0 B of 50.3 MB free)" in str(caught.value)


@pytest.mark.slow
def test_a_corpus_that_the_disk_cannot_hold_is_spilled_as_far_as_it_goes(disk: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "large.jsonl"
    corpus.write_text("".join(f'{{"id": "{number}", "text": "{os.urandom(1 << 19).hex()}"}}\n' for number in range(60)))
    with pytest.raises(DiskFull, match=r"documents are spilled there: free about the size of the corpus") as caught:
        build(settings(disk / "store", corpus))
    assert f"{disk}/store/tmp/run-" in str(caught.value)
    assert f"the file system at {disk} has " in str(caught.value)
    assert list((disk / "store" / "tmp").iterdir()) == []


@pytest.mark.parametrize("arguments", [("--output", "{disk}/plan.json"), ()])
def test_a_plan_names_the_full_disk_that_it_needs(
    disk: Path,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    corpus = write_corpus(tmp_path / "3.jsonl", documents(6, words=60))
    configuration = write_settings(tmp_path / "i.yaml", settings(root, corpus))
    if not arguments:
        monkeypatch.setattr("tempfile.tempdir", str(disk))
    fill(disk)
    assert main(["plan", "-c", str(configuration), *(word.format(disk=disk) for word in arguments)]) == 6
    assert f"the file system at {disk} has 0 B of 50.3 MB free" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "plan"])
def test_a_full_folder_for_temporary_files_is_named(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    fill(disk)
    monkeypatch.setenv("TMPDIR", str(disk))  # Python itself passes it over for another
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr("flows.prefect_server._server", None)
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(6, words=60))
    configuration = write_settings(tmp_path / "i.yaml", settings(tmp_path / "store", corpus))
    assert main([command, "-c", str(configuration)]) == 6
    error = capsys.readouterr().err
    assert f"{disk} cannot be written: No space left on device; free 16.8 MB there, or name a folder" in error


@pytest.mark.slow
def test_a_server_that_meets_a_full_disk_as_it_starts_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.scratch.ROOM", 1)
    with tiny_disk(tmp_path / "disk", MIB >> 1) as disk:
        monkeypatch.setenv("TMPDIR", str(disk))
        monkeypatch.setattr("tempfile.tempdir", str(disk))
        server = PrivateServer((), pytest.fail)
        with pytest.raises(DiskFull, match=rf"{disk} cannot be written: No space left on device"):
            server.wait()
        assert list(disk.iterdir()) == []


@pytest.mark.slow
def test_an_encoder_that_finds_no_room_to_be_converted_names_the_folder(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    monkeypatch.setenv("TMPDIR", str(disk))
    with pytest.raises(DiskFull, match=rf"{disk} cannot be written: No space left on device"):
        convert(DEFAULT_MODEL)


@pytest.mark.slow
def test_results_that_find_no_room_are_no_bad_input(disk: Path) -> None:
    fill(disk)
    result: Any = SimpleNamespace(to_dict=lambda: {"question": "Who?" * 4096})
    with pytest.raises(DiskFull, match=r"results\.jsonl cannot be written: No space left"):
        write_results(disk / "results.jsonl", [result])
    assert not (disk / "results.jsonl").exists()


@pytest.mark.slow
def test_an_error_without_a_name_tells_where_there_may_be_no_room(disk: Path) -> None:
    fill(disk)
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = str(DiskFull.of_any(error, disk / "store", disk))
    assert said.startswith(f"a file in {disk / 'store'} or {disk} cannot be written: No space left on device; free")
    assert said.count("has 0 B of 50.3 MB free") == 1
    assert DiskFull.of_any(OSError(errno.EIO, "broken"), disk) is None


def test_a_disk_without_room_for_another_file_says_so(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", MIB, files=3) as disk:
        (disk / "one").touch()
        (disk / "two").touch()
        with pytest.raises(OSError, match="No space left") as caught:
            (disk / "three").touch()
        assert f"the file system at {disk} can hold no more files (inodes)" in str(DiskFull.of(caught.value, disk))
