"""Handing over: a plain folder with the same answers, whole or absent, and a record of where it went."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest

import indexmill
from flows.export import export_snapshot
from flows.promote import promote
from flows.rollback import roll_back
from indexmill.command import main
from indexmill.errors import BadInput, CorruptBlob, StoreNotWritable
from indexmill.store.canonical import digest_of
from indexmill.store.exported import CARD_FILE, exported_name
from indexmill.store.layout import blob_path
from storage import exports, faults, runs
from storage.folder import FolderStore, open_folder
from storage.lease import acquire
from tasks.core.report import Silent
from tests.flows.disturbed import export_and_die
from tests.flows.readers import files_of, flip_byte
from tests.flows.versions import Jumping, Versions, bare, make_versions
from tests.storage import children
from tests.storage.quick import quick_folder


@pytest.fixture(scope="module")
def versions() -> Iterator[Versions]:
    with quick_folder() as folder:
        yield make_versions(folder)


@pytest.fixture
def store(versions: Versions) -> Iterator[FolderStore]:
    """A copy of the store with two versions."""
    with quick_folder() as folder:
        yield open_folder(shutil.copytree(versions.root, folder / "store"))


class Told(Silent):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.parts, self.done, self.ended = 0, 0, ""

    def begin(self, stage: str, parts: int) -> None:
        self.parts = parts

    def advance(self, stage: str, parts: int = 1) -> None:
        self.done += parts

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        self.ended = summary


def out(store: FolderStore, name: str = "out") -> Path:
    return store.root.parent / name


def test_an_exported_snapshot_answers_as_the_store_does_with_every_method(
    versions: Versions, store: FolderStore
) -> None:
    for version in (1, 2):
        made = export_snapshot(store, version, out(store, str(version)), progress=Silent())
        assert (made.version, made.manifest) == (version, versions.manifests[version - 1])
        assert bare(Path(made.path)) == versions.answered[version - 1]
    with indexmill.open(out(store, "1")) as exported, indexmill.open(store.root, 1) as snapshot:
        assert exported.methods == snapshot.methods >= ("fused", "tri_graph", "zoom_graph")
        assert exported.manifest == snapshot.manifest


def test_the_folder_is_the_one_that_the_reader_expects_and_any_tool_can_read(store: FolderStore) -> None:
    made = export_snapshot(store, 1, out(store), progress=Silent())
    with indexmill.open(store.root, 1) as snapshot:
        manifest = snapshot.manifest
        vectors = snapshot.arrays("vectors/" + snapshot.shards("vectors")[0].name.partition("/")[2])["passages"]
        rows = snapshot.table("passages").num_rows
    found = files_of(out(store))
    assert found.keys() == {"manifest.json", CARD_FILE, *(exported_name(one, manifest) for one in manifest.artifacts)}
    assert (made.files, made.bytes) == (len(found), sum(map(len, found.values())) - len(found["manifest.json"]))
    assert digest_of(found["manifest.json"]) == made.manifest
    assert {digest_of(found[exported_name(one, manifest)]) == one.digest for one in manifest.artifacts} == {True}
    families = {name.split("/")[1] for name in found if name.startswith("families/")}
    assert families == {"bm25", "lsh_tree"}
    # With nothing of ours: Parquet with pyarrow, arrays with the header of their file.
    assert sum(pq.read_table(path).num_rows for path in (out(store) / "tables" / "passages").iterdir()) == rows
    data = min((out(store) / "vectors").iterdir()).read_bytes()
    length = int.from_bytes(data[8:16], "little")
    start = -(-(16 + length) // 64) * 64
    entry = next(one for one in json.loads(data[16 : 16 + length])["arrays"] if one["name"] == "passages")
    read = np.frombuffer(data, entry["dtype"], np.prod(entry["shape"]), start + entry["offset"])
    assert read.reshape(entry["shape"]).tolist() == vectors.tolist()


def test_a_file_of_an_export_with_other_bytes_of_the_same_length_is_refused(store: FolderStore) -> None:
    export_snapshot(store, 1, out(store), progress=Silent())
    with indexmill.open(store.root, 1) as snapshot:
        table = snapshot.shards("passages")[0]
        name = exported_name(table, snapshot.manifest)
    flip_byte(out(store) / name)
    with indexmill.open(out(store)) as exported, pytest.raises(CorruptBlob, match=f"{name}: has the SHA-256"):
        exported.table("passages")


def test_a_snapshot_that_is_exported_twice_has_the_same_bytes(store: FolderStore) -> None:
    now = 1_800_000_000.0
    export_snapshot(store, 1, out(store, "one"), progress=Silent(), clock=Jumping(now))
    again = roll_back(store, 1)
    export_snapshot(store, again.version, out(store, "two"), progress=Silent(), clock=Jumping(now - 1e9))
    assert files_of(out(store, "one")) == files_of(out(store, "two"))


def test_an_export_is_recorded_before_the_first_byte_and_told_as_it_goes(store: FolderStore) -> None:
    told = Told()

    def hook(name: str) -> None:
        if out(store).parent.joinpath(name).exists() or not list(out(store).parent.glob(".out.*")):
            return
        recorded.append(len(exports.exports(store)))

    recorded: list[int] = []
    faults.install(hook)
    made = export_snapshot(store, 2, out(store), progress=told)
    faults.install(None)
    assert set(recorded) == {1}
    assert (told.parts, told.done) == (made.files - 2, made.files - 2)
    assert "artifacts" in told.ended
    (record,) = exports.exports(store)
    assert (record.number, record.version, record.manifest) == (made.record, 2, made.manifest) == (1, 2, made.manifest)
    assert (record.path, record.run_id) == (str(out(store)), made.run)
    run = runs.read_run(store, made.run)
    assert (run.start.command, run.state, run.version) == ("export", "done", 2)


def test_a_folder_that_holds_anything_is_refused_and_an_empty_one_taken(store: FolderStore) -> None:
    out(store).mkdir()
    assert export_snapshot(store, 1, out(store), progress=Silent()).files
    before = files_of(out(store))
    (out(store, "file")).write_text("x")
    for target, message in ((out(store), "not empty"), (out(store, "file"), "is a file"), (store.root / "x", "inside")):
        with pytest.raises(BadInput, match=message):
            export_snapshot(store, 1, target, progress=Silent())
    assert files_of(out(store)) == before
    assert len(exports.exports(store)) == 1


def test_somebody_who_fills_the_folder_meanwhile_is_not_overwritten(store: FolderStore) -> None:
    class Filling(Silent):
        def advance(self, stage: str, parts: int = 1) -> None:
            out(store).mkdir(exist_ok=True)
            (out(store) / "mine").write_text("x")

    with pytest.raises(BadInput, match="not empty"):
        export_snapshot(store, 1, out(store), progress=Filling())
    assert sorted(path.name for path in store.root.parent.iterdir()) == ["out", "store"]
    assert files_of(out(store)) == {"mine": b"x"}


def test_a_damaged_blob_is_found_while_it_is_copied_and_nothing_is_left(store: FolderStore) -> None:
    with indexmill.open(store.root, 1) as snapshot:
        table = snapshot.shards("bm25")[0]
    flip_byte(store.root / blob_path(table.digest))
    with pytest.raises(CorruptBlob, match=table.name):
        export_snapshot(store, 1, out(store), progress=Silent())
    assert [one.name for one in store.root.parent.iterdir()] == ["store"]
    assert runs.list_runs(store)[-1].state == "failed"


def test_a_blob_that_decays_after_its_check_is_found_by_what_was_copied(store: FolderStore) -> None:
    with indexmill.open(store.root, 1) as snapshot:
        table = snapshot.shards("bm25")[0]
    blob = store.root / blob_path(table.digest)

    def decay(path: Path) -> Path:
        if path == blob:
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.chmod(0o644)
            path.write_bytes(bytes(data))
        return path

    opened = FolderStore.open_local
    with (
        patch.object(FolderStore, "open_local", lambda self, digest: decay(opened(self, digest))),
        pytest.raises(CorruptBlob, match=rf"{table.name}.*is damaged: its SHA-256 is"),
    ):
        export_snapshot(store, 1, out(store), progress=Silent())
    assert [one.name for one in store.root.parent.iterdir()] == ["store"]


def test_a_full_disk_says_so_and_leaves_nothing(store: FolderStore) -> None:
    def hook(name: str) -> None:
        if name == "write" and list(out(store).parent.glob(".out.*")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    faults.install(hook)
    with pytest.raises(StoreNotWritable, match="export to another disk"):
        export_snapshot(store, 1, out(store), progress=Silent())
    faults.install(None)
    assert [one.name for one in store.root.parent.iterdir()] == ["store"]


def test_an_export_goes_on_while_a_build_holds_the_lease(store: FolderStore) -> None:
    with acquire(store, "at-work"):
        assert export_snapshot(store, 1, out(store), progress=Silent()).files


def test_an_export_that_dies_leaves_no_folder_and_the_next_one_cleans_up(
    versions: Versions, store: FolderStore
) -> None:
    crossed: list[str] = []
    faults.install(crossed.append)
    export_snapshot(store, 1, out(store, "whole"), progress=Silent())
    faults.install(None)
    whole = files_of(out(store, "whole"))
    last = crossed.index("exported") + 1
    for number, at in enumerate((1, last // 3, last - 1, last)):
        target = out(store, f"out{number}")
        code = children.run(export_and_die, store.root, 1, target, at, "kill")
        assert code == -signal.SIGKILL
        assert not target.exists()
        export_snapshot(store, 1, target, progress=Silent())
        assert files_of(target) == whole
        assert [path.name for path in store.root.parent.glob(".out*")] == []
    assert [run.state for run in runs.list_runs(store)].count("killed") == 3  # the first died before its record
    assert len(exports.exports(store)) == 1 + 3 + 4


def test_what_an_export_at_work_has_beside_the_folder_is_left_alone(store: FolderStore) -> None:
    runs.start(store, "another", "export", leased=False)
    other = out(store, ".out.another.partial")
    other.mkdir()
    out(store, ".out.unknown.partial").mkdir()
    export_snapshot(store, 1, out(store), progress=Silent())
    assert other.exists()
    assert out(store, ".out.unknown.partial").exists()


def test_the_command_exports_by_number_by_alias_and_the_newest(
    versions: Versions, store: FolderStore, capsys: pytest.CaptureFixture[str]
) -> None:
    promote(store, 1, "prod")
    for words, version in (
        ((out(store, "a"),), 2),
        ((1, out(store, "b")), 1),
        (("newest", out(store, "c")), 2),
        (("prod", out(store, "d")), 1),
        ((out(store, "e"), "--alias", "prod"), 1),
    ):
        assert main(["export", *map(str, words), "--store", str(store.root), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["version"], told["manifest"]) == (version, versions.manifests[version - 1])
    assert main(["export", "1", str(out(store, "f")), "--alias", "prod", "--store", str(store.root)]) == 2
    assert main(["export", "1", str(out(store, "a")), "--store", str(store.root)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["verify", "--store", str(out(store, "a"))]) == 0
