"""Rows of Delta and Iceberg tables that the libraries wrote."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from indexmill.errors import BadInput, ModelUnavailable
from schemas.corpus import CorpusSettings, FieldNames
from schemas.sources import TableSettings
from tasks.stages.ingest.documents import Document, SourceRow, document_of
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.sources.lake_table import table_source
from tasks.stages.ingest.sources.source_interface import RecordSource, SourceError
from tests.tasks.stages.ingest.sources.reading import read

pytest.importorskip("deltalake", reason="not installed: delta-rs (pip install 'indexmill[lake]')")
pytest.importorskip("pyiceberg", reason="not installed: PyIceberg (pip install 'indexmill[lake]')")

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)


def table(*ids: str, day: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "text": [f"Text of {one}." for one in ids],
            "day": [day] * len(ids),
            "groups": pa.array([["legal", one] for one in ids], pa.list_(pa.string())),
            "seen": pa.array([MOMENT] * len(ids), pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal("1.50")] * len(ids), pa.decimal128(9, 2)),
        }
    )


class Delta:
    """A Delta table below a folder."""

    kind = "delta"

    def __init__(self, folder: Path) -> None:
        self.url = folder / "delta"

    def append(self, rows: pa.Table) -> None:
        import deltalake

        deltalake.write_deltalake(str(self.url), rows, mode="append", partition_by=["day"])

    def delete(self, identity: str) -> None:
        import deltalake

        deltalake.DeltaTable(str(self.url)).delete(f"id = '{identity}'")

    def versions(self) -> list[int]:
        import deltalake

        return list(range(deltalake.DeltaTable(str(self.url)).version() + 1))

    def data_files(self) -> list[Path]:
        return sorted(self.url.rglob("*.parquet"))

    def damage_metadata(self) -> None:
        sorted(self.url.glob("_delta_log/*.json"))[-1].write_text("{")


class Iceberg:
    """An Iceberg table below a folder, with a catalog that a reading does not need."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self.url = folder / "warehouse" / "some" / "rows"
        self.catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        self.catalog.create_namespace("some")

    def append(self, rows: pa.Table) -> None:
        self.catalog.create_table_if_not_exists("some.rows", rows.schema).append(rows)

    def delete(self, identity: str) -> None:
        self.catalog.load_table("some.rows").delete(f"id = '{identity}'")

    def versions(self) -> list[int]:
        return [one.snapshot_id for one in self.catalog.load_table("some.rows").snapshots()]

    def data_files(self) -> list[Path]:
        return sorted(self.url.rglob("*.parquet"))

    def damage_metadata(self) -> None:
        sorted(self.url.glob("metadata/*.metadata.json"))[-1].write_text("{")


Made = Delta | Iceberg


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    one: Made = request.param(tmp_path)
    one.append(table("a", "b", "c"))
    return one


def place(made: Made, **settings: Any) -> RecordSource:
    return table_source(TableSettings(format=made.kind, url=str(made.url), **settings), Path())


def test_rows_have_the_values_that_parquet_files_give(made: Made) -> None:
    found = read(place(made))
    assert sorted(found.ids) == ["a", "b", "c"]
    assert found.until is not None
    assert (found.until.whole, found.cursor) == (True, None)
    record = next(one for one in found.records if one["id"] == "b")
    document = document_of(SourceRow(1, record), FieldNames(), 10_000)
    assert isinstance(document, Document), document
    assert json.loads(document.metadata) == {
        "day": 1,
        "groups": ["legal", "b"],
        "seen": "2026-01-02T03:04:05.678901+00:00",
        "price": "1.50",
    }


def test_a_folder_of_files_that_is_a_table_is_refused_with_the_source_to_write(made: Made) -> None:
    made.delete("b")
    with pytest.raises(BadInput, match=r"is an? (Delta|Iceberg) table") as refused:
        find(CorpusSettings(paths=(str(made.url.parent),)))
    entry = yaml.safe_load(str(refused.value).partition("add ")[2].partition(" to corpus")[0])
    assert sorted(read(table_source(TableSettings(**entry), Path())).ids) == ["a", "c"]
    assert find(CorpusSettings(paths=(str(made.url.parent),), exclude=(f"{made.url.name}/**",)), allow_none=True)


def test_deleted_and_added_rows_are_those_of_the_newest_version(made: Made) -> None:
    made.delete("b")
    made.append(table("d", day=2))
    found = read(place(made))
    assert sorted((record["id"], record["day"]) for record in found.records) == [("a", 1), ("c", 1), ("d", 2)]


