"""Handing a snapshot over as GraphRAG's tables, or as a graph: whole or absent, with the same bytes, and recorded."""

from __future__ import annotations

import errno
import json
import os
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.command import main
from indexmill.errors import BadInput, CorruptBlob, FamilyNotFound, StoreNotWritable
from indexmill.families.community_tree import graphrag
from indexmill.store.layout import blob_path
from storage import exports, faults, runs
from storage.folder import FolderStore, open_folder
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.disturbed import export_and_die
from tests.flows.readers import files_of, flip_byte
from tests.indexmill.graphrag_tables import check_references
from tests.indexmill.small_knowledge import KNOWLEDGE, publish_knowledge, random_knowledge
from tests.storage import children
from tests.storage.quick import quick_folder

TABLES = ("communities", "community_reports", "documents", "entities", "relationships", "text_units")


@pytest.fixture
def store() -> Iterator[FolderStore]:
    """Version 1 holds communities."""
    with quick_folder() as folder:
        publish_knowledge(folder / "store", random_knowledge(5))
        yield open_folder(folder / "store")


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """A store that a build has made of a small corpus, with the communities of its entities."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", documents(24, words=110))
        families = {"community_tree": {"enabled": True, "fewest": 2}}
        assert build(settings(folder / "store", corpus, families=families)).published
        yield folder / "store"


def beside(store: FolderStore, name: str = "out") -> Path:
    return store.root.parent / name


def test_the_folder_holds_six_tables_of_the_declared_columns(store: FolderStore) -> None:
    made = export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())
    found = files_of(beside(store))
    assert found.keys() == {"README.md", *(f"{name}.parquet" for name in TABLES)}
    assert (made.form, made.files, made.bytes) == ("graphrag", 7, sum(map(len, found.values())))
    with indexmill.open(store.root) as snapshot:
        counts = {
            "documents": snapshot.manifest.corpus.documents,
            "text_units": snapshot.manifest.corpus.passages,
            "entities": snapshot.table("described").num_rows,
            "relationships": snapshot.table("related").num_rows,
            "communities": snapshot.manifest.families["community_tree"].counts["communities"],
        }
    counts["community_reports"] = counts["communities"]
    for name in TABLES:
        table = pq.read_table(beside(store) / f"{name}.parquet")
        assert table.schema.equals(graphrag.SCHEMAS[name])
        assert table.num_rows == counts[name] > 0
        assert table["human_readable_id"].to_pylist() == list(range(counts[name]))


@pytest.mark.slow
def test_the_tables_of_a_build_tell_what_it_found(built: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main(["export", str(tmp_path / name), "--store", str(built), "--tables", "graphrag"]) == 0
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    found = {name: pq.read_table(tmp_path / "one" / f"{name}.parquet").to_pylist() for name in TABLES}
    check_references(found)
    with indexmill.open(built) as snapshot:
        tree = snapshot.arrays("community_tree/tree")
        described, communities = (snapshot.table(name).to_pylist() for name in ("described", "communities"))
        relations, corpus = snapshot.table("relations").num_rows, snapshot.manifest.corpus
    assert (len(found["documents"]), len(found["text_units"])) == (corpus.documents, corpus.passages)
    assert sum(row["weight"] for row in found["relationships"]) == relations
    assert [row["id"] for row in found["entities"]] == [row["entity_id"] for row in described]
    assert [row["frequency"] for row in found["entities"]] == [row["passages"] for row in described]
    units = [row["id"] for row in found["text_units"]]
    indptr, indices = tree["passages.indptr"].tolist(), tree["passages.indices"].tolist()
    for row, first, last in zip(found["entities"], indptr, indptr[1:], strict=False):
        assert row["text_unit_ids"] == [units[one] for one in indices[first:last]]
    # Our level 1 is the lowest, theirs 0 the highest; here every entity is below the one root.
    place = {row["id"]: row for row in found["communities"]}
    levels = max(row["level"] for row in communities)
    assert levels > 1
    assert {row["community_id"]: levels - row["level"] for row in communities} == {
        key: row["level"] for key, row in place.items()
    }
    ids = [row["id"] for row in found["entities"]] + [row["community_id"] for row in communities]
    for child, parent in zip(ids, tree["parents"].tolist(), strict=True):
        if parent >= 0:
            held = place[ids[parent]]["entity_ids"]
            assert set(place[child]["entity_ids"] if child in place else [child]) <= set(held)
    reports = {row["id"]: row for row in found["community_reports"]}
    for row in communities:
        report = reports[f"{row['community_id']}-report"]
        assert (report["title"], report["summary"], report["findings"]) == (row["title"], row["text"], row["findings"])


@pytest.mark.slow
def test_a_snapshot_that_is_exported_twice_has_the_same_bytes(store: FolderStore) -> None:
    for name in ("one", "two"):
        export_snapshot(store, 1, beside(store, name), form="graphrag", progress=Silent())
    assert files_of(beside(store, "one")) == files_of(beside(store, "two"))


def test_the_record_says_what_the_copy_is(store: FolderStore) -> None:
    made = export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())
    export_snapshot(store, 1, beside(store, "plain"), progress=Silent())
    one, other = exports.exports(store)
    assert (one.number, one.version, one.form, one.path) == (made.record, 1, "graphrag", str(beside(store)))
    assert other.form == "snapshot"
    assert runs.read_run(store, made.run).state == "done"


def test_what_the_snapshot_lacks_is_said_before_anything_is_written() -> None:
    with quick_folder() as folder:
        publish_knowledge(folder / "store", KNOWLEDGE)
        store = open_folder(folder / "store")
        with pytest.raises(FamilyNotFound, match=r"version 1 of .*community_tree.*enabled: true"):
            export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())
        assert not beside(store).exists()
        assert exports.exports(store) == []


def test_a_full_disk_or_a_damaged_blob_leaves_nothing(store: FolderStore) -> None:
    def hook(name: str) -> None:
        if name == "write" and list(beside(store).parent.glob(".out.*")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    faults.install(hook)
    with pytest.raises(StoreNotWritable, match=r"\.parquet cannot be written.*export to another disk"):
        export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())
    faults.install(None)
    with indexmill.open(store.root) as snapshot:
        digest = snapshot.shards("communities")[-1].digest
    flip_byte(store.root / blob_path(digest))
    with pytest.raises(CorruptBlob, match=digest):
        export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())
    assert [one.name for one in store.root.parent.iterdir()] == ["store"]


@pytest.mark.slow
def test_an_export_that_dies_leaves_no_folder_and_the_next_one_cleans_up(store: FolderStore) -> None:
    crossed: list[str] = []
    faults.install(crossed.append)
    export_snapshot(store, 1, beside(store, "whole"), form="graphrag", progress=Silent())
    faults.install(None)
    whole = files_of(beside(store, "whole"))
    last = crossed.index("exported") + 1
    for at in (last // 2, last):
        target = beside(store, f"out{at}")
        code = children.run(export_and_die, store.root, 1, target, at, "kill", "graphrag")
        assert code == -signal.SIGKILL
        assert not target.exists()
        export_snapshot(store, 1, target, form="graphrag", progress=Silent())
        assert files_of(target) == whole
        assert list(store.root.parent.glob(".out*")) == []


def test_a_folder_that_holds_anything_is_refused(store: FolderStore) -> None:
    beside(store).mkdir()
    (beside(store) / "mine").write_text("x")
    with pytest.raises(BadInput, match="not empty"):
        export_snapshot(store, 1, beside(store), form="graphrag", progress=Silent())


@pytest.mark.slow
def test_the_command_writes_the_tables_and_says_so(store: FolderStore, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--store", str(store.root), "--tables", "graphrag"]
    assert main(["export", "1", str(beside(store)), *common, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["form"], told["files"]) == (1, "graphrag", 7)
    assert main(["export", str(beside(store, "again")), *common]) == 0
    assert "exported version 1 as graphrag to" in capsys.readouterr().out
    assert files_of(beside(store)) == files_of(beside(store, "again"))
    assert main(["export", str(beside(store, "other")), "--store", str(store.root), "--tables", "csv"]) == 2
    assert "'csv' is not 'graphrag'" in capsys.readouterr().err
    assert not beside(store, "other").exists()


def test_the_command_writes_a_graph(store: FolderStore, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--store", str(store.root), "--graphml"]
    assert main(["export", str(beside(store)), *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["form"] == exports.exports(store)[0].form == "graphml"
    _, path = sorted(beside(store).iterdir())
    root = ElementTree.parse(path).getroot()  # noqa: S314 - we wrote it
    with indexmill.open(store.root) as snapshot:
        expected = {"node": snapshot.table("described").num_rows, "edge": snapshot.table("related").num_rows}
    assert {name: len(root.findall(f".//{{*}}{name}")) for name in expected} == expected
    assert main(["export", str(beside(store, "both")), *common, "--tables", "graphrag"]) == 2
    assert "give one of them" in capsys.readouterr().err