def test_a_version_can_be_pinned(made: Made) -> None:
    pinned = made.versions()[-1]
    token = place(made, version=pinned).token()
    made.append(table("d"))
    assert sorted(read(place(made, version=pinned)).ids) == ["a", "b", "c"]
    assert place(made, version=pinned).token() == token
    with pytest.raises(SourceError, match="12345"):
        read(place(made, version=12345))


def test_the_token_changes_with_the_version_and_the_table(made: Made, tmp_path: Path) -> None:
    first = place(made).token()
    assert place(made).token() == first
    made.append(table("d"))
    second = place(made).token()
    (tmp_path / "other").mkdir()
    other: Made = type(made)(tmp_path / "other")
    other.append(table("a", "b", "c"))
    assert len({first, second, place(other).token()}) == 3


def test_token_and_rows_are_of_one_version(made: Made) -> None:
    opened = place(made)
    opened.token()
    made.append(table("d"))
    assert sorted(read(opened).ids) == ["a", "b", "c"]


def test_damage_is_told_and_no_part_of_the_rows_is_taken_for_all(made: Made) -> None:
    made.append(table("d"))
    made.data_files()[0].write_bytes(b"PAR1 no more")
    with pytest.raises(SourceError, match=r"failed after \d+ rows"):
        read(place(made))
    made.data_files()[0].unlink()
    with pytest.raises(SourceError, match=r"failed after \d+ rows"):
        read(place(made))
    made.damage_metadata()
    with pytest.raises(SourceError):
        read(place(made))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_is_no_table_is_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "empty" / "metadata").mkdir(parents=True)
    (tmp_path / "file").write_text("no table")
    for name in ("none", "empty", "file", "none.metadata.json"):
        with pytest.raises(SourceError, match=name):
            read(table_source(TableSettings(format=kind, url=str(tmp_path / name)), tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg.table")])
def test_a_missing_package_is_named(kind: Any, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ModelUnavailable, SourceError), match=r"indexmill\[lake\]"):
        read(table_source(TableSettings(format=kind, url=f"{tmp_path}/x.metadata.json"), tmp_path))


def test_a_deletion_vector_hides_rows_of_delta(tmp_path: Path) -> None:
    import deltalake
    from pyroaring import BitMap

    url = tmp_path / "t"
    rows = table("a", "b", "c")
    deltalake.write_deltalake(str(url), rows, configuration={"delta.enableDeletionVectors": "true"})
    log = url / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    add = next(one["add"] for one in lines if "add" in one)
    bits = BitMap([1]).serialize()
    data = struct.pack("<IQI", 1681511377, 1, 0) + bits
    data += bytes(-len(data) % 4)
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 1}
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "size": add["size"]}
    commit = [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
    (log / f"{1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in commit))
    found = read(table_source(TableSettings(format="delta", url=str(url)), tmp_path))
    assert sorted(found.ids) == ["a", "c"]


def z85(data: bytes) -> str:
    python = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    zeromq = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).translate(bytes.maketrans(python, zeromq)).decode()


def test_an_iceberg_table_is_found_by_its_file_its_folder_and_its_hint(tmp_path: Path) -> None:
    made = Iceberg(tmp_path)
    made.append(table("a"))
    made.append(table("b"))
    newest = made.catalog.load_table("some.rows").metadata_location
    by_file = table_source(TableSettings(format="iceberg", url=newest), tmp_path)
    assert sorted(read(by_file).ids) == ["a", "b"]
    assert by_file.token() == place(made).token()
    first = sorted((made.url / "metadata").glob("00001-*.metadata.json"))[0]
    (made.url / "metadata" / "version-hint.text").write_text(first.name)
    assert read(place(made)).ids == ["a"]
    (made.url / "metadata" / "version-hint.text").unlink()
    shutil.copy(newest.removeprefix("file://"), made.url / "metadata" / "00002-other.metadata.json")
    with pytest.raises(SourceError, match="several newest metadata files"):
        read(place(made))


def test_an_iceberg_table_without_a_snapshot_has_no_rows(tmp_path: Path) -> None:
    made = Iceberg(tmp_path)
    made.catalog.create_table("some.rows", table("a").schema)
    assert read(place(made)).records == []


def test_a_renamed_column_changes_the_token_of_iceberg(tmp_path: Path) -> None:
    made = Iceberg(tmp_path)
    made.append(table("a"))
    before = place(made).token()
    with made.catalog.load_table("some.rows").update_schema() as update:
        update.rename_column("day", "night")
    assert place(made).token() != before
    assert read(place(made)).records[0]["night"] == 1
